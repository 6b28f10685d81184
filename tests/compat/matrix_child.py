"""A shop that goes on trading while real git looks at its store: `python matrix_child.py STORE`.

It prints `ready` when the part of the history that the tests speak of is there, and trades on until
its standard input is closed.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import anyio
import anyio.to_thread
from pydantic import BaseModel

from reactifact import Consume, Context, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact.branching import BranchStore
from reactifact.interrupt import PendingAction
from reactifact.session import Session

FIRST_TURNS = 12
WRONG_FROM = 8  # the order from which on the total is wrong


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "shop.Order"

    item: str
    price: int


class Receipt(BaseModel):
    TYPE_ID: ClassVar[str] = "shop.Receipt"

    order: str
    text: str


class Till(BaseModel):
    TYPE_ID: ClassVar[str] = "shop.Till"

    orders: int = 0
    total: int = 0


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def confirm(call: ProduceCall) -> None:
    order = call.trigger
    assert order is not None
    receipt = call.effects.create(Receipt(order=order.id, text="confirmed"), id=f"receipt-{order.id}")
    call.effects.link(receipt, "receipt_for", order)
    call.effects.act("mail", key=f"notify:{order.id}", payload={"item": order.data.item})


@produce(Till, reacts_to=Receipt)
async def book(call: ProduceCall) -> None:
    assert call.trigger is not None
    order = call.context.get(call.trigger.data.order)
    known = call.context.get("till")
    assert order is not None
    till = Till() if known is None else known.data
    price = order.data.price if till.orders + 1 < WRONG_FROM else -1000 * order.data.price
    call.effects.upsert(Till(orders=till.orders + 1, total=till.total + price), id="till")


async def send(context: Context, action: Any) -> None:
    """Deliver, to a world that is not there."""


async def trade(session: Session, runtime: Runtime, number: int) -> None:
    session.context.create(Order(item=f"tea {number}", price=10 + number), id=f"order-{number}")
    await runtime.arun()


async def main(path: str) -> None:
    store = SessionStore(path, durability="os")
    branches = BranchStore(store.database)
    session = await store.open("shop")
    agents = [
        create_agent("clerk", consumes=[Consume(Order)], produces=[confirm]),
        create_agent("bookkeeper", consumes=[Consume(Receipt)], produces=[book]),
    ]
    runtime = Runtime(session.context, agents=agents, session=session, dispatcher=send)
    for number in range(1, FIRST_TURNS + 1):
        await trade(session, runtime, number)
        if number in (2, FIRST_TURNS):
            await branches.tag("shop/main", "good" if number == 2 else "start")
    await branches.fork("shop/start", "shop/sale")
    async with branches.edit("shop", "sale", author="ann", message="half price") as context:
        context.update("order-1", Order(item="tea 1", price=5))
        context.delete("order-2")
    print("ready", flush=True)
    number = FIRST_TURNS
    async with anyio.create_task_group() as group:

        async def until_closed() -> None:
            await anyio.to_thread.run_sync(sys.stdin.read)
            group.cancel_scope.cancel()

        group.start_soon(until_closed)
        while True:
            number += 1
            with anyio.CancelScope(shield=True):
                await trade(session, runtime, number)
            await anyio.sleep(0.01)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
