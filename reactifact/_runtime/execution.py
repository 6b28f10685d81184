"""One execution: an agent on an event, over its own view of the generation's snapshot.

Owns what an execution sees and leaves behind, checked so far that committing it cannot be refused.
Whether its result is committed is the generation's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from logging import DEBUG

from anyio import CancelScope

from .._context.apply import HeldResult, Prepared, SealedResult, prepare
from .._context.context import Context
from .._context.preload import look_ahead
from .._context.working_copy import Scope, WorkingCopy, entered
from .._memo import Memos
from .._observers import emit, observation
from ..agents import Agent
from ..effects import Effects
from ..errors import told
from ..interrupt import TypedQuestion, Waiting
from ..logging import bind, get_logger
from ..operations import Create, Operation, Update
from ..resources import RuntimeResources
from .plan import Work

log = get_logger("reactifact.runtime")

_NOTE = "reactifact: raised by"


@dataclass(slots=True)
class Result:
    """What one execution asked for, or how it failed."""

    work: Work
    found: HeldResult
    patch: list[Prepared] = field(default_factory=list)
    direct: list[Prepared] = field(default_factory=list)
    error: BaseException | None = None
    latency: float = 0.0  # in milliseconds
    redact: Callable[[str], str] = str  # what its error says, for the log
    waits: bool = False  # for an answer: it is run again when there is one
    _sealed: SealedResult | None = None

    @classmethod
    def failed(cls, work: Work, error: BaseException) -> Result:
        """Return the result of an execution that did not come to an end."""
        return cls(work, HeldResult(work.name, work.event, [], [], {}, {}), error=error)

    @classmethod
    def held(cls, work: Work, found: HeldResult, working: WorkingCopy) -> Result:
        """Return the result that an earlier try of the generation left behind."""
        result = cls(work, found)
        result.prepare(working)
        asked = (item.operation.data for item in result.patch if isinstance(item.operation, Create))
        result.waits = any(
            isinstance(one, TypedQuestion) and one.asked_by == (work.asker or work.name) for one in asked
        )
        return result

    def fail(self, error: Exception) -> None:
        """Let an execution that came to its end fail all the same."""
        self.error = error
        with bind(agent=self.work.agent.name):
            self.log()

    def say_where(self, run_id: str) -> None:
        """Note on the error which agent failed, on what, and in which run, in place of an earlier note."""
        event, error = self.work.event, self.error
        note = (
            f"{_NOTE} agent {self.work.agent.name!r}, on {event.type.value} of {event.type_id} "
            f"{event.artifact_id!r}, run {run_id}"
        )
        if error is None:
            return
        with suppress(Exception):  # an exception may be of any making
            notes = getattr(error, "__notes__", [])
            notes[:] = [one for one in notes if not one.startswith(_NOTE)]
            error.add_note(note)

    def log(self) -> None:
        """Write the record of how it ended."""
        if self.error is None:
            if not log.isEnabledFor(DEBUG):
                return
            log.debug("agent finished", extra={"latency_ms": self.latency})
        else:
            text = self.redact(told(self.error))
            log.warning("agent failed", extra={"latency_ms": self.latency, "error": text})

    def sealed(self) -> SealedResult:
        """Return it as it is kept until the generation is committed."""
        if self._sealed is None:
            self._sealed = self.found.sealed(self.patch, self.direct)
        return self._sealed

    def prepare(self, working: WorkingCopy) -> None:
        """Check that everything asked for may be done and can be stored. Raises what makes it impossible."""
        resources = working.resources
        operations, direct = self.found.operations, self.found.direct
        if resources.redactor is not None:
            operations = [_redacted(one, resources) for one in operations]
            direct = [_redacted(one, resources) for one in direct]
        if resources.guards_access:
            for operation in [*direct, *operations]:
                _ask(operation, working, self.work.agent.name)
        self.patch = prepare(operations, working)
        self.direct = prepare(direct, working)
        for item in self.patch:
            if isinstance(item.operation, Create):
                item.operation.artifact_id = item.artifact_id


def _redacted(operation: Operation, resources: RuntimeResources) -> Operation:
    if isinstance(operation, Create):
        return replace(operation, data=resources.redact(operation.data))
    if isinstance(operation, Update):
        return replace(operation, new_data=resources.redact(operation.new_data))
    return operation


def _ask(operation: Operation, working: WorkingCopy, author: str) -> None:
    """Ask the guard rails about one operation. Raises `NotAuthorized`, `GuardrailViolation`."""
    verb, data = type(operation).__name__.lower(), None
    artifact_id = str(getattr(operation, "artifact_id", None) or getattr(operation, "id", None) or "")
    if isinstance(operation, Create):
        data = operation.data
    elif isinstance(operation, Update):
        data = operation.new_data
    stored = working.state.stored(artifact_id)
    current = None if stored is None else working.version_data(stored.meta)
    working.resources.check(verb, artifact_id, data, current, author)


Remember = Callable[[Work, WorkingCopy], Memos]
"""Returns what earlier tries of an execution have kept, given its view."""


async def execute(
    context: Context,
    work: Work,
    new_view: Callable[[], WorkingCopy],
    before: WorkingCopy,
    generation: int,
    remember: Remember,
) -> Result:
    """Run one agent on one event, in a new view of the snapshot that `before` shows unchanged.

    Errors of the agent's code are kept in the result.
    """
    if work.error is not None:
        result = Result.failed(work, work.error)
        with bind(agent=work.agent.name, generation=generation):
            result.log()
        _tell(result, _begin(work))
        return result
    view = new_view()
    view.is_tracking = True
    view.reads, view.listings = dict(work.reads), dict(work.listings)
    effects = Effects(context)
    clock = context.resources.clock
    started = clock.monotonic()
    scope = Scope(context, view, effects, partial(remember, work, view))
    scope.asker = (work.asker or work.name, work.event)
    try:
        with entered(scope), bind(agent=work.agent.name, generation=generation):
            number = _begin(work)
            try:
                result = await _run(context, work, view, before)
                result.found.calls = scope.calls
            except Exception as error:
                result = Result.failed(work, error)
            except BaseException as cut:
                _tell(Result.failed(work, cut), number)
                raise
            result.redact = context.resources.redact
            result.latency = round((clock.monotonic() - started) * 1000, 3)
            result.log()
            _tell(result, number)
    finally:
        effects.close()
        view.let_go()
    return result


_numbers = count(1)


def _begin(work: Work) -> int:
    """Tell observers that an execution begins; return its number, 0 where nobody observes."""
    if observation() is None:
        return 0
    from ..streaming import ExecutionStarted

    number = next(_numbers)
    emit(ExecutionStarted, execution=number, **_what(work))
    return number


def _tell(result: Result, number: int) -> None:
    """Tell observers how an execution ended."""
    if not number:
        return
    from ..streaming import ExecutionFailed, ExecutionFinished

    fields = {"execution": number, "latency": result.latency, **_what(result.work)}
    if result.error is None:
        emit(ExecutionFinished, **fields)
    else:
        emit(ExecutionFailed, error=told(result.error), **fields)


def _what(work: Work) -> dict[str, str]:
    return {"agent": work.name, "artifact_id": work.event.artifact_id, "event": work.event.type.value}


async def _run(context: Context, work: Work, view: WorkingCopy, before: WorkingCopy) -> Result:
    _note_trigger(view, work)
    try:
        patch = await work.agent.execute(context, work.event)
        operations, direct = [_own(operation) for operation in patch.operations], view.direct
        check_declared(work.agent, operations)
        waits = False
    except Waiting as waiting:
        operations, direct, waits = _asked([waiting]), [], True
    except BaseExceptionGroup as group:
        waiting_ones, others = group.split(Waiting)
        if waiting_ones is None:
            raise
        if others is not None:
            raise others from None
        operations, direct, waits = _asked(_leaves(waiting_ones)), [], True
    view.check_loaded()
    found = HeldResult(work.name, work.event, operations, direct, view.reads, view.listings)
    result = Result(work, found)
    if context.commits.is_remote:
        with CancelScope(shield=True):  # what it did is not to be lost
            await look_ahead(context.commits, filter(None, map(_id, [*operations, *view.direct])))
    result.prepare(view)
    result.waits = waits
    found.note_state(before)
    return result


def _asked(waiting: Iterable[BaseException]) -> list[Operation]:
    """Return the creation of the questions that an execution waits for and that are not asked yet."""
    found = (one for one in waiting if isinstance(one, Waiting) and one.question is not None)
    return [Create(one.question, id=one.question_id) for one in found if one.question is not None]


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _own(operation: Operation) -> Operation:
    """Return what may be given an id: a produce may hand out one `Create` in every execution."""
    if type(operation) is Create:
        return Create(operation.data, operation.data_type, operation.artifact_id, operation.id)
    return replace(operation) if isinstance(operation, Create) else operation


def _id(operation: Operation) -> str | None:
    """Return the id of what an operation is about, `None` for one that is made later."""
    wish = operation.id if isinstance(operation, Create) else None
    found: str | None = getattr(operation, "artifact_id", None)
    return found or wish


def _note_trigger(view: WorkingCopy, work: Work) -> None:
    """The artifact behind the event is read first, also by an agent that never looks at it."""
    artifact_id = work.event.artifact_id
    stored = view.state.stored(artifact_id)
    others, view.reads = view.reads, {}
    if stored is not None:
        view.note_read(artifact_id, stored)
    for key, version in others.items():
        if key != artifact_id:
            view.reads[key] = version


def check_declared(agent: Agent, operations: Iterable[Operation]) -> None:
    """Refuse the creation of a type that no produce declares. Raises `ValueError`."""
    if not agent.produces:
        return
    allowed = {kind for part in agent.produces for kind in part.creates}
    for operation in operations:
        if isinstance(operation, Create) and type(operation.data) not in allowed:
            names = ", ".join(sorted(kind.__name__ for kind in allowed))
            raise ValueError(
                f"agent {agent.name!r} creates {type(operation.data).__name__}, which is "
                f"not declared in produces (artifact_type or also_creates); declared are {names}"
            )
