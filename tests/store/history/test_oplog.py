"""The operation log: what a move of a ref dropped is held until the log forgets the move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reactifact._store._history.oplog import (
    LIMIT,
    Operation,
    forget,
    kept_refs,
    logged,
    moved,
    operations,
    operations_ref,
    without,
)
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import CommitObject, Oid, Signature
from reactifact.checkpoints import InMemoryKVBackend

START = datetime(2030, 1, 1, tzinfo=UTC)
MAIN = "refs/heads/s/main"
WHO = Signature("t", "t@t.invalid", 0)


@pytest.fixture
def database() -> Database:
    return Database(InMemoryKVBackend())


def commit(staged: Staging, text: str) -> Oid:
    return staged.put_commit(CommitObject(staged.put_tree({}), (), WHO, WHO, text))


def move(database: Database, number: int, session: str = "s") -> tuple[Oid, Oid]:
    """Log that `main` went from one commit to another."""
    staged = Staging(database)
    old, new = commit(staged, f"old {number}"), commit(staged, f"new {number}")
    when = START + timedelta(days=number)
    database.write(
        staged.objects, moved(staged, session, "checkout", {MAIN: (old, new)}, when, f"move {number}")
    )
    return old, new


def held(database: Database, session: str = "s") -> set[Oid]:
    found: set[Oid] = set()
    for oid in database.backend.refs(kept_refs(session)).values():
        found |= {oid, *database.commit(oid).parents}
    return found


def test_a_move_is_remembered_and_what_it_dropped_is_held(database: Database) -> None:
    old, new = move(database, 1)
    (found,) = operations(database, "s")
    assert found == Operation("checkout", "2030-01-02T00:00:00+00:00", "move 1", {MAIN: old}, {MAIN: new})
    assert old in held(database)
    assert operations(database, "another") == []
    assert "undone" not in found.to_dict()


def test_the_oldest_is_forgotten_with_what_it_held(database: Database) -> None:
    moves = [move(database, number) for number in range(LIMIT + 2)]
    assert [one.text for one in operations(database, "s")] == [f"move {n}" for n in range(2, LIMIT + 2)]
    assert {old for old, _ in moves[2:]} <= held(database)
    assert not {old for old, _ in moves[:2]} & held(database)


def test_an_undo_takes_its_operation_out(database: Database) -> None:
    move(database, 1)
    move(database, 2)
    first, last = operations(database, "s")
    staged = Staging(database)
    then = Operation("redo", last.when, "back", last.after, last.before, undone=last.to_dict())
    database.write(staged.objects, without(staged, "s", last, then))
    assert operations(database, "s") == [first, then]
    staged = Staging(database)
    database.write(staged.objects, without(staged, "s", then, None))
    assert operations(database, "s") == [first]


def test_a_prune_forgets_what_is_older_in_every_session(database: Database) -> None:
    move(database, 1)
    young, _ = move(database, 5)
    other, _ = move(database, 1, session="t/u")
    assert forget(database, START + timedelta(days=3)) == 2
    assert [one.text for one in operations(database, "s")] == ["move 5"]
    assert operations(database, "t/u") == []
    assert young in held(database)
    assert other not in held(database, "t/u")
    assert forget(database, START + timedelta(days=3)) == 0


def test_a_log_that_says_nothing_new_moves_nothing(database: Database) -> None:
    move(database, 1)
    (known,) = operations(database, "s")
    staged = Staging(database)
    absent = Operation("undo", known.when, "never made", {}, {})
    assert without(staged, "s", absent, None) == []
    assert logged(staged, "s", absent)[-1].name == operations_ref("s")


def test_what_is_done_again_stands_below_the_undoes_that_can_still_be_taken_back(database: Database) -> None:
    move(database, 1)
    (first,) = operations(database, "s")
    undone = Operation("undo", first.when, "undo of another", first.after, first.before)
    staged = Staging(database)
    database.write(staged.objects, logged(staged, "s", undone, first))
    staged = Staging(database)
    again = Operation("redo", first.when, "again", first.before, first.after)
    known = operations(database, "s")
    database.write(staged.objects, without(staged, "s", known[-1], again))
    assert [one.kind for one in operations(database, "s")] == ["redo", "undo"]
