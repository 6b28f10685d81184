"""Waiting for the run lock of a branch: first come, first served, with a bounded number of looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from reactifact._context.push import StoreLock
from reactifact._sessions.stores import open_database
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import SessionBusy
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio

NAME = "run s/main"
WAITERS = 20


class Recorded:
    """A queue that notes who joins it, in order, and how often each asks whether it is its turn."""

    def __init__(self, queue: Any, joined: list[Any], looks: list[int]) -> None:
        self._queue, self._joined, self._looks = queue, joined, looks

    def is_empty(self) -> bool:
        return bool(self._queue.is_empty())

    def join(self) -> Any:
        ticket = self._queue.join()
        place = len(self._joined)
        self._joined.append(ticket)
        self._looks.append(0)
        is_first = ticket.is_first

        def counted() -> bool:
            self._looks[place] += 1
            return bool(is_first())

        ticket.is_first = counted
        return ticket


@pytest.fixture(params=["memory", "git", "sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    match request.param:
        case "memory":
            made: Any = InMemoryKVBackend()
        case "postgres":
            made = open_database(request.getfixturevalue("postgres_dsn")).backend
        case kind:
            made = open_database(str(tmp_path / f"state.{'git' if kind == 'git' else 'db'}")).backend
    yield made
    made.close()


async def test_twenty_writers_are_served_in_the_order_they_came(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[Any] = []
    looks: list[int] = []
    served: list[int] = []
    real = backend.queue
    monkeypatch.setattr(backend, "queue", lambda name: Recorded(real(name), joined, looks))
    clock = JumpingClock()

    async def write(number: int) -> None:
        async with StoreLock(backend, NAME, clock, wait=60.0):
            served.append(number)
            await clock.sleep(0.02)

    holder = StoreLock(backend, NAME, clock)
    await holder.acquire()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(WAITERS):
                group.start_soon(write, number)
                while len(joined) == number:  # it stands in the queue before the next one comes
                    await anyio.lowlevel.checkpoint()
            await holder.release()
    assert served == list(range(WAITERS))
    assert max(looks) <= 5 + clock.monotonic() / 0.1 + 2  # the pause grows to a tenth of a second


async def test_a_wait_in_vain_looks_ten_times_a_second_at_most(backend: Any) -> None:
    clock = JumpingClock()
    async with StoreLock(backend, NAME, clock):
        with pytest.raises(SessionBusy):
            await StoreLock(backend, NAME, clock, wait=30.0).acquire()
    assert sum(clock.slept) == pytest.approx(30.0)
    assert len(clock.slept) <= 30 / 0.1 + 6
    async with StoreLock(backend, NAME, clock, wait=30.0):
        pass  # whoever gave up stands in nobody's way
