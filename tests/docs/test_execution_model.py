"""`docs/execution-model.md`: each statement names tests, which exist and run on all event loops."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "execution-model.md"
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
SECTIONS = [
    "Authoring",
    "Matching and order",
    "The generation",
    "Reads",
    "Two patches on one artifact",
    "Held results",
    "Direct changes",
    "Concurrency",
    "Budgets and the deadline",
    "Shutdown",
    "Failure",
    "The outbox in service",
    "Sessions and saving",
    "Streaming",
    "Logging and request",
    "Human in the loop",
    "What is not guaranteed",
]


def sections() -> dict[str, list[str]]:
    """Return the statements of each section: list items, each with the lines that continue it."""
    found: dict[str, list[str]] = {}
    statements: list[str] | None = None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            statements = found.setdefault(line.removeprefix("## "), [])
        elif statements is None or not line:
            continue
        elif line.startswith("- "):
            statements.append(line)
        else:
            # prose between the items would be a statement that no test pins
            assert line.startswith("  "), f"no item of the list, and no part of one: {line!r}"
            assert statements, f"a line before the first item: {line!r}"
            statements[-1] += "\n" + line
    return found


STATEMENTS = [statement for found in sections().values() for statement in found]


@cache
def named_tests(path: str) -> dict[str, bool]:
    """Return the tests of a file and whether each runs on every event loop, or needs none.

    The mark `anyio`, on the file or on the test, makes an async test run on all of them.
    """
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    marks = [
        ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own = [ast.unparse(decorator) for decorator in node.decorator_list]
            is_marked = any("pytest.mark.anyio" in mark for mark in [*marks, *own])
            found[node.name] = is_marked or isinstance(node, ast.FunctionDef)
    return found


def test_the_page_has_its_sections_and_none_is_empty() -> None:
    found = sections()
    assert list(found) == SECTIONS
    assert [title for title, statements in found.items() if not statements] == []


def test_every_statement_names_a_test() -> None:
    assert [statement for statement in STATEMENTS if not REFERENCE.search(statement)] == []


def test_every_test_that_is_named_exists() -> None:
    named = [match.groups() for statement in STATEMENTS for match in REFERENCE.finditer(statement)]
    assert len(named) >= len(STATEMENTS)
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).is_file() or test not in named_tests(path)
    ]
    assert missing == []


def test_every_async_test_that_is_named_runs_on_every_event_loop() -> None:
    named = {match.groups() for statement in STATEMENTS for match in REFERENCE.finditer(statement)}
    alone = sorted(f"{path}::{test}" for path, test in named if not named_tests(path)[test])
    assert alone == []


def test_no_reference_is_written_in_another_way() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("::test_") == len(REFERENCE.findall(text))
