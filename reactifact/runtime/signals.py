"""Ending a service in good order: a helper for SIGTERM that applications opt in to."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio

from .runtime import Runtime


@asynccontextmanager
async def stop_on_signals(
    *runtimes: Runtime,
    signals: tuple[signal.Signals, ...] = (signal.SIGTERM,),
    timeout: float | None = None,
) -> AsyncIterator[None]:
    """Shut runtimes down when the process is told to end.

    On the first signal the generation in progress finishes and commits, and no other starts; after
    `timeout` seconds (`None`: never), or on the next signal, what still runs is cancelled. Either
    way the store is left as a kill would leave it: resumable from the last committed generation.
    Use it around the code that runs turns, in the main thread.
    """
    failure: BaseException | None = None
    with anyio.open_signal_receiver(*signals) as received:
        async with anyio.create_task_group() as group:

            async def shut_down(limit: float | None) -> None:
                async with anyio.create_task_group() as waiting:
                    for runtime in runtimes:
                        waiting.start_soon(partial(runtime.ashutdown, timeout=limit))

            async def watch() -> None:
                limit = timeout
                async for _ in received:
                    group.start_soon(shut_down, limit)
                    limit = 0.0

            group.start_soon(watch)
            try:
                yield
            except BaseException as error:  # a task group would wrap it, or take it for its own
                failure = error
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
