"""A turn on a store that is not local publishes what it decided while it takes the lock of the drain."""

from __future__ import annotations

import pytest
from support import Order, Receipt

from reactifact import Consume, PendingAction, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact.branching import BranchStore
from reactifact.checkpoints import PostgreSQLKVBackend
from reactifact.errors import SessionBusy, StaleSession
from reactifact.testing import RecordingDispatcher

pytestmark = pytest.mark.anyio

DRAIN = "drain shop"


class Shop:
    """A session whose agent may be disturbed while it works."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.is_disturbed = False
        self.dispatcher = RecordingDispatcher()

    async def open(self) -> Runtime:
        @produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
        async def confirm(call: ProduceCall) -> None:
            assert call.trigger is not None
            if self.is_disturbed:
                others = BranchStore(self.dsn)
                async with others.edit("shop") as context:
                    context.create(Receipt(order="other"), id="receipt:other")
                await others.aclose()
            call.effects.act("notify", key=f"notify:{call.trigger.id}", payload={})
            call.effects.create(Receipt(order=call.trigger.id), id=f"receipt:{call.trigger.id}")

        self.store = SessionStore(self.dsn)
        session = await self.store.open("shop")
        agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[confirm])]
        return Runtime(session.context, agents=agents, session=session, dispatcher=self.dispatcher)


async def test_a_branch_that_moved_is_told_although_another_drains(postgres_dsn: str) -> None:
    shop = Shop(postgres_dsn)
    runtime = await shop.open()
    runtime.context.create(Order(item="a"), id="order:1")
    await runtime.arun()
    assert len(shop.dispatcher.sent) == 1
    shop.is_disturbed = True
    runtime.context.create(Order(item="b"), id="order:2")
    other = PostgreSQLKVBackend(postgres_dsn)
    with other.lock(DRAIN), pytest.raises(StaleSession):
        await runtime.arun()
    assert len(shop.dispatcher.sent) == 1
    with other.lock(DRAIN), other.lock("run shop/main"):
        pass  # neither is held any more
    other.close()
    await shop.store.aclose()


async def test_the_lock_is_free_while_the_next_agent_works_and_after_the_turn(postgres_dsn: str) -> None:
    other = PostgreSQLKVBackend(postgres_dsn)
    found: list[str] = []

    @produce(Receipt, reacts_to=PendingAction)
    async def after(call: ProduceCall) -> None:
        assert call.trigger is not None
        if call.trigger.data.status == "dispatched":
            with other.lock(DRAIN):
                found.append(call.trigger.id)
            with pytest.raises(SessionBusy), other.lock("run shop/main"):
                pass
            call.effects.upsert(Receipt(order="done"), id="receipt:done")

    shop = Shop(postgres_dsn)
    runtime = await shop.open()
    runtime.register(create_agent("after", consumes=[Consume(PendingAction)], produces=[after]))
    runtime.context.create(Order(item="a"), id="order:1")
    await runtime.arun()
    assert set(found) == {"action:notify:order:1"}
    with other.lock(DRAIN), other.lock("run shop/main"):
        pass
    other.close()
    await shop.store.aclose()
