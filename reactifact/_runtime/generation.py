"""One pass of the loop: plan, execute on one snapshot, combine, commit in plan order.

Owns what becomes of results: two patches on one artifact are combined field by field or run again, what
has finished when a generation is cut or fails is kept for the retry, and the version of the code that made
a result is noted. A generation is committed whole or not at all.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from anyio.lowlevel import checkpoint_if_cancelled
from pydantic import BaseModel, ValidationError

from .._context.apply import HeldKey, HeldResult, Prepared, apply, held_key, refuse_unequal_intents
from .._context.context import Context
from .._context.queue import QueueEntry
from .._context.working_copy import WorkingCopy
from .._observers import emit, observation
from .._store import canonical
from .._store.branch import new_change_id
from .._store.commits import CommitRecord
from .._store.state import State, Stored
from .._undeclared import over
from ..agents import Agent
from ..artifacts import Encoded, encode
from ..errors import IntentConflict
from ..interrupt import PendingQuestion
from ..operations import Create, Delete
from ..produce import FunctionProduce, Produce
from ..types.codec import decode_payload
from ..types.registry import merge_function_of
from .execution import Result, execute
from .plan import Roster, Upcoming, Work, match
from .steps import Steps
from .tasks import Function, run_all

# -- which code made a commit --


_known: WeakKeyDictionary[Agent, str] = WeakKeyDictionary()


def code_version(agent: Agent) -> str:
    """Return the agent's declared `code_version`, else a hash of its source, empty where unknown."""
    if agent.code_version is not None:
        return agent.code_version
    known = _known.get(agent)
    if known is None:
        parts = [_source(part) for part in agent.produces or ()] or [_source(agent)]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        known = _known[agent] = digest if all(parts) else ""
    return known


def _source(part: Produce[Any] | Agent) -> str:
    subject = part.function if isinstance(part, FunctionProduce) else type(part)
    try:
        return inspect.getsource(subject)
    except (OSError, TypeError):
        return ""


# -- two patches of one generation on one artifact: combine them, or run the later one again --


class RunAgain(Exception):
    """The patch stands against one that was committed before it in this generation."""


def combine(prepared: list[Prepared], snapshot: State, live: State) -> list[Prepared]:
    """Return a patch as it applies to the live state. Raises `RunAgain` where it cannot.

    `snapshot` is what the execution saw, `live` the state after the earlier patches.
    """
    contested = {
        artifact_id
        for artifact_id in written_by(prepared)
        if _oid(snapshot.stored(artifact_id)) != _oid(live.stored(artifact_id))
    }
    for artifact_id in sorted(contested):
        prepared = _combine_one(artifact_id, prepared, snapshot, live)
    return prepared


def written_by(*patches: Iterable[Prepared]) -> Iterator[str]:
    """Yield the id of every artifact that patches write or delete, for each time they do."""
    for patch in patches:
        for item in patch:
            if item.encoded is not None or isinstance(item.operation, Delete):
                yield item.artifact_id


def _oid(stored: Stored | None) -> str | None:
    return None if stored is None else stored.meta.payload


def _combine_one(artifact_id: str, prepared: list[Prepared], snapshot: State, live: State) -> list[Prepared]:
    mine = [item for item in prepared if item.artifact_id == artifact_id]
    last = [item for item in mine if item.encoded or isinstance(item.operation, Delete)][-1]
    now = live.stored(artifact_id)
    if isinstance(last.operation, Delete):
        if now is None:
            return prepared
        raise RunAgain(artifact_id)
    if now is None:
        raise RunAgain(artifact_id)
    assert last.encoded is not None
    before = snapshot.stored(artifact_id)
    base = None if before is None else _encoded(before, snapshot, last.encoded)
    theirs = _encoded(now, live, last.encoded)
    merged = _merged(base, theirs, last.encoded)
    if merged is None:
        raise RunAgain(artifact_id)
    merged = over(merged, theirs, f"artifact {artifact_id!r}")
    # the patch itself stays as it is: it may be held, or combined again without one that failed meanwhile
    return [
        replace(item, encoded=merged) if item is last else item
        for item in prepared
        if item is last or item.artifact_id != artifact_id or item.encoded is None
    ]


