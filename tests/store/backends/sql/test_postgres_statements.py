"""How often opening, forking, merging and a turn wait for a PostgreSQL server, seen on the wire."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from building import MAIN, put
from postgres_proxy import Proxy
from pydantic import BaseModel

from reactifact import (
    Consume,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
    threads,
)
from reactifact.branching import BranchStore
from reactifact.checkpoints import PostgreSQLKVBackend
from reactifact.errors import SessionBusy, StoreError
from reactifact.testing import RecordingDispatcher

pytestmark = pytest.mark.anyio

ARTIFACTS = 300
CHANGES = 10


class Sheet(BaseModel):
    number: int
    text: str = ""


class Order(BaseModel):
    number: int


class Receipt(BaseModel):
    number: int


async def changed(dsn: str, branch: str, ids: list[str]) -> None:
    """Change artifacts of a branch in one commit."""
    store = BranchStore(dsn, durability="os")
    async with store.edit("lab", branch) as context:
        for artifact_id in ids:
            context.update(artifact_id, Sheet(number=1, text=branch))
    await store.aclose()


async def test_opening_forking_and_merging_take_few_round_trips(postgres_dsn: str) -> None:
    store = BranchStore(postgres_dsn, durability="os")
    async with store.edit("lab") as context:
        for number in range(ARTIFACTS):
            context.create(Sheet(number=number), id=f"sheet:{number}")
    await store.aclose()
    for number in range(5):
        await changed(postgres_dsn, "main", [f"sheet:{number}"])
    ids = [f"sheet:{number}" for number in random.Random(3).sample(range(ARTIFACTS), 2 * CHANGES)]
    proxy = Proxy(postgres_dsn)

    # The first trips of each are those of a new connection, and the look at the tables.
    taken: dict[str, int] = {}
    before = proxy.round_trips
    sessions = SessionStore(proxy.dsn, durability="os")
    session = await sessions.open("lab")
    taken["open"] = proxy.round_trips - before
    assert session.context.version == 6
    await sessions.aclose()

    async def measured(name: str, verb: Any) -> Any:
        branches = BranchStore(proxy.dsn, durability="os")
        start = proxy.round_trips
        found = await verb(branches)
        taken[name] = proxy.round_trips - start
        await branches.aclose()
        return found

    await measured("fork", lambda branches: branches.fork("lab/main", "lab/fork"))
    await changed(postgres_dsn, "main", ids[:CHANGES])
    await changed(postgres_dsn, "fork", ids[CHANGES:])
    merged = await measured("merge", lambda branches: branches.merge("lab/main", "lab/fork"))
    assert len(merged.record.writes) == CHANGES
    # measured: 7, 11, 21; before anything was read ahead: 9, 20, 272; and one after another: 14, 22, 45
    assert taken["open"] <= 8
    assert taken["fork"] <= 12
    assert taken["merge"] <= 24


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def confirm(call: ProduceCall) -> None:
    assert call.trigger is not None
    number = call.trigger.data.number
    call.effects.act("notify", key=f"notify:{number}", payload={"number": number})
    call.effects.create(Receipt(number=number), id=f"receipt:{number}")


async def test_a_turn_takes_a_trip_for_each_lock_and_each_write(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two locks with what is looked at under them, the order, what was decided, the delivery, the release."""
    hops = 0
    in_thread = threads._on_asyncio

    async def counted(*call: Any) -> Any:
        nonlocal hops
        hops += 1
        return await in_thread(*call)

    monkeypatch.setattr(threads, "_on_asyncio", counted)
    proxy = Proxy(postgres_dsn)
    sessions = SessionStore(proxy.dsn)
    session = await sessions.open("shop")
    dispatcher = RecordingDispatcher()
    agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[confirm])]
    runtime = Runtime(session.context, agents=agents, session=session, dispatcher=dispatcher)
    taken: list[tuple[int, int]] = []
    for number in range(12):
        before = proxy.round_trips, hops
        session.context.create(Order(number=number), id=f"order:{number}")
        await runtime.arun()
        taken.append((proxy.round_trips - before[0], hops - before[1]))
    assert len(dispatcher.sent) == 12
    assert taken[-4:] == [(6, 6 if threads.asyncio_loop() else 0)] * 4  # all statements are prepared
    await sessions.aclose()


async def test_a_lock_says_what_refs_hold_when_it_is_taken(postgres_dsn: str) -> None:
    proxy = Proxy(postgres_dsn)
    near, far = PostgreSQLKVBackend(postgres_dsn), PostgreSQLKVBackend(proxy.dsn)
    old = put(near, MAIN, "one")
    with far.lock("other"):
        assert far.refs(MAIN) == {MAIN: old}
        before = proxy.round_trips
        with far.recalling(MAIN):
            new = put(near, MAIN, "two", old)  # before the lock is asked for
            with far.lock("lock") as lock:
                late = put(near, MAIN, "three", new)
                assert far.refs(MAIN) == {MAIN: new}
                with pytest.raises(SessionBusy), near.lock("lock"):
                    pass
        assert proxy.round_trips - before == 2  # the lock was given back in the second
        with far.lock("lock") as lock, far.recalling(MAIN):
            before = proxy.round_trips
            lock.require_held()
            assert far.refs(MAIN) == {MAIN: late}
            assert proxy.round_trips - before == 1
    near.close()
    far.close()


async def test_a_lock_is_given_back_where_what_was_asked_beside_it_fails(postgres_dsn: str) -> None:
    one, other = PostgreSQLKVBackend(postgres_dsn), PostgreSQLKVBackend(postgres_dsn)
    put(one, MAIN, "one")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(b"ALTER TABLE reactifact.refs RENAME TO away")
        gone = pytest.raises(StoreError, match="the tables of the store were removed")
        with gone, one.recalling(MAIN), one.lock("lock"):
            pass
        with other.lock("lock"):
            pass
        connection.execute(b"ALTER TABLE reactifact.away RENAME TO refs")
    one.close()
    other.close()


async def test_a_damaged_row_beside_a_commit_keeps_nobody_from_it(postgres_dsn: str) -> None:
    for session in ("good", "bad"):
        store = BranchStore(postgres_dsn, durability="os")
        async with store.edit(session) as context:
            context.create(Sheet(number=1), id=f"sheet:{session}")
        backend = store.database.backend
        tip = backend.refs()[f"refs/heads/{session}/main"]
        tree = store.database.commit(tip).tree
        await store.aclose()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        changed = connection.execute(
            b"UPDATE reactifact.objects SET data = 'x' WHERE oid = %b", (bytes.fromhex(tree),)
        )
        assert changed.rowcount == 1
    sessions = SessionStore(postgres_dsn, durability="os")
    assert (await sessions.open("good")).context.get("sheet:good") is not None
    with pytest.raises(StoreError, match=f"{tree}.*is damaged"):
        await sessions.open("bad")
    await sessions.aclose()
