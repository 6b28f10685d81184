"""What a produce asks for: `Effects`, recorded as operations, applied after it has succeeded.

Owns the planning of operations and `Handle`. Nothing here changes a context or touches the world.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar, overload

from pydantic import BaseModel

from ._context.context import Context
from ._context.working_copy import WorkingCopy, current_scope, too_late
from .artifacts import Artifact, encode
from .errors import IntentConflict, ReactifactError
from .interrupt import WAKE, Options, PendingAction, PendingQuestion, TypedQuestion
from .operations import Create, Delete, Link, Operation, Patch, Target, Unlink, Update, id_of, with_fields

__all__ = ["Effects", "Handle", "current_effects"]


M = TypeVar("M", bound=BaseModel)


class Handle:
    """An artifact that is planned: its id, its class name, and a way to link it."""

    def __init__(self, effects: Effects, id: str, type: str) -> None:
        self._effects = effects
        self.id = id
        self.type = type

    def link(self, relation: str, target: Target) -> Handle:
        """Plan a relation from the planned artifact; returns the handle."""
        self._effects.link(self.id, relation, target)
        return self

    def unlink(self, relation: str | None = None, target: Target | None = None) -> Handle:
        """Plan the removal of relations of the planned artifact; returns the handle."""
        self._effects.unlink(self.id, relation, target)
        return self

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, type={self.type!r})"


class EffectsSavepoint(NamedTuple):
    """What was planned at one moment."""

    operations: tuple[Operation, ...]
    planned: dict[str, BaseModel | None]


class Effects:
    """The operations that one execution asks for, in order.

    They become one commit when the execution has succeeded, or nothing.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.operations: list[Operation] = []
        self._planned: dict[str, BaseModel | None] = {}  # id -> data as planned, None: deleted
        self._is_closed = False

    def create(self, data: BaseModel, *, id: str | None = None) -> Handle:
        """Plan an artifact; an id that is taken when the patch is applied is refreshed.

        Without `id` one is made by `resources.id_factory`, else from 128 random bits.
        """
        artifact_id = id if id is not None else self._fresh_id(type(data))
        self.add(Create(data, id=artifact_id))
        self._planned[artifact_id] = data
        return Handle(self, artifact_id, type(data).__name__)

    def _fresh_id(self, model: type[BaseModel]) -> str:
        factory = self.context.resources.id_factory
        if factory is None:
            return f"{model.__name__.lower()}:{secrets.token_hex(16)}"
        made = factory(model.__name__)
        if made in self._planned or self._is_there(made):
            raise ValueError(
                f"the id {made!r} that id_factory made for a new {model.__name__} is taken: "
                f"let it return ids that are new"
            )
        return made

    def _is_there(self, artifact_id: str) -> bool:
        """Whether an id is taken; effects ask for themselves, so this is not a read of the produce."""
        return self.context.working.state.stored(artifact_id) is not None

    def create_once(self, data: BaseModel, *, id: str) -> Handle | None:
        """Plan an artifact, or nothing and return `None` when the id is there already."""
        if self._planned.get(id) is not None or self._is_there(id):
            return None
        return self.create(data, id=id)

    def create_once_from(
        self, source: Target, data: BaseModel, *, prefix: str | None = None
    ) -> Handle | None:
        """Plan an artifact with the id `<prefix or lower-case type>:<source id>`, once."""
        head = prefix if prefix is not None else type(data).__name__.lower()
        return self.create_once(data, id=f"{head}:{id_of(source)}")

    def upsert(self, data: BaseModel, *, id: str) -> Handle:
        """Plan an artifact under a fixed id, whether it exists or not."""
        return self.create(data, id=id)

    def update(self, artifact: Artifact[Any] | Target, **fields: Any) -> None:
        """Plan new values for some fields, on top of what this execution has planned already.

        Python's types cannot derive these keywords from the class of the artifact, so a type checker lets
        every name pass here; `edit` says the same so that it is checked.

        Raises `ValueError` naming a field that does not exist or does not validate, `LookupError`
        when there is no such artifact.
        """
        artifact_id = id_of(artifact)
        current = self._planned.get(artifact_id)
        if current is None:
            found = artifact if isinstance(artifact, Artifact) else self.context.get(artifact_id)
            if found is None or artifact_id in self._planned:
                raise LookupError(
                    f"there is no artifact {artifact_id!r} to update: create it, or check with "
                    f"context.get first"
                )
            current = found.data
        new_data = with_fields(current, fields)
        self.add(Update(artifact_id, new_data))
        self._planned[artifact_id] = new_data

    @contextmanager
    def edit(self, artifact: Artifact[M]) -> Iterator[M]:
        """Plan what the block changes in a copy of the data, as one update; nothing for no change.

        `with effects.edit(order) as data: data.status = "paid"`: the type checker knows the fields of
        `data` and what they hold. Nothing is planned when the block raises. Raises as `update` does,
        and what pydantic raises for a model that is frozen: give that one to `update`.
        """
        planned = self._planned.get(artifact.id)
        current = planned if isinstance(planned, type(artifact.data)) else artifact.data
        draft = current.model_copy(deep=True)
        yield draft
        changed = {name: new for name, (_, new) in _changes(current, draft).items()}
        if changed:
            self.update(artifact, **changed)

    def follow(self, artifact_id: str, view: WorkingCopy, after: BaseModel) -> None:
        """Let the planned updates of an artifact keep what a direct change is about to change.

        The direct change is committed first, and an update planned before it would put its other
        fields back as they were.
        """
        stored = view.state.stored(artifact_id)
        if stored is None or self._planned.get(artifact_id) is None:
            return
        before = view.artifact(stored).data
        changed = {} if type(before) is not type(after) else _changes(before, after)
        for place, operation in enumerate(self.operations):
            if isinstance(operation, Update) and operation.artifact_id == artifact_id:
                planned = operation.new_data
                kept = {name: new for name, (old, new) in changed.items() if getattr(planned, name) == old}
                if kept and type(planned) is type(after):
                    self.operations[place] = Update(artifact_id, with_fields(planned, kept))
                    self._planned[artifact_id] = with_fields(planned, kept)

    def delete(self, target: Target) -> None:
        """Plan the removal of an artifact."""
        self.add(Delete(id_of(target)))
        self._planned[id_of(target)] = None

    def link(self, source: Target, relation: str, target: Target) -> None:
        """Plan a relation."""
        self.add(Link(id_of(source), relation, id_of(target)))

    def unlink(self, source: Target, relation: str | None = None, target: Target | None = None) -> None:
        """Plan the removal of the relations that match; `None` stands for any."""
        self.add(Unlink(id_of(source), relation, None if target is None else id_of(target)))

    @overload
    def ask(
        self,
        question: str,
        /,
        *,
        kind: str = "general",
        notes: dict[str, Any] | None = None,
        id: str | None = None,
    ) -> Handle: ...
    @overload
    def ask(
        self,
        model: type[BaseModel],
        question: str,
        /,
        *,
        deadline: datetime | timedelta | None = None,
        options: Options | None = None,
        kind: str = "general",
        notes: dict[str, Any] | None = None,
        id: str | None = None,
    ) -> Handle: ...
    def ask(
        self,
        *what: Any,
        deadline: datetime | timedelta | None = None,
        options: Options | None = None,
        kind: str = "general",
        notes: dict[str, Any] | None = None,
        id: str | None = None,
        question: str | None = None,
    ) -> Handle:
        """Plan a question to a human: a text, or a model that the answer is to be and a text.

        With a model a `TypedQuestion` is planned. Its answer is validated, and of `options`, where they are
        given; from `deadline` (an aware time, or a timedelta from now) on it takes none, and the next turn
        marks it as `expired`. Agents that consume `TypedQuestion` wake on both. `call.ask` waits for the
        answer instead. Raises `AnswerInvalid` for options, `ValueError` for a naive deadline, and
        `TypeError` for anything but these arguments.
        """
        given = what if question is None else (*what, question)
        if len(given) == 1 and isinstance(given[0], str) and deadline is None and options is None:
            plain = PendingQuestion(question=given[0], kind=kind, notes=notes or {})
            return self.create(plain, id=id)
        if len(given) != 2 or not (isinstance(given[0], type) and issubclass(given[0], BaseModel)):
            raise TypeError(
                "effects.ask takes a text, or a model class and a text; deadline= and options= need the model"
            )
        now = self.context.resources.clock.now()
        typed = TypedQuestion.asking(
            given[0], given[1], now=now, deadline=deadline, options=options, kind=kind, notes=notes or {}
        )
        return self.create(typed, id=id)

    def resume(
        self, question: Artifact[PendingQuestion] | Target, resolution: Any, *, change: bool = False
    ) -> None:
        """Plan the answer to a question; the same answer again plans nothing.

        Raises `AnswerConflict` where the question has another answer, unless `change` asks for it,
        `LookupError` where there is no such question, `AnswerInvalid` and `QuestionExpired` of a typed one.
        """
        question_id = id_of(question)
        current = self._planned.get(question_id)
        if current is None and question_id not in self._planned:
            found = self.context.get(question_id)
            current = None if found is None else found.data
        if not isinstance(current, PendingQuestion):
            raise LookupError(f"there is no question {question_id!r} to answer: plan one with effects.ask")
        now = self.context.resources.clock.now()
        answered = current.answered_with(question_id, resolution, now, change=change)
        if answered is not None:
            self.update(question_id, answered=True, resolution=answered.resolution, resolved_at=now)

    def act(
        self,
        kind: str,
        *,
        key: str,
        payload: dict[str, Any] | None = None,
        ordering_key: str | None = None,
        id: str | None = None,
        not_before: datetime | None = None,
    ) -> Handle | None:
        """Plan an effect on the world, delivered after the commit; `None` if it is planned already.

        `key` is the idempotency key of the intent for good. Before `not_before`, an aware time, it is not
        sent, and holds back what shares its `ordering_key`. Planned again with another content or time, the
        intent is replaced while nobody has tried to deliver it; once it was cancelled it stays so, and
        `None` is returned. Raises `IntentConflict` when it was tried, or when this execution planned
        something else under the key; `ValueError` for a time without a zone.
        """
        artifact_id = id if id is not None else f"action:{key}"
        action = PendingAction(
            kind=kind,
            idempotency_key=key,
            payload=payload or {},
            ordering_key=ordering_key,
            not_before=None if not_before is None else _in_utc(not_before, key),
        )
        action = self.context.resources.redact(action)  # as it would stand
        standing = self._standing(artifact_id)
        if standing is not None and (
            standing.cancelled_at is not None or encode(standing).payload == encode(action).payload
        ):
            return None
        planned = self._planned.get(artifact_id)
        if planned is not None:
            if encode(planned).payload != encode(action).payload:
                raise IntentConflict(
                    f"{artifact_id!r} was planned twice in one execution with different content: "
                    f"give each intent a key of its own"
                )
            return None
        if standing is not None and (standing.status != "pending" or standing.attempts):
            tries = f"{standing.attempts} failed tries" if standing.attempts else "it was sent"
            raise IntentConflict(
                f"{artifact_id!r} stands with another content and is {standing.status} ({tries}): what "
                f"goes out under one key must not change; give the new intent a key of its own"
            )
        return self.create(action, id=artifact_id)

    def cancel(self, key: str, *, id: str | None = None) -> bool:
        """Plan that an action is never sent; return whether there is anything left to cancel.

        `False`: nothing was planned under `key` (in this branch), it is cancelled already, or it was
        delivered. Once the commit is saved, no send of it begins from this branch; one in progress may end
        all the same, and the action then shows as dispatched. Its key stays taken.
        """
        artifact_id = id if id is not None else f"action:{key}"
        planned = self._planned.get(artifact_id)
        known = planned if isinstance(planned, PendingAction) else self._standing(artifact_id)
        if known is None or (artifact_id in self._planned and planned is None):
            return False
        if known.cancelled_at is not None or known.status in ("dispatched", "simulated"):
            return False
        cancelled = known.intent().model_copy(update={"cancelled_at": self.context.resources.clock.now()})
        self.add(Update(artifact_id, cancelled))
        self._planned[artifact_id] = cancelled
        return True

    def wake(
        self,
        at: datetime,
        *,
        key: str,
        payload: dict[str, Any] | None = None,
        ordering_key: str | None = None,
    ) -> Handle | None:
        """Plan an event for agents of this session at a later time: an intent to oneself.

        It is an action of the kind `reactifact.wake`, with all that holds for one (`act`, `cancel`). When it
        is due, the next turn, drain or relay delivers it: nothing is sent, the action becomes `dispatched`,
        and agents that consume it (`Consume.wake`) react to that update in the next turn.
        """
        return self.act(WAKE, key=key, payload=payload, ordering_key=ordering_key, not_before=at)

    def _standing(self, artifact_id: str) -> PendingAction | None:
        """Return the action that the context has under an id, `None` for nothing; not a read of the produce.

        Raises `IntentConflict` where something else has the id.
        """
        working = self.context.working
        stored = working.state.stored(artifact_id)
        if stored is None:
            return None
        data = working.artifact(stored).data
        if not isinstance(data, PendingAction):
            raise IntentConflict(
                f"{artifact_id!r} is the id of a {type(data).__name__} and cannot be that of an action: pass "
                f"another id="
            )
        return data

    def add(self, operation: Operation) -> None:
        """Plan one operation. Raises `ReactifactError` after the execution has ended."""
        if self._is_closed:
            raise ReactifactError(too_late("an effect was planned"))
        self.operations.append(operation)

    def extend(self, patch: Patch) -> None:
        """Plan the operations of a patch."""
        for operation in patch.operations:
            self.add(operation)

    def close(self) -> None:
        """Take nothing more: the execution has ended."""
        self._is_closed = True

    def is_empty(self) -> bool:
        """Tell whether nothing is planned."""
        return not self.operations

    def savepoint(self) -> EffectsSavepoint:
        """Return what `rollback` needs to come back to this moment."""
        return EffectsSavepoint(tuple(self.operations), dict(self._planned))

    def rollback(self, to: EffectsSavepoint) -> None:
        """Drop what was planned since a savepoint."""
        self.operations[:] = to.operations
        self._planned = dict(to.planned)

    def to_patch(self) -> Patch:
        """Return what is planned as a patch."""
        return Patch(self.operations)

    def __repr__(self) -> str:
        return f"Effects({len(self.operations)} planned: {self.operations!r})"


def _in_utc(moment: datetime, key: str) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(
            f"the time {moment.isoformat()} of {key!r} has no zone, so nobody knows when it is: pass an "
            f"aware datetime, such as datetime.now(UTC) + timedelta(hours=1)"
        )
    return moment.astimezone(UTC)


def _changes(before: BaseModel, after: BaseModel) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of every field in which two models of a type differ."""
    names = [*type(after).model_fields, *(after.model_extra or {})]
    pairs = {name: (getattr(before, name, None), getattr(after, name)) for name in names}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def current_effects() -> Effects | None:
    """Return the effects of the execution that the present code runs in, `None` outside of one."""
    scope = current_scope()
    return None if scope is None else scope.effects
