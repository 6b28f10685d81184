"""Delivering what was decided: after the commit, in order, at least once, under one key.

Owns the drain: its lock, the check that what an action rests on can be read, the calls of the dispatcher,
and the recording of each outcome before the next send. It never decides what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from .._context import delivery
from .._context.context import Context
from .._context.preload import look_ahead
from .._context.push import StoreLock, drain_lock, publish_ledger
from .._context.working_copy import WorkingCopy
from .._store.ledger import LedgerEvent
from ..artifacts import Artifact
from ..errors import IntentConflict, LockLost, TypeNotFoundError, UnreadablePayload, add_note, text_of, told
from ..interrupt import PendingAction
from ..logging import get_logger
from ..threads import at_once, short_call
from ..types.registry import resolve, revision_of
from .plan import Upcoming
from .tasks import Function, run_all

# -- whether what waiting actions rest on can be read, asked before the first of them is sent --


def require_readable(working: WorkingCopy, actions: Iterable[Artifact[PendingAction]]) -> None:
    """Refuse when an action rests on an artifact whose class is missing or does not fit its data.

    An action rests on what the execution that planned it read (artifacts and listed types), and on what
    it is linked to, as far as it is there still. Raises `TypeNotFoundError` or `UnreadablePayload`,
    naming action, artifact and type, and what a migrate hook raises.
    """
    seen: set[str] = set()
    types: set[str] = set()
    for action in actions:
        stored = working.state.stored(action.id)
        if stored is None:
            continue
        for listing in stored.meta.listings:
            if listing.type_id not in types and listing.type_id in working.state.type_ids():
                _require_type(action.id, listing.type_id)
            types.add(listing.type_id)
        linked = [edge.target for edge in working.state.outgoing(action.id)]
        for artifact_id in [read.artifact_id for read in stored.meta.reads] + linked:
            if artifact_id not in seen:
                seen.add(artifact_id)
                _require(working, action.id, artifact_id)


def _require_type(action_id: str, type_id: str) -> None:
    try:
        resolve(type_id)
    except TypeNotFoundError as error:
        raise TypeNotFoundError(
            f"action {action_id!r} is not sent, because it rests on artifacts of a type that is not known: "
            f"{error}"
        ) from error


def _require(working: WorkingCopy, action_id: str, artifact_id: str) -> None:
    stored = working.state.stored(artifact_id)
    if stored is None:
        return
    meta = stored.meta
    try:
        if meta.revision != revision_of(resolve(meta.type_id)):
            working.version_data(meta)
    except (TypeNotFoundError, UnreadablePayload) as error:
        raise type(error)(
            f"action {action_id!r} is not sent, because it rests on artifact {artifact_id!r}: {error}"
        ) from error


# -- delivering what was decided: after the commit, in order, at least once, under one key --


log = get_logger("reactifact.runtime")

Dispatcher = Callable[[Context, Artifact[PendingAction]], Any]
ErrorCallback = Callable[[Artifact[PendingAction], Exception], Any]


@dataclass(slots=True)
class Drained:
    """What one drain did."""

    tried: int = 0
    delivered: int = 0
    errors: list[tuple[int, Exception]] = field(default_factory=list)  # (place in the drain, error)

    def raise_first(self) -> None:
        """Raise the first failure bare, the others as notes on it; nothing when all went well."""
        if not self.errors:
            return
        first, *others = (error for _, error in self.errors)
        for other in others:
            add_note(first, f"also failed: {told(other)}")
        raise first


@dataclass(frozen=True, slots=True)
class Options:
    """How a drain goes about it.

    `owed` names the agents that may react to a delivery, `None`: any that there will be. `wait` is how
    many seconds to wait for another drain of the session. With `retry_failed` those that failed are
    re-armed first, but for those with `max_attempts` failed attempts or more.
    """

    on_error: ErrorCallback | None = None
    owed: list[str] | None = None
    concurrency: int = 1
    simulate: bool = False
    wait: float = math.inf
    retry_failed: bool = False
    max_attempts: int | None = None


async def drain(
    context: Context, dispatcher: Dispatcher, options: Options, done: Drained | None = None
) -> Drained:
    """Send every waiting action once, in the order they were planned.

    The branch must have been published. Each outcome is on stable storage before the next send, so
    a kill repeats at most the one in flight (those in flight, with `concurrency`). An action that
    fails stops only those that share its `ordering_key`. With `simulate` nothing is sent: the
    branch alone notes what would have been. `done` tells what was done also where an error ends the
    drain. Raises `TypeNotFoundError` or `UnreadablePayload`, before anything is sent, when what an action
    rests on cannot be read; `LedgerMissing` when it is not known what was sent before; `SessionBusy` when
    another drain has not ended within the wait; `LockLost`, before the next send, when the drain's lock may
    be another's by now.
    """
    done = Drained() if done is None else done
    async with drain_lock(context.line, context.resources.clock, options.wait) as lock:
        drainer = _Drainer(context, dispatcher, options, done, lock)
        await drainer.look()
        await look_ahead(context.commits, outbox=True)
        if options.retry_failed:
            _rearm(context, options.max_attempts)
        await _report_refused(context, options, done)
        waiting = delivery.sendable(context.working)
        require_readable(context.working, waiting)
        if options.simulate:
            done.tried = len(waiting)
            context.commits.note_simulated(waiting)
            return done
        if waiting:
            await short_call(context.line.database.backend.is_local, context.line.require_ledger)
        try:
            with lock.waits_for():
                await drainer.send_all(waiting)
        finally:
            done.errors.sort(key=lambda failure: failure[0])
    return done


class _Drainer:
    """One drain in progress."""

    def __init__(
        self, context: Context, dispatcher: Dispatcher, options: Options, done: Drained, lock: StoreLock
    ) -> None:
        self._lock = lock
        self._lost: LockLost | None = None
        self._context = context
        self._dispatcher = dispatcher
        self._options = options
        self._done = done
        self._blocked: set[str] = set()  # ordering keys with a failure before
        self._looking = anyio.Lock()  # sends begin in the order in which they were planned

    async def look(self) -> None:
        """See that the lock is still ours and what others delivered. Raises `LockLost`."""
        context = self._context
        heard = await short_call(context.line.database.backend.is_local, self._looked)
        if heard:
            await look_ahead(context.commits, [found.action_id for found in heard], outbox=True)
            delivery.hear_of_others(context.working, heard, context.resources.clock.now())

    def _looked(self) -> list[LedgerEvent]:
        self._lock.require_held()
        return self._context.line.ledger.hear()

    async def send_all(self, waiting: list[Artifact[PendingAction]]) -> None:
        """Send what waits. Raises `LockLost`, after what was under way has ended."""
        if self._options.concurrency == 1:
            for action in waiting:
                await self.send(action)
        else:
            await self.send_concurrently(waiting)
        if self._lost is not None:
            for _, error in self._done.errors:
                add_note(self._lost, f"also failed: {told(error)}")
            raise self._lost

    async def send_concurrently(self, waiting: list[Artifact[PendingAction]]) -> None:
        """Send several at once; those that share an ordering key stay one after another."""
        upcoming = Upcoming(waiting, _ordered_with, _at_once)

        async def send(action: Artifact[PendingAction]) -> None:
            try:
                await self.send(action)
            finally:
                upcoming.ended(action)

        def function() -> Function | None:
            action = upcoming.next()
            return None if action is None else partial(send, action)

        await run_all(function, min(self._options.concurrency, len(waiting)))

    async def send(self, action: Artifact[PendingAction]) -> None:
        """Send one action and record how it went, unless a failure before holds it back."""
        key = action.data.ordering_key
        if key is not None and key in self._blocked:
            return
        if not await self._may_send(action):
            return
        number = self._done.tried
        self._done.tried += 1
        try:
            result = self._dispatcher(self._context, action)
            if isinstance(result, Awaitable):
                await result
        except Exception as error:
            if key is not None:
                self._blocked.add(key)
            await self._failed(action, number, error)
        except BaseException:
            # cancelled in the middle of a send: whether it went out is not known
            await self._record(action, "pending", "interrupted")
            raise
        else:
            await self._record(action, "dispatched", None)
            self._done.delivered += 1
            log.info("action dispatched", extra=_fields(action))

    async def _may_send(self, action: Artifact[PendingAction]) -> bool:
        """Tell whether the action is still ours to send: the lock is, and nobody else has sent it."""
        async with at_once(self._looking):
            if self._lost is None:
                try:
                    await self.look()
                except LockLost as error:
                    self._lost = error
        return self._lost is None and delivery.waits(self._context.working, action.id)

    async def _failed(self, action: Artifact[PendingAction], number: int, error: Exception) -> None:
        failed = await self._record(action, "failed", text_of(error) or type(error).__name__)
        self._done.errors.append((number, error))
        extra = {**_fields(action), "error": told(error)}
        log.warning("action dispatch failed", extra=extra)
        await _call_back(self._options.on_error, failed or action, error)

    async def _record(
        self, action: Artifact[PendingAction], status: str, error: str | None
    ) -> Artifact[PendingAction] | None:
        context = self._context
        now = context.resources.clock.now()
        recorded = delivery.mark(context.working, action.id, status, error, now, owed=self._options.owed)
        await publish_ledger(context)
        return recorded


def _ordered_with(action: Artifact[PendingAction]) -> str | None:
    return action.data.ordering_key


def _at_once(action: Artifact[PendingAction]) -> int | None:
    """Return how many actions of its ordering key may be sent at once."""
    return None if action.data.ordering_key is None else 1


def _fields(action: Artifact[PendingAction]) -> dict[str, str]:
    return {"action_kind": action.data.kind, "action_key": action.data.idempotency_key}


def _rearm(context: Context, max_attempts: int | None) -> None:
    for action in delivery.failed(context.working):
        if max_attempts is None or action.data.attempts < max_attempts:
            context.retry_action(action.id)


async def _report_refused(context: Context, options: Options, done: Drained) -> None:
    """Report, once, the actions whose key was delivered with another payload."""
    for action in delivery.refused(context.working):
        error = IntentConflict(action.data.error or "")
        delivery.refuse(context.working, action.id, context.resources.clock.now())
        await publish_ledger(context)
        done.errors.append((-1, error))
        await _call_back(options.on_error, action, error)


async def _call_back(
    callback: ErrorCallback | None, action: Artifact[PendingAction], error: Exception
) -> None:
    """Tell the application; a callback that fails does not stop the drain."""
    if callback is None:
        return
    try:
        result = callback(action, error)
        if isinstance(result, Awaitable):
            await result
    except Exception as failure:
        add_note(error, f"on_dispatch_error failed: {told(failure)}")
