"""A clock that jumps: waiting costs no time, and time passes only while everybody waits.

Owns `JumpingClock`. Pass it as `RuntimeResources(clock=JumpingClock())`; deadlines, backoff and
retries of the runtime then run on it, on asyncio and trio alike.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import anyio

from ..threads import calls_in_flight

_IDLE_ROUNDS = 50
"""How many rounds of the event loop without a blocking call count as everybody waiting."""


class JumpingClock:
    """A clock whose `sleep` returns as soon as nothing else has anything to do.

    The wall clock begins at `start` and moves with the monotonic one. `slept` lists every wait that
    was asked for, in seconds and in order.
    """

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = count()
        self._waiting: dict[int, float] = {}
        self.slept: list[float] = []

    def now(self) -> datetime:
        """Return the present time of this clock, aware, in UTC."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that have passed on this clock."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass by hand; waits that are over by then end."""
        self._elapsed += seconds

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of this clock."""
        self.slept.append(seconds)
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        due = self._elapsed + seconds
        key = next(self._order)
        self._waiting[key] = due
        try:
            while self._elapsed < due:
                await _idle()
                # time moves to the earliest wait, and only its owner moves it
                if min(self._waiting.items(), key=lambda item: (item[1], item[0]))[0] == key:
                    self._elapsed = max(self._elapsed, due)
        finally:
            del self._waiting[key]

    def __repr__(self) -> str:
        return f"JumpingClock(at {self.now().isoformat()})"


async def _idle() -> None:
    """Return when the other tasks have had nothing to do for a while."""
    rounds = 0
    while rounds < _IDLE_ROUNDS:
        await anyio.lowlevel.checkpoint()
        rounds = 0 if calls_in_flight() else rounds + 1
