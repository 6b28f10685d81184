"""Which artifacts are stale: written by a commit that read something at an older version.

Owns the rule and the STALE events. The reverse index behind it belongs to the store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..store.layout import ListingRecord, Meta, ReadRecord
from ..store.objects import Oid
from ..store.state import State, Stored
from ..store.trees import compare
from .artifacts import Artifact
from .events import Event, EventType
from .queue import Queue

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
    seen = [r.version for r in reader.reads if r.artifact_id == read.id]
    if seen:  # says it exactly, also where a listing of another branch cannot
        return any(0 <= version < now for version in seen)
    return any(listing.type_id == read.type_id and _is_since(read, listing) for listing in reader.listings)


def stale_artifacts(working: Working) -> list[Artifact[Any]]:
    """Return every stale artifact, in order of creation."""
    types: dict[str, _WrittenOfType] = {}
    stale = [meta for meta in working.state.all_readers() if _is_stale(working, meta, types)]
    stale.sort(key=lambda meta: (meta.sequence, meta.id))
    return working.at(meta.id for meta in stale)


def _is_stale(working: Working, meta: Meta, types: dict[str, _WrittenOfType]) -> bool:
    for read in meta.reads:
        stored = working.state.stored(read.artifact_id)
        if stored is not None and read.artifact_id != meta.id and _read_older(working, meta, stored.meta):
            return True
    for listing in meta.listings:
        if listing.type_id not in types:
            types[listing.type_id] = _WrittenOfType(working, listing.type_id)
        if types[listing.type_id].is_newer(listing.sequence, besides=meta.id):
            return not meta.reads or _is_older_than_any(working, meta, listing.type_id)
    return False


def _is_older_than_any(working: Working, meta: Meta, type_id: str) -> bool:
    others = (working.state.stored(artifact_id) for artifact_id in working.state.ids_of([type_id]))
    return any(
        stored is not None and stored.meta.id != meta.id and _read_older(working, meta, stored.meta)
        for stored in others
    )


class _WrittenOfType:
    """When the artifacts of a type were written last: one look a listing, not one an artifact."""

    def __init__(self, working: Working, type_id: str) -> None:
        self._sequences: list[int] = []
        self._latest: list[tuple[tuple[int, str], tuple[int, str]]] = []  # the two last, up to each
        first = second = (-1, "")
        for artifact_id in working.state.ids_of([type_id]):
            stored = working.state.stored(artifact_id)
            if stored is not None:
                first, second, _ = sorted([first, second, (stored.meta.written, artifact_id)], reverse=True)
                self._sequences.append(stored.meta.sequence)
                self._latest.append((first, second))

    def is_newer(self, sequence: int, *, besides: str) -> bool:
        """Tell whether one that was listed at a place in the order was written since, itself left out."""
        listed = bisect_left(self._sequences, sequence)
        if not listed:
            return False
        return any(
            written >= sequence and artifact_id != besides
            for written, artifact_id in self._latest[listed - 1]
        )


def settle_listings(state: State, theirs: State, taken: Collection[str]) -> None:
    """Note what the listings of two merged branches saw, where the order of writes no longer tells it.

    A listing is a place in the order of its own branch, and the other branch counted on its own. Called when
    `state`, not flushed since, has taken over the artifacts `taken`. Costs what differs between the two.
    What a listing did not see is noted only where it would count as changed since: so what the other branch
    created may count as seen when it changes after the merge, and what was seen always does.
    """
    sides: dict[str, tuple[Meta | None, Meta | None]] = {}
    for _, left, right in compare(state.objects, state.roots.meta, theirs.roots.meta):
        mine, other = (_meta(state, oid) for oid in (left, right))
        known = mine or other
        assert known is not None
        sides[known.id] = (mine, other)
    now = {name: stored.meta for name in sides if (stored := state.stored(name)) is not None}
    by_type: dict[str, list[Meta]] = {}
    for meta in now.values():
        by_type.setdefault(meta.type_id, []).append(meta)
    for reader in now.values():
        side = 1 if reader.id in taken else 0
        told = {read.artifact_id for read in reader.reads} | {reader.id}
        added = {
            meta.id: ReadRecord(meta.id, -1 if seen is None else seen)
            for listing in reader.listings
            for meta in by_type.get(listing.type_id, ())
            if meta.id not in told and meta != (was := sides[meta.id][side])
            for seen in (_seen(was, listing),)
            if (seen is not None and seen < meta.version) != _is_since(meta, listing)
        }
        if added:
            meta = replace(reader, reads=(*reader.reads, *added.values()))
            state.adopt(Stored(state.objects.put("blob", meta.encode()), meta), None)


def _meta(state: State, oid: Oid | None) -> Meta | None:
    return None if oid is None else Meta.decode(state.objects.read(oid).data)


def _seen(meta: Meta | None, listing: ListingRecord) -> int | None:
    """Return the version of an artifact that a listing of its own branch saw, `None` for none."""
    if meta is None or meta.sequence >= listing.sequence:
        return None
    return max(0, meta.version - 1) if _is_since(meta, listing) else meta.version


def _is_since(meta: Meta, listing: ListingRecord) -> bool:
    return meta.sequence < listing.sequence <= meta.written


def add_events(working: Working, queue: Queue) -> None:
    """Put the STALE events behind the UPDATED events that are not matched yet.

    For a context that was loaded and did not keep track until now.
    """
    known = {entry.event.artifact_id for entry in queue if entry.event.type == EventType.ARTIFACT_STALE}
    for entry in queue:
        if entry.owed is not None or entry.event.type != EventType.ARTIFACT_UPDATED:
            continue
        stale = [meta for meta in dependents(working, entry.event.artifact_id) if meta.id not in known]
        known.update(meta.id for meta in stale)
        when = entry.event.timestamp
        queue.insert_behind(
            entry,
            [Event(EventType.ARTIFACT_STALE, working.type_of(meta), meta.id, when) for meta in stale],
        )
