"""One generation: plan on the present state, execute on one snapshot, commit in plan order.

Owns the way from a queue to commits. Budgets, saving and delivery are the turn's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from ..authoring.agents import Agent
from ..context import Context
from ..context.applying import refuse_unequal_intents
from ..context.encoding import Encoded
from ..context.events import EventType, QueueEntry
from ..context.held import HeldKey, HeldResult, held_key
from ..context.working import Working
from ..errors import IntentConflict
from ..store.line import new_change_id
from ..store.records import CommitRecord
from ..store.state import State
from .code import code_version
from .combining import RunAgain, combine
from .execution import Result, execute
from .native import run_all
from .planning import Work, match, named


@dataclass(slots=True)
class Plan:
    """The work of one generation and the queue it was made from."""

    work: list[Work]
    batch: list[QueueEntry]
    key: tuple[Any, ...] = ()


@dataclass(slots=True)
class Labels:
    """What every commit of a turn carries."""

    run_id: str
    generation: int


@dataclass(slots=True)
class Execution:
    """The executions of one generation, in plan order, as far as they have come."""

    work: list[Work]
    snapshot: State
    results: list[Result | None] = field(default_factory=list)
    executed: int = 0

    @property
    def finished(self) -> list[Result]:
        """The results there are, in plan order."""
        return [result for result in self.results if result is not None]

    @property
    def not_started(self) -> list[Work]:
        """The work that a budget kept from starting."""
        pairs = zip(self.work, self.results, strict=True)
        return [work for work, result in pairs if result is None]


def plan(context: Context, agents: Sequence[Agent], known: Plan | None = None) -> Plan:
    """Match the queue against the state; reuse a plan that was made on exactly this state."""
    if any(t.event_type == EventType.ARTIFACT_STALE for a in agents for t in a.triggers or ()):
        context.track_staleness()
    context.commits.commit_direct()
    queue = context.queue
    key = (context.line.change, *map(id, queue), *map(id, agents))
    if known is not None and known.key == key:
        return known
    if not queue:
        return Plan([], [], key)
    view = context.commits.new_view()
    view.is_tracking = True
    return Plan(match(context, view, agents, queue), list(queue), key)


async def execute_all(
    context: Context,
    execution: Execution,
    limit: int | None,
    may_start: Callable[[], bool],
    number: int,
) -> None:
    """Execute the work on one snapshot; `execution.results` fills up as it goes.

    One after another, unless there is a limit to how many may run at once or an agent has one of
    its own. What an earlier try left behind is taken as it is, where it still counts. Everything
    that was started finishes; `may_start` is asked before each start.
    """

    def view() -> Working:
        return context.commits.new_view(shared=execution.snapshot)

    execution.results = [None] * len(execution.work)
    before = view()  # the snapshot as it was, for all executions to look up versions in
    waiting = _take_held(context, execution, before)
    if limit is None and all(item.agent.concurrency_limit is None for _, item in waiting):
        for index, item in waiting:
            if not may_start():
                return
            execution.executed += 1
            execution.results[index] = await execute(context, item, view, before, number)
        return

    async def start(index: int, item: Work) -> None:
        if may_start():
            execution.executed += 1
            execution.results[index] = await execute(context, item, view, before, number)

    await _run_concurrently(waiting, limit, start)


def _take_held(context: Context, execution: Execution, before: Working) -> list[tuple[int, Work]]:
    """Fill in the results an earlier try left behind; return the work that has to be done."""
    if not context.commits.held:
        return list(enumerate(execution.work))
    left: dict[HeldKey, list[HeldResult]] = {}
    for found in context.commits.held:
        if found.is_valid(before):
            left.setdefault(found.key, []).append(found)
    waiting = []
    for index, item in enumerate(execution.work):
        mine = left.get(held_key(item.event, item.name))
        if mine:
            execution.results[index] = Result.held(item, mine.pop(0), before)
        else:
            waiting.append((index, item))
    return waiting


async def _run_concurrently(
    waiting: list[tuple[int, Work]],
    limit: int | None,
    start: Callable[[int, Work], Awaitable[None]],
) -> None:
    """Start all work at once, as far as the common limit and each agent's own let it run."""
    total = anyio.Semaphore(limit, fast_acquire=True) if limit is not None else None
    own: dict[int, anyio.Semaphore] = {}
    for _, item in waiting:
        if item.agent.concurrency_limit is not None:
            limits = item.agent.concurrency_limit
            own.setdefault(id(item.agent), anyio.Semaphore(limits, fast_acquire=True))

    async def run(index: int, item: Work) -> None:
        async with _HeldLimits(own.get(id(item.agent)), total):
            await start(index, item)

    await run_all([partial(run, index, item) for index, item in waiting])


