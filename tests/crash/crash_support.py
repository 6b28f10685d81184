"""What crash tests and their child programs share: orders that are priced and billed, and the file outside.

Owns the models, the agents, how a child takes orders and dies, how a test starts one. What must hold
after a crash stands in the tests.

A line of the file outside, on disk before the next step is taken, is what somebody relies on:
`delivered KEY` by the dispatcher, `returned NUMBER VERSION` after each turn.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import forked
from pydantic import BaseModel

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    Session,
    create_agent,
    produce,
)
from reactifact.artifacts import Artifact

HERE = Path(__file__).parent


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "killed.Order"
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
    call.effects.upsert(receipt(priced.number), id=f"receipt:{priced.number}")
    for kind in ("bill", "print"):
        call.effects.act(kind, key=f"{kind}:{priced.number}", payload={"price": priced.price})


def receipt(number: int) -> Receipt:
    """Return the receipt that an order ends in."""
    return Receipt(number=number, text=f"{number * 7 % 50} EUR")


def keys(numbers: Any) -> set[str]:
    """Return the keys under which orders are delivered."""
    return {f"{kind}:{number}" for kind in ("bill", "print") for number in numbers}


class World:
    """The file outside: each line is on disk once `note` returns."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, *words: object) -> None:
        os.write(self._descriptor, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(self._descriptor)

    async def dispatch(self, context: Context, action: Artifact[PendingAction]) -> None:
        self.note("delivered", action.data.idempotency_key)


def lines(world: str | Path, word: str) -> list[list[str]]:
    """Return what stands behind a word in the file outside."""
    if not os.path.exists(world):
        return []
    found = [line.split() for line in Path(world).read_text().splitlines()]
    return [rest for first, *rest in found if first == word]


def runtime(session: Session, dispatch: Any) -> Runtime:
    """Return a runtime that prices and bills the orders of a session."""
    agents = [
        create_agent("pricer", consumes=[Consume(Order)], produces=[price]),
        create_agent("biller", consumes=[Consume(Priced)], produces=[bill]),
    ]
    return Runtime(session.context, agents=agents, session=session, dispatcher=dispatch)


async def take_orders(session: Session, world: World, numbers: range) -> AsyncIterator[int]:
    """End what an earlier process left, then take the orders that are not taken yet; yield each."""
    context, running = session.context, runtime(session, world.dispatch)
    await running.arun()
    for number in numbers:
        if context.get(f"order:{number}") is None:
            context.create(Order(number=number), id=f"order:{number}")
            await running.arun()
            world.note("returned", number, context.version)
            yield number


class Dying:
    """A hook for a store's write path: it counts the steps, and kills its process at one of them."""

    def __init__(self, hit: int = 0, step: str | None = None) -> None:
        self._hit = hit
        self._step = step
        self.seen: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        self.seen[name] += 1
        reached = self.seen.total() if self._step is None else self.seen[self._step]
        if self._step in (None, name) and reached == self._hit:
            os.kill(os.getpid(), signal.SIGKILL)


def start(script: str, *arguments: object) -> forked.Process:
    """Start a child program of this folder, with pipes."""
    paths = [str(HERE.parent.parent), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return forked.start("-W", "error", HERE / script, *arguments, env=environment)
