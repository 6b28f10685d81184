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


def test_every_name_is_where_the_page_says() -> None:
    assert len(imports()) > 10
    missing = [
        f"{module}.{name}"
        for module, names in imports().items()
        for name in names
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []
