"""Whether what waiting actions rest on can be read, asked before the first of them is sent.

Owns the refusal to send while a type is missing or does not fit its data any more: a dispatcher that
finds out in the middle would leave a failed attempt behind, or worse, send something half right.
Which actions wait, and the sending, are `delivery`'s and the runtime's.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import TypeNotFoundError, UnreadablePayload
from .artifacts import Artifact
from .interrupts import PendingAction
from .types import resolve, revision_of
from .working import Working


def require_readable(working: Working, actions: Iterable[Artifact[PendingAction]]) -> None:
    """Refuse when an action rests on an artifact whose class is missing or does not fit its data.

    An action rests on what the execution that planned it read (artifacts and listed types), and on what
    it is linked to, as far as it is there still. Raises `TypeNotFoundError` or `UnreadablePayload`,
    naming action, artifact and type, and what a migrate hook raises.
    """
    seen: set[str] = set()
    types: set[str] = set()
    for action in actions:
        stored = working.state.stored(action.id)
        if stored is None:
            continue
        for listing in stored.meta.listings:
            if listing.type_id not in types and listing.type_id in working.state.type_ids():
                _require_type(action.id, listing.type_id)
            types.add(listing.type_id)
        linked = [edge.target for edge in working.state.outgoing(action.id)]
        for artifact_id in [read.artifact_id for read in stored.meta.reads] + linked:
            if artifact_id not in seen:
                seen.add(artifact_id)
                _require(working, action.id, artifact_id)


def _require_type(action_id: str, type_id: str) -> None:
    try:
        resolve(type_id)
    except TypeNotFoundError as error:
        raise TypeNotFoundError(
            f"action {action_id!r} is not sent, because it rests on artifacts of a type that is not known: "
            f"{error}"
        ) from error


def _require(working: Working, action_id: str, artifact_id: str) -> None:
    stored = working.state.stored(artifact_id)
    if stored is None:
        return
    meta = stored.meta
    try:
        if meta.revision != revision_of(resolve(meta.type_id)):
            working.version_data(meta)
    except (TypeNotFoundError, UnreadablePayload) as error:
        raise type(error)(
            f"action {action_id!r} is not sent, because it rests on artifact {artifact_id!r}: {error}"
        ) from error
