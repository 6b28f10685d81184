"""`SourceRef`: where something that an artifact says was found.

A data model only: nothing here fetches, searches or ranks.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from ._store import canonical

__all__ = ["SourceRef"]


_DIGITS = 32  # 128 bits: two sources never meet by chance


class SourceRef(BaseModel):
    """A place in a source.

    `source_id` names the source (a file, an index, a service), `locator` the place in it (a path, a
    URL, a page). `score` is the ranking of whoever found it, in its own unit; `query_id` the
    question it was found for.
    """

    source_id: str
    locator: str
    metadata: dict[str, Any] = Field(default_factory=dict)
    score: float | None = None
    title: str = ""
    excerpt: str = ""
    query_id: str = ""

    def stable_id(self) -> str:
        """Return an id of the place, the same in every process, whatever was found or asked there."""
        place = canonical.encode([self.source_id, self.locator])
        return f"source:{canonical.content_hash(place)[:_DIGITS]}"
