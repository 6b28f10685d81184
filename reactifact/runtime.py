"""`Runtime`: agents over a context, as applications start them.

Owns the entry points, reentrancy, ending and statistics. What it is configured with is
`_runtime/config`'s, the loop itself `_runtime/turn`'s.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from ._context.push import StoreLock, release_together, require_current, run_lock
from ._context.working_copy import current_scope
from ._observers import Observation, Observer, emit, observation, observed
from ._runtime import config, turn
from ._runtime.config import RunCancelled, RunInfo, Wiring, active_runs, cancel_run
from ._runtime.tasks import Background, within
from ._store._backends.kv import MemoryBackend
from .budget import Budget, RunOutcome, RunStats, metered
from .errors import SessionBusy, StaleSession, add_note, told
from .logging import bind, get_logger
from .request import current_request, reset_request, set_request
from .threads import during

if TYPE_CHECKING:
    from ._runtime.stream import TurnStream
    from .streaming import EventQueue

__all__ = ["RunCancelled", "RunInfo", "Runtime", "active_runs", "cancel_run", "stop_on_signals"]


# -- `Runtime`: agents over a context, as applications start them --


log = get_logger("reactifact.runtime")


class Runtime(Wiring):
    """Runs agents on the events of a context until nothing is left to react to.

    With a `session` every execution is saved when it has finished (`per_step`), every generation
    (`per_commit`, the default) or the whole turn at its end (`per_turn`). With a `dispatcher`, an async
    or sync function of the context and the action's artifact, actions are delivered after the commit that
    decided them. An agent's error leaves `arun` as it was raised, unless `isolate_errors` is set.
    With `max_failures` an event is given up, for the agent that failed on it so many times, and kept: see
    `Context.parked_events` and `Context.retry_event`.
    """

    last_stats: RunStats | None = None
    """What the last turn did, one that raised included; `None` before the first."""
    _turn: turn.Turn | None = None
    _left: Background | None = None  # the turn of a stream whose reader went away
    _is_shut = False
    _watchers: tuple[Observer, ...] = ()  # of the stream whose turn this is

    @property
    def in_flight(self) -> bool:
        """Whether a turn is in progress."""
        return self._turn is not None

    @property
    def outcome(self) -> RunOutcome | None:
        """How the last turn ended, `None` before the first."""
        return None if self.last_stats is None else self.last_stats.outcome

    # -- entry points --------------------------------------------------------------------------

    async def arun(
        self,
        max_iterations: int = 100,
        budget: Budget | None = None,
        *,
        request: Mapping[str, Any] | None = None,
    ) -> int:
        """Run a turn and return the number of executions whose generation was committed.

        `last_stats.runs` counts those that a deadline cut as well.

        Raises what an agent raised, the first failed delivery (after the others were tried and all
        is saved), `StaleSession` when somebody else wrote the branch.
        """
        limits = self._limits(budget, max_iterations)
        current = await self._in_turn(limits, request, self._run)
        if current.was_idle:
            self.hint_at_silence()
        return current.committed

    async def arun_once(
        self, budget: Budget | None = None, *, request: Mapping[str, Any] | None = None
    ) -> int:
        """Run one generation and return the number of executions."""
        limits = turn.Limits(budget if budget is not None else self.budget, 1)

        async def run(current: turn.Turn) -> None:
            current.saves = self.saves_per_commit
            await self._run(current)

        return (await self._in_turn(limits, request, run)).committed

    def run(self, *args: Any, **options: Any) -> int:
        """Run a turn from code that is not async. Raises `RuntimeError` inside an event loop."""
        return anyio.run(self._blocking("run", "arun", self.arun, args, options))

    def run_once(self, *args: Any, **options: Any) -> int:
        """Run one generation from code that is not async."""
        return anyio.run(self._blocking("run_once", "arun_once", self.arun_once, args, options))

    def _blocking(
        self,
        name: str,
        instead: str,
        method: Callable[..., Awaitable[int]],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Callable[[], Awaitable[int]]:
        if _inside_a_loop():
            raise RuntimeError(
                f"runtime.{name}() cannot run inside an event loop (a notebook has one): "
                f"use `await runtime.{instead}()`"
            )

        async def call() -> int:
            return await method(*args, **options)

        return call

    async def flush_pending_actions(self) -> int:
        """Deliver what waits, without a generation; return the number of actions tried."""
        if self.dispatcher is None:
            return 0

        async def flush(current: turn.Turn) -> None:
            await self._run_bounded(current, current.flush)

        return (await self._in_turn(turn.Limits(None, 0), None, flush)).tried

    def astream(
        self,
        budget: Budget | None = None,
        max_iterations: int = 1000,
        *,
        request: Mapping[str, Any] | None = None,
        lifecycle: bool = False,
    ) -> TurnStream:
        """Run a turn and yield what happens: `run_start`, announcements in order, `run_end`.

        With `lifecycle` also what the runtime does, as it does it: turns, generations, executions, commits,
        questions and deliveries, each a `LifecycleEvent` of a class of its own (`reactifact.streaming`).
        A reader that is slow loses the oldest events.

        An error of the turn is raised from the iteration instead of `run_end`. Closing the iterator
        early cancels the turn and waits for it, but not longer than a bounded time; leaving the loop by
        `break` cancels it too, and the next turn waits for it as long.
        """

        from ._runtime.stream import TurnStream

        async def run(queue: EventQueue) -> RunStats:
            self._watchers = (queue.put_nowait,) if lifecycle else ()
            try:
                await self.arun(max_iterations, budget, request=request)
            finally:
                self._watchers = ()
            assert self.last_stats is not None
            return self.last_stats

        return TurnStream(self.context, run, self._refuse_a_second_turn, self._abandon)

    def _abandon(self, left: Background) -> None:
        """Let the next turn wait for one whose reader went away and that is cancelled."""
        self._left = left

    # -- ending --------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Let the generation in progress finish, and start no other in this turn."""
        if self._turn is not None:
            self._turn.stopping = True

    async def ashutdown(self, *, timeout: float | None = None) -> None:
        """Stop for good: wait for the turn in progress, or cancel it after `timeout` seconds.

        A later turn is refused. Resources are not closed. Raises `RuntimeError` inside a produce or a
        callback of this runtime (a dispatcher, a scheduler), or in a task that one of them started: the
        turn may be waiting for it, and would be waited for by it.
        """
        scope = current_scope()
        in_produce = scope is not None and scope.context is self.context
        if in_produce or (self._turn is not None and self._turn.is_around()):
            raise RuntimeError(
                f"ashutdown() was called inside a {'produce' if in_produce else 'callback'} of the same "
                "runtime and would wait for itself: call request_stop() there, or shut down from a task that "
                "was started outside of the turn (or with an empty contextvars.Context())"
            )
        self._is_shut = True
        self.request_stop()
        current = self._turn
        if current is None:
            return
        clock = self.context.resources.clock
        expired = await within(clock, timeout, current.wait, anyio.CancelScope())
        if expired:
            current.info.is_cancelled = True
            current.info.scope.cancel()
            await current.wait()

    # -- one turn ------------------------------------------------------------------------------

    def _limits(self, budget: Budget | None, max_iterations: int) -> turn.Limits:
        chosen = budget if budget is not None else self.budget
        if chosen is not None and chosen.max_iterations is not None:
            max_iterations = chosen.max_iterations
        return turn.Limits(chosen, max_iterations)

    async def _refuse_a_second_turn(self) -> None:
        left = self._left
        if left is not None:
            from ._runtime import stream

            if left.is_done or await left.stop(stream.CLOSING_SECONDS):
                self._left = None
        if self._turn is not None:
            raise RuntimeError(
                "this runtime is running a turn already and is not reentrant: await it first (a stream that "
                "is kept is closed with aclose()), or make another Runtime for another context"
            )
        if self._is_shut:
            raise RuntimeError(
                "this runtime was shut down by ashutdown() and runs no more turns: make a new Runtime"
            )

    async def _in_turn(
        self,
        limits: turn.Limits,
        request: Mapping[str, Any] | None,
        body: Callable[[turn.Turn], Awaitable[None]],
    ) -> turn.Turn:
        """Run a body in a turn, which is registered for its length, with its lock, request and statistics."""
        await self._refuse_a_second_turn()
        self.context.require_open()
        clock = self.context.resources.clock
        token = None if request is None else set_request(request)
        session_id = "" if self.session is None else self.session.session_id
        info = config.RunInfo(os.urandom(16).hex(), session_id, clock.now(), current_request(), id(self))
        current = self._turn = turn.Turn(self, info, limits, clock.monotonic())
        config.enter(info)
        fields = {"run_id": info.run_id, "session_id": session_id, **_request_field(info.request)}
        try:
            with bind(**fields), current.around(), self._watched(current):
                try:
                    lock = await self._take_run_lock(info.run_id)
                except anyio.get_cancelled_exc_class() as cut:  # before the turn could store its inputs
                    await self._save_what_is_left(current, cut)
                    raise
                try:
                    with metered(self.context.resources, current.tracker, limits.budget):
                        await (_told(current, body) if observation() is not None else body(current))
                finally:
                    await self._give_back_run_lock(lock, *current.kept)
        finally:
            config.leave(info)
            if token is not None:
                reset_request(token)
            self.last_stats = current.stats()
            self._turn = None
            current.end()
        return current

    def _watched(self, current: turn.Turn) -> during:
        """Let those who observe the runtime be told of a turn."""
        observers = (*self.observers, *self._watchers)
        if not observers:
            return observed(None)
        line, clock = self.context.line, self.context.resources.clock
        session_id = current.info.session_id or line.session
        return observed(Observation(observers, clock, session_id, line.branch, current.info.run_id))

    async def _take_run_lock(self, run_id: str) -> StoreLock | None:
        """Take the branch's run lock: one runner a branch at a time, in all processes."""
        context = self.context
        while True:
            if context.runner is not None:
                raise SessionBusy(
                    f"branch {context.line.branch!r} of session {context.line.session!r} is run by another "
                    f"Runtime of this process (run {context.runner}): await it first, or run a fork"
                )
            if not context.is_publishing:
                break
            async with context.publish_lock:
                pass  # a refresh, or a save, ends first
        context.runner = run_id
        lock: StoreLock | None = None
        try:
            line = context.line
            if line.ref is None or isinstance(line.database.backend, MemoryBackend):
                return None
            if not context.is_exclusive:
                lock = run_lock(line, context.resources.clock)
            try:
                await require_current(context, lock)
            except StaleSession:
                from ._context.rebase import take_in

                if not await take_in(context):
                    raise
        except BaseException:
            await self._give_back_run_lock(lock)
            raise
        return lock

    async def _give_back_run_lock(self, lock: StoreLock | None, *others: StoreLock) -> None:
        try:
            if lock is not None or others:
                await release_together(*others, *([] if lock is None else [lock]))
        finally:
            self.context.runner = None

    async def _run(self, current: turn.Turn) -> None:
        is_told = log.isEnabledFor(logging.INFO)
        if is_told:
            log.info("run started", extra={"max_iterations": current.limits.max_iterations})
        try:
            await self._run_bounded(current, current.run)
        finally:
            if is_told:
                stats = current.stats()
                log.info(
                    "run finished",
                    extra={
                        "outcome": str(stats.outcome),
                        "runs": stats.runs,
                        "errors": stats.errors,
                        "duration_ms": round(stats.duration * 1000, 3),
                        **({"absent": stats.absent} if stats.absent else {}),
                    },
                )

    async def _run_bounded(self, current: turn.Turn, body: Callable[[], Awaitable[None]]) -> None:
        """Run a body under the turn's deadline and `cancel_run`. A turn that is cut is saved."""
        info = current.info
        try:
            budget = current.limits.budget
            if budget is None or budget.max_seconds is None:
                expired = False
                with info.scope:
                    await body()
            else:
                clock = self.context.resources.clock
                expired = await within(clock, budget.max_seconds, body, info.scope)
        except (Exception, GeneratorExit):  # the turn has saved what counts; a closed coroutine cannot wait
            raise
        except BaseException as cut:  # cancelled from outside, or the process is to end
            await self._save_what_is_left(current, cut)
            raise
        if expired:
            current.outcome = RunOutcome.BUDGET_TIME_EXCEEDED
            log.warning("turn deadline exceeded", extra={"max_seconds": current.limits.max_seconds})
        if (expired or info.is_cancelled) and self.session is not None and current.saves:
            await self.session.save()
        if info.is_cancelled:
            _raise_cancelled(info.run_id)

    async def _save_what_is_left(self, current: turn.Turn, cut: BaseException) -> None:
        """Save inputs and results of a turn that is cut; a failure is logged and noted, the cut goes on."""
        if self.session is None or not current.saves:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self.session.save()
        except Exception as error:
            text = told(error)
            log.error("a turn that was cut could not be saved", extra={"error": text})
            add_note(cut, f"the turn was cut and could not be saved: {text}")

    def __repr__(self) -> str:
        agents = ", ".join(agent.name for agent in self.agents)
        return f"Runtime({self.context!r}, agents: {agents or 'none'})"


