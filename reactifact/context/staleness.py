"""Which artifacts are stale: written by a commit that read something at an older version.

Owns the rule and the STALE events. The reverse index behind it belongs to the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..store.layout import Meta
from .artifacts import Artifact
from .events import Event, EventType, QueueEntry

if TYPE_CHECKING:
    from .working import Working


def dependents(working: Working, artifact_id: str) -> list[Meta]:
    """Return what is stale because of one artifact, in order of creation."""
    stored = working.state.stored(artifact_id)
    if stored is None:
        return []
    found = {
        meta.id: meta
        for meta in working.state.readers(stored.meta)
        if meta.id != artifact_id and _read_older(working, meta, stored.meta)
    }
    return sorted(found.values(), key=lambda meta: (meta.sequence, meta.id))


def _read_older(working: Working, reader: Meta, read: Meta) -> bool:
    """Whether `reader`'s last commit saw an older version of `read` than there is now."""
    now = working.version_of(read)
    if any(r.artifact_id == read.id and 0 <= r.version < now for r in reader.reads):
        return True
    return any(
        listing.type_id == read.type_id and read.sequence < listing.sequence <= read.written
        for listing in reader.listings
    )


def stale_artifacts(working: Working) -> list[Artifact[Any]]:
    """Return every stale artifact, in order of creation."""
    stale = [meta for meta in working.state.all_readers() if _is_stale(working, meta)]
    stale.sort(key=lambda meta: (meta.sequence, meta.id))
    return working.at(meta.id for meta in stale)


def _is_stale(working: Working, meta: Meta) -> bool:
    for read in meta.reads:
        stored = working.state.stored(read.artifact_id)
        if stored is not None and read.artifact_id != meta.id and _read_older(working, meta, stored.meta):
            return True
    for listing in meta.listings:
        for artifact_id in working.state.ids_of([listing.type_id]):
            stored = working.state.stored(artifact_id)
            if stored is not None and artifact_id != meta.id and _read_older(working, meta, stored.meta):
                return True
    return False


def add_events(working: Working, queue: list[QueueEntry]) -> None:
    """Put the STALE events behind the UPDATED events that are not matched yet.

    For a context that was loaded and did not keep track until now.
    """
    known = {entry.event.artifact_id for entry in queue if entry.event.type == EventType.ARTIFACT_STALE}
    complete: list[QueueEntry] = []
    for entry in queue:
        complete.append(entry)
        if entry.owed is not None or entry.event.type != EventType.ARTIFACT_UPDATED:
            continue
        for meta in dependents(working, entry.event.artifact_id):
            if meta.id not in known:
                known.add(meta.id)
                event = Event(EventType.ARTIFACT_STALE, working.type_of(meta), meta.id, entry.event.timestamp)
                complete.append(QueueEntry(event))
    queue[:] = complete
