"""Bringing blocking calls of the store to worker threads, and knowing how many are under way.

Owns the promise that a call, once started, is waited for. A shield of anyio holds anyio's own
cancellation off; asyncio's (`task.cancel()`, `asyncio.timeout`, a web server whose client left)
passes through it and would leave the thread behind, still writing. It is put off here instead.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import NoReturn, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled

T = TypeVar("T")
Args = TypeVarTuple("Args")

_running = 0

_THREADS = 4
"""How many calls of one event loop run at once.

Each thread that has Python code to run makes the loop wait for the interpreter's lock, up to 5 ms for
each: with anyio's own 40 the loop stalled for half a second under load, and turns took no less time.
"""
_limiter: RunVar[CapacityLimiter] = RunVar("reactifact_threads")


def _limit() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiter.set(limiter)
        return limiter


async def in_thread(function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """Call a blocking function in a worker thread. Once started it is not abandoned.

    A cancellation that arrives meanwhile is raised where the caller waits next, after it has had the
    result.
    """
    global _running
    _running += 1
    try:
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
            return await _on_asyncio(function, *args)
        return await to_thread.run_sync(function, *args, limiter=_limit())
    finally:
        _running -= 1


async def abandonable(function: Callable[[], T]) -> T:
    """Call a blocking function of a user in a thread of its own; a cancellation leaves it behind.

    What it returns or raises then is lost. The thread does not keep the process from ending.
    """
    outcome: list[Callable[[], T]] = []
    ours, theirs = socket.socketpair()
    context = copy_context()

    def run() -> None:
        with theirs:
            try:
                result = context.run(function)
            except BaseException as error:
                outcome.append(partial(_raise, error))
            else:
                outcome.append(lambda: result)

    global _running
    _running += 1
    try:
        with ours:
            threading.Thread(target=run, name="reactifact send", daemon=True).start()
            await anyio.wait_readable(ours)  # when its end is closed
    finally:
        _running -= 1
    return outcome[0]()


def _raise(error: BaseException) -> NoReturn:
    raise error


async def short_call(is_local: bool, function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """Make a call that is over in microseconds on a local store: on the loop where nothing else runs.

    A hop to a thread and back costs more than taking a lock or reading a ref of a local store. But
    each system call gives the interpreter's lock away, and getting it back from a busy thread takes
    up to 5 ms: beside other calls this one goes to a thread too.
    """
    return function(*args) if is_local and not _running else await in_thread(function, *args)


async def _on_asyncio(function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    await checkpoint_if_cancelled()
    call = asyncio.ensure_future(to_thread.run_sync(function, *args, limiter=_limit()))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not call.done():
            try:
                await asyncio.wait([call])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()  # it is counted again: `asyncio.timeout` compares the number
        task.cancel(*cancelled.args)
    return call.result()


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """Return asyncio's loop that runs the present code, `None` elsewhere."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class at_once:  # noqa: N801 - reads as the verb of a with statement
    """Hold a lock for an `async with`. One that is free is taken without a round of the event loop."""

    __slots__ = ("_lock",)

    def __init__(self, lock: anyio.Lock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except anyio.WouldBlock:
            await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def is_on_loop() -> bool:
    """Tell whether the present code runs on an event loop, which a blocking call would hold up."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:  # this thread runs none
        return False
    return True


def calls_in_flight() -> int:
    """Return the number of blocking calls under way (a clock that jumps must wait for them)."""
    return _running
