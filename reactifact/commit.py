"""A commit as users see it: who did what, on what grounds, with which result.

Owns `Commit`, `Read`, `Write` and their making from the records of the store. Operations and
listings are unfolded only when they are asked for.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from .operations import Operation

if TYPE_CHECKING:
    from ._html import Html

__all__ = ["Commit", "Read", "Write"]


@dataclass(frozen=True)
class Read:
    """An artifact that was read, at the version seen; -1 for a look-up that found nothing."""

    artifact_id: str
    version: int


@dataclass(frozen=True)
class Write:
    """An artifact that was written; `op_type` is create, update or delete."""

    artifact_id: str
    version: int
    op_type: str


@dataclass
class Commit:
    """One applied patch."""

    author: str
    message: str
    operations: list[Operation]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    parent_id: str | None = None
    context_version: int | None = None
    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def _repr_html_(self) -> Html:
        """Return the commit as tables, for a notebook, without operations and reads: they may be many."""
        from ._html import facts, join, table

        known = facts(
            [
                ("author", self.author),
                ("message", self.message),
                ("version", self.context_version),
                ("time", self.timestamp.isoformat(timespec="seconds")),
                ("id", self.id),
            ]
        )
        head = ["Wrote", "Version", "How"]
        return join([known, table(head, [[w.artifact_id, w.version, w.op_type] for w in self.writes])])


class History(list[Commit]):
    """Commits in a list that shows as a table in a notebook."""

    SHOWN = 50

    def _repr_html_(self) -> Html:
        """Return the last commits as a table, in their order."""
        from ._html import table

        rows = [
            [
                commit.context_version,
                commit.timestamp.isoformat(timespec="seconds"),
                commit.author,
                commit.message,
                ", ".join(f"{write.op_type} {write.artifact_id}" for write in commit.writes),
            ]
            for commit in self[-self.SHOWN :]
        ]
        left = len(self) - len(rows)
        caption = f"the last {len(rows)} of {len(self)} commits" if left else None
        return table(["Version", "Time", "Author", "Message", "Wrote"], rows, caption=caption)


class CommitSource(Protocol):
    """Where the rest of a stored commit comes from."""

    def fields(self) -> dict[str, Any]: ...
    def operations(self) -> list[Operation]: ...
    def reads(self) -> list[Read]: ...


class StoredCommit(Commit):
    """A commit read from a store: what is not needed to list it is decoded or read when it is asked for."""

    details: dict[str, Any]

    def __init__(
        self, source: CommitSource, id: str, parent_id: str | None, context_version: int | None
    ) -> None:
        self._source = source
        self._operations: list[Operation] | None = None
        self._reads: list[Read] | None = None
        self.id = id
        self.parent_id = parent_id
        self.context_version = context_version

    def __getattr__(self, name: str) -> Any:
        if name not in _DECODED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for key, value in self._source.fields().items():
            self.__dict__.setdefault(key, value)  # what was set before stays
        return self.__dict__[name]

    @property
    def operations(self) -> list[Operation]:
        """The operations, in the order they were applied."""
        if self._operations is None:
            self._operations = self._source.operations()
        return self._operations

    @operations.setter
    def operations(self, value: list[Operation]) -> None:
        self._operations = value

    @property
    def reads(self) -> list[Read]:
        """What was read: the trigger first, listings unfolded at the end.

        Raises `StoreError` when the snapshot of a listing was compacted.
        """
        if self._reads is None:
            self._reads = self._source.reads()
        return self._reads

    @reads.setter
    def reads(self, value: list[Read]) -> None:
        self._reads = value

    def __repr__(self) -> str:
        """Show what is at hand: reading the rest may need a class that is missing, or fail."""
        return (
            f"Commit(author={self.author!r}, message={self.message!r}, id={self.id!r}, "
            f"context_version={self.context_version!r}, writes={self.writes!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Commit):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in Commit.__dataclass_fields__)

    __hash__ = None  # type: ignore[assignment]


_DECODED = frozenset({"author", "message", "timestamp", "writes", "details"})
