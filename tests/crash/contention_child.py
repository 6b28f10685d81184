"""One of several processes that write one store. Run by `test_contention`.

contention_child.py STORE WORLD NAME TURNS PARTS   turns on each of the sessions that PARTS names

`own` is a session of its own. `queued` and `raced` are shared: `queued` is opened with `wait=`, to be
alone with it; `raced` is not, and what refusals there are must be reactifact's own errors: how many there
were is printed. Anything else ends the process.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
from crash_support import Order, World, runtime

from reactifact import Session, SessionStore
from reactifact.errors import SessionBusy, StaleSession

PAUSE = 0.02
MOST = 2_000  # tries for one turn


async def turn(session: Session, world: World, number: int) -> None:
    """Take one order, and whatever an earlier turn was refused to finish."""

    async def dispatch(context: Any, action: Any) -> None:
        world.note("delivered", session.session_id, action.data.idempotency_key)

    if session.context.get(f"order:{number}") is None:
        session.context.create(Order(number=number), id=f"order:{number}")
    await runtime(session, dispatch).arun()
    world.note("returned", session.session_id, number)


async def raced(store: SessionStore, world: World, number: int) -> int:
    """Take one order on a session that others write too; return how often it was refused."""
    for refused in range(MOST):
        try:
            await turn(await store.open("raced"), world, number)
        except (SessionBusy, StaleSession):
            await anyio.sleep(PAUSE)
        else:
            return refused
    raise TimeoutError(f"order {number} was refused {MOST} times")


async def main(place: str, world_path: str, name: str, turns: int, parts: list[str]) -> None:
    world = World(world_path)
    store = SessionStore(place, durability="os")
    if "own" in parts:
        own = await store.open(f"own-{name}")
        for number in range(turns):
            await turn(own, world, number)
    refused = 0
    for number in range(int(name) * turns, (int(name) + 1) * turns):
        if "queued" in parts:
            async with await store.open("queued", wait=300) as session:
                await turn(session, world, number)
        if "raced" in parts:
            refused += await raced(store, world, number)
    await store.aclose()
    print(refused)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5].split(","))
