"""A shop in a process of its own, whose disk loses power under it. Run by `power_cut_lab`.

power_cut_shop.py STORE WORLD DURABILITY   take orders in all sessions until killed, or left alone

Whatever somebody outside may rely on is a line of WORLD, a file on another disk, written the moment it
is so: `delivered SESSION KEY` by the dispatcher, `returned SESSION NUMBER` after `arun`, `branched
SESSION NAME` after a branch was saved.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any, ClassVar, cast

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
from reactifact._store.protocol import Durability
from reactifact.artifacts import Artifact
from reactifact.branching import BranchStore
from reactifact.session import Session

SESSIONS = ("shop/0", "shop/1")
BRANCH_EVERY = 7
LONGEST_SEND = 0.02
"""Seconds. A send takes its time, and a cut in the middle of it has to find the intent."""


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "shop.Order"  # this module has another name where it is imported
    number: int


class Receipt(BaseModel):
    TYPE_ID: ClassVar[str] = "shop.Receipt"
    number: int
    text: str


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process_order(call: ProduceCall) -> None:
    assert call.trigger is not None
    number = call.trigger.data.number
    call.effects.act("notify", key=f"notify:{number}", payload={"number": number})
    call.effects.upsert(Receipt(number=number, text="confirmed"), id=f"receipt:{number}")


def runtime_of(context: Context, session: Any, dispatcher: Any) -> Runtime:
    """Return a runtime with the shop's agents."""
    clerk = create_agent("clerk", consumes=[Consume(Order)], produces=[process_order])
    return Runtime(context, agents=[clerk], session=session, dispatcher=dispatcher)


class World:
    """The file outside, where each line is seen by others once `note` returns."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, *words: object) -> None:
        os.write(self._descriptor, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(self._descriptor)


class Counter:
    """One session that takes orders."""

    def __init__(self, session: Session, branches: BranchStore, world: World) -> None:
        self.session = session
        self.branches = branches
        self.world = world
        self.runtime = runtime_of(session.context, session, self.dispatch)
        self.number = 0

    async def dispatch(self, context: Context, action: Artifact[PendingAction]) -> None:
        self.world.note("delivered", self.session.session_id, action.data.idempotency_key)
        await anyio.sleep(random.uniform(0, LONGEST_SEND))

    async def take_order(self) -> None:
        session_id, context, number = self.session.session_id, self.session.context, self.number
        context.create(Order(number=number), id=f"order:{number}")
        await self.runtime.arun()
        self.world.note("returned", session_id, number)
        if number % BRANCH_EVERY == 0:
            name = f"try-{number}"
            await self.branches.save_branch(context.branch(name=name), session_id=session_id, name=name)
            self.world.note("branched", session_id, name)
        self.number += 1


async def main(path: str, world_path: str, durability: str) -> None:
    store = SessionStore(path, durability=cast(Durability, durability))
    branches = BranchStore(store.database)
    world = World(world_path)
    counters = [Counter(await store.open(session_id), branches, world) for session_id in SESSIONS]
    parent = os.getppid()
    while os.getppid() == parent:
        for counter in counters:  # one after another: a sync of one would make up for one missing in another
            await counter.take_order()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
