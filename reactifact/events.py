"""What happened to artifacts: the event kinds and the event itself.

Owns `EventType` and `Event` with their dictionary shapes. Who reacts to an event is decided in
the authoring layer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from .errors import TypeNotFoundError
from .types.ids import type_id_of
from .types.registry import resolve

__all__ = ["Event", "EventType"]


ArtifactType = type[BaseModel] | str
"""A model class, or a type id that resolves to none."""


class EventType(StrEnum):
    """The kinds of events."""

    ARTIFACT_CREATED = "artifact_created"
    ARTIFACT_UPDATED = "artifact_updated"
    ARTIFACT_DELETED = "artifact_deleted"
    ARTIFACT_STALE = "artifact_stale"


@dataclass(eq=True)
class Event:
    """One change of one artifact.

    `artifact_type` is the model class, or its type id as text where no class resolves.
    """

    type: EventType
    artifact_type: ArtifactType
    artifact_id: str
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def type_id(self) -> str:
        """The stable id of the artifact's type."""
        kind = self.artifact_type
        return type_id_of(kind) if isinstance(kind, type) else str(kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON types."""
        kind = self.artifact_type
        return {
            "type": self.type._value_,  # `value` is two calls
            "artifact_type": type_id_of(kind) if isinstance(kind, type) else str(kind),
            "artifact_id": self.artifact_id,
            "timestamp": self.timestamp.isoformat(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Event:
        """Return the event of a dictionary; an unknown type stays the text it is."""
        kind: ArtifactType = data["artifact_type"]
        with suppress(TypeNotFoundError):
            kind = resolve(data["artifact_type"])
        event = cls(EventType(data["type"]), kind, data["artifact_id"])
        if data.get("timestamp"):
            event.timestamp = datetime.fromisoformat(data["timestamp"])
        return event
