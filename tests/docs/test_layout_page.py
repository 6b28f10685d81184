"""The page of the layout names every file, ref, key and table of a store."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import fields
from pathlib import Path

import anyio
import pytest
from support import Note, Order, Outside, git, notifier

from reactifact import Runtime, SessionStore
from reactifact._store.commits import CommitRecord
from reactifact._store.layout import Meta
from reactifact._store.ledger import LedgerEntry
from reactifact.branching import BranchStore

PAGE = (Path(__file__).parents[2] / "docs" / "layout.md").read_text(encoding="utf-8")


def names(section: str, pattern: str = r"`([^`]+)`") -> list[str]:
    """Return what the first column of the table of a section names."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(pattern, row.split(" | ")[0])]


@pytest.mark.parametrize(
    ("section", "kind", "more"),
    [
        ("The bookkeeping of an artifact", Meta, ()),
        ("The record of a commit", CommitRecord, ("tree", "parents", "state")),
        ("An entry of the ledger", LedgerEntry, ()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_key_is_named(section: str, kind: type, more: tuple[str, ...]) -> None:
    assert sorted(names(section)) == sorted([*(field.name for field in fields(kind)), *more])


def as_pattern(text: str) -> re.Pattern[str]:
    """Return what matches a path or a ref of the page."""
    parts = re.split(r"(<\w+>|\.\.\.|x/y/z|x/y)", text)
    known = {"...": ".+", "x/y/z": "[0-9a-f]/[0-9a-f]/[0-9a-f]", "x/y": "[0-9a-f]+/[0-9a-f]+"}
    return re.compile("".join(known.get(p, "[^/]+" if p.startswith("<") else re.escape(p)) for p in parts))


async def live(path: Path) -> None:
    """Make a store with about everything in it."""
    world = Outside("notify:order:1")
    sessions = SessionStore(path)
    store = BranchStore(sessions.database)
    session = await sessions.open("shop")
    session.context.create(Order(item="tea"), id="order:1")
    session.context.link("order:1", "like", "order:0")
    runtime = Runtime(
        session.context, [notifier()], dispatcher=world, session=session, dispatch_errors="record"
    )
    await runtime.arun()
    await store.fork("main", "plan", session="shop")
    session.context.create(Note(text="it waits"), id="n")
    session.context.update("n", Note(text="and changed"))
    await session.save()
    session.context.compact(keep_commits=0, keep_versions=5)
    await session.save()
    await store.undo("shop", "main")
    await store.redo("shop", "main")
    await sessions.aclose()


def test_every_path_and_ref_of_a_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    anyio.run(live, path)
    refs = git(path, "for-each-ref", "--format=%(refname)").split()
    ref_patterns = [as_pattern(one) for one in names("Refs")]
    assert [ref for ref in refs if not any(one.fullmatch(ref) for one in ref_patterns)] == []
    assert "refs/reactifact/operations/shop" in refs
    patterns = {one: as_pattern(one) for one in names("The tree of a branch")}
    found = set[str]()
    for ref in (ref for ref in refs if ref.startswith("refs/heads/")):
        for commit in git(path, "rev-list", ref).split():
            for file in git(path, "ls-tree", "-r", "-z", "--name-only", commit).split("\0")[:-1]:
                if re.fullmatch(r"ledger/[0-9a-f]/[0-9a-f]/[0-9a-f]/[^/]+\.json", file):
                    continue
                matching = [name for name, pattern in patterns.items() if pattern.fullmatch(file)]
                assert matching, f"{file} of {ref} stands nowhere on the page"
                found |= set(matching)
    assert patterns.keys() - found == {".reactifact/held/...", "thread/..."}


def test_every_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    anyio.run(live, path)
    with sqlite3.connect(path) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    row = next(line for line in PAGE.splitlines() if line.startswith("| `state.db` |"))
    assert tables == set(re.findall(r"`(\w+)`", row.split(" | ")[1]))
