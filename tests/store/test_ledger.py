"""The ledger against itself: recorded on one thread, written and read again on another."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import pytest

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.ledger import Ledger, LedgerEntry
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import RefUpdate

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(ledger: Ledger, *entries: LedgerEntry) -> None:
    change = f"{len(list(ledger.entries())):032x}"
    ledger.record(
        {entry.action_id: entry for entry in entries}, change=change, when=NOW, message="m", branch="main"
    )


def entry(action_id: str, status: str = "dispatched", **facts: Any) -> LedgerEntry:
    return LedgerEntry(action_id, status, "intent", "main", **facts)


def stored(database: Database) -> dict[str, str]:
    """Return what a process that opens the store anew finds, by action."""
    ledger = Ledger(Database(database.backend), "s")
    ledger.refresh()
    return {found.action_id: found.status for found in ledger.entries()}


class Watched:
    """A lock that says when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.waited = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited.set()
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class During(MemoryBackend):
    """A backend that calls something in the middle of its next write."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Any = None

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().write(objects, updates)


def test_a_write_takes_away_only_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = During()
    database = Database(backend)
    ledger = Ledger(database, "s")
    lock = Watched()
    ledger._lock = lock  # type: ignore[assignment]
    record(ledger, entry("a"))

    halfway, written = threading.Event(), threading.Event()
    put_commit = Staging.put_commit

    def slow(staging: Staging, commit: Any) -> Oid:
        if threading.current_thread() is recorder:
            halfway.set()  # its blobs and trees are staged, the commit over them is not
            while not (written.is_set() or lock.waited.is_set()):
                lock.waited.wait(0.01)
        return put_commit(staging, commit)

    def meanwhile() -> None:
        recorder.start()
        assert halfway.wait(30)

    recorder = threading.Thread(target=record, args=(ledger, entry("b")))
    monkeypatch.setattr(Staging, "put_commit", slow)
    backend.meanwhile = meanwhile
    ledger.write()
    written.set()
    recorder.join(30)
    ledger.write()
    assert stored(database) == {"a": "dispatched", "b": "dispatched"}
    assert ledger.is_published
    assert not ledger.staged.objects


def test_what_is_recorded_during_a_write_is_left_for_the_next() -> None:
    backend = During()
    database = Database(backend)
    ledger = Ledger(database, "s")
    record(ledger, entry("a"))
    backend.meanwhile = lambda: record(ledger, entry("b"))
    ledger.write()
    assert stored(database) == {"a": "dispatched"}
    assert not ledger.is_published
    assert {found.action_id for found in ledger.entries()} == {"a", "b"}
    ledger.write()
    assert stored(database) == {"a": "dispatched", "b": "dispatched"}
    assert ledger.is_published


def _others(database: Database, entries: Iterable[LedgerEntry]) -> None:
    other = Ledger(database, "s")
    other.refresh()
    record(other, *entries)
    other.write()


def test_a_reading_again_waits_for_the_write_in_progress() -> None:
    backend = During()
    database = Database(backend)
    ledger = Ledger(database, "s")
    record(ledger, entry("a"))
    reader = threading.Thread(target=ledger.refresh)
    backend.meanwhile = reader.start
    ledger.write()
    reader.join(30)
    ledger.write()
    assert ledger.is_published
    assert len(ledger.since(None)) == 1


def test_a_retry_goes_on_top_of_what_others_wrote_of_other_actions() -> None:
    database = Database(MemoryBackend())
    _others(database, [entry("a", "failed", attempts=1)])
    ledger = Ledger(database, "s")
    ledger.refresh()
    record(ledger, entry("a", "pending", attempts=1, changes=1))
    _others(database, [entry("b")])
    ledger.write()
    assert stored(database) == {"a": "pending", "b": "dispatched"}


def test_a_retry_of_what_others_delivered_meanwhile_stays_delivered() -> None:
    database = Database(MemoryBackend())
    _others(database, [entry("a", "failed", attempts=1)])
    ledger = Ledger(database, "s")
    ledger.refresh()
    record(ledger, entry("a", "pending", attempts=1, changes=1))
    _others(database, [entry("a")])
    ledger.write()
    assert stored(database) == {"a": "dispatched"}


# -- two ledgers that went apart --


def _apart() -> tuple[Database, Ledger, Oid, Oid, Oid]:
    """Return a store with one ledger, and the tips of two that went on from it: ours moved the ref."""
    database = Database(MemoryBackend())
    ledger = Ledger(database, "s")
    record(ledger, entry("a"), entry("b", "failed", attempts=1, changes=1))
    ledger.write()
    base = ledger.head
    assert base is not None
    record(ledger, entry("c"))
    record(ledger, entry("d"))
    ledger.write()
    theirs = ledger.head
    assert theirs is not None
    database.backend.write({}, [RefUpdate(ledger.ref, theirs, base)])
    ledger.refresh()
    record(ledger, entry("b", "pending", attempts=1, changes=2, rearmed=1))
    ledger.write()
    ours = ledger.head
    assert ours is not None
    return database, ledger, base, ours, theirs


def test_two_ledgers_become_one_commit_with_both_as_parents() -> None:
    database, ledger, base, ours, theirs = _apart()
    assert ledger.merge(theirs)
    ledger.write()
    assert stored(database) == {"a": "dispatched", "b": "pending", "c": "dispatched", "d": "dispatched"}
    assert ledger.head is not None
    assert set(database.commit(ledger.head).parents) == {ours, theirs}
    again = Ledger(database, "s")
    again.refresh()
    for known in (base, ours, theirs, database.commit(theirs).parents[0]):
        assert again.contains(known)
    assert not again.merge(theirs)
    assert again.is_published


def test_both_machines_make_the_same_commit_of_two_ledgers() -> None:
    database, _, _, ours, theirs = _apart()
    made = []
    for mine, other in ((ours, theirs), (theirs, ours)):
        ledger = Ledger(database, "s", head=mine)
        ledger.merge(other)
        made.append(ledger.tip)
    assert made[0] == made[1]


def test_a_ledger_that_is_behind_only_moves_forward() -> None:
    database, _, base, _, theirs = _apart()
    ledger = Ledger(database, "s", head=base)
    assert ledger.merge(theirs)
    assert ledger.tip == theirs
    empty = Ledger(database, "s")
    assert empty.merge(theirs)
    assert empty.tip == theirs


def test_what_came_with_a_merge_is_heard_once() -> None:
    database, ledger, base, ours, theirs = _apart()
    reader = Ledger(database, "s")
    reader.refresh()
    ledger.merge(theirs)
    ledger.write()
    assert [event.action_id for event in reader.hear()] == ["c", "d"]
    assert reader.hear() == []
    assert [event.action_id for event in reader.since(theirs)] == ["b"]
    assert [event.action_id for event in reader.since(ours)] == ["c", "d"]
    assert [event.action_id for event in reader.since(base)] == ["b", "c", "d"]


def test_a_merge_that_loses_a_race_goes_on_top_of_what_others_wrote() -> None:
    database, ledger, _, _, theirs = _apart()
    ledger.merge(theirs)
    lost = ledger.tip
    _others(database, [entry("e")])
    ledger.write()
    assert set(stored(database)) == {"a", "b", "c", "d", "e"}
    assert lost is not None
    assert ledger.contains(lost)  # a branch may have named it


def test_a_merge_that_somebody_else_made_meanwhile_is_not_made_again() -> None:
    database, ledger, _, _, theirs = _apart()
    ledger.merge(theirs)
    other = Ledger(database, "s")
    other.refresh()
    other.merge(theirs)
    other.write()
    ledger.write()
    assert ledger.head == other.head
    assert ledger.is_published


def test_a_merge_that_got_through_and_was_not_heard_of_is_gone_on_from() -> None:
    backend = During()
    database = Database(backend)
    ledger = Ledger(database, "s")
    record(ledger, entry("a"))
    ledger.write()
    record(ledger, entry("b"))
    other = Ledger(database, "s")
    record(other, entry("c"))
    backend.write(other.staged.objects)  # fetched
    assert other.tip is not None
    ledger.merge(other.tip)
    tip = ledger.tip

    def unheard() -> None:
        MemoryBackend.write(backend, ledger.staged.objects, [RefUpdate(ledger.ref, ledger.head, tip)])

    backend.meanwhile = unheard
    ledger.write()
    assert ledger.head == tip
    assert ledger.is_published
    assert stored(database) == {"a": "dispatched", "b": "dispatched", "c": "dispatched"}