def _encoded(stored: Stored, state: State, like: Encoded) -> Encoded:
    meta = stored.meta
    return Encoded(meta.type_id, state.payload(meta), meta.revision, like.model)


def _merged(base: Encoded | None, theirs: Encoded, mine: Encoded) -> Encoded | None:
    """Return what both patches together make of an artifact, `None` where they disagree.

    Both changing one field to the same value is not an agreement: each may have added one to it.
    """
    if theirs.type_id != mine.type_id:
        return None
    merge = merge_function_of(mine.model)
    if merge is not None:
        from ..merging import CONFLICT

        was = None if base is None or base.type_id != mine.type_id else _model(base)
        both = merge(was, _model(theirs), _model(mine))
        return None if both is CONFLICT else encode(both)
    if base is None:
        return mine if theirs.payload == mine.payload else None
    return _combined_fields(base, theirs, mine) if base.type_id == mine.type_id else None


def _model(encoded: Encoded) -> BaseModel:
    return decode_payload(encoded.model, encoded.payload, type_id=encoded.type_id, revision=encoded.revision)


def _combined_fields(base: Encoded, theirs: Encoded, mine: Encoded) -> Encoded | None:
    old, first, second = (_fields(side) for side in (base, theirs, mine))
    if old is None or first is None or second is None:
        return None
    result = dict(first)
    for name in old.keys() | first.keys() | second.keys():
        was, one, two = (side.get(name, _ABSENT) for side in (old, first, second))
        if two == was:
            continue
        if one != was:
            return None
        if two is _ABSENT:
            result.pop(name, None)
        else:
            result[name] = two
    try:
        return encode(_model(mine._replace(payload=canonical.encode(result))))
    except (ValidationError, ValueError):
        return None


_ABSENT: Any = object()


def _fields(encoded: Encoded) -> dict[str, Any] | None:
    data = canonical.decode(encoded.payload)
    return data if isinstance(data, dict) else None


# -- one generation: plan on the present state, execute on one snapshot, commit in plan order --


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
    steps: Steps
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
    commit: CommitRecord | None = None  # that was made of the patch


