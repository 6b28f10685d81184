"""One relay, or one writer, of a store in a process of its own. Run by `test_relay_killed`.

relay_child.py relay STORE WORLD         deliver until killed
relay_child.py writer STORE WORLD NAME   take orders in sessions NAME-0 to NAME-2, in turn, until killed
"""

from __future__ import annotations

import itertools
import sys

import anyio
from crash_support import Order, World, runtime

from reactifact import SessionStore
from reactifact.artifacts import Artifact
from reactifact.context import Context
from reactifact.interrupt import PendingAction


async def relay(place: str, world: World) -> None:
    async def dispatch(context: Context, action: Artifact[PendingAction]) -> None:
        world.note("delivered", context.line.session, action.data.idempotency_key)

    await SessionStore(place, durability="os").relay(dispatch, concurrency=1, poll=0.02)


async def write(place: str, world: World, name: str) -> None:
    store = SessionStore(place, durability="os")
    for number in itertools.count():
        session_id = f"{name}-{number % 3}"
        async with await store.open(session_id, wait=60) as session:
            if session.context.get(f"order:{number}") is not None:
                continue  # of an earlier life
            session.context.create(Order(number=number), id=f"order:{number}")
            running = runtime(session, None)
            running.hints = False
            await running.arun()
        world.note("returned", session_id, number)


if __name__ == "__main__":
    role, place, path, *rest = sys.argv[1:]
    if role == "relay":
        anyio.run(relay, place, World(path))
    else:
        anyio.run(write, place, World(path), *rest)
