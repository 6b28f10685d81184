"""Pages with tables of rows that are tests: each row and the docstring of its test say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from reactifact import errors

ROOT = Path(__file__).parents[2]


class Page(NamedTuple):
    """A page, the file of its rows, and the first column of its tables."""

    path: str
    tests: str
    column: str
    tables: int

    @property
    def text(self) -> str:
        return (ROOT / "docs" / self.path).read_text(encoding="utf-8")

    def rows(self) -> dict[str, str]:
        """Return {test: "case → result"} of every table row whose last cell names a test."""
        found: dict[str, str] = {}
        for line in self.text.splitlines():
            match = re.fullmatch(r"\| (.+?) \| (.+?) \| `(test_row_\w+)` \|", line)
            if match:
                case, result, test = match.groups()
                assert test not in found, f"{test} stands on the page twice"
                found[test] = f"{case} → {result}"
        return found

    def docstrings(self) -> dict[str, str]:
        """Return what the tests of the rows say of themselves, in their order."""
        tree = ast.parse((ROOT / "tests" / self.tests).read_text(encoding="utf-8"))
        return {
            node.name: " ".join((ast.get_docstring(node) or "").split())
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_row_")
        }


BRANCHING = Page("branching.md", "context/test_merge_rows.py", "case", 4)
STORES = Page("stores.md", "crash/test_failure_matrix.py", "what happens", 4)
on_pages = pytest.mark.parametrize("page", [BRANCHING, STORES], ids=lambda page: page.path)


@on_pages
def test_every_row_of_the_page_is_a_test_and_every_test_a_row(page: Page) -> None:
    assert page.rows() == page.docstrings()


@on_pages
def test_the_rows_stand_in_the_order_of_the_tests(page: Page) -> None:
    assert list(page.rows()) == list(page.docstrings())


@on_pages
def test_every_line_of_a_table_of_rows_names_its_test(page: Page) -> None:
    heading = rf"^\| {page.column} \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)"
    tables = re.findall(heading, page.text, re.MULTILINE)
    assert len(tables) == page.tables
    assert sum(table.count("\n") for table in tables) == len(page.rows())


def test_every_error_that_the_page_of_stores_names_is_one() -> None:
    named = {name for row in STORES.rows().values() for name in re.findall(r"`([A-Z]\w*[a-z]\w*)`", row)}
    assert named
    assert all(issubclass(getattr(errors, name), errors.ReactifactError) for name in named)
