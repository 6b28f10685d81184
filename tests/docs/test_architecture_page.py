"""`docs/architecture.md`: each name is there where the page says that it is imported from."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def imports() -> dict[str, list[str]]:
    """Return {module: names} of the table."""
    text = PAGE.read_text(encoding="utf-8").partition("## Where names are imported from")[2]
    rows = re.findall(r"^\| `(reactifact[\w.]*)` \| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)
    return {module: re.findall(r"`(\w+)`", names) for module, names in rows}


def test_the_questions_are_answered_by_files_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Twelve questions")[2].partition("\n## ")[0]
    answers = re.findall(r"^\| [^|]+\? \| (.+) \|$", text, re.MULTILINE)
    files = [name for answer in answers for name in re.findall(r"`(reactifact/[\w/]+\.py)`", answer)]
    assert len(answers) == 12
    assert all("`reactifact/" in answer for answer in answers)
    assert [name for name in files if not (PAGE.parents[1] / name).is_file()] == []


def test_every_module_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(_(?:store|context|runtime|sessions)/[a-z_/]+?)/?`", text))
    package = PAGE.parents[1] / "reactifact"
    assert len(named) > 20
    missing = [
        name for name in named if not ((package / name).is_dir() or (package / f"{name}.py").is_file())
    ]
    assert missing == []


def test_every_name_is_where_the_page_says() -> None:
    assert len(imports()) > 10
    missing = [
        f"{module}.{name}"
        for module, names in imports().items()
        for name in names
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []
