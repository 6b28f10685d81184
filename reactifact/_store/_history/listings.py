"""What the listings of two merged branches saw, for staleness to go by.

A listing is a place in the order in which its own branch wrote. The other branch counted on its own, so that
after a merge the order no longer tells what was seen: what counts is noted as reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..layout import ListingRecord, Meta, ReadRecord
from ..objects import Oid
from ..state import State, Stored
from ..trees import compare


def settle_listings(state: State, theirs: State, taken: Collection[str]) -> None:
    """Note what the listings of two merged branches saw, where the order of writes no longer tells it.

    Called when `state`, not flushed since, has taken over the artifacts `taken`. Costs what differs between
    the two.
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
            if (seen is not None and seen < meta.version) != is_since(meta, listing)
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
    return max(0, meta.version - 1) if is_since(meta, listing) else meta.version


def is_since(meta: Meta, listing: ListingRecord) -> bool:
    """Tell whether an artifact that a listing of its own branch saw was written since."""
    return meta.sequence < listing.sequence <= meta.written
