"""Which moves of git become operations of a session's log: not those that went forward or are past."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from support import Note, git

from reactifact import SessionStore
from reactifact._store._history.oplog import KIND, LIMIT, Operation, moved, moves_by_git, operations
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import Oid

REF = "refs/heads/s/main"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state.git"


@pytest.fixture
def database(place: Path) -> Iterator[Database]:
    store = SessionStore(place, durability="os")

    async def write() -> None:
        async with await store.open("s") as session:
            for text in "abc":
                session.context.create(Note(text=text), id=text)
                await session.save()

    anyio.run(write)
    yield store.database
    anyio.run(store.aclose)


def line(place: Path) -> list[Oid]:
    return git(place, "rev-list", "--first-parent", REF).split()


def found(database: Database, tip: Oid) -> list[tuple[Oid, Oid]]:
    made = moves_by_git(database, "s", REF, tip)
    assert all(one.kind == KIND for one in made)
    return [(one.before[REF], one.after[REF]) for one in made]


def test_what_went_forward_is_no_operation(place: Path, database: Database) -> None:
    newest, *_, oldest = line(place)
    assert found(database, newest) == []
    git(place, "update-ref", REF, oldest)
    assert found(database, oldest) == [(newest, oldest)]
    git(place, "update-ref", REF, newest)
    assert found(database, newest) == []  # it is where it was


def test_moves_that_were_followed_by_one_of_ours_are_of_the_past(place: Path, database: Database) -> None:
    newest, second, *_ = line(place)
    git(place, "update-ref", REF, second)
    assert found(database, newest) == []  # git did not move it there


def test_what_the_log_says_is_not_said_twice(place: Path, database: Database) -> None:
    newest, second, *_ = line(place)
    git(place, "update-ref", REF, second)
    (one,) = moves_by_git(database, "s", REF, second)
    assert one.text == f"the move of s/main with git from {newest[:12]} to {second[:12]}"
    staged = Staging(database)
    log = moved(staged, "s", KIND, {REF: (newest, second)}, datetime.fromisoformat(one.when), one.text)
    database.write(staged.objects, log)
    assert operations(database, "s") == [Operation(KIND, one.when, one.text, one.before, one.after)]
    assert found(database, second) == []


def test_what_is_gone_cannot_be_gone_back_to(place: Path, database: Database) -> None:
    newest, second, *_ = line(place)
    git(place, "update-ref", REF, second)
    git(place, "reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    log = place / "logs" / REF
    log.write_text(f"{newest} {second} A <a@b> 1700000000 +0000\tpush\n")
    assert found(Database(database.backend), second) == [(newest, second)]
    log.write_text(f"{'1' * 40} {second} A <a@b> 1700000000 +0000\tpush\n")
    assert found(database, second) == []


def test_no_more_are_looked_at_than_a_log_holds(place: Path, database: Database) -> None:
    tip, below, *_ = line(place)
    who = ("-c", "user.name=A", "-c", "user.email=a@b")
    count = 2 * LIMIT
    beside = [
        git(place, *who, "commit-tree", "-p", below, "-m", f"{number}", f"{tip}^{{tree}}").strip()
        for number in range(count)
    ]
    lines = "".join(f"{old} {new} A <a@b> 1700000000 +0000\n" for old, new in pairwise([*beside, tip]))
    log = place / "logs" / REF
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(lines)
    assert found(database, tip) == list(pairwise([*beside[-LIMIT:], tip]))
