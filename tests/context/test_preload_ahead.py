"""No object of a store that is not local is read on the event loop: each step reads ahead in a thread."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import (
    Consume,
    Context,
    Runtime,
    Session,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.events import EventType
from reactifact.interrupt import PendingAction
from reactifact.merging import ConflictDetail

pytestmark = pytest.mark.anyio

SESSION = "orders"


class Order(BaseModel):
    name: str
    note: str = ""


class Receipt(BaseModel):
    order: str


class Summary(BaseModel):
    receipt: str


class Far(InMemoryKVBackend):
    """A store in memory that says it is far away, and notes what is read of it, and where."""

    is_local = False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.loop = threading.get_ident()
        self.on_loop: Counter[str] = Counter()
        self.batches: list[int] = []

    def _note(self, what: str) -> None:
        if threading.get_ident() == self.loop:
            frames = [f for f in traceback.extract_stack() if "reactifact" in f.filename]
            way = (f"{f.filename.rpartition('/')[2].removesuffix('.py')}.{f.name}" for f in reversed(frames))
            self.on_loop[f"{what} by {' < '.join(way)}"] += 1

    def read_many(self, oids: Iterable[str]) -> Any:
        oids = list(oids)
        self._note("read_many")
        self.batches.append(len(oids))
        return super().read_many(oids)

    def refs(self, prefix: str = "refs/") -> Any:
        self._note("refs")
        return super().refs(prefix)

    def write(self, *args: Any, **kwargs: Any) -> Any:
        self._note("write")
        return super().write(*args, **kwargs)


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process(call: Any) -> None:
    order = call.trigger
    assert order.data.name
    await call.context.preload(f"action:n:{order.id}")  # its id is known to this code alone
    call.effects.upsert(Receipt(order=order.id), id=f"receipt:{order.id}").link("of", order)
    call.effects.act("notify", key=f"n:{order.id}", payload={})


@produce(Summary, reacts_to=Receipt)
async def summarise(call: Any) -> None:
    call.effects.create_once(Summary(receipt=call.trigger.id), id=f"summary:{call.trigger.id}")


@produce(Summary, reacts_to=Receipt)
async def renew(call: Any) -> None:
    call.effects.upsert(Summary(receipt=call.trigger.id), id="stale")


def agents(*, stale: bool = False) -> list[Any]:
    found = [
        create_agent("clerk", consumes=[Consume(Order)], produces=[process]),
        create_agent("writer", consumes=[Consume(Receipt)], produces=[summarise]),
    ]
    if stale:
        consume = Consume(Receipt, event_types=[EventType.ARTIFACT_STALE])
        found.append(create_agent("renewer", consumes=[consume], produces=[renew]))
    return found


sent: list[str] = []


async def send(_: Context, action: Any) -> None:
    sent.append(action.id)


async def fail(_: Context, action: Any) -> None:
    raise ConnectionError(action.id)


def runtime(session: Session, dispatcher: Callable[..., Any] | None = send, **kwargs: Any) -> Runtime:
    return Runtime(session.context, agents=agents(**kwargs), session=session, dispatcher=dispatcher)


async def turn(session: Session, name: str, dispatcher: Callable[..., Any] | None = send) -> None:
    session.context.create(Order(name=name), id=f"order:{name}")
    await runtime(session, dispatcher).arun()


def cold(store: Far) -> Far:
    """Return the same store with nothing noted; whoever opens it begins with empty caches."""
    store.on_loop.clear()
    store.batches.clear()
    return store


@asynccontextmanager
async def counted(store: Far) -> AsyncIterator[None]:
    cold(store)
    yield
    assert not store.on_loop, "\n".join(f"{number} {way}" for way, number in store.on_loop.items())
    assert store.batches, "nothing was read at all, so the test shows nothing"


@pytest.fixture
async def far() -> Far:
    """A store in which one session had some turns."""
    store = Far()
    session = await SessionStore(store).open(SESSION)
    for number in range(8):
        await turn(session, str(number))
    assert len(session.context.list_artifacts()) == 32
    return store


async def test_opening_and_a_turn(far: Far) -> None:
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        await turn(session, "x")
    again = await SessionStore(far).open(SESSION)
    assert again.context.get("summary:receipt:order:x") is not None
    assert not again.context.pending_actions()


async def test_a_turn_that_writes_again_what_is_there(far: Far) -> None:
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        await session.context.preload("order:3", "order:4")
        session.context.update("order:3", Order(name="3", note="changed"))
        session.context.delete("order:4")
        session.context.link("order:5", "beside", "order:6")
        await runtime(session).arun()
    again = await SessionStore(far).open(SESSION)
    order = again.context.get("order:3")
    assert order is not None
    assert order.data.note == "changed"


async def test_a_turn_that_takes_up_what_another_process_left(far: Far) -> None:
    session = await SessionStore(far).open(SESSION)
    for name in "abc":
        session.context.create(Order(name=name), id=f"order:{name}")
    runtime(session)  # a runtime knows the events, and none of them is dropped
    await session.save()
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        await runtime(session).arun()
        assert session.context.version > 0
    assert session.context.get("summary:receipt:order:c") is not None


async def test_a_turn_with_an_agent_that_is_woken_by_staleness(far: Far) -> None:
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        await session.context.preload("order:3")
        session.context.update("order:3", Order(name="3", note="changed"))
        await runtime(session, stale=True).arun()


async def test_a_failed_delivery_and_its_retry_by_a_drain_of_the_store(far: Far) -> None:
    session = await SessionStore(far).open(SESSION)
    with pytest.raises(ConnectionError):
        await turn(session, "x", fail)
    async with counted(far):
        report = await SessionStore(far).drain(fail, retry_failed=True)
        assert (report.tried, report.delivered) == (1, 0)
    async with counted(far):
        report = await SessionStore(far).drain(send, retry_failed=True)
        assert (report.tried, report.delivered) == (1, 1)
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        await turn(session, "y")


async def test_fork_and_edit_and_merge(far: Far) -> None:
    async with counted(far):
        await BranchStore(far).fork(SESSION, f"{SESSION}/alt")
    async with counted(far), BranchStore(far).edit(SESSION, "alt") as context:
        context.create(Order(name="y"), id="order:y")
        await context.preload("order:3")
        context.update("order:3", Order(name="3", note="theirs"))
    async with counted(far), BranchStore(far).edit(SESSION) as context:
        await context.preload("order:3")
        context.update("order:3", Order(name="3", note="ours"))
    asked: list[int] = []

    def policy(detail: ConflictDetail) -> str:
        asked.append(threading.get_ident())
        return "theirs"

    async with counted(far):
        shown = await BranchStore(far).preview(SESSION, f"{SESSION}/alt", policy=policy)
        assert not shown.details
    async with counted(far):
        assert await BranchStore(far).merge(SESSION, f"{SESSION}/alt", policy=policy)
    assert asked == [far.loop] * 2  # where the application's other code runs
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        assert session.context.commits.line.tip
    order = session.context.get("order:3")
    assert order is not None
    assert order.data.note == "theirs"


async def test_refresh_with_changes_on_both_sides(far: Far) -> None:
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        session.context.create(Order(name="mine"), id="order:mine")
        await session.context.preload("order:7")
        session.context.update("order:7", Order(name="7", note="mine"))
        other = await SessionStore(far).open(SESSION)
        await turn(other, "theirs")
        assert await session.refresh()
        await session.save()
    again = await SessionStore(far).open(SESSION)
    assert again.context.get("order:mine") is not None
    assert again.context.get("order:theirs") is not None


async def test_saving_a_fork_of_a_context_beside_its_branch(far: Far) -> None:
    async with counted(far):
        session = await SessionStore(far).open(SESSION)
        fork = session.context.branch(name="later")
        fork.create(Order(name="z"), id="order:z")
        await BranchStore(far).save_branch(fork, session_id=SESSION, name="later")
        loaded = await BranchStore(far).load_branch(SESSION, "later")
        assert loaded is not None
        loaded.create(Order(name="w"), id="order:w")
        await BranchStore(far).save_branch(loaded, session_id=SESSION, name="later")


async def opened_after(deliveries: int) -> tuple[Far, list[int]]:
    """Return a store in which so many of 201 actions were sent since a commit, and the reads of an open."""
    store = Far()
    session = await SessionStore(store).open(SESSION)
    for number in range(201):
        session.context.create(PendingAction(kind="n", idempotency_key=str(number)), id=f"action:{number}")
    await session.save()
    left = iter(range(201))

    async def some(_: Context, action: Any) -> None:
        if next(left) >= deliveries:
            raise KeyboardInterrupt

    if deliveries < 201:
        with pytest.raises(KeyboardInterrupt):
            await SessionStore(store).drain(some)
    else:
        await SessionStore(store).drain(some)
    cold(store)
    await SessionStore(store).open(SESSION)
    return store, list(store.batches)


async def test_opening_reads_as_much_after_200_deliveries_as_after_one() -> None:
    _, few = await opened_after(1)
    store, many = await opened_after(200)
    assert many == few
    assert len(few) <= 16
    async with counted(store):
        session = await SessionStore(store).open(SESSION)
        await runtime(session).arun()
    assert len(store.batches) < 100  # 16 commits of the ledger are read at once, and 400 were read before
    assert not session.context.pending_actions()
