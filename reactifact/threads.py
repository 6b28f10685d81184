"""Bringing blocking calls of the store to worker threads, and knowing how many are under way.

Owns the promise that a call, once started, is waited for. A shield of anyio holds anyio's own
cancellation off; asyncio's (`task.cancel()`, `asyncio.timeout`, a web server whose client left)
passes through it and would leave the thread behind, still writing. It is put off here instead.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled

if TYPE_CHECKING:  # a program on trio, and one that reads a store without a loop, wait for no import of it
    import asyncio

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
        if asyncio_loop() is not None:
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


def is_quick(is_local: bool) -> bool:
    """Tell whether `short_call` makes a call where it is, so that nothing can cancel it on the way."""
    return is_local and not _running


async def write_through(is_local: bool, function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """Make a blocking call that writes to a store, also where the caller is cancelled already.

    That is `in_thread` in a shield, or a shorter way to a local store on asyncio: a thread of ours then makes
    it, without a task, a limiter and a scope for each call. The function runs no code of users and asks
    nothing of the event loop (`anyio.from_thread`).
    """
    loop = asyncio_loop()
    if loop is not None and is_local:
        return await _in_lane(loop, function, args)
    found: list[T] = []
    with anyio.CancelScope(shield=True):
        found.append(await in_thread(function, *args))
    return found[0]


async def _in_lane(
    loop: asyncio.AbstractEventLoop, function: Callable[[Unpack[Args]], T], args: tuple[*Args]
) -> T:
    import asyncio

    global _running
    _running += 1
    try:
        call = _Call(loop, function, args)
        _lane().put(call)
        cancelled: asyncio.CancelledError | None = None
        try:
            await call.waiter
        except asyncio.CancelledError as error:
            cancelled = await call.end_in_spite_of(error)
        if cancelled is not None:
            _cancel_again(cancelled)
        result: T = call.outcome()
        return result
    finally:
        _running -= 1


class _Call:
    """One call in a thread, and the future by which its event loop hears of its end."""

    __slots__ = ("_args", "_context", "_function", "_is_done", "_loop", "_result", "error", "waiter")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self._function = function
        self._args = args
        self._context = copy_context()
        self._is_done = False
        self._result: Any = None
        self.error: BaseException | None = None
        self.waiter: asyncio.Future[None] = loop.create_future()

    def make(self) -> None:
        """Make the call. In a thread."""
        try:
            self._result = self._context.run(self._function, *self._args)
        except BaseException as error:
            self.error = error

    def tell(self) -> None:
        """Wake who waits for it. In a thread."""
        with suppress(RuntimeError):  # the loop was closed, and nobody waits
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._is_done = True
        if not self.waiter.done():
            self.waiter.set_result(None)

    async def end_in_spite_of(self, cancelled: asyncio.CancelledError) -> asyncio.CancelledError:
        """Wait for the end although the task is cancelled; return the last cancellation."""
        import asyncio

        with anyio.CancelScope(shield=True):
            while not self._is_done:
                self.waiter = self._loop.create_future()
                try:
                    await self.waiter
                except asyncio.CancelledError as error:
                    cancelled = error
        return cancelled

    def outcome(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        if self.error is None:
            return self._result
        try:
            raise self.error
        finally:
            self.error = None  # its traceback holds this frame


class _Lane:
    """The threads that make local writes for the event loops of one thread, as many as are needed at once."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._mutex = threading.Lock()
        self._threads = 0
        self._open = 0  # calls that are waiting or being made

    def put(self, call: _Call) -> None:
        """Have a call made."""
        with self._mutex:
            self._open += 1
            if self._threads < min(self._open, _THREADS):
                try:
                    threading.Thread(target=self._work, name="reactifact write", daemon=True).start()
                    self._threads += 1
                except RuntimeError:  # there can be no more threads
                    if not self._threads:
                        self._open -= 1
                        raise
        self._calls.put(call)

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_IDLE)
            except Empty:
                with self._mutex:
                    if not self._open:
                        self._threads -= 1
                        return
                continue
            call.make()
            with self._mutex:
                self._open -= 1
            call.tell()
            del call  # and with it what it was given and returned


_IDLE = 10.0  # seconds after which a thread with nothing to do ends
_lanes = threading.local()


def _lane() -> _Lane:
    try:
        found: _Lane = _lanes.lane
    except AttributeError:
        found = _lanes.lane = _Lane()
    return found


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _lanes.__dict__.clear())  # a child has none of the threads


async def _on_asyncio(function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    import asyncio

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
        _cancel_again(cancelled)
    return call.result()


def _cancel_again(cancelled: asyncio.CancelledError) -> None:
    """Let a cancellation that was put off be raised where the task waits next."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    task.uncancel()  # it is counted again: `asyncio.timeout` compares the number
    task.cancel(*cancelled.args)


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """Return asyncio's loop that runs the present code, `None` elsewhere."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio  # a look-up; it also waits for a thread that is importing it

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class at_once:  # noqa: N801 - reads as the verb of a with statement
    """Hold a lock for an `async with`. One that is free is taken without a round of the event loop.

    With `shield` a cancellation does not end the wait for it.
    """

    __slots__ = ("_lock", "_shield")

    def __init__(self, lock: anyio.Lock, *, shield: bool = False) -> None:
        self._lock = lock
        self._shield = shield

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.CancelScope(shield=self._shield):
                await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    def __repr__(self) -> str:
        return f"at_once({self._lock!r})"


class during:  # noqa: N801 - reads as the verb of a with statement; a generator costs twice as much
    """Give a context variable a value for a `with`, for the tasks that are started inside it too."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable: ContextVar[Any] = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)

    def __repr__(self) -> str:
        return f"during({self._variable.name}, {self._value!r})"


def is_on_loop() -> bool:
    """Tell whether the present code runs on an event loop, which a blocking call would hold up."""
    if asyncio_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def calls_in_flight() -> int:
    """Return the number of blocking calls under way (a clock that jumps must wait for them)."""
    return _running
