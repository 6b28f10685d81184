"""Delivering what was decided: after the commit, in order, at least once, under one key.

Owns the drain: its lock, the check that what an action rests on can be read, the calls of the dispatcher,
and the recording of each outcome before the next send. It never decides what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

import anyio

from .._context import delivery
from .._context.context import Context
from .._context.preload import look_ahead, look_at
from .._context.push import StoreLock, drain_lock, publish, publish_ledger
from .._context.working_copy import WorkingCopy
from .._observers import emit, observation, observed
from .._store._history.fetched import fetched_news, join_fetched
from .._store._history.lease import lease_end, require_running
from .._store.branch import Branch
from .._store.ledger import LedgerEvent
from .._store.protocol import recalling
from .._store.state import State
from ..artifacts import Artifact
from ..errors import (
    DeliveryTimeout,
    IntentConflict,
    LeaseHeld,
    LockLost,
    TypeNotFoundError,
    UnreadablePayload,
    add_note,
    text_of,
    told,
)
from ..guards import Quota
from ..interrupt import WAKE, PendingAction
from ..logging import bind, get_logger
from ..threads import abandonable, at_once, in_thread, short_call
from ..types.registry import resolve, revision_of
from .plan import Upcoming
from .tasks import Function, run_all, within

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
        for artifact_id, *_ in stored.meta.reads:
            if artifact_id not in seen:
                seen.add(artifact_id)
                _require(working, action.id, artifact_id)
        for edge in working.state.outgoing(action.id):
            if edge.target not in seen:
                seen.add(edge.target)
                _require(working, action.id, edge.target)


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
WakeCallback = Callable[[str, str, Artifact[PendingAction]], Any]
"""Is told the session, the branch and the wake that is due there."""
ErrorCallback = Callable[[Artifact[PendingAction], Exception], Any]


@dataclass(slots=True)
class Drained:
    """What one drain did."""

    tried: int = 0
    delivered: int = 0
    parked: int = 0
    is_cut: bool = False  # told to stop, or the branch moved: what is left was not looked at
    errors: list[tuple[int, Exception]] = field(default_factory=list)  # (place in the drain, error)

    def raise_first(self) -> None:
        """Raise the first failure bare, the others as notes on it; nothing when all went well."""
        if not self.errors:
            return
        first, *others = (error for _, error in self.errors)
        for other in others:
            add_note(first, f"also failed: {told(other)}")
        raise first


class Options(NamedTuple):
    """How a drain goes about it.

    `owed` names the agents that may react to a delivery, `None`: any that there will be. `wait` is how
    many seconds to wait for another drain of the session. With `retry_failed` those that failed are
    re-armed first, but for those with `max_attempts` failed attempts or more.

    `timeout` is how many seconds a send may take; it is cut then, and counts as failed. `retry_at` says
    when a failed action is sent again by itself. The failure that is the `park_after`th since the action
    was planned or re-armed parks it. `stops` is asked before each send. With `needs_models` nothing is sent
    that rests on an artifact whose class is missing. With `is_apart` somebody else may write the branch:
    what was cancelled or replaced there meanwhile is not sent. With `in_threads` a dispatcher that is not a
    coroutine function is called in a thread. `on_wake` is called for each wake that is due.
    """

    on_error: ErrorCallback | None = None
    owed: list[str] | None = None
    concurrency: int = 1
    simulate: bool = False
    wait: float = math.inf
    retry_failed: bool = False
    max_attempts: int | None = None
    timeout: float | None = None
    retry_at: delivery.RetryAt | None = None
    park_after: int | None = None
    stops: Callable[[], bool] | None = None
    needs_models: bool = True
    is_apart: bool = False
    in_threads: bool = False
    on_wake: WakeCallback | None = None


async def drain(
    context: Context,
    dispatcher: Dispatcher | None,
    options: Options,
    done: Drained | None = None,
    kept: list[StoreLock] | None = None,
    *,
    publishes: bool = False,
) -> Drained:
    """Send every waiting action once, in the order they were planned; without a dispatcher, wakes alone.

    The branch must have been published; with `publishes` it is, while the lock is taken. Each outcome is on
    stable storage before the next send, so a kill repeats at most the one in flight (those in flight, with
    `concurrency`). An action that fails stops only those that share its `ordering_key`. With `simulate`
    nothing is sent: the branch alone notes what would have been. `done` tells what was done also where an
    error ends the drain. Its lock is added to `kept`, where that is given, for the caller to give back.

    Raises `TypeNotFoundError` or `UnreadablePayload`, before anything is sent, when what an action rests on
    cannot be read; `LedgerMissing` when it is not known what was sent before; `SessionBusy` when another
    drain has not ended within the wait; `LockLost`, before the next send, when the drain's lock may be
    another's by now; `LeaseHeld`, likewise, when another store has the lease of the session; what publishing
    raises, with nothing sent.
    """
    done = Drained() if done is None else done
    line, clock = context.commits.line, context.resources.clock
    seen = observation()
    if seen is not None:
        seen = seen._replace(session_id=line.session, branch=line.branch)
    with bind(session_id=line.session, branch=line.branch), observed(seen):
        lock = drain_lock(line, clock, options.wait)
        try:
            drainer = _Drainer(context, dispatcher, options, done, lock)
            await (drainer.publish_and_take_lock() if publishes else drainer.take_lock())
            return await _drain(context, drainer)
        finally:
            if kept is None:
                await lock.release()
            else:
                kept.append(lock)


async def _drain(context: Context, drainer: _Drainer) -> Drained:
    options, done = drainer.options, drainer.done
    line, is_local = context.commits.line, not context.commits.is_remote
    fetches = line.database.fetches is not None
    if fetches:
        news = await short_call(is_local, fetched_news, line.ledger)
        if news:
            await in_thread(join_fetched, line.database, line.session)
            await drainer.look()
    if not is_local:
        await look_ahead(context.commits, outbox=True)
    if options.retry_failed:
        _rearm(context, options.max_attempts)
    await drainer.report_refused()
    working = context.commits.working
    waiting = delivery.sendable(working, context.resources.clock.now(), options.retry_at)
    if drainer.dispatcher is None:
        waiting = [action for action in waiting if action.data.kind == WAKE]  # those are not sent anywhere
    if options.needs_models:
        require_readable(working, waiting)
    if options.simulate:
        done.tried = len(waiting)
        context.commits.note_simulated(waiting)
        return done
    if waiting:
        await look_at(line.database, line.require_ledger)
        if fetches:
            await drainer.take_lease()
    try:
        with drainer.lock.waits_for():
            await drainer.send_all(waiting)
    finally:
        done.errors.sort(key=lambda failure: failure[0])
    return done


class _Drainer:
    """One drain in progress."""

    def __init__(
        self,
        context: Context,
        dispatcher: Dispatcher | None,
        options: Options,
        done: Drained,
        lock: StoreLock,
    ) -> None:
        self.lock = lock
        self.dispatcher = dispatcher
        self.options = options
        self.done = done
        self._lost: LockLost | LeaseHeld | None = None
        self._lease_end: datetime | None = None
        self._context = context
        self._clock = context.resources.clock
        self._blocked: set[str] = set()  # ordering keys with a failure before
        self._looking = anyio.Lock() if options.concurrency > 1 else None  # sends begin as they were planned
        self._tip = context.commits.line.published
        self._newer: State | None = None  # what the branch came to be while it was drained
        self._is_gone = False
        self._has_just_looked = False  # and no code of users ran since

    async def take_lock(self) -> None:
        """Take the lock, and see what others delivered and wrote. Raises `SessionBusy`."""
        await self._hear(await self.lock.acquire(self._looked, *self._refs()) or [])

    async def publish_and_take_lock(self) -> None:
        """Publish the branch and take the lock at once: each waits for the store. Raises as both do."""
        failures: list[BaseException] = []

        async def take_lock() -> None:
            try:
                await self.take_lock()
            except Exception as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(take_lock)
            try:
                await publish(self._context)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                failures.insert(0, error)
                group.cancel_scope.cancel()  # it may wait for another drain
        if failures:
            raise failures[0]
        self._tip = self._context.commits.line.published

    async def look(self) -> None:
        """See that the lock is still ours, what others delivered and wrote. Raises `LockLost`."""
        await self._hear(await short_call(not self._context.commits.is_remote, self._looked_again))

    async def _hear(self, heard: list[LedgerEvent]) -> None:
        commits = self._context.commits
        if heard:
            await look_ahead(commits, [found.action_id for found in heard], outbox=True)
            delivery.hear_of_others(commits.working, heard, self._clock.now())
        self._has_just_looked = True

    def _refs(self) -> list[str]:
        """Return the refs that a look looks at."""
        line = self._context.commits.line
        return [line.ledger.ref, *([line.ref] if self.options.is_apart and line.ref is not None else [])]

    def _looked_again(self) -> list[LedgerEvent]:
        with recalling(self._context.commits.line.database.backend, *self._refs()):
            self.lock.require_held()
            return self._looked()

    def _looked(self) -> list[LedgerEvent]:
        line = self._context.commits.line
        if self.options.is_apart and line.ref is not None:
            tip = line.database.backend.refs(line.ref).get(line.ref)
            if tip != self._tip:
                newer = Branch.load(line.database, line.session, line.branch)
                self._newer, self._is_gone = None if newer is None else newer.state, newer is None
                self._tip = tip
        return line.ledger.hear()

    async def report_refused(self) -> None:
        """Report, once, the actions whose key was delivered with another payload."""
        context, options = self._context, self.options
        working = context.commits.working
        for action in delivery.refused(working):
            error = IntentConflict(action.data.error or "")
            delivery.refuse(working, action.id, self._clock.now())
            await publish_ledger(context)
            self.done.errors.append((-1, error))
            self._has_just_looked = False
            await _call_back(options.on_error, action, error)

    async def take_lease(self) -> None:
        """See that this store may deliver the session. Raises `LeaseHeld`."""
        line = self._context.commits.line
        self._lease_end = await short_call(
            not self._context.commits.is_remote, lease_end, line.database, line.session, self._clock.now()
        )

    async def send_all(self, waiting: list[Artifact[PendingAction]]) -> None:
        """Send what waits. Raises `LockLost` or `LeaseHeld`, after what was under way has ended."""
        if self.options.concurrency == 1:
            for action in waiting:
                await self.send(action)
        else:
            await self.send_concurrently(waiting)
        if self._lost is not None:
            for _, error in self.done.errors:
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

        await run_all(function, min(self.options.concurrency, len(waiting)))

    async def send(self, action: Artifact[PendingAction]) -> None:
        """Send one action and record how it went, unless a failure before holds it back."""
        data = action.data
        key = data.ordering_key
        if key is not None and key in self._blocked:
            return
        with bind(**_fields(self._context, action.id, data)):
            quota = self._context.resources.quota
            if await self._may_send(action) and (quota is None or self._is_in_quota(quota)):
                await self._send(action, key)

    async def _send(self, action: Artifact[PendingAction], key: str | None) -> None:
        number = self.done.tried
        self.done.tried += 1
        clock = self._clock
        begun = clock.monotonic()
        if observation() is not None:
            from ..streaming import DeliveryStarted

            emit(DeliveryStarted, **self._told(action), attempts=action.data.attempts)
        try:
            self._ask(action)
            await self._call(action)
        except Exception as error:
            took = clock.monotonic() - begun
            if key is not None:
                self._blocked.add(key)
            await self._failed(action, number, error, took)
        except BaseException:
            # cancelled in the middle of a send: whether it went out is not known
            recorded = await self._record(action, "pending", "interrupted")
            self._tell(action, recorded, clock.monotonic() - begun, "interrupted")
            raise
        else:
            took = clock.monotonic() - begun
            recorded = await self._record(action, "dispatched", None)
            self.done.delivered += 1
            log.info("action dispatched")
            self._tell(action, recorded, took, "")

    def _told(self, action: Artifact[PendingAction]) -> dict[str, Any]:
        """Return what observers are told of an action."""
        stored = self._context.commits.working.state.stored(action.id)
        found = _fields(self._context, action.id, action.data)
        return {
            "action_id": action.id,
            "action_kind": found["action_kind"],
            "key": found["action_key"],
            "agent": found.get("agent", ""),
            "commit": "" if stored is None else stored.meta.commit or "",
        }

    def _tell(
        self,
        action: Artifact[PendingAction],
        recorded: Artifact[PendingAction] | None,
        seconds: float,
        error: str,
    ) -> None:
        """Tell observers how a send ended."""
        if observation() is not None and recorded is not None:
            from ..streaming import ActionDelivered

            emit(
                ActionDelivered,
                **self._told(action),
                status=recorded.data.status,
                attempts=recorded.data.attempts,
                error=error,
                latency=round(seconds * 1000, 3),
            )

    async def _call(self, action: Artifact[PendingAction]) -> None:
        """Call the dispatcher, for a wake who wants to hear of it. Raises `DeliveryTimeout`."""
        call: Callable[[], Any]
        line = self._context.commits.line
        if action.data.kind != WAKE:
            assert self.dispatcher is not None
            call = partial(self.dispatcher, self._context, action)
        elif self.options.on_wake is not None:
            call = partial(self.options.on_wake, line.session, line.branch, action)
        else:
            return
        is_blocking = self.options.in_threads and not _is_async(call.func)

        async def send() -> None:
            result = await abandonable(call) if is_blocking else call()
            if result is not None and isinstance(result, Awaitable):
                await result

        timeout = self.options.timeout
        if timeout is None:
            await send()
        elif await within(self._clock, timeout, send, anyio.CancelScope()):
            raise DeliveryTimeout(
                f"action {action.id!r} was cut: its send had not ended after {timeout:g} seconds, and "
                f"whether it went out is not known; it is sent again under the same key"
            )

    def _is_in_quota(self, quota: Quota) -> bool:
        """Count a send, unless the quota of the resources is used up: the action then stays pending."""
        if quota.take(self._clock, "sends"):
            return True
        log.warning("action not sent: the quota of sends is used up")
        return False

    def _ask(self, action: Artifact[PendingAction]) -> None:
        """Ask the guard rails about a send. Raises `NotAuthorized`, `GuardrailViolation`."""
        resources = self._context.resources
        if resources.guards_access:
            author = action.created_by_commit or ""
            resources.check("send", action.id, action.data, action.data, str(resources.principal or author))

    async def _may_send(self, action: Artifact[PendingAction]) -> bool:
        """Tell whether the action is still ours to send: the lock is, and nobody else has sent it."""
        if self.options.stops is not None and self.options.stops():
            self.done.is_cut = True
            return False
        if self._looking is None:
            await self._look_again()
        else:
            async with at_once(self._looking):
                await self._look_again()
        if self._lost is not None:
            return False
        if (self._newer is not None or self._is_gone) and not self._still_stands(action.id):
            return False
        now = self._clock.now()
        return delivery.may_send(self._context.commits.working, action.id, now, self.options.retry_at)

    async def _look_again(self) -> None:
        """See before a send that lock and lease are still ours, and what others delivered meanwhile."""
        if self._lost is None:
            try:
                if not self._has_just_looked:
                    await self.look()
                self._has_just_looked = False
                if self._lease_end is not None:
                    now = self._clock.now()
                    require_running(self._lease_end, self._context.commits.line.session, now)
            except (LockLost, LeaseHeld) as error:
                self._lost = error

    def _still_stands(self, action_id: str) -> bool:
        """Whether the branch waits for the action as it was planned, as far as it was read."""
        newer = self._newer
        known = self._context.commits.working.state.intent(action_id)
        found = None if newer is None else newer.intent(action_id)
        stands = found is not None and known is not None and found.intent == known.intent
        self.done.is_cut = self.done.is_cut or not stands
        return stands

    async def _failed(
        self, action: Artifact[PendingAction], number: int, error: Exception, seconds: float
    ) -> None:
        redact = self._context.resources.redact
        status = "parked" if self._is_last(action.id) else "failed"
        failed = await self._record(action, status, redact(text_of(error)) or type(error).__name__)
        self.done.errors.append((number, error))
        self.done.parked += status == "parked"
        extra = {"error": redact(told(error)), "attempts": 0 if failed is None else failed.data.attempts}
        log.warning("action dispatch failed", extra=extra)
        if status == "parked":
            log.error("action parked: it is not sent before it is re-armed", extra=extra)
        self._tell(action, failed, seconds, redact(told(error)))
        await _call_back(self.options.on_error, failed or action, error)

    def _is_last(self, action_id: str) -> bool:
        """Whether one more failure parks an action."""
        limit, entry = self.options.park_after, self._context.commits.working.ledger.entry(action_id)
        tried = 0 if entry is None else entry.attempts - entry.armed
        return limit is not None and tried + 1 >= limit

    async def _record(
        self, action: Artifact[PendingAction], status: str, error: str | None
    ) -> Artifact[PendingAction] | None:
        working, now = self._context.commits.working, self._clock.now()
        recorded = delivery.mark(working, action.id, status, error, now, owed=self.options.owed)
        await publish_ledger(self._context)
        return recorded


def _is_async(function: Any) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def _ordered_with(action: Artifact[PendingAction]) -> str | None:
    return action.data.ordering_key


def _at_once(action: Artifact[PendingAction]) -> int | None:
    """Return how many actions of its ordering key may be sent at once."""
    return None if action.data.ordering_key is None else 1


def _fields(context: Context, action_id: str, data: PendingAction) -> dict[str, str]:
    """Return what the log says of an action: what it is, and the agent that planned it."""
    stored = context.commits.working.state.stored(action_id)
    agent = None if stored is None else stored.meta.writer_author or stored.meta.author
    fields = {"action_kind": data.kind, "action_key": data.idempotency_key}
    return {**fields, "agent": agent} if agent else fields


def _rearm(context: Context, max_attempts: int | None) -> None:
    for action in delivery.failed(context.working):
        if max_attempts is None or action.data.attempts < max_attempts:
            context.retry_action(action.id)


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
