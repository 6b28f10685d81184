"""Two ledgers joined: the same in whatever order, however often, and never less than one side delivered."""

from __future__ import annotations

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.layout import file_path
from reactifact._store.ledger import LedgerEntry, joined, joined_trees
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import Oid
from reactifact._store.trees import update

TIMES = st.sampled_from([f"2026-01-0{day}T00:00:00+00:00" for day in (1, 2, 3)])


@st.composite
def entries(draw: st.DrawFn, action_id: str = "a") -> LedgerEntry:
    status = draw(st.sampled_from(["pending", "failed", "parked", "dispatched"]))
    errors = st.sampled_from(["no route", "interrupted"])
    return LedgerEntry(
        action_id,
        status,
        draw(st.sampled_from(["intent-1", "intent-2"])),
        draw(st.sampled_from(["main", "fork"])),
        attempts=draw(st.integers(0, 3)),
        error=None if status == "dispatched" else draw(st.none() | errors),
        dispatched_at=draw(TIMES) if status == "dispatched" else None,
        updated_at=draw(TIMES),
        changes=draw(st.integers(0, 4)),
        refused=tuple(sorted(draw(st.sets(st.sampled_from(["x", "y", "z"]))))),
        rearmed=draw(st.integers(0, 2)),
        armed=draw(st.integers(0, 2)),
    )


@st.composite
def whole_ledgers(draw: st.DrawFn) -> dict[str, LedgerEntry]:
    ids = draw(st.sets(st.sampled_from([f"action:{number}" for number in range(6)])))
    return {name: draw(entries(name)) for name in sorted(ids)}


@given(entries(), entries(), entries())
def test_entries_join_in_any_order(one: Any, two: Any, three: Any) -> None:
    assert joined(one, two) == joined(two, one)
    assert joined(one, one) == one
    assert joined(one, None) == one == joined(None, one)
    both = joined(one, two)
    assert joined(both, two) == both
    assert joined(both, three) == joined(one, joined(two, three))


@given(entries(), entries())
def test_what_was_delivered_stays_so_and_counts_only_grow(one: LedgerEntry, two: LedgerEntry) -> None:
    both = joined(one, two)
    assert both is not None
    assert (both.status == "dispatched") == ("dispatched" in (one.status, two.status))
    for stopped, other in ((one, two), (two, one)):
        if both.status == "pending" and stopped.status in ("failed", "parked"):
            assert other.rearmed > stopped.rearmed  # somebody said so after the failure
    assert both.attempts == max(one.attempts, two.attempts)
    assert both.changes == max(one.changes, two.changes)
    assert set(both.refused) == {*one.refused, *two.refused}
    assert LedgerEntry.decode(both.encode()) == both


def tree(objects: Staging, ledger: dict[str, LedgerEntry]) -> Oid | None:
    edits = {
        file_path(name): blob_entry(objects.put("blob", entry.encode())) for name, entry in ledger.items()
    }
    return update(objects, None, edits)


@given(st.lists(whole_ledgers(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_machines_that_join_the_same_ledgers_hold_the_same_tree(
    sides: list[dict[str, LedgerEntry]], order: Any
) -> None:
    objects = Staging(Database(MemoryBackend()))
    roots = [tree(objects, side) for side in sides]
    expected = reduce(lambda ours, theirs: joined_trees(objects, ours, theirs), roots)
    shuffled = [*roots, order.choice(roots)]  # one arrives twice
    order.shuffle(shuffled)
    assert reduce(lambda ours, theirs: joined_trees(objects, ours, theirs), shuffled) == expected
