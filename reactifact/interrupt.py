"""The built-in artifact types: questions to a human and an action on the world.

Owns their models, what an answer is checked for, and what of an action is intent (stored on the branch) and
what is delivery (kept in the session's ledger and joined when the action is read).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Self

import pydantic_core
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from ._built_late import built_late
from ._store import canonical
from ._store.layout import WAKE as WAKE
from .errors import AnswerConflict, AnswerInvalid, QuestionExpired
from .types.codec import encode_payload
from .types.ids import register, type_id_of
from .types.registry import resolve

__all__ = ["PendingAction", "PendingQuestion", "TypedQuestion"]


DELIVERY_FIELDS = ("status", "attempts", "dispatched_at", "error")
"""Fields of an action that no write of an agent changes."""

OPTIONAL_FIELDS = ("not_before", "cancelled_at")
"""Fields of an action that are stored only where they say something."""


class PendingQuestion(BaseModel, defer_build=True):
    """A question that waits for a human."""

    transient_fields: ClassVar[frozenset[str]] = frozenset({"resolved_at"})

    question: str
    kind: str = "general"
    notes: dict[str, Any] = Field(default_factory=dict)
    answered: bool = False
    resolution: Any = None
    resolved_at: datetime | None = None

    def answered_with(
        self, artifact_id: str, resolution: Any, when: datetime, *, change: bool
    ) -> Self | None:
        """Return the question with an answer, `None` where it has the very same answer already.

        Raises `AnswerConflict` where it has another one, unless `change` asks for that.
        """
        if self.answered and _is_same(self.resolution, resolution):
            return None
        if self.answered and not change:
            raise AnswerConflict(
                f"question {artifact_id!r} was answered with {_shown(self.resolution)} already, and what was "
                f"decided by that may be done: its answer stays; pass change=True to change it "
                f"to {_shown(resolution)}"
            )
        return self.model_copy(update={"answered": True, "resolution": resolution, "resolved_at": when})


def _is_same(stored: Any, given: Any) -> bool:
    """Tell whether two answers are the same once stored: the order of keys says nothing, `True` is not 1."""
    try:
        one, other = (canonical.encode(pydantic_core.to_jsonable_python(each)) for each in (stored, given))
    except Exception:  # an answer that cannot be stored, which is told when it is written
        return False
    return one == other


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # of a class of the user's
        return f"a {type(value).__name__}"


class AnswerOption(BaseModel, defer_build=True):
    """One of the answers that a question takes, as data, under its label."""

    label: str
    answer: dict[str, Any]


class TypedQuestion(PendingQuestion, defer_build=True):
    """A question whose answer is a model: validated, of its options, and until its deadline, if it has these.

    `answer_type` and `answer_schema` are the type id and the JSON schema of that model; `options` are the
    only answers that are taken. `deadline` is an aware time; from then on no answer is taken, and the
    next turn marks the question as `expired`. `asked_by` and `asked_on` are the agent that waits for the
    answer in `call.ask`, and its event.
    """

    answer_type: str
    answer_schema: dict[str, Any]
    options: list[AnswerOption] | None = None
    deadline: datetime | None = None
    expired: bool = False
    asked_by: str = ""
    asked_on: dict[str, Any] | None = None

    @classmethod
    def asking(
        cls,
        model: type[BaseModel],
        question: str,
        *,
        now: datetime,
        deadline: datetime | timedelta | None = None,
        options: Options | None = None,
        **fields: Any,
    ) -> Self:
        """Return an open question. Raises `ValueError` for a naive deadline, `AnswerInvalid` for options."""
        if isinstance(deadline, timedelta):
            deadline = now + deadline
        if deadline is not None and deadline.tzinfo is None:
            raise ValueError(f"deadline={deadline!r} has no time zone: pass an aware time, or a timedelta")
        return cls(
            question=question,
            answer_type=type_id_of(model),
            answer_schema=model.model_json_schema(),
            options=None if options is None else _labelled(model, options),
            deadline=None if deadline is None else deadline.astimezone(UTC),
            **fields,
        )

    def is_over(self, when: datetime) -> bool:
        """Tell whether the deadline has passed without an answer."""
        return not self.answered and (self.expired or (self.deadline is not None and when >= self.deadline))

    def answer(self) -> BaseModel | None:
        """Return the answer as its model, `None` while there is none. Raises `TypeNotFoundError`."""
        return _validated(resolve(self.answer_type), self.resolution) if self.answered else None

    def answered_with(
        self, artifact_id: str, resolution: Any, when: datetime, *, change: bool
    ) -> Self | None:
        """Return the question with a validated answer, `None` where it has the very same answer already.

        Raises `AnswerInvalid`, `QuestionExpired` for one that is late, `AnswerConflict` for a second one.
        """
        if self.is_over(when):
            raise QuestionExpired(
                f"question {artifact_id!r} was open until {self.deadline}: it takes no answer any more; ask "
                f"again if one is still needed"
            )
        try:
            answer = _dumped(_validated(resolve(self.answer_type), resolution))
        except ValidationError as error:
            faults = _faults(error)
            told = "; ".join(f"{'.'.join(map(str, at)) or 'the answer'}: {wrong}" for at, wrong in faults)
            raise AnswerInvalid(
                f"the answer to question {artifact_id!r} is not a {self.answer_type}: {told}", faults
            ) from error
        if self.options is not None and all(option.answer != answer for option in self.options):
            labels = ", ".join(repr(option.label) for option in self.options)
            raise AnswerInvalid(
                f"question {artifact_id!r} takes one of its options, {labels}, and the answer is none of them"
            )
        return super().answered_with(artifact_id, answer, when, change=change)


Options = Mapping[str, BaseModel] | Sequence[BaseModel]
"""The answers that a question takes, by label; without labels they are numbered from 1."""


def _labelled(model: type[BaseModel], options: Options) -> list[AnswerOption]:
    pairs = options if isinstance(options, Mapping) else {str(n): one for n, one in enumerate(options, 1)}
    if not pairs:
        raise AnswerInvalid("options=: a question with no option at all cannot be answered; leave it out")
    for label, option in pairs.items():
        if not isinstance(option, model):
            raise AnswerInvalid(f"option {label!r} is {option!r}, and not a {model.__name__}")
    return [AnswerOption(label=label, answer=_dumped(option)) for label, option in pairs.items()]


def _validated(model: type[BaseModel], answer: Any) -> BaseModel:
    return answer if isinstance(answer, model) else model.model_validate(answer)


def _dumped(answer: BaseModel) -> dict[str, Any]:
    found: Any = canonical.decode(encode_payload(answer))
    return found if isinstance(found, dict) else {"root": found}


def _faults(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """Return what is wrong with an answer by field, without repeating the values: one may be a secret."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    return [(one["loc"], one["msg"]) for one in found]


