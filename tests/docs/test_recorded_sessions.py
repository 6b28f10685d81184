"""The terminal sessions of the manual are what the program prints; `scripts/sessions.py` records them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from forked import shell_functions
from support import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sessions() -> ModuleType:
    module = load_script("sessions")
    module.BEFORE = shell_functions()
    return module


@pytest.mark.timeout(600)
def test_the_pages_show_what_is_printed(sessions: ModuleType) -> None:
    texts = sessions.anew()
    assert {page.name for page in texts} >= {"cli.md", "relay.md", "tutorial.md"}
    for page, text in texts.items():
        assert text == page.read_text(encoding="utf-8"), "run `python scripts/sessions.py`"


def test_what_changes_from_run_to_run_is_no_difference(sessions: ModuleType) -> None:
    one = "* 800c008317 (main) v2 2026-12-01 12:29 send   3s  failed"
    other = "* 7e8c9f0cb8 (main) v2 2027-01-31 02:09 send   12m failed"
    assert sessions.settled(one) == sessions.settled(other)
    assert sessions.settled(one) != sessions.settled(other.replace("v2", "v3"))


def test_a_page_that_shows_something_else_is_written_anew(
    sessions: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DOCS", tmp_path)
    page = tmp_path / "small.md"
    session = "```console\n$ basename $PWD\nout\n$ false\n```\n"
    given = f"```sh\nmkdir in && cd in\n```\n<!-- recorded: here -->\n{session}"
    page.write_text(given, encoding="utf-8")
    assert sessions.anew() == {page: given.replace("out", "in")}
    page.write_text(given.replace("here", "nowhere"), encoding="utf-8")
    with pytest.raises(SystemExit, match="nowhere is not a page"):
        sessions.anew()
