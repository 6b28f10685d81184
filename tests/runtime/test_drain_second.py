"""Two drains of one outbox: a lost lock, what another delivered meanwhile, and what another holds."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stores import place_of
from support import Outside, Place, action, commit

from reactifact import Artifact, Context, PendingAction, ProduceCall, Runtime, SessionStore
from reactifact._store.ledger import Ledger, LedgerEntry
from reactifact.errors import LockLost, SessionBusy, StoreError

pytestmark = [pytest.mark.anyio]

DURABLE = ["git", "sqlite", "postgres"]


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store of each kind that has locks between processes."""
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return Place(place_of(request.param, tmp_path, dsn))


async def planned(place: Place, keys: Iterable[str], session_id: str = "s", **options: Any) -> None:
    """Store a session whose actions wait."""
    session = await place.store().open(session_id)

    def act(call: ProduceCall) -> None:
        for key in keys:
            call.effects.act("mail", key=key, **options)

    await commit(session.context, act)
    await session.save()


def cut_locks(place: Place) -> None:
    """Take every held lock of a store from its holder, as an operator or a failing server does."""
    path = str(place.path)
    if path.startswith("postgresql:"):
        with psycopg.connect(path, autocommit=True) as connection:
            cut = connection.execute(
                b"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                b" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
            assert cut
    elif path.endswith(".db"):
        shutil.rmtree(f"{path}-locks")
    else:
        shutil.rmtree(f"{path}/reactifact/locks")


class AtFirst:
    """A dispatcher that does something during its first send."""

    def __init__(self, meanwhile: Any) -> None:
        self.sent: list[str] = []
        self._meanwhile = meanwhile

    async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        self.sent.append(artifact.data.idempotency_key)
        if len(self.sent) == 1:
            await self._meanwhile(context)


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_drain_that_lost_its_lock_sends_no_more(durable: Place, concurrency: int) -> None:
    await planned(durable, ["a", "b", "c", "d"])
    second = Outside()

    async def cut_and_drain(context: Context) -> None:
        cut_locks(durable)
        assert (await durable.store().drain(second)).failed == []

    first = AtFirst(cut_and_drain)
    store = durable.store()
    report = await store.drain(first, dispatch_concurrency=concurrency)
    under_way = ["a", "b"][: len(first.sent)]
    assert first.sent == under_way
    assert len(under_way) <= concurrency
    # what was under way may be sent by both: at least once; everything else is sent by one
    assert [key for key in second.sent if key not in under_way] == [k for k in "abcd" if k not in under_way]
    assert len(set(second.sent)) == len(second.sent)
    (failure,) = report.failed
    assert failure[:2] == ("s", "main")
    assert "lost" in failure[2] or "removed" in failure[2]
    assert report.tried == report.delivered == len(first.sent)
    found = await durable.load("s")
    assert [action(found, key).status for key in "abcd"] == ["dispatched"] * 4
    assert (await store.drain(Outside())).tried == 0


async def test_a_lock_that_is_lost_between_sends_ends_a_turn_with_a_typed_error(durable: Place) -> None:
    await planned(durable, ["a", "b"])
    session = await durable.store().open("s")

    async def cut(context: Context) -> None:
        cut_locks(durable)

    first = AtFirst(cut)
    with pytest.raises(LockLost, match=r"lost with the connection|removed or replaced"):
        await Runtime(session.context, session=session, dispatcher=first).arun()
    assert first.sent == ["a"]
    found = await durable.load("s")
    assert [action(found, key).status for key in "ab"] == ["dispatched", "pending"]


async def test_the_lock_of_another_is_not_taken_away_by_who_lost_it(tmp_path: Path) -> None:
    backend = Place(tmp_path / "s.git").store().database.backend
    other = Place(tmp_path / "s.git").store().database.backend
    lost = backend.lock("drain s")
    lost.__enter__()
    shutil.rmtree(tmp_path / "s.git/reactifact/locks")
    with other.lock("drain s") as held:
        lost.__exit__(None, None, None)
        held.require_held()
        with pytest.raises(SessionBusy), backend.lock("drain s"):
            pass


async def test_a_lock_that_was_taken_again_counts_as_lost(postgres_dsn: str) -> None:
    backend = SessionStore(postgres_dsn).database.backend
    with backend.lock("drain s") as held:
        held.require_held()
        cut_locks(Place(postgres_dsn))
        with pytest.raises(LockLost, match="drain s"):
            held.require_held()
        with backend.lock("other") as other:  # on a connection that has taken both again
            other.require_held()
            with pytest.raises(LockLost, match="drain s"):
                held.require_held()
    backend.close()


async def test_what_another_delivered_during_the_drain_is_not_sent_again(place: Place) -> None:
    """Also where the lock says nothing, as between hosts or over a backend of a user."""
    await planned(place, ["a", "b", "c"])
    session = await place.store().open("s")

    async def deliver_b(context: Context) -> None:
        ledger = Ledger(place.store().database, "s")
        ledger.refresh()
        intent = context.line.state.stored("action:b")
        assert intent is not None
        known = LedgerEntry("action:b", "dispatched", intent.meta.content_hash, "main")
        now = context.resources.clock.now()
        ledger.record({"action:b": known}, change="0" * 32, when=now, message="m", branch="main")
        ledger.write()

    first = AtFirst(deliver_b)
    await Runtime(session.context, session=session, dispatcher=first).arun()
    assert first.sent == ["a", "c"]
    assert [action(session.context, key).status for key in "abc"] == ["dispatched"] * 3


async def test_a_second_drain_skips_what_another_holds(durable: Place) -> None:
    for name in ("s1", "s2", "s3"):
        await planned(durable, [f"{name}-k"], name)
    second = Outside()
    reports = []

    async def drain_beside(context: Context) -> None:  # while the send of s1 hangs
        reports.append(await durable.store().drain(second))

    first = AtFirst(drain_beside)
    report = await durable.store().drain(first, sessions_at_once=1)
    assert sorted(second.sent) == ["s2-k", "s3-k"]  # side by side
    assert [(r.tried, r.delivered, r.failed, r.skipped) for r in reports] == [(2, 2, [], [("s1", "main")])]
    assert first.sent == ["s1-k"]
    assert (report.delivered, report.skipped) == (1, [])


async def test_a_dispatcher_that_runs_its_own_session_is_told_so(place: Place) -> None:
    await planned(place, ["a", "b"])
    session = await place.store().open("s")
    caught: list[str] = []

    async def run_again(context: Context) -> None:
        branch = context.branch()
        with pytest.raises(SessionBusy) as error:
            await Runtime(branch, dispatcher=Outside()).arun()
        caught.append(str(error.value))

    first = AtFirst(run_again)
    await Runtime(session.context, session=session, dispatcher=first).arun()
    assert first.sent == ["a", "b"]
    (text,) = caught
    assert "would wait for ever" in text


async def test_a_report_counts_the_sends_before_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await planned(place, ["a", "b", "c"])
    write = Ledger.write
    writes = []

    def failing(ledger: Ledger) -> None:
        writes.append(ledger)
        if len(writes) == 2:
            raise StoreError("the disk is full")
        write(ledger)

    monkeypatch.setattr(Ledger, "write", failing)
    report = await place.store().drain(Outside())
    assert (report.tried, report.delivered) == (2, 1)
    assert report.failed == [("s", "main", "the disk is full")]


async def test_attempts_only_grow_so_that_whoever_retries_can_stop(place: Place) -> None:
    await planned(place, ["good", "bad"])
    outside = Outside("bad")
    for _ in range(6):
        await place.store().drain(outside, retry_failed=True, max_attempts=4)
    assert outside.tried.count("bad") == 4
    found = action(await place.load("s"), "bad")
    assert (found.status, found.attempts) == ("failed", 4)
    assert (await place.store().drain(outside, retry_failed=True)).tried == 1
    assert action(await place.load("s"), "bad").attempts == 5
    outside.failing.clear()
    await place.store().drain(outside, retry_failed=True)
    found = action(await place.load("s"), "bad")
    assert (found.status, found.attempts) == ("dispatched", 5)
    with pytest.raises(ValueError, match="max_attempts=0"):
        await place.store().drain(outside, max_attempts=0)
