"""Waiting for a lock in turn: who came first has it first, among threads, processes and hosts.

A lock itself knows only held and free, so whoever happens to look when it becomes free has it. Owns what
comes before it: a queue of tickets that die with their holders. Where they are kept is each store's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from .files import refuse_links

if TYPE_CHECKING:
    from .locks import FileLock

T = TypeVar("T")

_FIRST_PAUSE = 0.0005


class Ticket(Protocol):
    """A place in a queue."""

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        ...

    def leave(self) -> None:
        """Give the place up: the lock was had, or is no longer wanted."""
        ...


class LockQueue(Protocol):
    """Those who wait for one lock."""

    def is_empty(self) -> bool:
        """Tell whether nobody waits, as far as that can be told at no cost."""
        ...

    def join(self) -> Ticket:
        """Queue up behind all who wait."""
        ...


def wait_in_turn(
    queue: LockQueue, attempt: Callable[[], T | None], wait: float, *, longest_pause: float
) -> T | None:
    """Return what `attempt` gives as soon as it is our turn; `None` after `wait` seconds in vain.

    Without a wait it is asked at once: whoever has a ticket asks so when it is his turn.
    """
    if wait <= 0:
        return attempt()
    deadline = time.monotonic() + wait
    pause = _FIRST_PAUSE
    ticket: Ticket | None = None
    try:
        while True:
            is_ours = queue.is_empty() if ticket is None else ticket.is_first()
            if is_ours and (had := attempt()) is not None:
                return had
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if ticket is None:
                ticket = queue.join()  # and look again: it may be free by now
                continue
            time.sleep(min(pause, left))
            pause = min(pause * 2, longest_pause)
    finally:
        if ticket is not None:
            ticket.leave()


TryLock = Callable[..., "FileLock | None"]


class FileQueue:
    """A queue in a folder: a ticket is a numbered file that its holder keeps locked.

    `alone` runs a function while nobody else joins.
    """

    def __init__(self, folder: str, try_lock: TryLock, alone: Callable[[Callable[[], int]], int]) -> None:
        self._folder = folder
        self._try_lock = try_lock
        self._alone = alone

    def is_empty(self) -> bool:
        """Tell whether the folder is missing: who leaves last takes it away."""
        return not os.path.isdir(self._folder) or not self._anybody_before(None)

    def join(self) -> FileTicket:
        """Queue up behind all who wait."""
        held: list[FileLock] = []

        def take_number() -> int:
            os.makedirs(self._folder, exist_ok=True)
            number = max(self._numbers(), default=0) + 1
            while not held:
                # `None`: somebody who looks for dead tickets has just seen it unlocked.
                lock = self._try_lock(self._path(number))
                if lock is not None:
                    held.append(lock)
            return number

        while True:
            with suppress(FileNotFoundError):  # the last one has just left, and taken the folder away
                number = self._alone(take_number)
                return FileTicket(self, number, held[0])

    def _numbers(self) -> list[int]:
        refuse_links(self._folder)
        try:
            return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())
        except FileNotFoundError:
            return []

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number}"

    def _anybody_before(self, number: int | None) -> bool:
        """Tell whether anybody alive has a lower number; tickets of the dead are taken away."""
        for other in self._numbers():
            if number is not None and other >= number:
                break
            with suppress(FileNotFoundError):
                lock = self._try_lock(self._path(other), create=False)
                if lock is None:
                    return True
                lock.release(unlink=True)
        self._tidy()
        return False

    def _tidy(self) -> None:
        with suppress(OSError):
            os.rmdir(self._folder)  # which only goes when it is empty


class FileTicket:
    """A place in a `FileQueue`."""

    def __init__(self, queue: FileQueue, number: int, lock: FileLock) -> None:
        self._queue = queue
        self._number = number
        self._lock = lock

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        return not self._queue._anybody_before(self._number)

    def leave(self) -> None:
        """Give the place up."""
        self._lock.release(unlink=True)
        self._queue._tidy()
