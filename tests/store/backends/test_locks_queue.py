"""Who waits for a lock has it in the order of coming, in every store: shown by order, never by time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from reactifact._context.push import StoreLock
from reactifact._sessions.stores import open_database
from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.protocol import ObjectBackend
from reactifact.clock import Clock
from reactifact.errors import SessionBusy

NAME = "run s/main"
OPEN = """
import sys
from reactifact._sessions.stores import open_database
backend = open_database(sys.argv[1]).backend
ticket = backend.queue(sys.argv[2]).join()
print("waits", flush=True)
sys.stdin.read()
"""

Open = Callable[[], ObjectBackend]


@pytest.fixture(params=["git", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes may open."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_dsn")
        return found
    return str(tmp_path / ("state.git" if request.param == "git" else "state.db"))


@pytest.fixture(params=["git", "sqlite", "postgres", "memory"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open one store once more at each call, as another process does."""
    backends: list[ObjectBackend] = []
    if request.param == "memory":
        backends.append(MemoryBackend())
        yield lambda: backends[0]
        return
    where = (
        request.getfixturevalue("postgres_dsn")
        if request.param == "postgres"
        else str(tmp_path / ("state.git" if request.param == "git" else "state.db"))
    )

    def open_one() -> ObjectBackend:
        backends.append(open_database(where).backend)
        return backends[-1]

    yield open_one
    for backend in backends:
        backend.close()


class LastFirst(Clock):
    """A clock on which time stands still, and who came last is woken first."""

    def __init__(self) -> None:
        self.asleep: list[anyio.Event] = []
        self.slept = 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.asleep.append(woken := anyio.Event())
        await woken.wait()

    def wake(self) -> None:
        asleep, self.asleep = self.asleep[::-1], []
        for each in asleep:
            each.set()


def test_tickets_stand_in_the_order_of_coming(opener: Open) -> None:
    queues = [opener().queue(NAME) for _ in range(3)]
    tickets = [queue.join() for queue in [*queues, queues[0]]]
    assert [ticket.is_first() for ticket in tickets] == [True, False, False, False]
    tickets[1].leave()
    assert [ticket.is_first() for ticket in (tickets[0], tickets[2])] == [True, False]
    tickets[0].leave()
    assert [ticket.is_first() for ticket in tickets[2:]] == [True, False]
    last = queues[1].join()
    for ticket in (*tickets[2:], last):
        assert ticket.is_first()
        ticket.leave()
    assert all(queue.is_empty() for queue in queues)


def test_queues_of_other_locks_are_apart(opener: Open) -> None:
    one, other = opener(), opener()
    ticket = one.queue(NAME).join()
    assert other.queue("run t/main").join().is_first()
    with other.lock("run u/main"):
        pass
    ticket.leave()


def test_whoever_comes_while_others_wait_goes_behind_them(opener: Open) -> None:
    """Also when the lock is free at this moment: its holder has just given it back."""
    ticket = opener().queue(NAME).join()

    async def main() -> None:
        late = StoreLock(opener(), NAME, LastFirst())
        with pytest.raises(SessionBusy):
            await late.acquire()
        ticket.leave()
        await late.acquire()
        await late.release()

    anyio.run(main)


def test_a_lock_is_had_in_the_order_of_coming_whoever_is_woken_first(opener: Open) -> None:
    had: list[int] = []

    async def main() -> None:
        clock = LastFirst()

        async def runner(number: int, lock: StoreLock) -> None:
            async with lock:
                had.append(number)
                await anyio.lowlevel.checkpoint()

        holder = StoreLock(opener(), NAME, clock)
        await holder.acquire()
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(runner, number, StoreLock(opener(), NAME, clock, wait=1.0))
                while clock.slept <= number:  # until it has looked in vain, and sleeps
                    await anyio.lowlevel.checkpoint()
            await holder.release()
            while len(had) < 5:
                clock.wake()
                await anyio.lowlevel.checkpoint()

    anyio.run(main)
    assert had == [0, 1, 2, 3, 4]


def test_who_gives_up_leaves_the_queue(opener: Open) -> None:
    async def main() -> None:
        clock = LastFirst()
        holder, cut = StoreLock(opener(), NAME, clock), StoreLock(opener(), NAME, clock, wait=1.0)
        await holder.acquire()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut.acquire)
            while not clock.asleep:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await holder.release()
        late = StoreLock(opener(), NAME, clock)
        await late.acquire()  # without a wait: nobody is before it
        await late.release()

    anyio.run(main)


def test_a_blocking_wait_in_vain_leaves_the_queue_too(opener: Open) -> None:
    one, other = opener(), opener()
    with one.lock(NAME), pytest.raises(SessionBusy), other.lock(NAME, wait=0.001):
        pass
    assert one.queue(NAME).join().is_first()


def test_a_waiter_that_was_killed_holds_nobody_up(place: str) -> None:
    backend: Any = open_database(place).backend
    child = subprocess.Popen(
        [sys.executable, "-c", OPEN, place, NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"waits\n"
    ticket = backend.queue(NAME).join()
    assert not ticket.is_first()
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    while not ticket.is_first():  # the server notices the end of a connection in its own time
        pass
    ticket.leave()
    assert backend.queue(NAME).is_empty()
    backend.close()


def test_nothing_is_left_of_a_queue_in_the_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "state.git", tmp_path / "state.db"):
        backend: Any = open_database(str(path)).backend
        with backend.lock(NAME), pytest.raises(SessionBusy), backend.lock(NAME, wait=0.001):
            pass
        backend.close()
    assert list(tmp_path.rglob("queue-*")) == []
