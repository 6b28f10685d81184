"""Versions of artifacts as they are stored: look one up, list an artifact's, find them by type or content.

Owns `ArtifactVersion` and the look-ups. Each version's payload is stored once, whatever refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from ..store.state import Stored
from .reading import Reading


@dataclass(frozen=True)
class ArtifactVersion:
    """One version of an artifact: where it comes from and what it holds."""

    artifact_id: str
    version: int
    data_type: str
    content_hash: str  # blake3 of the payload: equal data of one type gives equal hashes
    author: str  # the agent, or who made the direct change
    commit: str | None  # the id of the commit that wrote it, `None` for a direct change
    updated_at: datetime
    data: Any = field(compare=False, repr=False)


def artifact_version(reading: Reading, artifact_id: str, version: int) -> ArtifactVersion | None:
    """Return one version of a live artifact, `None` for an id that is not live.

    Raises `ValueError` for a version that it does not have, or that was trimmed.
    """
    newest: int | None = None
    stored: Stored | None = None
    for stored in reading.state.versions(artifact_id):
        newest = stored.meta.version if newest is None else newest
        if stored.meta.version == version:
            return _version(reading, stored)
    if stored is None or newest is None:
        return None
    oldest = stored.meta.version
    trimmed = f": versions before {oldest} were trimmed" if 0 <= version < oldest else ""
    raise ValueError(
        f"artifact {artifact_id!r} has no version {version}{trimmed}; kept are {oldest} to {newest}"
    )


def version_history(reading: Reading, artifact_id: str) -> list[ArtifactVersion]:
    """Return the kept versions of a live artifact, the oldest first; empty for another id."""
    found = [_version(reading, stored) for stored in reading.state.versions(artifact_id)]
    return found[::-1]


def find_versions(
    reading: Reading, model: type[BaseModel] | None, content_hash: str | None
) -> list[ArtifactVersion]:
    """Return the kept versions of all live artifacts that match, in order of creation and version.

    Reads the bookkeeping of every version of the type; only those that match are decoded.
    """
    return [_version(reading, stored) for stored in _matching(reading, model, content_hash)]


def _matching(reading: Reading, model: type[BaseModel] | None, content_hash: str | None) -> Iterator[Stored]:
    for artifact_id in reading.ids(model):
        for stored in reversed(list(reading.state.versions(artifact_id))):
            if content_hash in (None, stored.meta.content_hash):
                yield stored


def _version(reading: Reading, stored: Stored) -> ArtifactVersion:
    meta = stored.meta
    return ArtifactVersion(
        artifact_id=meta.id,
        version=meta.version,
        data_type=meta.type_id,
        content_hash=meta.content_hash,
        author=meta.author,
        commit=meta.commit,
        updated_at=datetime.fromisoformat(meta.updated_at),
        data=reading.version_data(meta),
    )
