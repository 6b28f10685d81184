"""Two patches of one generation on one artifact: combine them, or run the later one again.

Owns the rule: different top-level fields combine against the snapshot and are validated again; the
same field goes to the type's registered merge function; otherwise the later execution in plan order
is run again in the next generation on the new state. Nothing is lost silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from ..context.applying import Prepared
from ..context.codec import decode_payload
from ..context.encoding import Encoded, encode
from ..context.merge_functions import CONFLICT
from ..context.operations import Delete
from ..context.types import merge_function_of
from ..context.undeclared import over
from ..store import canonical
from ..store.state import State, Stored


class RunAgain(Exception):
    """The patch stands against one that was committed before it in this generation."""


def combine(prepared: list[Prepared], snapshot: State, live: State) -> list[Prepared]:
    """Return a patch as it applies to the live state. Raises `RunAgain` where it cannot.

    `snapshot` is what the execution saw, `live` the state after the earlier patches.
    """
    contested = {
        artifact_id
        for artifact_id in written_by(prepared)
        if _oid(snapshot.stored(artifact_id)) != _oid(live.stored(artifact_id))
    }
    for artifact_id in sorted(contested):
        prepared = _combine_one(artifact_id, prepared, snapshot, live)
    return prepared


def written_by(*patches: Iterable[Prepared]) -> Iterator[str]:
    """Yield the id of every artifact that patches write or delete, for each time they do."""
    for patch in patches:
        for item in patch:
            if item.encoded is not None or isinstance(item.operation, Delete):
                yield item.artifact_id


def _oid(stored: Stored | None) -> str | None:
    return None if stored is None else stored.meta.payload


def _combine_one(artifact_id: str, prepared: list[Prepared], snapshot: State, live: State) -> list[Prepared]:
    mine = [item for item in prepared if item.artifact_id == artifact_id]
    last = [item for item in mine if item.encoded or isinstance(item.operation, Delete)][-1]
    now = live.stored(artifact_id)
    if isinstance(last.operation, Delete):
        if now is None:
            return prepared
        raise RunAgain(artifact_id)
    if now is None:
        raise RunAgain(artifact_id)
    assert last.encoded is not None
    before = snapshot.stored(artifact_id)
    base = None if before is None else _encoded(before, snapshot, last.encoded)
    theirs = _encoded(now, live, last.encoded)
    merged = _merged(base, theirs, last.encoded)
    if merged is None:
        raise RunAgain(artifact_id)
    merged = over(merged, theirs, f"artifact {artifact_id!r}")
    # the patch itself stays as it is: it may be held, or combined again without one that failed meanwhile
    return [
        replace(item, encoded=merged) if item is last else item
        for item in prepared
        if item is last or item.artifact_id != artifact_id or item.encoded is None
    ]


def _encoded(stored: Stored, state: State, like: Encoded) -> Encoded:
    meta = stored.meta
    return Encoded(meta.type_id, state.payload(meta), meta.revision, like.model)


def _merged(base: Encoded | None, theirs: Encoded, mine: Encoded) -> Encoded | None:
    """Return what both patches together make of an artifact, `None` where they disagree.

    Both changing one field to the same value is no agreement: each may have added one to it.
    """
    if theirs.type_id != mine.type_id:
        return None
    merge = merge_function_of(mine.model)
    if merge is not None:
        was = None if base is None or base.type_id != mine.type_id else _model(base)
        both = merge(was, _model(theirs), _model(mine))
        return None if both is CONFLICT else encode(both)
    if base is None:
        return mine if theirs.payload == mine.payload else None
    return _combined_fields(base, theirs, mine) if base.type_id == mine.type_id else None


def _model(encoded: Encoded) -> BaseModel:
    return decode_payload(encoded.model, encoded.payload, type_id=encoded.type_id, revision=encoded.revision)


def _combined_fields(base: Encoded, theirs: Encoded, mine: Encoded) -> Encoded | None:
    old, first, second = (_fields(side) for side in (base, theirs, mine))
    if old is None or first is None or second is None:
        return None
    result = dict(first)
    for name in old.keys() | first.keys() | second.keys():
        was, one, two = (side.get(name, _ABSENT) for side in (old, first, second))
        if two == was:
            continue
        if one != was:
            return None
        if two is _ABSENT:
            result.pop(name, None)
        else:
            result[name] = two
    try:
        return encode(_model(mine._replace(payload=canonical.encode(result))))
    except (ValidationError, ValueError):
        return None


_ABSENT: Any = object()


def _fields(encoded: Encoded) -> dict[str, Any] | None:
    data = canonical.decode(encoded.payload)
    return data if isinstance(data, dict) else None
