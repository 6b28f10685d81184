"""The two built-in artifact types: a question to a human and an action on the world.

Owns their models and what of an action is intent (stored on the branch) and what is delivery
(kept in the session's ledger and joined when the action is read).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal, Self

import pydantic_core
from pydantic import AwareDatetime, BaseModel, Field

from ._store import canonical
from ._store.layout import WAKE as WAKE
from .errors import AnswerConflict
from .types.ids import register

__all__ = ["PendingAction", "PendingQuestion"]


DELIVERY_FIELDS = ("status", "attempts", "dispatched_at", "error")
"""Fields of an action that no write of an agent changes."""

OPTIONAL_FIELDS = ("not_before", "cancelled_at")
"""Fields of an action that are stored only where they say something."""


class PendingQuestion(BaseModel):
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


class PendingAction(BaseModel):
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
register(PendingAction, type_id="reactifact.interrupt.PendingAction")
