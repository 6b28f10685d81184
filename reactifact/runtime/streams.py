"""A turn as a stream of what happens in it: the body of `Runtime.astream`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from ..context import Context
from ..context.streaming import ProgressEvent
from .budget import RunStats
from .native import Background

CLOSING_SECONDS = 5.0
"""How long closing a stream early waits for a run that does not end when it is cancelled."""

_END = "stream_end"


async def stream(
    context: Context, turn: Callable[[], Awaitable[RunStats]]
) -> AsyncGenerator[ProgressEvent, None]:
    """Run a turn on `context` in the background; yield its start, its announcements and its end."""
    queue = context.subscribe()
    stats: RunStats | None = None

    async def run() -> None:
        nonlocal stats
        try:
            stats = await turn()
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
        assert stats is not None
        data = {"outcome": stats.outcome, "runs": stats.runs, "duration": stats.duration}
        yield ProgressEvent("run_end", data=data)
    finally:
        context.unsubscribe(queue)
        await background.stop(CLOSING_SECONDS)
