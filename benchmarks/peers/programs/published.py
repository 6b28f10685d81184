"""The published package of the same name: `published.py sqlite PLACE`, the same program."""

from __future__ import annotations

import asyncio
import sys

from common import serve
from pydantic import BaseModel

from reactifact import Consume, PendingAction, Runtime, SessionStore, create_agent, produce
from reactifact.checkpoints import SQLiteKVBackend

delivered = 0


class Order(BaseModel):
    id: str
    customer: str


class Receipt(BaseModel):
    order_id: str
    text: str


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process_order(call):
    order = call.trigger.data
    call.effects.act("notify", key=f"notify:{order.id}", payload={"to": order.customer})
    call.effects.upsert(Receipt(order_id=order.id, text="confirmed"), id=f"receipt:{order.id}")


async def dispatch(context, action):
    global delivered
    delivered += 1


async def main(place: str) -> None:
    session = await SessionStore(SQLiteKVBackend(place)).open("orders")
    agents = [create_agent("notifier", consumes=[Consume(Order)], produces=[process_order])]
    runtime = Runtime(session.context, agents=agents, session=session, dispatcher=dispatch)

    async def turn(number: int) -> None:
        session.context.create(Order(id=str(number), customer="a@example.com"), id=f"order:{number}")
        await runtime.arun()

    await serve(turn, lambda: delivered)


asyncio.run(main(sys.argv[2]))
