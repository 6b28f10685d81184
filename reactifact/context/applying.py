"""Applying a patch: checked whole first, then applied whole.

Owns the step from operations to versions, writes and events. `prepare` may refuse and changes
nothing; `apply` cannot be refused by a payload any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel

from ..errors import IntentConflict
from ..store.layout import Meta
from ..store.names import encode_name
from ..store.state import Origin
from .commits import Write
from .encoding import ACTION_TYPE, Encoded, action_note, check_text, encode, same_content
from .operations import Create, Delete, Link, Operation, Unlink, Update
from .undeclared import over_stored
from .working import Working


@dataclass(slots=True)
class Prepared:
    """One operation that is known to be storable."""

    operation: Operation
    artifact_id: str
    encoded: Encoded | None = None


def prepare(operations: Iterable[Operation], working: Working) -> list[Prepared]:
    """Encode every payload and check every id of a patch. Nothing is changed.

    Raises `PayloadError`, `InvalidName`, or `TypeError` for what is no operation.
    """
    prepared = []
    for operation in operations:
        if isinstance(operation, Create):
            wish = operation.artifact_id or operation.id
            artifact_id = wish if wish is not None else working.fresh_id(type(operation.data))
            prepared.append(_written(operation, artifact_id, operation.data, working))
        elif isinstance(operation, Update):
            prepared.append(_written(operation, operation.artifact_id, operation.new_data, working))
        elif isinstance(operation, Delete | Link | Unlink):
            prepared.append(Prepared(operation, operation.artifact_id))
            if isinstance(operation, Link):
                check_text(operation.relation, "relation")
                check_text(operation.target_id, "target id")
        else:
            raise TypeError(
                f"{operation!r} is no operation: a patch holds Create, Update, Delete, Link and Unlink"
            )
        encode_name(prepared[-1].artifact_id)
    return prepared


def _written(operation: Operation, artifact_id: str, data: BaseModel, working: Working) -> Prepared:
    return Prepared(operation, artifact_id, over_stored(encode(data), working.state, artifact_id))


def apply(prepared: Iterable[Prepared], working: Working, origin: Origin) -> list[Write]:
    """Apply a prepared patch in order and return what it wrote."""
    writes: list[Write] = []
    for item in prepared:
        write = _apply_one(item, working, origin)
        if write is not None:
            writes.append(write)
    return writes


def _apply_one(item: Prepared, working: Working, origin: Origin) -> Write | None:
    operation = item.operation
    if isinstance(operation, Create):
        operation.artifact_id = item.artifact_id
        return _create(item, working, origin)
    if isinstance(operation, Update):
        return _update(item, working, origin)
    if isinstance(operation, Delete):
        gone = working.delete(operation.artifact_id, origin)
        return Write(operation.artifact_id, 0 if gone is None else gone.version, "delete")
    if isinstance(operation, Link):
        working.link(operation.artifact_id, operation.relation, operation.target_id)
    elif isinstance(operation, Unlink):
        working.unlink(operation.artifact_id, operation.relation, operation.target_id)
    return None


def _create(item: Prepared, working: Working, origin: Origin) -> Write:
    stored = working.state.stored(item.artifact_id)
    if stored is None:
        assert item.encoded is not None
        meta = working.write(item.artifact_id, item.encoded, origin, "create")
        return Write(item.artifact_id, meta.version, "create")
    return _refresh(item, stored.meta, working, origin, "create")


def _update(item: Prepared, working: Working, origin: Origin) -> Write | None:
    stored = working.state.stored(item.artifact_id)
    if stored is None:
        return None
    return _refresh(item, stored.meta, working, origin, "update")


def _refresh(item: Prepared, live: Meta, working: Working, origin: Origin, op_type: str) -> Write:
    """Write over a live artifact; equal data moves neither version nor event.

    A commit of an agent records it all the same; a direct change that changes nothing makes no commit.
    """
    encoded = item.encoded
    assert encoded is not None
    if same_content(encoded, live):
        if origin.commit is not None:
            working.state.touch(live.id, origin)
            working.journal(
                {
                    "type": op_type,
                    "artifact_id": live.id,
                    "data_type": encoded.type_id,
                    "payload": live.payload,
                    "revision": live.revision,
                    "version": live.version,
                    "unchanged": True,
                    **action_note(encoded),
                }
            )
        return Write(live.id, live.version, "update")
    meta = working.write(live.id, encoded, origin, op_type)
    return Write(live.id, meta.version, "update")


def refuse_unequal_intents(patches: Iterable[list[Prepared]], planned: dict[str, Encoded]) -> None:
    """Refuse two different actions under one key in one generation. Raises `IntentConflict`.

    `planned` holds the actions of the executions before, by id; these join them unless one is refused.
    """
    own: dict[str, Encoded] = {}
    for patch in patches:
        for item in patch:
            if item.encoded is None or item.encoded.type_id != ACTION_TYPE:
                continue
            known = own.setdefault(item.artifact_id, planned.get(item.artifact_id, item.encoded))
            if known.payload != item.encoded.payload:
                raise IntentConflict(
                    f"two different actions were planned as {item.artifact_id!r} in one generation: "
                    f"{known.payload.decode()} and {item.encoded.payload.decode()}; "
                    f"give each intent a key of its own"
                )
    planned.update(own)
