"""What is said of deleted refs: joined as sets, the same wherever it is joined, in ids alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._history.deleted import (
    Deleted,
    deleted_ref,
    join_deleted,
    note_back,
    note_deleted,
    read_deleted,
)
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import Oid
from reactifact._store.protocol import RefUpdate
from reactifact.errors import StoreError

REF, OTHER = "refs/heads/s/idea", "refs/heads/s/other"
ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(GitBackend(tmp_path / "store.git", durability="os"))


def said(**tips: str) -> Deleted:
    return Deleted("s", {f"refs/heads/s/{name}": frozenset({oid}) for name, oid in tips.items()})


def staged(database: Database, what: Deleted) -> Oid:
    objects = Staging(database)
    commit = what.stage(objects, ())
    database.write(objects.objects, [])
    return commit


def joined(database: Database, *commits: Oid) -> Oid:
    """Join commits in their order, and return where the ref stands then; it is gone afterwards."""
    ref = deleted_ref("s")
    for commit in commits:
        objects = Staging(database)
        moves = join_deleted(objects, "s", commit)
        database.write(objects.objects, moves)
    held = database.backend.refs(ref)[ref]
    database.backend.write({}, [RefUpdate(ref, held, None)])
    return held


def test_it_comes_back_as_it_was_said(database: Database) -> None:
    what = Deleted("s", {REF: frozenset({ONE, TWO})}, {REF: frozenset({TWO})})
    assert read_deleted(database, staged(database, what)) == what
    assert read_deleted(database, None) == Deleted()
    assert what.tips(REF) == {ONE}
    assert (what.covers(database, REF, ONE), what.covers(database, REF, TWO)) == (True, False)
    assert what.news(said(idea=ONE)) == {}
    assert what.joined(said(other=THREE)).news(what) == {OTHER: frozenset({THREE})}


def test_two_that_are_joined_are_the_same_commit_on_both_sides(database: Database) -> None:
    one, two = staged(database, said(idea=ONE)), staged(database, said(idea=TWO, other=THREE))
    both = joined(database, one, two)
    assert joined(database, two, one) == both
    assert read_deleted(database, both).gone == {REF: frozenset({ONE, TWO}), OTHER: frozenset({THREE})}
    assert joined(database, both, one, two) == both  # what is known adds nothing
    assert joined(database, one, both) == both  # and what holds ours is moved forward to


def test_nothing_is_noted_that_no_other_store_was_seen_to_hold(database: Database) -> None:
    commit = staged(database, said())
    assert note_deleted(Staging(database), "s", {REF: commit}) == []
    database.backend.write({}, [RefUpdate("refs/remotes/hub/s/idea", None, commit)])
    objects = Staging(database)
    (move,) = note_deleted(objects, "s", {REF: commit})
    database.write(objects.objects, [move])
    assert read_deleted(database, move.new).gone == {REF: frozenset({commit})}
    assert note_back(Staging(database), "s", {OTHER: commit}) == []
    objects = Staging(database)
    (again,) = note_back(objects, "s", {REF: commit})
    database.write(objects.objects, [again])
    assert read_deleted(database, again.new).tips(REF) == frozenset()
    assert note_back(Staging(database), "s", {REF: commit}) == []


def test_one_that_is_damaged_is_named(database: Database) -> None:
    objects = Staging(database)
    blob = objects.put("blob", b'{"session": "s"}')
    tree = objects.put_tree({"deleted.json": blob_entry(blob)})
    whole = objects.commit(said().stage(objects, ()))
    commit = objects.put_commit(replace(whole, tree=tree))
    database.write(objects.objects, [])
    with pytest.raises(StoreError, match="a list of what was deleted"):
        read_deleted(database, commit)
