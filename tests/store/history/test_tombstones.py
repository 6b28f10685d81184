"""What is left of what was erased: kept once, joined from two stores, and nothing where nothing went."""

from __future__ import annotations

import pytest

from reactifact._store._history.tombstones import (
    Stones,
    Tombstone,
    erased_ref,
    join_stones,
    read_stones,
    require_clean,
    staged_stones,
)
from reactifact._store.object_db import Database, Staging
from reactifact._store.protocol import RefUpdate
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import ErasedHistory, StoreError

WHEN = "2026-12-01T12:00:00+00:00"
ONE = Tombstone("erased-1", "shop.Customer", 2, WHEN, "officer", "request 1")
TWO = Tombstone("cleared-2", "shop.Customer", 1, WHEN, "officer", fields=("name",))
COMMIT = "a" * 40


def staged(database: Database, *erased: Tombstone, first: tuple[str, ...] = ()) -> None:
    made = Staging(database)
    moves = staged_stones(made, "s", erased, first)
    database.write(made.objects, moves)


def test_they_come_back_and_the_same_is_kept_once() -> None:
    database = Database(InMemoryKVBackend())
    assert read_stones(database, "s") == Stones()
    staged(database, ONE, first=(COMMIT,))
    staged(database, TWO)
    tip = database.backend.refs()[erased_ref("s")]
    assert read_stones(database, "s") == Stones((ONE, TWO), frozenset({COMMIT}))
    staged(database, Tombstone("erased-1", "shop.Customer", 2, WHEN, "another"))
    assert database.backend.refs()[erased_ref("s")] == tip
    assert Stones.decode(Stones((ONE, TWO)).encode()) == Stones((ONE, TWO))


def test_damage_is_named() -> None:
    with pytest.raises(StoreError, match="the tombstones of a session"):
        Stones.decode(b'{"erased": 3}')


def test_those_of_two_stores_become_the_same_in_both() -> None:
    ours, theirs = Database(InMemoryKVBackend()), Database(InMemoryKVBackend())
    staged(ours, ONE)
    staged(theirs, TWO, first=(COMMIT,))
    tips = []
    for here, there in ((ours, theirs), (theirs, ours)):
        tips.append(there.backend.refs()[erased_ref("s")])
        here.backend.write(there.backend._objects)  # type: ignore[attr-defined]
    assert join_stones(ours, "s", tips[0])
    assert join_stones(theirs, "s", tips[1])
    assert not join_stones(ours, "s", tips[0])
    assert ours.backend.refs() == theirs.backend.refs()
    assert set(read_stones(ours, "s").erased) == {ONE, TWO}
    assert read_stones(ours, "s").first == {COMMIT}


def test_those_of_another_store_are_taken_as_they_are_where_there_were_none() -> None:
    ours, theirs = Database(InMemoryKVBackend()), Database(InMemoryKVBackend())
    staged(theirs, ONE)
    ours.backend.write(theirs.backend._objects)  # type: ignore[attr-defined]
    assert join_stones(ours, "s", theirs.backend.refs()[erased_ref("s")])
    assert ours.backend.refs() == theirs.backend.refs()


def test_a_history_is_refused_by_the_commits_that_stood_before() -> None:
    database = Database(InMemoryKVBackend())
    made = Staging(database)
    staged(database, ONE)
    tip = database.backend.refs()[erased_ref("s")]
    database.write(made.objects, [RefUpdate("refs/heads/s/main", None, tip)])
    refs = {"refs/heads/s/main": tip}
    require_clean(database, "s", Stones((ONE,), frozenset({COMMIT})), refs, "here", "do this")
    require_clean(database, "s", Stones(), refs, "here", "do this")
    with pytest.raises(
        ErasedHistory, match=r"here still holds .*\(erased-1, last on 2026-12-01\).*do this"
    ) as caught:
        require_clean(database, "s", Stones((ONE,), frozenset({tip})), refs, "here", "do this")
    assert (caught.value.session, caught.value.commit) == ("s", tip)
