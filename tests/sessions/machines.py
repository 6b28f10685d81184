"""A machine with a store of its own, and what two of them are asked for after a sync."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import Order, Outside, fsck, git, notifier

from reactifact import Runtime, SessionStore
from reactifact.branching import BranchStore
from reactifact.replay import verify_history


class Machine:
    """A store of its own, and the world as it sent to it."""

    def __init__(self, path: Path, hub: Path) -> None:
        self.path, self.hub = path, hub
        self.store = SessionStore(path, durability="os")
        self.branches = BranchStore(self.store.database)
        self.outside = Outside()

    async def turn(self, name: str, *, sends: bool = True) -> None:
        session = await self.store.open("s")
        session.context.create(Order(item=name), id=name)
        dispatcher = self.outside if sends else None
        await Runtime(session.context, [notifier()], session=session, dispatcher=dispatcher).arun()

    async def sync(self, **options: Any) -> Any:
        return await self.branches.sync(str(self.hub), **options)

    async def drain(self) -> list[str]:
        """Deliver what waits; return why something was not."""
        return [error for _, _, error in (await self.store.drain(self.outside)).failed]

    async def state(self) -> dict[str, Any]:
        context = await self.store.load_session("s")
        return {} if context is None else context.snapshot()

    def refs(self, prefix: str = "refs/heads/") -> dict[str, str]:
        return self.store.database.backend.refs(prefix)


async def alike(*machines: Machine) -> None:
    """Let machines sync until nothing moves, and require that they hold the same then."""
    for _ in range(2):
        for machine in machines:
            report = await machine.sync()
            assert report.ok, report
    for machine in machines:
        report = await machine.sync()
        assert (report.made, report.forwarded, report.merged, report.pushed) == ([], [], [], [])
        assert machine.refs() == machines[0].refs()
        assert machine.refs("refs/tags/") == machines[0].refs("refs/tags/")
        for session in await machine.store.list_sessions():
            checked = verify_history(machine.store.database, session)
            assert checked.ok, checked
        fsck(machine.path)


async def removed(machine: Machine) -> None:
    """Let go of what moves of branches left behind."""
    await machine.store.prune(grace=0)
    git(machine.path, "gc", "--quiet", "--prune=now")


def commits(path: Path) -> int:
    """Count the commits that a repository holds, reachable or not."""
    listed = git(path, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    return sum(" commit " in one for one in listed)
