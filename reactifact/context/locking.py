"""Holding a store's lock from async code: waiting for it without blocking the event loop."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from anyio import CancelScope

from ..clock import Clock
from ..errors import SessionBusy
from ..store.line import Line
from ..store.protocol import ObjectBackend
from ..threads import short_call

_FIRST_WAIT = 0.005
_LONGEST_WAIT = 0.1


class StoreLock:
    """A named lock of a backend, held from `acquire` to `release` or for an `async with`.

    `wait` is how many seconds to wait for it; without end by `math.inf`.
    """

    def __init__(self, backend: ObjectBackend, name: str, clock: Clock, wait: float = 0.0) -> None:
        self._backend = backend
        self._name = name
        self._clock = clock
        self._wait = wait
        self._held: AbstractContextManager[None] | None = None

    async def acquire(self) -> None:
        """Take the lock. Raises `SessionBusy`, naming the holder, when the wait was in vain."""
        pause = _FIRST_WAIT
        until = self._clock.monotonic() + self._wait
        while True:
            lock = self._backend.lock(self._name)
            try:
                await short_call(self._backend.is_local, lock.__enter__)
            except SessionBusy:
                left = until - self._clock.monotonic()
                if left <= 0:
                    raise
                await self._clock.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_WAIT)
            else:
                self._held = lock
                return

    async def release(self) -> None:
        """Give the lock back; one that is not held is fine."""
        lock, self._held = self._held, None
        if lock is not None:
            with CancelScope(shield=True):
                await short_call(self._backend.is_local, lock.__exit__, None, None, None)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *exc: object) -> None:
        await self.release()


def run_lock(line: Line, clock: Clock, wait: float = 0.0) -> StoreLock:
    """Return the lock of whoever runs a branch: one runner a branch at a time."""
    return StoreLock(line.database.backend, f"run {line.session}/{line.branch}", clock, wait)


def drain_lock(line: Line, clock: Clock) -> StoreLock:
    """Return the lock of whoever drains the outbox of a session: one drain at a time."""
    return StoreLock(line.database.backend, f"drain {line.session}", clock, math.inf)
