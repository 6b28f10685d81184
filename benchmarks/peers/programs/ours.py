"""reactifact: `ours.py git|sqlite|postgres PLACE`; durability `full`."""

from __future__ import annotations

import sys

import anyio
from common import serve
from pydantic import BaseModel

from reactifact import Consume, PendingAction, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact.checkpoints import GitBackend, PostgreSQLKVBackend, SQLiteKVBackend

delivered = 0


class Order(BaseModel):
    id: str
    customer: str


class Receipt(BaseModel):
    order_id: str
    text: str


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process_order(call: ProduceCall) -> None:
    assert call.trigger is not None
    order = call.trigger.data
    call.effects.act("notify", key=f"notify:{order.id}", payload={"to": order.customer})
    call.effects.upsert(Receipt(order_id=order.id, text="confirmed"), id=f"receipt:{order.id}")


async def dispatch(context: object, action: object) -> None:
    global delivered
    delivered += 1


async def main(kind: str, place: str) -> None:
    backends = {"git": GitBackend, "sqlite": SQLiteKVBackend}
    backend = PostgreSQLKVBackend(place) if kind == "postgres" else backends[kind](place, durability="full")
    session = await SessionStore(backend).open("orders")
    agents = [create_agent("notifier", consumes=[Consume(Order)], produces=[process_order])]
    runtime = Runtime(session.context, agents=agents, session=session, dispatcher=dispatch)

    async def turn(number: int) -> None:
        session.context.create(Order(id=str(number), customer="a@example.com"), id=f"order:{number}")
        await runtime.arun()

    await serve(turn, lambda: delivered)


anyio.run(main, sys.argv[1], sys.argv[2])
