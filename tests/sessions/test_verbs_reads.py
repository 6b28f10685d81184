"""What fork, merge and diff read: as much in a large session as in a small one, in few reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import SessionStore
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend

pytestmark = pytest.mark.anyio


class Item(BaseModel):
    number: int


class Counting(InMemoryKVBackend):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def read_many(self, oids: Iterable[str]) -> Any:
        oids = list(oids)
        self.reads.append(len(oids))
        return super().read_many(oids)


async def reads(items: int) -> dict[str, list[int]]:
    """Return how many objects each read of an operation asked for, in a session of so many artifacts."""
    backend = Counting()
    session = await SessionStore(backend).open("s")
    for number in range(items):
        session.context.create(Item(number=number), id=f"item:{number}")
    session.context.drain_events()
    await session.save()
    found: dict[str, list[int]] = {}

    async def noted(what: str, operation: Callable[[], Awaitable[Any]]) -> None:
        backend.reads = []
        await operation()
        found[what] = list(backend.reads)

    async def change(branch: str, first: int) -> None:
        async with BranchStore(backend).edit("s", branch) as context:
            for number in range(first, first + 10):
                context.update(f"item:{number}", Item(number=-1))

    await noted("fork", lambda: BranchStore(backend).fork("s", "s/alt"))
    await change("main", 0)
    await change("alt", 10)
    await noted("diff", lambda: BranchStore(backend).diff("s", "s/alt"))
    await noted("merge", lambda: BranchStore(backend).merge("s", "s/alt"))
    merged = await SessionStore(backend).open("s")
    changed = [item for item in merged.context.list_artifacts(Item) if item.data.number == -1]
    assert len(changed) == 20
    return found


async def test_they_read_no_more_in_a_large_session_and_a_level_at_a_time() -> None:
    small, large = await reads(300), await reads(3_000)
    for what, few in small.items():
        assert sum(large[what]) <= 1.25 * sum(few), what
        assert len(large[what]) <= len(few) + 3 <= 40, what
