"""The page of the configuration names every option with its default, and every environment variable."""

from __future__ import annotations

import ast
import inspect
import random
import re
from pathlib import Path
from typing import Any

import pytest

import reactifact
from reactifact import BranchStore, Runtime, SessionStore
from reactifact.checkpoints import FileKVBackend, GitBackend, PostgreSQLKVBackend, SQLiteKVBackend
from reactifact.outbox import RetryingDispatcher

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

NAMED: dict[str, Any] = {
    "SessionStore": SessionStore,
    "BranchStore": BranchStore,
    "SessionStore.open": SessionStore.open,
    "SessionStore.drain": SessionStore.drain,
    "SessionStore.relay": SessionStore.relay,
    "SessionStore.prune": SessionStore.prune,
    "Runtime": Runtime,
    "Runtime.arun": Runtime.arun,
    "GitBackend": GitBackend,
    "SQLiteKVBackend": SQLiteKVBackend,
    "PostgreSQLKVBackend": PostgreSQLKVBackend,
    "RetryingDispatcher": RetryingDispatcher,
    **{
        name: getattr(reactifact, name)
        for name in (
            "Budget",
            "RuntimeResources",
            "create_agent",
            "produce",
            "step",
            "register_type",
            "configure_logging",
        )
    },
}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(section: str) -> dict[str, str]:
    """Return the options of a table with their defaults as text."""
    found: dict[str, str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| `"):
            continue
        names = re.findall(r"`(\w+)`", cells[0])
        defaults = re.findall(r"`([^`]+)`|\*(required)\*", cells[1])
        values = [code or word for code, word in defaults]
        assert len(values) in (1, len(names)), line
        found |= zip(names, values if len(values) > 1 else values * len(names), strict=True)
    return found


def said(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return "required"
    if value == random.random:
        return "random.random"
    return "(Exception,)" if value == (Exception,) else repr(value)


def test_every_section_is_of_something() -> None:
    assert sections().keys() == NAMED.keys() | {"Environment variables"}


@pytest.mark.parametrize("name", NAMED)
def test_the_options_and_defaults_are_those_of_the_code(name: str) -> None:
    parameters = inspect.signature(NAMED[name]).parameters
    wanted = {one.name: said(one) for one in parameters.values() if one.name != "self"}
    assert rows(sections()[name]) == wanted


def test_the_two_backends_of_files_take_the_same() -> None:
    assert inspect.signature(FileKVBackend) == inspect.signature(GitBackend)


def variables() -> set[str]:
    """Return the texts that look like variables in modules that look at the environment."""
    found = set[str]()
    for path in (ROOT / "reactifact").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "getenv" not in text, f"{path.name} reads the environment in another way"
        if "environ" in text:
            nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
            texts = [node.value for node in nodes if isinstance(node.value, str)]
            found |= {one for one in texts if re.fullmatch(r"_?[A-Z][A-Z_]+", one)}
    return found


def test_every_variable_that_is_read_is_named() -> None:
    lines = [line for line in sections()["Environment variables"].splitlines() if line.startswith("| `")]
    named = {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    other = {"STORE", "FRX", "HEAD"}  # a metavar, options of less, a file of a repository
    assert variables() - other == named
    assert other < variables()
