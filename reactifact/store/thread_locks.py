"""Named locks between the threads of one process.

For the stores that live in one process alone, and for those whose own locks tell no threads apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import SessionBusy


class ThreadLocks:
    """Locks by free-text name. `location` names the store in messages."""

    def __init__(self, location: str) -> None:
        self._location = location
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
                        f"lock {name!r} of {self._location} is held by {self._holders[name]}; "
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
    def hold(self, name: str, wait: float) -> Iterator[None]:
        """Hold a lock for the length of a `with`. Raises `SessionBusy`."""
        self.take(name, wait)
        try:
            yield
        finally:
            self.release(name)
