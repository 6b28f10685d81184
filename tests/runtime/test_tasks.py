"""Tasks where a plain task group will not do: order, errors and cancellation, the same on every loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import anyio
import pytest

from reactifact._runtime.tasks import Background, run_all, within
from reactifact.testing.clock import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

Function = Callable[[], Awaitable[None]]


def handing_out(functions: list[Function]) -> Callable[[], Function | None]:
    remaining = iter(functions)
    return lambda: next(remaining, None)


@pytest.mark.parametrize("at_once", [1, 3, 100])
async def test_functions_begin_in_order_and_so_many_at_once(at_once: int) -> None:
    begun: list[int] = []
    running = most = 0

    def function(number: int) -> Function:
        async def run() -> None:
            nonlocal running, most
            begun.append(number)
            running += 1
            most = max(most, running)
            await anyio.lowlevel.checkpoint()
            running -= 1

        return run

    await run_all(handing_out([function(n) for n in range(20)]), at_once)
    assert begun == list(range(20))
    assert most == min(at_once, 20)


async def test_the_first_error_by_beginning_is_raised_bare_and_the_others_are_cancelled() -> None:
    cancelled: list[str] = []
    second_failed = anyio.Event()

    async def first() -> None:
        try:
            await second_failed.wait()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append("first")
            raise KeyError("first") from None

    async def second() -> None:
        second_failed.set()
        await anyio.lowlevel.checkpoint()
        raise ValueError("second")

    with pytest.raises(KeyError):
        await run_all(handing_out([first, second]), 2)
    assert cancelled == ["first"]


async def test_no_function_sees_what_another_left_in_a_context_variable() -> None:
    left: ContextVar[int] = ContextVar("left", default=0)
    seen: list[int] = []

    async def leave() -> None:
        seen.append(left.get())
        left.set(left.get() + 1)

    await run_all(handing_out([leave] * 4), 1)
    assert seen == [0, 0, 0, 0]


async def test_a_background_keeps_its_error_and_outlives_the_scope_it_began_in() -> None:
    go = anyio.Event()

    async def fail() -> None:
        await go.wait()
        raise ValueError("kept")

    running = Background(fail)
    with anyio.CancelScope() as scope:
        running.start()
        scope.cancel()
    await anyio.lowlevel.checkpoint()
    assert not running.is_done
    go.set()
    await running.wait()
    assert isinstance(running.error, ValueError)


async def test_a_background_is_stopped_or_says_that_it_was_not() -> None:
    reached = anyio.Event()
    release = anyio.Event()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            reached.set()
            await release.wait()

    running = Background(stubborn)
    assert await running.stop(0)  # it was never started
    running.start()
    await reached.wait()
    assert not await running.stop(0)
    release.set()
    await running.wait()
    assert running.is_done

    other = Background(anyio.sleep_forever)
    other.start()
    await anyio.lowlevel.checkpoint()
    assert await other.stop(30)


async def test_a_body_is_cut_by_the_clock_it_is_given() -> None:
    clock = JumpingClock()
    ends: list[str] = []

    async def long() -> None:
        try:
            await clock.sleep(100)
            ends.append("whole")
        except anyio.get_cancelled_exc_class():
            ends.append("cut")
            raise

    assert await within(clock, 10, long, anyio.CancelScope())
    assert not await within(clock, 1_000, long, anyio.CancelScope())
    assert not await within(clock, None, long, anyio.CancelScope())
    assert ends == ["cut", "whole", "whole"]


async def test_an_error_of_a_body_comes_out_as_it_was_raised() -> None:
    async def fail() -> None:
        raise LookupError("as it was")

    with pytest.raises(LookupError, match="as it was"):
        await within(JumpingClock(), 10, fail, anyio.CancelScope())


async def test_a_scope_from_outside_ends_a_body_before_its_time() -> None:
    scope = anyio.CancelScope()

    async def body() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    clock = JumpingClock()
    assert not await within(clock, 10, body, scope)
    assert scope.cancelled_caught
    assert clock.monotonic() < 10
