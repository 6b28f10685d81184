"""The bookkeeping of a new version: what it takes over from the one before, and what is its own.

Pure functions from a version and an origin to a version. `state` decides when one is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .canonical import content_hash
from .layout import Meta
from .objects import Oid

if TYPE_CHECKING:
    from .state import Origin, Stored


def first(
    artifact_id: str,
    type_id: str,
    payload: tuple[Oid, bytes],
    revision: str,
    number: int,
    origin: Origin,
) -> Meta:
    """Return version 0 of an artifact; `number` is its place in the order of writes."""
    when = origin.when.isoformat()
    oid, data = payload
    return Meta(
        id=artifact_id,
        type_id=type_id,
        version=0,
        sequence=number,
        written=number,
        created_at=when,
        updated_at=when,
        payload=oid,
        content_hash=content_hash(data),
        revision=revision,
        author=origin.author,
        commit=origin.commit,
        created_by=origin.commit,
        writer=origin.commit,
        writer_author=origin.author if origin.commit else None,
        reads=origin.reads if origin.commit else (),
        listings=origin.listings if origin.commit else (),
    )


def following(before: Stored, fresh: Meta, origin: Origin) -> Meta:
    """Return `fresh` as the version after `before`; a direct change keeps the last writer."""
    old = before.meta
    meta = replace(
        fresh,
        version=old.version + 1,
        sequence=old.sequence,
        created_at=old.created_at,
        created_by=old.created_by,
        previous=before.oid,
    )
    if origin.commit is not None:
        return meta
    return replace(
        meta,
        writer=old.writer,
        writer_author=old.writer_author,
        reads=old.reads,
        listings=old.listings,
    )


def written_by(meta: Meta, origin: Origin) -> Meta:
    """Return a version whose last writer, and what it read, is `origin`."""
    return replace(
        meta,
        writer=origin.commit,
        writer_author=origin.author,
        reads=origin.reads,
        listings=origin.listings,
    )


def claimed_by(meta: Meta, origin: Origin, *, is_new: bool) -> Meta:
    """Return a direct change as if the versioned commit of `origin` had made it."""
    return replace(
        written_by(meta, origin),
        commit=origin.commit,
        author=origin.author,
        created_by=meta.created_by or (origin.commit if is_new else None),
    )