def plan(context: Context, roster: Roster, known: Plan | None = None) -> Plan:
    """Match the queue against the state; reuse a plan that was made on exactly this state."""
    if roster.reacts_to_stale:
        context.track_staleness()
    commits = context.commits
    commits.commit_direct()
    queue, change = commits.queue, commits.line.change
    if known is not None and known.key == (change, queue.revision, roster):
        return known
    if roster.renames:
        queue.rename(roster.renames)
    batch = queue.active(roster.names)
    if not batch:
        return Plan([], [], (change, queue.revision, roster))

    def new_view() -> WorkingCopy:
        view = commits.new_view()
        view.is_tracking = True
        view.closed = (
            "a condition changed the context: it is asked while events are matched, and nobody applies what "
            "it changes; let a produce do it"
        )
        return view

    work = match(context, new_view, roster, queue, batch)
    return Plan(work, batch, (change, commits.gather().revision, roster))


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
    that was started finishes; `may_start` is asked before each start. Raises what kept results from
    being written, once all that was started has finished.
    """
    steps = execution.steps

    def view() -> WorkingCopy:
        return context.commits.new_view(shared=execution.snapshot)

    before = view()  # the snapshot as it was, for all executions to look up versions in
    execution.results, waiting = _take_held(context, execution.work, before)
    steps.begin_with(execution.results)

    async def run(place: Place) -> None:
        index, item = place
        if steps.error is None and may_start():
            execution.executed += 1
            remember = partial(steps.memos, before=before)
            result = await execute(context, item, view, before, number, remember)
            execution.results[index] = result
            await steps.finished(result)

    if limit is None and all(item.agent.concurrency_limit is None for _, item in waiting):
        for place in waiting:
            await run(place)
            await checkpoint_if_cancelled()  # it may have ended in spite of a cancellation, or beside one
        if steps.error is not None:
            raise steps.error
        return

    upcoming = Upcoming(
        waiting, lambda place: id(place[1].agent), lambda place: place[1].agent.concurrency_limit
    )

    async def run_and_end(place: Place) -> None:
        try:
            await run(place)
        finally:
            upcoming.ended(place)

    def function() -> Function | None:
        place = upcoming.next()
        return None if place is None else partial(run_and_end, place)

    await run_all(function, len(waiting) if limit is None else min(limit, len(waiting)))
    if steps.error is not None:
        raise steps.error


def _take_held(
    context: Context, work: Sequence[Work], before: WorkingCopy
) -> tuple[list[Result | None], list[Place]]:
    """Return the results that an earlier try left behind, in their places, and the work to be done."""
    results: list[Result | None] = [None] * len(work)
    if not context.commits.held:
        return results, list(enumerate(work))
    left: dict[HeldKey, list[HeldResult]] = {}
    earlier = {alias: item.name for item in work for alias in item.agent.aliases}
    for found in context.commits.held:
        if found.is_valid(before):
            key = held_key(found.event, earlier.get(found.agent, found.agent))
            left.setdefault(key, []).append(found)
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
    if context.commits.line.state.roots.meta == snapshot.roots.meta and not _meet(results):
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
    if len(results) == 1 and not results[0].direct:
        return False
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
    if context.commits.held or context.commits.memos:
        context.commits.hold([])
    for one in combined:
        if one.direct:
            context.commits.apply_direct(one.direct, labels.run_id)
        if one.patch:
            one.commit = _note(one.result, labels, context)
            context.commits.commit_patch(one.patch, one.commit)
    return [one.result.work for one in combined if one.runs_again]


def tell(combined: Sequence[Combined], version: int) -> None:
    """Tell observers of the commits just made, the last of which made `version`, and of questions in them."""
    if observation() is None:
        return
    from ..streaming import CommitMade, QuestionAsked

    made = [one for one in combined if one.commit is not None]
    for number, one in enumerate(made, version - len(made) + 1):
        assert one.commit is not None
        ids = tuple(dict.fromkeys(item.artifact_id for item in one.patch))
        agent = one.result.work.agent.name
        emit(CommitMade, commit=one.commit.change, version=number, agent=agent, artifact_ids=ids)
        for item in one.patch:
            asked = getattr(item.operation, "data", None)
            if isinstance(item.operation, Create) and isinstance(asked, PendingQuestion):
                emit(QuestionAsked, artifact_id=item.artifact_id, question=asked.question)


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


def consume(context: Context, roster: Roster, batch: Sequence[QueueEntry], owed: Sequence[Work]) -> None:
    """Take a batch off the queue; what was not done stays, owed to its agents alone.

    What is owed to an agent that is not there stays too, until it is; and that on which one is parked.
    """
    present, queue = roster.names, context.queue
    left: dict[int, list[str]] = {}
    for entry in batch:
        if entry.owed and (absent := owed_to_absent(entry, present)):
            left[id(entry)] = absent
    for work in owed:
        for entry in work.entries:
            left.setdefault(id(entry), []).append(work.name)
    done = []
    for entry in batch:
        if id(entry) in left or (entry.failures and entry.parked):
            queue.owe(entry, left.get(id(entry), []))
        else:
            done.append(entry.event)
    queue.remove(done)


def owed_to_absent(entry: QueueEntry, present: Collection[str]) -> list[str]:
    """Return the agents that an entry owes and that are not there."""
    return [name for name in entry.owed or () if name not in present]
