"""Runs turns with deliveries in processes that it starts and kills. Run by `test_kill_points`.

kill_child.py STORE WORLD      each line of stdin is a point as JSON, each line of stdout how it ended

A point is `{"step": NAME, "hit": N}` (killed at the N-th time that the store's write path is at that
step), `{"after": SECONDS}` (killed that long after it began) or `{}` (runs to its end), with `"orders"`,
the number up to which it takes orders. The process itself only imports and forks: a point costs no start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import anyio
from turn_child import Order, Priced, World, bill, price

from reactifact import Consume, Runtime, SessionStore, create_agent
from reactifact.sessions.stores import open_database

SESSION = "killed"


def killing(step: str, hit: int) -> Any:
    """Return a fault hook that kills this process."""
    seen: Counter[str] = Counter()

    def fault(name: str) -> None:
        seen[name] += 1
        if name == step and seen[name] == hit:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


async def turns(place: str, world: World, orders: int, point: dict[str, Any]) -> None:
    database = open_database(place)
    if "step" in point:
        database.backend.fault = killing(point["step"], point["hit"])  # type: ignore[attr-defined]
    # one that was killed holds its lock for as long as a server takes to see that it is gone
    session = await SessionStore(database, compact_every=5).open(SESSION, wait=30)
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
    await session.aclose()
    database.backend.close()


def one(place: str, world: str, point: dict[str, Any]) -> str:
    """Run one process to its end; return `killed`, `done` or `failed`."""
    pid = os.fork()
    if pid == 0:
        try:
            anyio.run(turns, place, World(world), point["orders"], point)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    if "after" in point:
        time.sleep(point["after"])
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return "done" if status == 0 else "failed"


def main(place: str, world: str) -> None:
    for line in sys.stdin:
        print(one(place, world, json.loads(line)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
