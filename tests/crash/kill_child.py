"""Runs turns with deliveries in processes that it starts and kills. Run by `test_kill_points`.

kill_child.py      each line of stdin is a point as JSON, each line of stdout how it ended

A point is `{"step": NAME, "hit": N}` (killed at the N-th time that the store's write path is at that
step), `{"after": SECONDS}` (killed that long after it began) or `{}` (runs to its end, and notes each
step it took as `step NAME`), with `"place"`, `"world"` and `"orders"`, the number up to which it takes
orders. The process itself only imports and forks: a point costs no start.

Beside the session that takes the orders, others come and go: after every second order a guest takes one
of its own and is deleted. In a bare repository its refs are packed before, and `HEAD` points at it. After
every fourth order the session is compacted, and tables are pruned. The file outside has `arrived NAME`,
`leaving NAME` and `left NAME` for each guest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import anyio
from crash_support import Dying, World, lines, take_orders

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.sql.postgres import PostgreSQLKVBackend
from reactifact._store._backends.sql.sqlite import SQLiteKVBackend
from reactifact._store.protocol import Prunable
from reactifact.errors import SessionBusy

SESSION = "killed"
GUEST = "guest-"
FIRST_GUEST_ORDER = 1_000_000
"""What guests order has numbers of its own, so that no two sessions deliver under one key."""


class GuestWorld(World):
    """The file outside as a guest writes it: only its deliveries."""

    def note(self, *words: object) -> None:
        if words[0] == "delivered":
            super().note(*words)


async def receive(store: SessionStore, place: str, world: str, number: int) -> None:
    """Let a guest take its order, and delete it."""
    name = f"{GUEST}{number}"
    session = await store.open(name)
    ordered = range(FIRST_GUEST_ORDER + number, FIRST_GUEST_ORDER + number + 1)
    async for _ in take_orders(session, GuestWorld(world), ordered):
        World(world).note("arrived", name)
    if isinstance(store.database.backend, GitBackend):
        for command in (("pack-refs", "--all"), ("symbolic-ref", "HEAD", f"refs/heads/{name}/main")):
            subprocess.run(["git", "-C", place, *command], check=True)
    await delete(store, World(world), name)


async def delete(store: SessionStore, world: World, name: str) -> None:
    world.note("leaving", name)
    await store.delete_session(name)
    world.note("left", name)


async def tidy(store: SessionStore, world: str) -> None:
    """Deliver what waits anywhere, and delete the guests that an earlier process left."""
    await store.drain(World(world).dispatch)
    present = {name for name in await store.list_sessions() if name.startswith(GUEST)}
    leaving = {name for (name,) in lines(world, "leaving")} - {name for (name,) in lines(world, "left")}
    for name in sorted(present | leaving):
        await delete(store, World(world), name)


async def prune(store: SessionStore) -> None:
    """Remove from tables what guests and compactions left; a bare repository has `git gc` for that."""
    if not isinstance(store.database.backend, Prunable):
        return
    with anyio.fail_after(30):
        while True:
            try:
                await store.prune(grace=0)
            except SessionBusy:  # one that was killed at it holds its lock until the server sees it
                await anyio.sleep(0.02)
            else:
                return


async def turns(place: str, world: str, orders: int) -> None:
    database = open_database(place)
    # one that was killed holds its lock for as long as a server takes to see that it is gone
    store = SessionStore(database, compact_every=5)
    session = await store.open(SESSION, wait=30)
    await tidy(store, world)
    async for number in take_orders(session, World(world), range(orders)):
        if number % 2:
            await receive(store, place, world, number)
        if number % 4 == 3:
            session.context.compact(keep_commits=4)
            await prune(store)
    await session.aclose()
    database.backend.close()


def one(place: str, world: str, point: dict[str, Any]) -> str:
    """Run one process to its end; return `killed`, `done` or `failed`."""
    pid = os.fork()
    if pid == 0:
        dying = Dying(point.get("hit", 0), point.get("step", ""))
        for kind in (GitBackend, SQLiteKVBackend, PostgreSQLKVBackend):
            kind.fault = staticmethod(dying)  # of the class: the making of a store is met too
        try:
            anyio.run(turns, place, world, point["orders"])
            for name in dying.seen:
                World(world).note("step", name)
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


def main() -> None:
    for line in sys.stdin:
        point = json.loads(line)
        print(one(point["place"], point["world"], point), flush=True)


if __name__ == "__main__":
    main()