async def _told(current: turn.Turn, body: Callable[[turn.Turn], Awaitable[None]]) -> None:
    """Run a turn, telling its observers of its beginning and its end."""
    from .streaming import TurnFailed, TurnFinished, TurnStarted

    emit(TurnStarted)
    try:
        await body(current)
    except BaseException as error:
        emit(TurnFailed, error=told(error), duration=current.stats().duration)
        raise
    stats = current.stats()
    emit(
        TurnFinished,
        outcome=str(stats.outcome),
        runs=stats.runs,
        errors=stats.errors,
        duration=stats.duration,
    )


def _request_field(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the id of the request a turn serves, for its log records, where it has one."""
    found = request.get("request_id", request.get("id"))
    return {} if found is None else {"request_id": found}


def _inside_a_loop() -> bool:
    try:
        anyio.get_current_task()
    except Exception:  # each backend has its own error for "no event loop"
        return False
    return True


def _raise_cancelled(run_id: str) -> None:
    """Tell the awaiter of a cancelled turn, in the way of its event loop."""
    cancelled = anyio.get_cancelled_exc_class()
    if cancelled.__module__.startswith("asyncio"):
        raise cancelled()
    raise config.RunCancelled(f"run {run_id} was cancelled by cancel_run")


# -- ending a service in good order: a helper for SIGTERM that applications opt in to --


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
