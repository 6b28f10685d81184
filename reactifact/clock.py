"""The clock that everything in a turn reads, so that tests and replays can put in their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, runtime_checkable

import anyio


@runtime_checkable
class Clock(Protocol):
    """Time as the runtime sees it: a wall clock, a monotonic clock, and a way to wait."""

    def now(self) -> datetime:
        """Return the present time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's own clock."""

    now = staticmethod(partial(datetime.now, UTC))
    """Return the present time, aware, in UTC."""

    monotonic = staticmethod(time.monotonic)
    """Return seconds of the machine's monotonic clock."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` on the event loop."""
        await anyio.sleep(seconds)

    def __repr__(self) -> str:
        return "SystemClock()"


SYSTEM_CLOCK = SystemClock()
