"""What an agent reads and reacts to: `BaseConsume`, and `Consume` for a single type.

Owns a single type with a condition. Consumes over groups of artifacts are `correlated`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from inspect import getattr_static
from typing import Any

from pydantic import BaseModel

from ..context import Context
from ..context.artifacts import Artifact
from ..context.events import EventType
from .triggers import Condition, Trigger

DEFAULT_EVENTS = (EventType.ARTIFACT_CREATED, EventType.ARTIFACT_UPDATED)


class BaseConsume(ABC):
    """What the members of `Agent.consumes` have in common."""

    event_types: Iterable[EventType] = DEFAULT_EVENTS
    wakes: bool = True
    debounce: bool = False

    @abstractmethod
    def to_triggers(self) -> list[Trigger]:
        """Return the triggers that wake the agent; none when the consume does not wake."""

    @abstractmethod
    def types(self) -> tuple[type[BaseModel], ...]:
        """Return the types that are read."""

    @abstractmethod
    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return the live artifacts that match, in order of creation."""


def refuse_idle_debounce(consume: BaseConsume, label: str) -> None:
    """Refuse `debounce` where nothing ever wakes. Raises `ValueError`."""
    if consume.debounce and not consume.wakes:
        raise ValueError(
            f"debounce is meaningless on a consume of {label} with wakes=False: "
            f"it never wakes anybody; drop one of the two"
        )


class Consume(BaseConsume):
    """Artifacts of a type (subclasses included as inputs, exact type to wake).

    `wakes=False` feeds inputs without waking. `debounce=True` makes one run of several events of a
    batch. Defaults come from class attributes.
    """

    artifact_type: type[BaseModel] | None = None
    condition: Condition | None = None

    def __init__(
        self,
        artifact_type: type[BaseModel] | None = None,
        condition: Condition | None = None,
        event_types: Iterable[EventType] | None = None,
        *,
        wakes: bool | None = None,
        debounce: bool | None = None,
    ) -> None:
        kind = artifact_type if artifact_type is not None else type(self).artifact_type
        if kind is None:
            raise ValueError(
                f"{type(self).__name__} has no artifact type: pass one, or set artifact_type on the class"
            )
        # a function as class attribute is a condition on artifacts, not a method
        own = getattr_static(type(self), "condition", None)
        own = own.__func__ if isinstance(own, staticmethod) else own
        self.artifact_type = kind
        self.condition = condition if condition is not None else own
        self.event_types = tuple(event_types if event_types is not None else type(self).event_types)
        self.wakes = type(self).wakes if wakes is None else wakes
        self.debounce = type(self).debounce if debounce is None else debounce
        refuse_idle_debounce(self, kind.__name__)

    def to_triggers(self) -> list[Trigger]:
        """Return one trigger per event type; none when the consume does not wake."""
        if not self.wakes:
            return []
        return [
            Trigger(kind, self.artifact_type, self.condition, debounce=self.debounce, owner=self)
            for kind in self.event_types
        ]

    def types(self) -> tuple[type[BaseModel], ...]:
        """Return the types that are read."""
        return () if self.artifact_type is None else (self.artifact_type,)

    def collect(self, context: Context) -> list[Artifact[Any]]:
        """Return the live artifacts that match, subclasses included, in order of creation."""
        found = context.list_artifacts(self.artifact_type)
        return found if self.condition is None else [a for a in found if self.condition(a)]

    @classmethod
    def by_field(cls, artifact_type: type[BaseModel], field: str, value: Any, **options: Any) -> Consume:
        """Return a consume of the artifacts whose `field` equals `value`."""
        return cls(artifact_type, lambda found: getattr(found.data, field, None) == value, **options)

    @classmethod
    def by_status(cls, artifact_type: type[BaseModel], status: Any, **options: Any) -> Consume:
        """Return a consume of the artifacts whose `status` equals `status`."""
        return cls.by_field(artifact_type, "status", status, **options)


def consume(
    artifact_type: type[BaseModel],
    condition: Condition | None = None,
    event_types: Iterable[EventType] | None = None,
    **options: Any,
) -> Consume:
    """Return a `Consume`."""
    return Consume(artifact_type, condition, event_types, **options)
