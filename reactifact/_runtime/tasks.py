"""Tasks, where a plain task group will not do.

`Background` outlives the scope of its caller and starts its task natively (`threads` alone does so too): a
stream may be closed early, from anywhere; its run then has to be cancelled and waited for outside of
any task group. On asyncio this is a task of the loop, on trio a system task. `run_all` is a task
group that does not change which error its caller sees. `within` bounds a call by a clock of ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from ..clock import Clock

if TYPE_CHECKING:
    import asyncio

Function = Callable[[], Awaitable[None]]


async def run_all(upcoming: Callable[[], Function | None], at_once: int) -> None:
    """Run what `upcoming` hands out, each in a task of its own and at most `at_once` at a time.

    It is asked when a task begins, so that functions begin in its order on every event loop, and a new
    task is made when one ends: ten thousand functions are not ten thousand waiting tasks. It may
    answer `None` while others run whose end will let it answer again, and after the last.

    An error of one function cancels the others and is raised bare. A cancellation that nobody asked
    for (of something a function waited for) counts as its error: a task group would take it for its
    own and drop it. The first in the order of their beginning is raised.
    """
    errors: dict[int, BaseException] = {}
    places = itertools.count()
    outside = copy_context()  # what one function leaves in context variables is not the next one's

    async with anyio.create_task_group() as group:

        async def run() -> None:
            function = upcoming()
            if function is None:
                return
            place = next(places)
            try:
                await function()
            except BaseException as error:
                if _is_cancellation(error) and _is_cancelled_from_outside():
                    raise
                errors[place] = error
                group.cancel_scope.cancel()
            if not _is_cancelled_from_outside():
                outside.copy().run(group.start_soon, run)

        for _ in range(at_once):
            group.start_soon(run)
    if errors:
        raise errors[min(errors)]
    # a group whose last function ends just as it is cancelled ends without an error: some did not begin
    await checkpoint_if_cancelled()


def _is_cancellation(error: BaseException) -> bool:
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1] is None
    return isinstance(error, cancelled)


def _is_cancelled_from_outside() -> bool:
    """Whether the scope that the present task runs in was cancelled."""
    return anyio.current_effective_deadline() == -math.inf


class Background:
    """One function running beside its caller; its exception is kept, never lost to the loop."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_started = False
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start it on the running event loop, in a copy of the present context variables."""
        self._is_started = True
        if anyio.get_cancelled_exc_class().__module__.startswith("asyncio"):
            import asyncio

            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            import trio

            trio.lowlevel.spawn_system_task(self._run, context=copy_context())

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._function()
        except BaseException as error:  # handed to whoever waits
            self.error = error
        finally:
            self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._done.wait()

    def cancel(self) -> None:
        """Cancel it, and wait for nothing. To be called on its event loop."""
        self._scope.cancel()

    async def stop(self, grace: float) -> bool:
        """Cancel it and wait at most `grace` seconds; return whether it has ended."""
        if not self._is_started:
            return True
        self.cancel()
        with anyio.move_on_after(grace, shield=True):
            await self._done.wait()
        return self.is_done


async def within(
    clock: Clock, seconds: float | None, body: Callable[[], Awaitable[None]], scope: anyio.CancelScope
) -> bool:
    """Run `body`, cancelling it after `seconds` of the clock; return whether that happened.

    An exception of `body` comes out as it was raised. `scope` cancels it from outside.
    """
    if seconds is None:
        with scope:
            await body()
        return False
    failure: BaseException | None = None
    expired = False
    deadline = anyio.CancelScope()

    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal expired
            await clock.sleep(seconds)
            expired = True
            deadline.cancel()

        group.start_soon(watch)
        try:
            with scope, deadline:
                await body()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return expired and deadline.cancelled_caught
