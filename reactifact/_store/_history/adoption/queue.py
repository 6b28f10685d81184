"""The queues of the sides of a commit that git made: joined as sets, with what came along from elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ....errors import ReactifactError
from ...commits import read_roots
from ...graph import merge_bases
from ...layout import BOOKKEEPING, Waiting
from ...object_db import Objects, Staging
from ...objects import BLOB_MODE, Oid, TreeEntry
from ...trees import Path, compare, lookup, subtree, update, walk
from .standing import Standing

Along = tuple[Path, Waiting, Oid]
"""An event that waits in a commit and not below it."""


def came_along(
    objects: Objects, tree: Oid, below: Oid | None, others: Iterable[Standing], replayed: Collection[str]
) -> list[Along]:
    """Return the events that wait in the commit, not below it, and are of what git made anew."""
    if not replayed:
        return []
    queue = subtree(objects, tree, (BOOKKEEPING, "queue"))
    known = {path for other in others for path, _ in walk(objects, other.roots.queue)}
    found = []
    for path, _, new in compare(objects, below, queue):
        if new is None or path in known:
            continue
        try:
            waiting = Waiting.decode(objects.read(new).data)
        except ReactifactError:
            continue  # two that git has joined line by line
        if waiting.event.get("artifact_id") in replayed:
            found.append((path, waiting, new))
    return found


def joined_queue(
    objects: Staging, base: Standing, others: Iterable[Standing], queue: Oid | None, along: Iterable[Along]
) -> Oid | None:
    """Return the queues of all sides as one set: what a side has taken since the base is gone."""
    for other in others:
        if base.base is None or other.base is None:
            continue
        bases = merge_bases(objects, base.base, other.base)
        common = [read_roots(objects, oid).queue for oid in bases]
        edits: dict[Path, TreeEntry | None] = {}
        for path, mine, theirs in compare(objects, queue, other.roots.queue):
            was = any(lookup(objects, root, path) is not None for root in common)
            if theirs is not None and mine is None and not was:
                edits[path] = TreeEntry(BLOB_MODE, theirs)
            elif mine is not None and theirs is None and was:
                edits[path] = None
        queue = update(objects, queue, edits)
    return update(objects, queue, {path: TreeEntry(BLOB_MODE, oid) for path, _, oid in along})
