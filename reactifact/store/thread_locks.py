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

    def take(self, name: str, wait: float) -> None:
        """Take a lock. Raises `SessionBusy`, naming the holder, when it is not had in `wait` seconds."""
        deadline = time.monotonic() + wait
        with self._released:
            while name in self._holders:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SessionBusy(
                        f"lock {name!r} of {self.location} is held by {self._holders[name]}; "
                        f"wait for it to finish, or pass a longer wait"
                    )
                self._released.wait(min(left, threading.TIMEOUT_MAX))
            self._holders[name] = f"thread {threading.current_thread().name} of this process"

    def release(self, name: str) -> None:
        """Give a lock back."""
        with self._released:
            self._holders.pop(name, None)
            self._released.notify_all()

    def forget(self) -> None:
        """Drop all locks, in a forked child: its parent holds them."""
        self._released = threading.Condition()
        self._holders = {}

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
