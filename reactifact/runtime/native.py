"""Tasks that outlive the scope of their caller: the one place that starts them natively.

A stream may be closed early, from anywhere; its run then has to be cancelled and waited for outside
of any task group. On asyncio this is a task of the loop, on trio a system task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import anyio


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
