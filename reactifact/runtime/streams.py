"""A turn as a stream of what happens in it: the body of `Runtime.astream`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from ..context.streaming import ProgressEvent
from .budget import Budget
from .native import Background

if TYPE_CHECKING:
    from .runtime import Runtime

CLOSING_SECONDS = 5.0
"""How long closing a stream early waits for a run that does not end when it is cancelled."""

_END = "stream_end"


async def stream(
    runtime: Runtime,
    budget: Budget | None,
    max_iterations: int,
    request: Mapping[str, Any] | None,
) -> AsyncGenerator[ProgressEvent, None]:
    """Run a turn in the background; yield its start, its announcements and its end."""
    context = runtime.context
    queue = context.subscribe()

    async def run() -> None:
        try:
            await runtime.arun(max_iterations, budget, request=request)
        finally:
            queue.put_nowait(ProgressEvent(_END))  # wakes the reader; nothing comes after it

    background = Background(run)
    try:
        yield ProgressEvent("run_start")
        background.start()
        while (event := await queue.get()).kind != _END:
            yield event
        await background.wait()
        if background.error is not None:
            raise background.error
        stats = runtime.last_stats
        assert stats is not None
        data = {"outcome": stats.outcome, "runs": stats.runs, "duration": stats.duration}
        yield ProgressEvent("run_end", data=data)
    finally:
        context.unsubscribe(queue)
        await background.stop(CLOSING_SECONDS)
