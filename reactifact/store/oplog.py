"""The operation log of a session: what its compactions and undos did to its refs.

One small blob under `refs/reactifact/operations/<session>`, the last `LIMIT` entries, the newest last. A
turn writes nothing here: where it began is told by the branch itself. Ids in it are text and keep no
object alive, so that a compaction returns its space at the next `git gc`; until then it can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import canonical
from .database import Database, Staging
from .names import encode_name
from .objects import Oid
from .protocol import RefUpdate

LIMIT = 10
"""How many operations a session remembers."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what it was, and where each ref it moved stood before and after."""

    kind: str  # compaction, undo
    when: str
    text: str
    before: Mapping[str, Oid]
    after: Mapping[str, Oid]


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


def logged(objects: Staging, session: str, operation: Operation, *, limit: int = LIMIT) -> RefUpdate:
    """Stage the log with one more operation, and return the move of its ref."""
    return _staged(objects, session, lambda known: [*known, operation][-limit:])


def without(objects: Staging, session: str, operation: Operation, then: Operation) -> RefUpdate:
    """Stage the log with one operation taken back and another noted; return the move of its ref."""
    return _staged(objects, session, lambda known: [*(o for o in known if o != operation), then][-LIMIT:])


def _staged(objects: Staging, session: str, change: Any) -> RefUpdate:
    ref = operations_ref(session)
    held = objects.database.backend.refs(ref).get(ref)
    entries = change(_read(objects.database, held))
    data = canonical.encode({"operations": [asdict(entry) for entry in entries]})
    return RefUpdate(ref, held, objects.put("blob", data))
