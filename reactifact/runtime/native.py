"""Tasks, where a plain task group will not do.

`Background` outlives the scope of its caller and starts its task natively (`threads` alone does so too): a
stream may be closed early, from anywhere; its run then has to be cancelled and waited for outside of
any task group. On asyncio this is a task of the loop, on trio a system task. `run_all` is a task
group that does not change which error its caller sees.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context

import anyio


async def run_all(functions: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run functions at once; they begin in the order given, on every event loop.

    An error of one cancels the others and is raised bare. A cancellation that nobody asked for (of
    something a function waited for) counts as its error: a task group would take it for its own and
    drop it. The first in the order given is raised.
    """
    errors: dict[int, BaseException] = {}
    ordered = iter(list(enumerate(functions)))  # trio starts tasks in any order: each takes the next

    async with anyio.create_task_group() as group:

        async def run() -> None:
            place, function = next(ordered)
            try:
                await function()
            except BaseException as error:
                if _is_cancellation(error) and _is_cancelled_from_outside():
                    raise
                errors[place] = error
                group.cancel_scope.cancel()

        for _ in functions:
            group.start_soon(run)
    if errors:
        raise errors[min(errors)]


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

    def __init__(self, function: Callable[[], Awaitable[None]]) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_started = False
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start it on the running event loop, in a copy of the present context variables."""
        self._is_started = True
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
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

    async def stop(self, grace: float) -> bool:
        """Cancel it and wait at most `grace` seconds; return whether it has ended."""
        if not self._is_started:
            return True
        self._scope.cancel()
        with anyio.move_on_after(grace, shield=True):
            await self._done.wait()
        return self.is_done
