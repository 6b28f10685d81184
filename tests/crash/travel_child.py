"""A machine with a store of its own that works and syncs with a hub, told by lines on stdin. See the test.

travel_child.py STORE HUB WORLD NAME      each line is a command as JSON, answered by `done` or `failed WHY`

A command is `{"do": NAME, "number": N, "kill": N}`; with `kill` the process dies at the N-th step, counted
over the write path of the store, the calls of git, and the sends. `survived` is said where there were fewer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
from crash_support import Dying, Order, World, runtime

from reactifact import Context, PendingAction, SessionStore
from reactifact._sessions import remote
from reactifact._store._backends.git.backend import GitBackend
from reactifact.artifacts import Artifact
from reactifact.branching import BranchStore
from reactifact.errors import LeaseHeld, NameTaken

SESSION = "killed"


class Machine:
    """What one command does; `dying` counts its steps."""

    def __init__(self, store: str, hub: str, world: str, name: str) -> None:
        self.place, self.hub, self.name = store, hub, name
        self.world = World(world)
        self.dying = Dying()

    async def dispatch(self, context: Context, action: Artifact[PendingAction]) -> None:
        await self.world.dispatch(context, action)
        self.dying("sent")

    async def run(self, command: dict[str, Any]) -> str:
        store = SessionStore(self.place, durability="os")
        branches = BranchStore(store.database)
        try:
            return await getattr(self, command["do"])(store, branches, command.get("number", 0)) or "done"
        finally:
            await store.aclose()

    async def plan(self, store: SessionStore, branches: BranchStore, number: int) -> None:
        session = await store.open(SESSION, wait=0)
        async with session:
            await runtime(session, None).arun()
            session.context.create(Order(number=number), id=f"order:{number}")
            await runtime(session, None).arun()
        self.world.note("returned", number)

    async def deliver(self, store: SessionStore, branches: BranchStore, number: int) -> str | None:
        report = await store.drain(self.dispatch)
        return f"failed {report.failed}" if report.failed else None

    async def fork(self, store: SessionStore, branches: BranchStore, number: int) -> None:
        with suppress(NameTaken):
            await branches.fork("main", f"{self.name}-{number}", session=SESSION)

    async def drop(self, store: SessionStore, branches: BranchStore, number: int) -> None:
        forks = [head.branch for head in await branches.branches(SESSION) if head.branch != "main"]
        if forks:
            await branches.delete_branch(SESSION, forks[number % len(forks)])

    async def tag(self, store: SessionStore, branches: BranchStore, number: int) -> None:
        await branches.tag("main", f"{self.name}-tag-{number}", session=SESSION)

    async def compact(self, store: SessionStore, branches: BranchStore, number: int) -> None:
        session = await store.open(SESSION, wait=0)
        async with session:
            session.context.compact(keep_commits=3, keep_versions=2)

    async def sync(self, store: SessionStore, branches: BranchStore, number: int) -> str | None:
        report = await branches.sync(self.hub)
        return None if report.ok else f"failed {report.to_dict()}"

    async def lease(self, store: SessionStore, branches: BranchStore, number: int) -> str | None:
        report = await branches.sync(self.hub, lease=3600, name=self.name)
        refused = [error for _, _, error in report.failed if not isinstance(error, LeaseHeld)]
        return f"failed {report.to_dict()}" if refused or report.conflicts else None


def main() -> None:
    machine = Machine(*sys.argv[1:])
    run_git = remote._run

    async def counted(command: Sequence[str], text: str, *, may_ask: bool = False) -> Any:
        machine.dying("before git")
        done = await run_git(command, text, may_ask=may_ask)
        machine.dying("after git")
        return done

    remote._run = counted
    for line in sys.stdin:
        command = json.loads(line)
        machine.dying = Dying(command.get("kill", 0))
        GitBackend.fault = staticmethod(machine.dying)
        answer = anyio.run(machine.run, command)
        print("survived" if command.get("kill") else answer, flush=True)


if __name__ == "__main__":
    main()
