"""A turn as a stream of what happens in it: what `Runtime.astream` returns."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Any

from .._context.context import Context
from ..budget import RunStats
from ..streaming import EventQueue, ProgressEvent
from ..threads import is_on_loop
from .tasks import Background

CLOSING_SECONDS = 5.0
"""How long closing a stream early waits for a run that does not end when it is cancelled."""

_END = "stream_end"


class TurnStream(AsyncGenerator[ProgressEvent, None]):
    """What happens in one turn: its start, its announcements and its end. The turn runs beside the reader.

    `aclose` cancels the turn and waits for it. A reader that goes away without it (a `break`, an error in
    the loop's body) cancels the turn as well; waiting for its end is then left to whoever runs the next
    turn: `leave` gets what is ending.
    """

    def __init__(
        self,
        context: Context,
        turn: Callable[[EventQueue], Awaitable[RunStats]],
        enter: Callable[[], Awaitable[None]],
        leave: Callable[[Background], None],
    ) -> None:
        self._context = context
        self._turn = turn
        self._enter = enter
        self._leave = leave
        self._queue: EventQueue | None = None
        self._background: Background | None = None
        self._stats: list[RunStats] = []
        self._is_over = False
        self._thread = threading.get_ident()

    async def __anext__(self) -> ProgressEvent:
        """Return the next event. Raises the turn's error in place of its end."""
        if self._is_over:
            raise StopAsyncIteration
        if self._queue is None:
            await self._enter()
            self._queue = self._context.subscribe()
            return ProgressEvent("run_start")
        try:
            event = await self._next(self._queue)
        except BaseException:
            await self.aclose()
            raise
        if event.kind != _END:
            return event
        await self.aclose()
        (stats,) = self._stats
        data = {"outcome": stats.outcome, "runs": stats.runs, "duration": stats.duration}
        return ProgressEvent("run_end", data=data)

    async def asend(self, value: None) -> ProgressEvent:
        """Return the next event, as `anext` does; a turn takes nothing that is sent to it."""
        return await self.__anext__()

    async def athrow(
        self, kind: Any, error: BaseException | object = None, traceback: TracebackType | None = None, /
    ) -> ProgressEvent:
        """Close the stream, and raise the error that was thrown into it."""
        await self.aclose()
        raised = error if isinstance(error, BaseException) else kind() if isinstance(kind, type) else kind
        raise raised if traceback is None else raised.with_traceback(traceback)

    async def _next(self, queue: EventQueue) -> ProgressEvent:
        if self._background is None:
            self._background = Background(_run(self._turn, queue, self._stats))
            self._background.start()
        event = await queue.get()
        if event.kind == _END:
            await self._background.wait()
            if self._background.error is not None:
                raise self._background.error
        return event

    async def aclose(self) -> None:
        """Cancel the turn, if it is in progress, and wait for it, but not longer than a bounded time."""
        self._is_over = True
        if self._queue is not None:
            self._context.unsubscribe(self._queue)
        if self._background is not None:
            await self._background.stop(CLOSING_SECONDS)

    def __del__(self) -> None:
        if self._queue is not None and not self._is_over:
            self._context.unsubscribe(self._queue)
            background = self._background
            if background is not None and threading.get_ident() == self._thread and is_on_loop():
                background.cancel()
                self._leave(background)

    def __repr__(self) -> str:
        return f"TurnStream({self._context!r}, {'over' if self._is_over else 'open'})"


def _run(
    turn: Callable[[EventQueue], Awaitable[RunStats]], queue: EventQueue, stats: list[RunStats]
) -> Callable[[], Awaitable[None]]:
    """Return a function that runs the turn; it does not hold the stream, which is to end with its reader."""

    async def run() -> None:
        try:
            stats.append(await turn(queue))
        finally:
            queue.put_nowait(ProgressEvent(_END))  # wakes the reader; nothing comes after it

    return run
