"""The relay: what waits in all sessions of a store is delivered, until somebody says stop.

Questions whose deadline has passed are marked as expired on the way, also where nobody runs a turn.

Owns which session is drained when: the watch of refs, the times at which something becomes due, the sessions
side by side, the end in good order. How one session is drained, and what is recorded, is `_runtime/drain`'s.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup
from blake3 import blake3

from .._context import delivery, rebase
from .._context.context import Context
from .._context.delivery import Counts
from .._context.push import publish, run_lock
from .._observers import Observation, observed
from .._runtime import drain
from .._runtime.questions import Deadlines
from .._runtime.tasks import Background
from .._store._history.revset import damaged_refs
from .._store.ledger import LedgerEntry
from .._store.names import is_ledger_ref
from .._store.object_db import Database
from .._store.objects import Oid
from .._store.protocol import RefWatch, Sized, WatchesRefs, scan_refs
from ..errors import DamagedRef, ReactifactError, SessionBusy, text_of, told
from ..logging import bind, get_logger
from ..otel import observe_outbox, observe_size, observers_of
from ..produce import Backoff
from ..resources import RuntimeResources
from ..threads import in_thread
from .service import BranchName, waiting_among

log = get_logger("reactifact.relay")

_HEADS = "refs/heads/"
_SINGLE_REFS = 50
"""Refs that are read one by one; where more have moved, all are listed."""
_BUSY_SECONDS = 1.0
"""How long a session is left to the drain that holds it before the next try."""
_KEPT_ERRORS = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How a relay goes about it; times are seconds.

    `concurrency` sessions are drained at once. `backoff` and `max_attempts` say when what failed is sent
    again. Refs are looked at every `poll` seconds where the store does not tell by itself, and all are listed
    every `rescan` seconds, for what was moved behind its back.
    """

    concurrency: int = 8
    max_attempts: int | None = 10
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 3600.0, jitter=1.0))
    poll: float = 1.0
    rescan: float = 300.0
    once: bool = False

    def retry_at(self, entry: LedgerEntry) -> datetime:
        """Return when a failed action is sent again.

        The jitter is full (somewhere between at once and the whole wait) and follows from the action and the
        number of its attempts: another relay, and this one after a restart, come to the same moment.
        """
        seed = blake3(f"{entry.action_id}\n{entry.attempts}".encode()).digest(length=7)
        share = int.from_bytes(seed, "big") / 2**56
        wait = self.backoff.wait(max(1, entry.attempts - entry.armed), lambda: share)
        return datetime.fromisoformat(entry.updated_at) + timedelta(seconds=wait)


@dataclass
class RelayReport:
    """What a relay did, and what it last saw waiting.

    `tried` sends, of which some `delivered` and some `failed`; `parked` of the failed ones are not sent again
    before they are re-armed. `skipped` counts the times a session was another's, `expired` those in which
    questions of a branch were over. `errors` holds the last (session, branch, text). `waiting`,
    `waiting_failed`, `waiting_parked` and `oldest_waiting` (when the oldest was planned) are of the sessions
    as they were when they were drained last.
    """

    tried: int = 0
    delivered: int = 0
    failed: int = 0
    parked: int = 0
    skipped: int = 0
    expired: int = 0
    errors: deque[tuple[str, str, str]] = field(default_factory=lambda: deque(maxlen=_KEPT_ERRORS))
    waiting: int = 0
    waiting_failed: int = 0
    waiting_parked: int = 0
    oldest_waiting: datetime | None = None


@dataclass(slots=True)
class _Sight:
    """The refs as they were looked at last, and the branches with intents or questions, by session folder."""

    heads: dict[str, Oid] = field(default_factory=dict)
    waiting: dict[str, dict[str, BranchName]] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)  # of damage, so that it is told once

    def look(self, database: Database, names: Collection[str] | None) -> tuple[set[str], list[_Damage]]:
        """Look at some refs (`None`: at all). Return the sessions to be drained, and what cannot be read."""
        listed, broken = _read(database, names)
        asked = list(self.heads) if names is None else [name for name in names if name in self.heads]
        gone = [name for name in asked if name not in listed]
        moved = {name: oid for name, oid in listed.items() if self.heads.get(name) != oid}
        found, unreadable = waiting_among(database, moved, with_questions=True)
        broken += [(one.ref, one.session or one.ref, one.branch or "", one.error) for one in unreadable]
        sessions = set()
        for name in [*gone, *moved]:
            folder = _folder(name)
            if is_ledger_ref(name):
                sessions.add(folder)
                continue
            branches = self.waiting.setdefault(folder, {})
            branches.pop(name, None)
            if name in found:
                branches[name] = found[name]
                sessions.add(folder)
            if not branches:
                del self.waiting[folder]
        for name in gone:
            del self.heads[name]
        self.heads |= moved
        fresh = [one for one in broken if (one[0], one[3]) not in self.told]
        self.told |= {(one[0], one[3]) for one in fresh}
        return {folder for folder in sessions if folder in self.waiting}, fresh