class Waiting(BaseException):
    """Ends an execution that waits for an answer; it is run again when there is one.

    Not an `Exception`, so that a produce that catches all errors does not take it for one.
    """

    def __init__(self, question_id: str, question: TypedQuestion | None) -> None:
        super().__init__(f"waits for the answer to question {question_id!r}")
        self.question_id = question_id
        self.question = question  # to be asked; `None` where it stands already


class PendingAction(BaseModel, defer_build=True):
    """An effect on the world that was decided and is delivered after the commit.

    `idempotency_key` names the intent for good: every delivery of it, also after a crash, carries
    the same key. Actions that share an `ordering_key` are delivered in the order of their commits.
    Before `not_before` it is not sent; once `cancelled_at` is set it never is. One that is `parked` failed so
    often that nobody sends it before it is re-armed by hand.
    """

    transient_fields: ClassVar[frozenset[str]] = frozenset({"dispatched_at"})

    kind: str
    idempotency_key: str
    payload: dict[str, Any] = Field(default_factory=dict)
    ordering_key: str | None = None
    status: Literal["pending", "dispatched", "failed", "simulated", "parked", "cancelled"] = "pending"
    attempts: int = 0
    dispatched_at: datetime | None = None
    error: str | None = None
    not_before: AwareDatetime | None = None
    cancelled_at: AwareDatetime | None = None

    def intent(self) -> PendingAction:
        """Return the action without anything about its delivery."""
        return self.model_copy(
            update={"status": "pending", "attempts": 0, "dispatched_at": None, "error": None}
        )


register(PendingQuestion, type_id="reactifact.interrupt.PendingQuestion")
register(TypedQuestion, type_id="reactifact.interrupt.TypedQuestion")
register(PendingAction, type_id="reactifact.interrupt.PendingAction")


_MODELS = (PendingQuestion, AnswerOption, TypedQuestion, PendingAction)
built_late(*_MODELS)


def build_models() -> None:
    """Build the models above, if that is not done, before threads use them: older pydantic takes no lock."""
    for model in _MODELS:
        model.model_rebuild()
