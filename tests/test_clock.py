"""The machine's clock, and the clock that jumps: time passes only while everybody waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from reactifact.clock import SYSTEM_CLOCK, Clock
from reactifact.testing.clock import JumpingClock
from reactifact.threads import in_thread

pytestmark = pytest.mark.anyio


def test_both_are_clocks() -> None:
    assert isinstance(SYSTEM_CLOCK, Clock)
    assert isinstance(JumpingClock(), Clock)


async def test_the_machines_clock_is_aware_and_never_goes_back() -> None:
    before = SYSTEM_CLOCK.monotonic()
    await SYSTEM_CLOCK.sleep(0)
    assert SYSTEM_CLOCK.monotonic() >= before
    assert SYSTEM_CLOCK.now().utcoffset() == timedelta(0)
    assert abs(SYSTEM_CLOCK.now() - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.every_loop
async def test_waits_end_in_the_order_of_their_end_and_cost_no_time() -> None:
    clock = JumpingClock()
    ended: list[tuple[float, float]] = []

    async def wait(seconds: float) -> None:
        await clock.sleep(seconds)
        ended.append((seconds, clock.monotonic()))

    async with anyio.create_task_group() as group:
        for seconds in (3_600.0, 5.0, 86_400.0):
            group.start_soon(wait, seconds)
    assert ended == [(5.0, 5.0), (3_600.0, 3_600.0), (86_400.0, 86_400.0)]
    assert sorted(clock.slept) == [5.0, 3_600.0, 86_400.0]
    assert clock.now() == datetime(2030, 1, 2, tzinfo=UTC)
    assert repr(clock) == "JumpingClock(at 2030-01-02T00:00:00+00:00)"


async def test_it_does_not_jump_while_a_thread_works() -> None:
    clock = JumpingClock()
    seen: list[float] = []

    def work() -> None:
        anyio.from_thread.run_sync(lambda: seen.append(clock.monotonic()))

    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 10)
        group.start_soon(in_thread, work)
    assert seen == [0.0]
    assert clock.monotonic() == 10


async def test_time_that_passes_by_hand_ends_waits_that_are_over() -> None:
    clock = JumpingClock(datetime(2031, 5, 1, tzinfo=UTC))
    clock.advance(90)
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 90
    assert clock.now() == datetime(2031, 5, 1, 0, 1, 30, tzinfo=UTC)


async def test_a_wait_that_is_cancelled_leaves_the_others() -> None:
    clock = JumpingClock()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await clock.sleep(1)
    await clock.sleep(7)
    assert clock.monotonic() == 7