_Damage = tuple[str, str, str, str]
"""A ref, the session and the branch as far as they are known, and what is wrong."""


def _read(database: Database, names: Collection[str] | None) -> tuple[dict[str, Oid], list[_Damage]]:
    backend = database.backend
    if names is None or len(names) > _SINGLE_REFS:
        found, damaged = scan_refs(backend, _HEADS)
        return found, [
            (one.ref, one.session or one.ref, one.branch or "", one.error) for one in damaged_refs(damaged)
        ]
    listed: dict[str, Oid] = {}
    broken: list[_Damage] = []
    for name in names:
        try:
            listed |= {ref: oid for ref, oid in backend.refs(name).items() if ref == name}
        except DamagedRef as error:
            broken.append((name, name, "", text_of(error)))
    return listed, broken


def _folder(ref: str) -> str:
    return ref.rpartition("/")[0]


class Relay:
    """One relay over one store. `run` delivers until `stop`, or with `once` until nothing is due."""

    def __init__(
        self,
        database: Database,
        dispatcher: drain.Dispatcher | None,
        options: drain.Options,
        pace: Pace,
        *,
        resources: RuntimeResources | None = None,
        stop: anyio.Event | None = None,
        tracer: Any = None,
        metrics: Any = None,
    ) -> None:
        self.report = RelayReport()
        self._database = database
        self._dispatcher = dispatcher
        self._pace = pace
        self._resources = resources if resources is not None else RuntimeResources()
        self._clock = self._resources.clock
        self._stop = stop
        self._is_stopping = False
        self._began = self._clock.now()
        self._options = options._replace(
            wait=0.0,
            retry_at=self._retry_at,
            park_after=pace.max_attempts,
            stops=self._stops,
            needs_models=False,
            is_apart=True,
            in_threads=True,
        )
        self._sight = _Sight()
        self._due: dict[str, datetime] = {}  # when a session is to be drained next, by its folder
        self._order: list[
            tuple[datetime, str]
        ] = []  # the same, as a heap; what is not in `_due` counts no more
        self._busy: set[str] = set()
        self._counts: dict[str, Counts] = {}
        self._troubles: dict[str, int] = {}  # errors in a row, by session
        self._woken = anyio.Event()
        self._failure: BaseException | None = None
        self._is_over = False
        observers = observers_of(tracer, metrics)
        self._observation = Observation(observers, self._clock) if observers else None
        if metrics is not None:
            observe_outbox(metrics, self._standing)
            if isinstance(database.backend, Sized):
                observe_size(metrics, self._size, {"store": database.backend.location})

    def _standing(self) -> Mapping[str, float] | None:
        """Return what waits, for metrics, which ask from a thread of their own."""
        if self._is_over:
            return None
        report = self.report
        oldest = report.oldest_waiting
        age = 0.0 if oldest is None else max(0.0, (self._clock.now() - oldest).total_seconds())
        return {
            "waiting": report.waiting,
            "failed": report.waiting_failed,
            "parked": report.waiting_parked,
            "age": age,
        }

    def _size(self) -> int | None:
        backend = self._database.backend
        return None if self._is_over or not isinstance(backend, Sized) else backend.size()

    def stop(self) -> None:
        """Send nothing more; `run` returns when what is being sent has ended and is recorded."""
        self._is_stopping = True
        self._woken.set()

    def _retry_at(self, entry: LedgerEntry) -> datetime:
        """Return when a failed action is sent again; not by the pass in which it failed."""
        if self._pace.once and datetime.fromisoformat(entry.updated_at) >= self._began:
            return datetime.max.replace(tzinfo=UTC)
        return self._pace.retry_at(entry)

    def _stops(self) -> bool:
        return self._is_stopping or (self._stop is not None and self._stop.is_set())

    async def run(self) -> None:
        """Deliver until told to stop. Raises what is neither a failed send nor trouble with one session."""
        with observed(self._observation):
            await self._run()

    async def _run(self) -> None:
        watch = await in_thread(self._watched)
        try:
            async with anyio.create_task_group() as group:
                try:
                    await self._loop(group, watch)
                except Exception as error:  # a task group would wrap it
                    self._failure = error
                    self.stop()
        finally:
            self._is_over = True
            if watch is not None:
                with CancelScope(shield=True):
                    await in_thread(watch.close)
        if self._failure is not None:
            raise self._failure

    def _watched(self) -> RefWatch | None:
        backend = self._database.backend
        return backend.watch_refs() if isinstance(backend, WatchesRefs) and not self._pace.once else None

    # -- the loop ------------------------------------------------------------------------------

    async def _loop(self, group: TaskGroup, watch: RefWatch | None) -> None:
        pace, clock = self._pace, self._clock
        looks, next_look, next_scan = 0, -math.inf, -math.inf
        while not self._stops() and self._failure is None:
            self._woken = anyio.Event()
            now = clock.monotonic()
            if now >= next_look and not (pace.once and looks):
                is_scan = now >= next_scan
                try:
                    await self._look(watch, is_scan)
                    looks, next_look = looks + 1, now + pace.poll
                    next_scan = now + pace.rescan if is_scan else next_scan
                except (ReactifactError, OSError) as error:  # the store is away, which it may not be for long
                    if pace.once:
                        raise
                    log.warning("relay cannot look at the store", extra={"error": told(error)})
                    next_look, next_scan = now + Backoff(pace.poll, 30.0).wait(looks + 1), -math.inf
            self._start(group)
            if pace.once and not self._busy and not self._is_due():
                return
            tells = watch is not None and watch.fileno() >= 0 and next_scan > now
            until = next_scan if tells else next_look
            if await self._pause(max(0.0, until - now), watch if tells else None):
                next_look = -math.inf

    async def _look(self, watch: RefWatch | None, is_scan: bool) -> None:
        """Learn which sessions changed."""
        names = None if watch is None else await in_thread(watch.moved)
        if is_scan:
            names = None
        if names is not None:
            names = {name for name in names if name.startswith(_HEADS)}
            if not names:
                return
        sessions, broken = await in_thread(self._sight.look, self._database, names)
        for _, session, branch, text in broken:
            self.report.errors.append((session, branch, text))
            log.error(
                "relay cannot read a branch", extra={"session_id": session, "branch": branch, "error": text}
            )
        now = self._clock.now()
        for folder in sessions:
            self._plan(folder, now)
        for folder in self._counts.keys() - self._sight.waiting.keys():
            del self._counts[folder]
        self._sum()

    def _plan(self, folder: str, when: datetime) -> None:
        """Drain a session at a time, or sooner where it is planned sooner; one in progress, after its end."""
        known = self._due.get(folder)
        if known is None or when < known:
            self._due[folder] = when
            if folder not in self._busy:
                heapq.heappush(self._order, (when, folder))

    def _earliest(self) -> datetime | None:
        while self._order and self._due.get(self._order[0][1]) != self._order[0][0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else None

    def _is_due(self) -> bool:
        earliest = self._earliest()
        return earliest is not None and earliest <= self._clock.now()

    def _start(self, group: TaskGroup) -> None:
        """Begin to drain what is due, as far as there is room."""
        while len(self._busy) < self._pace.concurrency and self._is_due():
            _, folder = heapq.heappop(self._order)
            del self._due[folder]
            self._busy.add(folder)
            group.start_soon(self._work, folder)

    async def _pause(self, seconds: float, watch: RefWatch | None) -> bool:
        """Wait until there is something to do, at most `seconds`; tell whether the watch said so."""
        earliest = self._earliest() if len(self._busy) < self._pace.concurrency else None
        if earliest is not None:
            seconds = min(seconds, max(0.0, (earliest - self._clock.now()).total_seconds()))
        heard = False
        async with anyio.create_task_group() as group:

            async def sleep() -> None:
                await self._clock.sleep(seconds)
                group.cancel_scope.cancel()

            async def listen(watch: RefWatch) -> None:
                nonlocal heard
                await anyio.wait_readable(watch.fileno())
                heard = True
                group.cancel_scope.cancel()

            async def heed(stop: anyio.Event) -> None:
                await stop.wait()
                group.cancel_scope.cancel()

            group.start_soon(sleep)
            if watch is not None:
                group.start_soon(listen, watch)
            if self._stop is not None:
                group.start_soon(heed, self._stop)
            await self._woken.wait()
            group.cancel_scope.cancel()
        return heard

    # -- one session ---------------------------------------------------------------------------

    async def _work(self, folder: str) -> None:
        try:
            again = await self._drain(folder)
            if again is not None:
                self._plan(folder, again)
        except Exception as error:  # not of one session: it ends the relay
            self._failure = error
        finally:
            self._busy.discard(folder)
            if folder in self._due:  # it changed meanwhile
                heapq.heappush(self._order, (self._due[folder], folder))
            self._sum()
            self._woken.set()

    async def _drain(self, folder: str) -> datetime | None:
        """Drain the branches of a session, one after another; return when to come again."""
        again: list[datetime] = []
        total = Counts()
        for session, branch in list(self._sight.waiting.get(folder, {}).values()):
            if self._stops():
                break
            with bind(session_id=session, branch=branch):
                next_time, found = await self._drain_branch(folder, session, branch)
            total = total.plus(found)
            again += [] if next_time is None else [next_time]
        self._counts[folder] = total
        return min(again, default=None)

    async def _drain_branch(self, folder: str, session: str, branch: str) -> tuple[datetime | None, Counts]:
        now, done = self._clock.now(), drain.Drained()
        known = self._counts.get(folder, Counts())
        try:
            context = await in_thread(rebase.opened, self._database, session, branch, self._resources)
            if context is None:
                return None, Counts()
            context, deadline = await self._expired(context, session, branch)
            outlook = delivery.outlook(context.working, now, self._retry_at)
            if outlook.ready:
                await drain.drain(context, self._dispatcher, self._options, done)
                outlook = delivery.outlook(context.working, self._clock.now(), self._retry_at)
                self._note_ledger(folder, context.line.ledger.ref, context.line.ledger.head)
        except SessionBusy:
            self.report.skipped += 1
            return self._later(_BUSY_SECONDS), known
        except (ReactifactError, OSError) as error:
            self._troubles[folder] = self._troubles.get(folder, 0) + 1
            self.report.errors.append((session, branch, text_of(error)))
            log.error("relay cannot deliver from a branch", extra={"error": told(error)})
            return self._later(Backoff(_BUSY_SECONDS, 60.0).wait(self._troubles[folder])), known
        finally:
            self._count(session, branch, done)
        self._troubles.pop(folder, None)
        found = delivery.counts(context.working)
        if not outlook.ready:
            return min((when for when in (outlook.next, deadline) if when is not None), default=None), found
        # cut short, planned meanwhile, or not ours to send: come again, and not in a circle
        return (self._clock.now() if done.tried or done.is_cut else self._later(_BUSY_SECONDS)), found

    async def _expired(self, context: Context, session: str, branch: str) -> tuple[Context, datetime | None]:
        """Mark the questions whose deadline has passed; return the branch then, and the next deadline.

        The commit wakes whoever asked, in the next turn of the branch. A runner that is at it does the same.
        Raises `SessionBusy` beside one.
        """
        deadlines = Deadlines()
        first = await in_thread(deadlines.next, context)
        if first is None or first > self._clock.now():
            return context, first
        async with run_lock(context.line, self._clock):
            found = await in_thread(rebase.opened, self._database, session, branch, self._resources)
            if found is None:
                return context, None
            deadlines.expire(found)
            await publish(found)
        self.report.expired += 1
        return found, await in_thread(deadlines.next, found)

    def _later(self, seconds: float) -> datetime | None:
        return None if self._pace.once else self._clock.now() + timedelta(seconds=seconds)

    def _note_ledger(self, folder: str, ref: str, head: Oid | None) -> None:
        """Take what the drain has read, and wrote, of the ledger for looked at."""
        if head is not None and folder in self._sight.waiting:
            self._sight.heads[ref] = head

    def _count(self, session: str, branch: str, done: drain.Drained) -> None:
        report = self.report
        report.tried += done.tried
        report.delivered += done.delivered
        report.failed += len(done.errors)
        report.parked += done.parked
        report.errors += [(session, branch, text_of(error)) for _, error in done.errors]

    def _sum(self) -> None:
        report = self.report
        total = Counts()
        for counts in self._counts.values():
            total = total.plus(counts)
        report.waiting, report.waiting_failed, report.waiting_parked = total[:3]
        report.oldest_waiting = total.oldest


async def run(relay: Relay, grace: float) -> RelayReport:
    """Run a relay. When it is cancelled, what is being sent may go on for `grace` seconds and is recorded."""
    background = Background(relay.run)
    background.start()
    try:
        await background.wait()
    except BaseException:
        relay.stop()
        with CancelScope(shield=True):
            with anyio.move_on_after(grace):
                await background.wait()
            if not background.is_done:
                await background.stop(grace=math.inf)
        raise
    if background.error is not None:
        raise background.error
    return relay.report


def checked(pace: Pace, timeout: float | None) -> Pace:
    """Return a pace that makes sense. Raises `ValueError`, naming what does not."""
    for name, value in (("concurrency", pace.concurrency), ("max_attempts", pace.max_attempts)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number from 1 on")
    times = {"timeout": timeout, "poll": pace.poll, "rescan": pace.rescan, "backoff": pace.backoff.first}
    for name, seconds in times.items():
        if seconds is not None and not seconds > 0:
            raise ValueError(f"{name}={seconds!r}: give seconds above 0")
    return pace
