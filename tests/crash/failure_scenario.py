"""One shop that meets one fault at one point, and what must hold then. Used by the failure matrix.

Owns the shop, the points at which a fault strikes, and the checks that are the same for every fault and
every store: one error of ours, nothing lost, nothing sent twice beyond what a crash may repeat. The
faults themselves stand in `failure_lab` and `test_failure_matrix`.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio
from support import Order, Receipt, action, fsck, trigger_of

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    Session,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.errors import ReactifactError

Point = Literal["opening", "beginning", "turn", "ledger"]
"""When a fault strikes: before the store is opened, before a turn begins, inside a produce, between a
send and its record."""

Continuation = Literal["same", "anew"]
"""Who goes on when the fault is gone: the runtime that met it, or a process that opens the store anew."""

CASES: tuple[tuple[Point, Continuation], ...] = (
    ("opening", "anew"),
    ("beginning", "same"),
    ("turn", "same"),
    ("turn", "anew"),
    ("ledger", "same"),
    ("ledger", "anew"),
)
LOOPS: dict[Continuation, str] = {"same": "asyncio", "anew": "trio"}

SESSION = "user/7"
FIRST, SECOND = "notify:order:1", "notify:order:2"
_LARGE = 150_000  # bytes that do not compress: the second order needs room on the disk


class Fault(Protocol):
    """Something that can be wrong with a store's surroundings, and be put right."""

    def strike(self) -> None:
        """Make it wrong."""

    def lift(self) -> None:
        """Put it right. The store has been closed before."""


class World:
    """What the outside has seen: every send, by its key."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.after_send: Callable[[], None] | None = None

    async def dispatch(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        self.sent.append(artifact.data.idempotency_key)
        if self.after_send is not None:
            self.after_send()


class Shop:
    """One process with the store open: a session, an agent that plans one action an order, a dispatcher."""

    def __init__(self, session: Session, world: World) -> None:
        self.session = session
        self.context = session.context
        self.during_produce: Callable[[], None] | None = None

        @produce(Receipt, also_creates=PendingAction, reacts_to=Order)
        async def confirm(call: ProduceCall) -> None:
            order = trigger_of(call)
            call.effects.create(Receipt(order=order.id), id=f"receipt:{order.id}")
            call.effects.act("mail", key=f"notify:{order.id}", payload={"item": order.data.item[:10]})
            if self.during_produce is not None:
                self.during_produce()

        clerk = create_agent("clerk", consumes=[Consume(Order)], produces=[confirm])
        self.runtime = Runtime(self.context, [clerk], session=session, dispatcher=world.dispatch)

    @classmethod
    async def open(cls, place: Any, world: World) -> Shop:
        return cls(await SessionStore(place).open(SESSION), world)

    async def order(self, number: int, item: str = "tea") -> None:
        self.context.create(Order(item=item), id=f"order:{number}")
        await self.runtime.arun()

    async def close(self) -> None:
        await self.session.store.aclose()


def run(
    place: Any, fault: Fault, point: Point, continuation: Continuation, repository: Path | None = None
) -> ReactifactError | None:
    """Run `suffer` on an event loop of its own."""
    return anyio.run(suffer, place, fault, point, continuation, repository, backend=LOOPS[continuation])


async def suffer(
    place: Any, fault: Fault, point: Point, continuation: Continuation, repository: Path | None = None
) -> ReactifactError | None:
    """Run a shop into a fault, lift it, go on, and check that nothing is lost.

    Returns the one error there was; `None` where the store did not notice. `repository` is the bare
    repository, for `git fsck`.
    """
    world = World()
    shop = await Shop.open(place, world)
    await shop.order(1)
    acknowledged = [commit.id for commit in shop.context.history()]
    assert world.sent == [FIRST]
    if point == "opening":
        await shop.close()

    once = _once(fault.strike)
    if point in ("opening", "beginning"):
        once()
    elif point == "turn":
        shop.during_produce = once
    else:
        world.after_send = once
    error: ReactifactError | None = None
    try:
        if point == "opening":
            shop = await Shop.open(place, world)
        await shop.order(2, secrets.token_hex(_LARGE))
    except ReactifactError as raised:
        error = raised
    if error is not None:
        assert not getattr(error, "__notes__", []), "one error, not several"
        assert world.sent.count(SECOND) == (point == "ledger")

    await shop.close()
    fault.lift()
    live = shop.context
    await _check_prefix(place, live)
    if error is None:
        assert action(live, SECOND).status == "dispatched"
    if continuation == "anew":
        await shop.close()  # what was read from it just now opened its files again
        shop = await Shop.open(place, world)
    if shop.context.get("order:2") is None:
        # nobody was told that it was taken, so the application gives it again
        assert point == "opening" or (point != "ledger" and continuation == "anew")
        shop.context.create(Order(item="tea"), id="order:2")
    await shop.runtime.arun()
    await shop.runtime.arun()
    await shop.close()
    await _check_end(place, world, acknowledged, repeats=int(error is not None and point == "ledger"))
    if repository is not None:
        fsck(repository)
    return error


async def _check_prefix(place: Any, live: Context) -> None:
    """The store holds what the live context holds, or less of its history; never anything else."""
    store = SessionStore(place)
    stored = await store.load_session(SESSION)
    assert stored is not None
    ids = [commit.id for commit in stored.history()]
    assert [commit.id for commit in live.history()][: len(ids)] == ids
    for artifact in stored.list_artifacts():
        ours = live.get(artifact.id)
        assert ours is not None, artifact.id
        assert ours.version >= artifact.version, artifact.id
    told = {a.id for a in stored.list_artifacts(PendingAction) if a.data.status == "dispatched"}
    known = {a.id for a in live.list_artifacts(PendingAction) if a.data.status == "dispatched"}
    assert told <= known
    await store.aclose()


async def _check_end(place: Any, world: World, acknowledged: list[str], repeats: int) -> None:
    store = SessionStore(place)
    context = await store.load_session(SESSION)
    assert context is not None
    assert [commit.id for commit in context.history()][: len(acknowledged)] == acknowledged
    for key in (FIRST, SECOND):
        assert action(context, key).status == "dispatched"
    assert {artifact.id for artifact in context.list_artifacts(Receipt)} == {
        "receipt:order:1",
        "receipt:order:2",
    }
    sent = Counter(world.sent)
    assert sent[FIRST] == 1
    assert 1 <= sent[SECOND] <= 1 + repeats
    assert set(sent) == {FIRST, SECOND}
    assert await store.pending_sessions() == []
    await store.aclose()


def _once(strike: Callable[[], None]) -> Callable[[], None]:
    waiting = [strike]

    def call() -> None:
        if waiting:
            waiting.pop()()

    return call
