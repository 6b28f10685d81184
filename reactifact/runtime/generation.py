"""One generation: plan on the present state, execute on one snapshot, commit in plan order.

Owns the way from a queue to commits. Budgets, saving and delivery are the turn's.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from ..authoring.agents import Agent
from ..authoring.produce import FunctionProduce, Produce
from ..context import Context
from ..context.applying import prepare, refuse_unequal_intents
from ..context.events import QueueEntry
from ..store.line import new_change_id
from ..store.records import CommitRecord
from ..store.state import State
from .combining import RunAgain, combine
from .execution import Result, execute
from .planning import Work, match


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
class Committed:
    """What became of a generation's results."""

    commits: int = 0
    again: list[Work] = field(default_factory=list)


def plan(context: Context, agents: Sequence[Agent], known: Plan | None = None) -> Plan:
    """Match the queue against the state; reuse a plan that was made on exactly this state."""
    context.commit_direct()
    queue = context.queue
    key = (context.line.change, *map(id, queue), *map(id, agents))
    if known is not None and known.key == key:
        return known
    if not queue:
        return Plan([], [], key)
    view = context.new_view()
    view.is_tracking = True
    return Plan(match(context, view, agents, queue), list(queue), key)


async def run_all(context: Context, work: Sequence[Work], snapshot: State, limit: int | None) -> list[Result]:
    """Execute all work on one snapshot and return the results in plan order.

    One after another, unless there is a limit to how many may run at once or an agent has one of
    its own. Everything that was started finishes.
    """

    def view() -> Any:
        return context.new_view(shared=snapshot)

    if limit is None and all(item.agent.concurrency_limit is None for item in work):
        return [await execute(context, item, view) for item in work]
    return await _run_concurrently(context, work, limit, view)


async def _run_concurrently(
    context: Context, work: Sequence[Work], limit: int | None, view: Callable[[], Any]
) -> list[Result]:
    total = anyio.CapacityLimiter(limit) if limit is not None else None
    own: dict[int, anyio.CapacityLimiter] = {}
    for item in work:
        if item.agent.concurrency_limit is not None:
            own.setdefault(id(item.agent), anyio.CapacityLimiter(item.agent.concurrency_limit))
    results: list[Result | None] = [None] * len(work)

    async def run(index: int, item: Work) -> None:
        borrower = object()
        limits = [found for found in (own.get(id(item.agent)), total) if found is not None]
        for found in limits:
            await found.acquire_on_behalf_of(borrower)
        try:
            results[index] = await execute(context, item, view)
        finally:
            for found in limits:
                found.release_on_behalf_of(borrower)

    async with anyio.create_task_group() as group:
        for index, item in enumerate(work):
            group.start_soon(run, index, item)
    return [result for result in results if result is not None]


def commit_all(context: Context, results: Sequence[Result], snapshot: State, labels: Labels) -> Committed:
    """Check every patch, then commit them in plan order. Raises before anything is applied."""
    patches = [prepare(result.operations, context.working) for result in results]
    directs = [prepare(result.direct, context.working) for result in results]
    refuse_unequal_intents([*patches, *directs])
    context.commit_direct()
    done = Committed()
    for result, patch, direct in zip(results, patches, directs, strict=True):
        try:
            patch = combine(patch, snapshot, context.line.state)
            direct = combine(direct, snapshot, context.line.state)
        except RunAgain:
            done.again.append(result.work)
            continue
        if direct:
            context.apply_direct(direct)
        if patch:
            context.commit_patch(patch, _note(result, labels, context))
            done.commits += 1
    return done


def _note(result: Result, labels: Labels, context: Context) -> CommitRecord:
    work = result.work
    return CommitRecord(
        change=new_change_id(),
        kind="agent",
        session="",
        branch="",
        author=work.agent.name,
        timestamp=context.resources.clock.now().isoformat(),
        context_version=0,
        generation=labels.generation,
        run_id=labels.run_id,
        code=code_version(work.agent),
        trigger=work.event.to_dict(),
        reads=[[artifact_id, version] for artifact_id, version in result.reads.items()],
        listings=[list(listing) for listing in result.listings.values()],
    )


def code_version(agent: Agent) -> str:
    """Return the agent's declared `code_version`, else a hash of the source of its produces."""
    if agent.code_version is not None:
        return agent.code_version
    known = agent.__dict__.get("_code_version")
    if known is None:
        parts = [_source(part) for part in agent.produces or ()] or [_source(agent)]
        known = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16] if all(parts) else ""
        agent.__dict__["_code_version"] = known
    return str(known)


def _source(part: Produce[Any] | Agent) -> str:
    subject = part.function if isinstance(part, FunctionProduce) else type(part)
    try:
        return inspect.getsource(subject)
    except (OSError, TypeError):
        return ""


def consume(context: Context, batch: Sequence[QueueEntry], again: Sequence[Work]) -> None:
    """Take a batch off the queue; what has to run again stays, owed to its agent alone."""
    gone = {id(entry) for entry in batch}
    kept: list[QueueEntry] = []
    for work in again:
        for entry in work.entries:
            kept.append(QueueEntry(entry.event, [work.name], entry.considered))
    context.queue[:] = kept + [entry for entry in context.queue if id(entry) not in gone]
