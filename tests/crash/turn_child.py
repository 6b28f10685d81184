"""Turns with deliveries in a process of its own, killed at random moments. Run by `test_turn_killed`.

turn_child.py STORE WORLD ORDERS   take the orders that are not taken yet, deliver, then end

A line of WORLD, on disk before the next step is taken, is what somebody outside relies on:
`delivered KEY` by the dispatcher, `returned NUMBER VERSION` after each turn.
"""

from __future__ import annotations

import os
import sys
from typing import ClassVar

import anyio
from pydantic import BaseModel

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.artifacts import Artifact


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "killed.Order"  # this module has another name where it is imported
    number: int


class Priced(BaseModel):
    TYPE_ID: ClassVar[str] = "killed.Priced"
    number: int
    price: int


class Receipt(BaseModel):
    TYPE_ID: ClassVar[str] = "killed.Receipt"
    number: int
    text: str


@produce(Priced)
async def price(call: ProduceCall) -> None:
    assert call.trigger is not None
    number = call.trigger.data.number
    call.effects.upsert(Priced(number=number, price=number * 7 % 50), id=f"priced:{number}")


@produce(Receipt, also_creates=PendingAction)
async def bill(call: ProduceCall) -> None:
    assert call.trigger is not None
    priced = call.trigger.data
    call.effects.upsert(
        Receipt(number=priced.number, text=f"{priced.price} EUR"), id=f"receipt:{priced.number}"
    )
    call.effects.act("bill", key=f"bill:{priced.number}", payload={"price": priced.price})
    call.effects.act("print", key=f"print:{priced.number}", payload={"price": priced.price})


class World:
    """The file outside: each line is on disk once `note` returns."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, *words: object) -> None:
        os.write(self._descriptor, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(self._descriptor)

    async def dispatch(self, context: Context, action: Artifact[PendingAction]) -> None:
        self.note("delivered", action.data.idempotency_key)


async def main(store: str, world_path: str, orders: int) -> None:
    world = World(world_path)
    session = await SessionStore(store).open("killed")
    context = session.context
    agents = [
        create_agent("pricer", consumes=[Consume(Order)], produces=[price]),
        create_agent("biller", consumes=[Consume(Priced)], produces=[bill]),
    ]
    runtime = Runtime(context, agents=agents, session=session, dispatcher=world.dispatch)
    await runtime.arun()  # what an earlier process left
    for number in range(orders):
        if context.get(f"order:{number}") is None:
            context.create(Order(number=number), id=f"order:{number}")
            await runtime.arun()
            world.note("returned", number, context.version)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