class _HeldLimits:
    """Hold an agent's own limit and the common one, in this order; `None` is no limit."""

    def __init__(self, *limits: anyio.Semaphore | None) -> None:
        self._limits = [limit for limit in limits if limit is not None]
        self._held: list[anyio.Semaphore] = []

    async def __aenter__(self) -> None:
        try:
            for limit in self._limits:
                await limit.acquire()
                self._held.append(limit)
        except BaseException:
            self._release()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._release()

    def _release(self) -> None:
        while self._held:
            self._held.pop().release()


def mark_conflicts(results: Sequence[Result]) -> None:
    """Let the later of two executions fail that planned different actions under one key."""
    planned: dict[str, Encoded] = {}
    for result in results:
        if result.error is not None:
            continue
        try:
            refuse_unequal_intents([result.patch, result.direct], planned)
        except IntentConflict as error:
            result.fail(error)


def commit_all(context: Context, results: Sequence[Result], snapshot: State, labels: Labels) -> list[Work]:
    """Commit results in plan order; return the work that has to run again on the new state.

    Nothing can be refused any more: every patch was checked when its execution ended.
    """
    context.commits.commit_direct()
    if context.commits.held:
        context.commits.hold([])
    again: list[Work] = []
    for result in results:
        try:
            patch = combine(result.patch, snapshot, context.line.state)
            direct = combine(result.direct, snapshot, context.line.state)
        except RunAgain:
            again.append(result.work)
            continue
        if direct:
            context.commits.apply_direct(direct, labels.run_id)
        if patch:
            context.commits.commit_patch(patch, _note(result, labels, context))
    return again


def _note(result: Result, labels: Labels, context: Context) -> CommitRecord:
    work, found = result.work, result.found
    return CommitRecord(
        change=new_change_id(),
        kind="agent",
        author=work.agent.name,
        timestamp=context.resources.clock.now().isoformat(),
        context_version=0,
        generation=labels.generation,
        run_id=labels.run_id,
        code=code_version(work.agent),
        trigger=work.event.to_dict(),
        reads=[[artifact_id, version] for artifact_id, version in found.reads.items()],
        listings=[list(listing) for listing in found.listings.values()],
        details={"calls": found.calls} if found.calls else {},
    )


def consume(
    context: Context, agents: Sequence[Agent], batch: Sequence[QueueEntry], owed: Sequence[Work]
) -> None:
    """Take a batch off the queue; what was not done stays, owed to its agents alone.

    What is owed to an agent that is not there stays too, until it is.
    """
    present = {name for name, _ in named(agents)}
    left = {id(entry): absent for entry in batch if (absent := owed_to_absent(entry, present))}
    for work in owed:
        for entry in work.entries:
            left.setdefault(id(entry), []).append(work.name)
    gone = {id(entry) for entry in batch}
    kept: list[QueueEntry] = []
    for entry in context.queue:
        if id(entry) not in gone:
            kept.append(entry)
        elif id(entry) in left:
            kept.append(QueueEntry(entry.event, left[id(entry)], entry.considered))
    context.queue[:] = kept


def owed_to_absent(entry: QueueEntry, present: Collection[str]) -> list[str]:
    """Return the agents that an entry owes and that are not there."""
    return [name for name in entry.owed or () if name not in present]
