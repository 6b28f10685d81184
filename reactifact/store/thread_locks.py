"""Named locks between the threads of one process.

For the stores that live in one process alone, and for those whose own locks tell no threads apart.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import LockLost, SessionBusy


class ThreadLocks:
    """Locks by free-text name. `location` names the store in messages."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._released = threading.Condition()
        self._holders: dict[str, str] = {}
        self._waiting: dict[str, list[ThreadTicket]] = {}  # first come, first served

    def queue(self, name: str) -> ThreadQueue:
        """Return the queue of those who wait for a lock."""
        return ThreadQueue(self, name)

    def take(self, name: str, wait: float) -> None:
        """Take a lock. Raises `SessionBusy`, naming the holder, when it is not had in `wait` seconds."""
        deadline = time.monotonic() + wait
        ticket = self.queue(name).join() if wait > 0 else None
        try:
            with self._released:
                while name in self._holders or (ticket is not None and not ticket.is_first()):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise SessionBusy(
                            f"lock {name!r} of {self.location} is held by "
                            f"{self._holders.get(name, 'others who came before')}; "
                            f"wait for it to finish, or pass a longer wait"
                        )
                    self._released.wait(min(left, threading.TIMEOUT_MAX))
                self._holders[name] = f"thread {threading.current_thread().name} of this process"
        finally:
            if ticket is not None:
                ticket.leave()

    def release(self, name: str) -> None:
        """Give a lock back."""
        with self._released:
            self._holders.pop(name, None)
            self._released.notify_all()

    def forget(self) -> None:
        """Drop all locks, in a forked child: its parent holds them."""
        self._released = threading.Condition()
        self._holders = {}
        self._waiting = {}

    @property
    def is_free(self) -> bool:
        """Whether nobody holds any."""
        return not self._holders

    @contextmanager
    def hold(self, name: str, wait: float) -> Iterator[ThreadLock]:
        """Hold a lock for the length of a `with`. Raises `SessionBusy`."""
        self.take(name, wait)
        try:
            yield ThreadLock(self, name)
        finally:
            self.release(name)


class ThreadLock:
    """One held lock between threads; it is lost only in a forked child."""

    def __init__(self, locks: ThreadLocks, name: str) -> None:
        self._locks = locks
        self._name = name
        self._pid = os.getpid()

    def require_held(self) -> None:
        """Raise `LockLost` in a process that was forked off the holder's."""
        if self._pid != os.getpid():
            raise LockLost(
                f"lock {self._name!r} of {self._locks.location} is held by the process that this one was "
                f"forked off; open the store anew in this process"
            )


class ThreadQueue:
    """Those who wait for one of the `ThreadLocks`."""

    def __init__(self, locks: ThreadLocks, name: str) -> None:
        self._locks = locks
        self._name = name

    def is_empty(self) -> bool:
        """Tell whether nobody waits."""
        return not self._locks._waiting.get(self._name)

    def join(self) -> ThreadTicket:
        """Queue up behind all who wait."""
        ticket = ThreadTicket(self._locks, self._name)
        with self._locks._released:
            self._locks._waiting.setdefault(self._name, []).append(ticket)
        return ticket


class ThreadTicket:
    """A place in a `ThreadQueue`."""

    def __init__(self, locks: ThreadLocks, name: str) -> None:
        self._locks = locks
        self._name = name

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        return self._locks._waiting.get(self._name, [self])[0] is self

    def leave(self) -> None:
        """Give the place up."""
        with self._locks._released:
            waiting = self._locks._waiting.get(self._name, [])
            if self in waiting:
                waiting.remove(self)
            if not waiting:
                self._locks._waiting.pop(self._name, None)
            self._locks._released.notify_all()
