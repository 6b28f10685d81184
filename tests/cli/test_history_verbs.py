"""`reactifact blame`, `history`, `bisect` and `diff` of long texts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import Note

from reactifact import Context
from reactifact.branching import BranchStore

Run = Callable[..., Any]

OLD = "Dear customer,\nyour order of tea is on its way.\nGood bye"
NEW = "Dear customer,\nyour order of green tea was sent.\nGood bye\nThe shop"


def is_small(context: Context) -> bool:
    """Tell whether the count is below 3: what --check names."""
    note = context.get("n", Note)
    return note is None or note.data.count < 3


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notes") / "state.git"

    async def write() -> None:
        store = BranchStore(path)
        for count in range(5):
            async with store.edit("s", author=f"writer-{count}") as context:
                note = Note(text=OLD if count < 4 else NEW, count=count)
                context.update("n", note) if count else context.create(note, id="n")
        await store.aclose()

    anyio.run(write)
    return path


def git(store: Path, *arguments: str) -> str:
    command = ["git", "-C", str(store), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_blame_names_the_commit_of_each_field(run: Run, notes: Path) -> None:
    fields = {one["path"]: one for one in run("blame", notes, "s", "n", "--json").json["fields"]}
    assert (fields["count"]["agent"], fields["count"]["version"]) == ("writer-4", 4)
    assert fields["count"]["commit"] == git(notes, "rev-parse", "s/main")
    earlier = {one["path"]: one for one in run("blame", notes, "s~2", "n", "--json").json["fields"]}
    assert (earlier["count"]["agent"], earlier["text"]["agent"]) == ("writer-2", "writer-0")
    assert "writer-4" in run("blame", notes, "n").out
    assert run("blame", notes, "nothing").code == 2
    assert run("blame", notes).code == 2


def test_history_lists_the_versions(run: Run, notes: Path) -> None:
    found = run("history", notes, "n", "--json").json
    assert [one["version"] for one in found["versions"]] == [4, 3, 2, 1, 0]
    assert [one["data"]["count"] for one in run("history", notes, "s~3", "n", "--json").json["versions"]] == [
        1,
        0,
    ]
    assert "count: 2 -> 3" in run("history", notes, "n", "-p").out


def test_bisect_finds_where_it_went_wrong(run: Run, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    found = run("bisect", notes, "s", "--check", f"{Path(__file__).stem}:is_small", "--json")
    assert (found.code, found.json["found"]["commit"]) == (1, git(notes, "rev-parse", "s/main~1"))
    right = run("bisect", notes, "s~2", "--check", f"{Path(__file__).stem}:is_small")
    assert (right.code, right.out) == (0, "every state is right\n")


def test_a_long_text_is_compared_by_line_and_word(run: Run, notes: Path) -> None:
    shown = run("diff", notes, "s~1", "s").lines
    assert "    count: 3 -> 4" in shown
    assert "        Dear customer," in shown
    changed = next(text for text in shown if "~ your" in text)
    assert "{+green +}" in changed.replace("{+ green+}", "{+green +}")
    assert "[-is-]" in changed or "[-is on its way-]" in changed
    assert "      + The shop" in shown


@pytest.mark.parametrize("names", [(), ("s",), ("s~1..s",), ("s~1", "s"), ("s~1",)])
def test_what_is_compared_without_being_named(run: Run, notes: Path, names: tuple[str, ...]) -> None:
    found = run("diff", notes, *names, "--json").json
    assert (found["old"]["commit"], found["new"]["commit"]) == tuple(
        git(notes, "rev-parse", "s/main~1", "s/main").split()
    )


def test_one_artifact_alone(run: Run, notes: Path) -> None:
    assert run("diff", notes, "s~1", "s", "n", "--json").json["artifacts"]["changed"][0]["id"] == "n"
    assert run("diff", notes, "s~1", "s", "other", "--json").json["artifacts"]["changed"] == []
