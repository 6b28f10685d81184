"""`docs/types.md`: the tests that it names exist, and each of its sections names some."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "types.md"


def short_names(text: str) -> dict[str, str]:
    """Return what the page calls its test files."""
    head = text.partition("\n## ")[0].replace("\n", " ")
    return dict(re.findall(r"`(\w+)`(?: stands)? for `(tests/\S+?\.py)`", head))


def test_every_named_test_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    files = short_names(text)
    assert sorted(files) == ["evolution", "faithful", "formats", "imports", "rolling", "types"]
    named = re.findall(r"`([\w/.]+)::(test_\w+)`", text)
    assert len(named) > 30
    for file, test in named:
        path = ROOT / files.get(file, file)
        assert re.search(rf"^(async )?def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE), test


def test_every_section_names_tests() -> None:
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        assert "::test_" in section, section.partition("\n")[0]
