"""One generation: plan on the present state, execute on one snapshot, commit in plan order.

Owns the way from a queue to commits. Budgets, saving and delivery are the turn's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyio.lowlevel import checkpoint_if_cancelled

from ..authoring.agents import Agent
from ..context import Context
from ..context.applying import Prepared, apply, refuse_unequal_intents
from ..context.encoding import Encoded
from ..context.events import EventType
from ..context.held import HeldKey, HeldResult, held_key
from ..context.queue import QueueEntry
from ..context.working import Working
from ..errors import IntentConflict
from ..store.line import new_change_id
from ..store.records import CommitRecord
from ..store.state import State
from .code import code_version
from .combining import RunAgain, combine, written_by
from .execution import Result, execute
from .native import Function, run_all
from .planning import Work, match, named
from .upcoming import Upcoming

Place = tuple[int, Work]
"""Work and its place in the plan."""


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
    """The executions of one generation, in plan order, as far as they have come.

    `results` has a place for each once it is known what an earlier try left behind.
    """

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


@dataclass(slots=True)
class Combined:
    """What a result comes to beside those before it; nothing, where its work has to run again."""

    result: Result
    patch: list[Prepared]
    direct: list[Prepared]
    runs_again: bool = False


def plan(context: Context, agents: Sequence[Agent], known: Plan | None = None) -> Plan:
    """Match the queue against the state; reuse a plan that was made on exactly this state."""
    if any(t.event_type == EventType.ARTIFACT_STALE for a in agents for t in a.triggers or ()):
        context.track_staleness()
    context.commits.commit_direct()
    queue = context.queue
    if known is not None and known.key == _key(context, agents):
        return known
    batch = queue.active(_names(agents))
    if not batch:
        return Plan([], [], _key(context, agents))
    view = context.commits.new_view()
    view.is_tracking = True
    view.closed = (
        "a condition changed the context: it is asked while events are matched, and nobody applies what it "
        "changes; let a produce do it"
    )
    work = match(context, view, agents, queue, batch)
    return Plan(work, batch, _key(context, agents))


def _key(context: Context, agents: Sequence[Agent]) -> tuple[Any, ...]:
    return context.line.change, context.queue.revision, *map(id, agents)


def _names(agents: Sequence[Agent]) -> set[str]:
    return {name for name, _ in named(agents)}


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

    before = view()  # the snapshot as it was, for all executions to look up versions in
    execution.results, waiting = _take_held(context, execution.work, before)
    if limit is None and all(item.agent.concurrency_limit is None for _, item in waiting):
        for index, item in waiting:
            if not may_start():
                return
            execution.executed += 1
            execution.results[index] = await execute(context, item, view, before, number)
            await checkpoint_if_cancelled()  # it may have ended in spite of a cancellation, or beside one
        return

    upcoming = Upcoming(
        waiting, lambda place: id(place[1].agent), lambda place: place[1].agent.concurrency_limit
    )

    async def run(place: Place) -> None:
        index, item = place
        try:
            if may_start():
                execution.executed += 1
                execution.results[index] = await execute(context, item, view, before, number)
        finally:
            upcoming.ended(place)

    def function() -> Function | None:
        place = upcoming.next()
        return None if place is None else partial(run, place)

    await run_all(function, len(waiting) if limit is None else min(limit, len(waiting)))


def _take_held(
    context: Context, work: Sequence[Work], before: Working
) -> tuple[list[Result | None], list[Place]]:
    """Return the results that an earlier try left behind, in their places, and the work to be done."""
    results: list[Result | None] = [None] * len(work)
    if not context.commits.held:
        return results, list(enumerate(work))
    left: dict[HeldKey, list[HeldResult]] = {}
    for found in context.commits.held:
        if found.is_valid(before):
            left.setdefault(found.key, []).append(found)
    waiting = []
    for index, item in enumerate(work):
        mine = left.get(held_key(item.event, item.name))
        if mine:
            results[index] = Result.held(item, mine.pop(0), before)
        else:
            waiting.append((index, item))
    return results, waiting


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


def combine_all(context: Context, results: Sequence[Result], snapshot: State) -> list[Combined]:
    """Work out what results make of the live state in plan order, before any of it is committed.

    Where two of them meet on an artifact, a merge function of the application may be asked, and what
    that raises fails the later execution: its result carries the error, and the caller sees to it.
    """
    context.commits.commit_direct()
    if context.line.state.roots.meta == snapshot.roots.meta and not _meet(results):
        return [Combined(result, result.patch, result.direct) for result in results]
    view = context.commits.new_view()  # the live state as it will be, result by result
    origin = context.commits.origin()
    combined = []
    for result in results:
        try:
            found = Combined(
                result,
                combine(result.patch, snapshot, view.state),
                combine(result.direct, snapshot, view.state),
            )
        except RunAgain:
            combined.append(Combined(result, [], [], runs_again=True))
            continue
        except Exception as error:
            result.fail(error)
            continue
        combined.append(found)
        apply(found.direct, view, origin)
        apply(found.patch, view, origin)
    return combined


def _meet(results: Sequence[Result]) -> bool:
    """Tell whether two results write one artifact."""
    writers: dict[str, Result] = {}
    return any(
        writers.setdefault(artifact_id, result) is not result
        for result in results
        for artifact_id in written_by(result.patch, result.direct)
    )


def commit_all(context: Context, combined: Sequence[Combined], labels: Labels) -> list[Work]:
    """Commit in plan order what was just combined; return the work that has to run again on the new state.

    Nothing can be refused any more: every patch was checked when its execution ended.
    """
    if context.commits.held:
        context.commits.hold([])
    for one in combined:
        if one.direct:
            context.commits.apply_direct(one.direct, labels.run_id)
        if one.patch:
            context.commits.commit_patch(one.patch, _note(one.result, labels, context))
    return [one.result.work for one in combined if one.runs_again]


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
    present, queue = _names(agents), context.queue
    left = {id(entry): absent for entry in batch if (absent := owed_to_absent(entry, present))}
    for work in owed:
        for entry in work.entries:
            left.setdefault(id(entry), []).append(work.name)
    for entry in batch:
        if id(entry) in left:
            queue.owe(entry, left[id(entry)])
    queue.remove(entry.event for entry in batch if id(entry) not in left)


def owed_to_absent(entry: QueueEntry, present: Collection[str]) -> list[str]:
    """Return the agents that an entry owes and that are not there."""
    return [name for name in entry.owed or () if name not in present]
