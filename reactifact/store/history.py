"""Walking the commit graph: first-parent logs, ancestors, merge bases.

Pure functions over `Objects`. Nothing here knows what a commit contains beyond its record.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from .changes import ChangeGraph, share_history
from .database import Objects
from .objects import Oid
from .records import CommitRecord, read_record


def first_parents(objects: Objects, head: Oid | None) -> Iterator[tuple[Oid, CommitRecord | None]]:
    """Yield the commits of a branch's own line, the newest first."""
    while head is not None:
        yield head, read_record(objects, head)
        parents = objects.commit(head).parents
        head = parents[0] if parents else None


def find_change(objects: Objects, head: Oid | None, change: str) -> Oid | None:
    """Return the commit of a Change-Id in the graph below `head`, or `None`."""
    seen: set[Oid] = set()
    waiting = [head] if head is not None else []
    while waiting:
        oid = waiting.pop()
        if oid in seen:
            continue
        seen.add(oid)
        record = read_record(objects, oid)
        if record is not None and record.change == change:
            return oid
        waiting.extend(reversed(objects.commit(oid).parents))
    return None


def is_ancestor(objects: Objects, old: Oid, new: Oid) -> bool:
    """Tell whether `old` is `new` or can be reached from it.

    Commits that a compaction has rewritten or folded count as the changes they were.
    """
    if not share_history(objects, old, new):
        graph = ChangeGraph(objects, [old, new], is_complete=False)
        above = graph.ancestors([graph.names[new]])
        return graph.names[old] in above
    return merge_bases(objects, old, new) == [old]


def merge_bases(objects: Objects, ours: Oid, theirs: Oid) -> list[Oid]:
    """Return the best common ancestors of two commits, in the order of their Change-Ids.

    The commits are visited by descending depth, so a commit is seen only after all that lead to
    it, and the walk ends where nothing but common ancestors is left. Where a compaction stands
    between the two, changes are compared instead of commits (`changes`).
    """
    if ours == theirs:
        return [ours]
    if not share_history(objects, ours, theirs):
        graph = ChangeGraph(objects, [ours, theirs], is_complete=False)
        return in_change_order(objects, graph.merge_bases(ours, theirs))
    left, right, stale = 1, 2, 4
    flags: dict[Oid, int] = {ours: left, theirs: right}
    depths = _Depths(objects)
    queue = [(-depths.of(oid), oid) for oid in (ours, theirs)]
    heapq.heapify(queue)
    queued = {ours, theirs}
    bases: list[Oid] = []
    while any(not flags[oid] & stale for _, oid in queue):
        _, oid = heapq.heappop(queue)
        mark = flags[oid]
        if mark == left | right:
            bases.append(oid)
            mark |= stale
        for parent in objects.commit(oid).parents:
            flags[parent] = flags.get(parent, 0) | mark
            if parent not in queued:
                queued.add(parent)
                heapq.heappush(queue, (-depths.of(parent), parent))
    return in_change_order(objects, bases)


def in_change_order(objects: Objects, commits: Iterable[Oid]) -> list[Oid]:
    """Return commits in the order of their Change-Ids, which a rewritten history keeps."""

    def key(oid: Oid) -> tuple[str, Oid]:
        record = read_record(objects, oid)
        return (record.change if record is not None else oid, oid)

    return sorted(commits, key=key)


class _Depths:
    """The longest way from a commit to a root: read from its record, else counted."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[Oid, int] = {}

    def of(self, oid: Oid) -> int:
        waiting = [oid]
        while waiting:
            top = waiting[-1]
            if top in self._known:
                waiting.pop()
                continue
            record = read_record(self._objects, top)
            if record is not None:
                self._known[top] = record.depth
                continue
            parents = self._objects.commit(top).parents
            missing = [parent for parent in parents if parent not in self._known]
            if missing:
                waiting.extend(missing)
                continue
            self._known[top] = 1 + max((self._known[p] for p in parents), default=-1)
        return self._known[oid]
