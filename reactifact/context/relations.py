"""A named, directed relation between two artifacts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Relation:
    """`source_id` stands in `relation` to `target_id`. The ends need not exist."""

    source_id: str
    relation: str
    target_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the relation as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Relation:
        """Return the relation of a dictionary."""
        return cls(data["source_id"], data["relation"], data["target_id"])
