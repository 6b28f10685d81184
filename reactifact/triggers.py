"""When an agent wakes: `Trigger`.

Owns the match of one event against a type, a kind and conditions. Which agents are asked, and in
which order, is the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from ._context.context import Context
from .artifacts import Artifact
from .events import Event, EventType

__all__ = ["Trigger"]


Condition = Callable[[Artifact[Any]], bool]
ContextCondition = Callable[[Artifact[Any], Context], bool]


@dataclass(eq=False)
class Trigger:
    """Wakes on events of one kind and, where given, of exactly one artifact type.

    `condition(artifact)` and `context_condition(artifact, context)` see the artifact as it is when
    the match is made; it must still exist. `owner` is the consume the trigger comes from: several
    events of a batch are debounced within it, or within the type for a trigger of its own.
    """

    event_type: EventType
    artifact_type: type[BaseModel] | None = None
    condition: Condition | None = None
    context_condition: ContextCondition | None = None
    debounce: bool = False
    owner: object | None = field(default=None, repr=False, kw_only=True)

    @property
    def debounce_scope(self) -> object:
        """What several events must share to become one run."""
        return self.owner if self.owner is not None else self.artifact_type

    def matches(self, event: Event, context: Context | None = None) -> bool:
        """Tell whether an event wakes. Raises `ValueError` when a condition lacks a context."""
        if event.type != self.event_type:
            return False
        if self.artifact_type is not None and event.artifact_type is not self.artifact_type:
            return False
        if self.condition is None and self.context_condition is None:
            return True
        if context is None:
            raise ValueError(
                f"the trigger on {self.event_type} has a condition and needs the context: "
                f"call matches(event, context)"
            )
        artifact = context.get(event.artifact_id)
        if artifact is None:
            return False
        if self.condition is not None and not self.condition(artifact):
            return False
        return self.context_condition is None or self.context_condition(artifact, context)
