"""The operation log of a session: every move of its refs that did not go forward.

A checkout, a compaction, an undo. One small blob under `refs/reactifact/operations/<session>`, the last
`LIMIT` entries, the newest last. A turn writes nothing here: where it began is told by the branch itself.
Ids in it are text and keep no object alive, so that what was dropped returns its space at the next
`git gc`; until then it can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .. import canonical
from ..names import encode_name
from ..object_db import Database, Staging
from ..objects import Oid
from ..protocol import RefUpdate

LIMIT = 32
"""How many operations a session remembers."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what it was, and where each ref it moved stood before and after."""

    kind: str  # checkout, compaction, undo
    when: str
    text: str
    before: Mapping[str, Oid]
    after: Mapping[str, Oid]
    undone: Mapping[str, Any] | None = None  # the operation of this log that an undo took out of it

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def operations_ref(session: str) -> str:
    """Return the name of the ref of a session's operation log."""
    return f"refs/reactifact/operations/{encode_name(session)}"


def operations(database: Database, session: str) -> list[Operation]:
    """Return what is remembered of a session, the oldest first."""
    return _read(database, database.backend.refs(operations_ref(session)).get(operations_ref(session)))


def _read(database: Database, held: Oid | None) -> list[Operation]:
    if held is None:
        return []
    record: Any = canonical.decode(database.read(held).data)
    return [Operation(**entry) for entry in record["operations"]]


def logged(objects: Staging, session: str, operation: Operation) -> RefUpdate:
    """Stage the log with one more operation, and return the move of its ref."""
    return _staged(objects, session, lambda known: [*known, operation])


def without(objects: Staging, session: str, taken: Operation, then: Operation | None) -> RefUpdate:
    """Stage the log with one operation taken out and perhaps another added; return the move of its ref."""

    def change(known: list[Operation]) -> list[Operation]:
        return [one for one in known if one != taken] + ([] if then is None else [then])

    return _staged(objects, session, change)


def _staged(
    objects: Staging, session: str, change: Callable[[list[Operation]], list[Operation]]
) -> RefUpdate:
    ref = operations_ref(session)
    held = objects.database.backend.refs(ref).get(ref)
    entries = change(_read(objects.database, held))[-LIMIT:]
    data = canonical.encode({"operations": [entry.to_dict() for entry in entries]})
    return RefUpdate(ref, held, objects.put("blob", data))
