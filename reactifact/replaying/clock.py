"""The clock that a repeated run is given: every look at it is one fixed step later.

Two runs that do the same look at it equally often, so times they store are equal; no two are the
same within a run. Waiting costs no time: it ends when nothing else has anything to do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel

from ..threads import calls_in_flight

START = datetime(2030, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=1)
_IDLE_ROUNDS = 50


class SteppingClock:
    """A clock that begins at `start` and is `step` later at each `now()`."""

    def __init__(self, start: datetime = START, step: timedelta = STEP) -> None:
        self._now = start
        self._step = step
        self._waited = 0.0
        self._due: list[float] = []

    def now(self) -> datetime:
        """Return the present time of this clock, aware, in UTC, and let a step pass."""
        self._now += self._step
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that were waited for on this clock."""
        return self._waited

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock, those of other waits included."""
        due = self._waited + max(0.0, seconds)
        await anyio.lowlevel.checkpoint()
        self._due.append(due)
        try:
            while self._waited < due:
                await _idle()
                if due <= min(self._due) and self._waited < due:
                    self._now += timedelta(seconds=due - self._waited)
                    self._waited = due
        finally:
            self._due.remove(due)


async def _idle() -> None:
    """Return when the other tasks have had nothing to do for a while."""
    rounds = 0
    while rounds < _IDLE_ROUNDS:
        await anyio.lowlevel.checkpoint()
        rounds = 0 if calls_in_flight() else rounds + 1
