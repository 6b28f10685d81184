"""The tables of failures in `docs/stores.md` and the tests of their rows say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from reactifact import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "stores.md"
ROWS = ROOT / "tests" / "crash" / "test_failure_matrix.py"


def rows_of_the_page() -> dict[str, str]:
    """Return {test: "what happens → what you see"} of every table row whose last cell names a test."""
    found: dict[str, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"\| (.+?) \| (.+?) \| `(test_row_\w+)` \|", line)
        if match:
            case, result, test = match.groups()
            assert test not in found, f"{test} stands on the page twice"
            found[test] = f"{case} → {result}"
    return found


def rows_of_the_tests() -> dict[str, str]:
    tree = ast.parse(ROWS.read_text(encoding="utf-8"))
    return {
        node.name: " ".join((ast.get_docstring(node) or "").split())
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_row_")
    }


def test_every_row_of_the_page_is_a_test_and_every_test_a_row() -> None:
    assert rows_of_the_page() == rows_of_the_tests()


def test_the_rows_stand_in_the_order_of_the_tests() -> None:
    assert list(rows_of_the_page()) == list(rows_of_the_tests())


def test_every_line_of_a_table_of_failures_names_its_test() -> None:
    text = PAGE.read_text(encoding="utf-8")
    tables = re.findall(r"^\| what happens \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(tables) == 4
    assert sum(table.count("\n") for table in tables) == len(rows_of_the_page())


def test_every_error_that_the_page_names_is_one() -> None:
    named = {name for row in rows_of_the_page().values() for name in re.findall(r"`([A-Z]\w*[a-z]\w*)`", row)}
    assert named
    assert all(issubclass(getattr(errors, name), errors.ReactifactError) for name in named)
