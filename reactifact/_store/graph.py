"""The commit graph: first parents, changes and their bases, and what a compaction folded."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..errors import MissingObject
from .commits import (
    CommitRecord,
    Listed,
    earlier_record,
    listed_record,
    nearest_record,
    own_record,
    read_record,
)
from .layout import BOOKKEEPING
from .migrations import current_tree
from .object_db import Objects
from .objects import GitObject, Oid, first_parent
from .trees import lookup

# -- the commit graph seen through Change-Ids: what stays the same when history is rewritten --


FOLDED_FILE = "folded.txt"
"""The file of a baseline, below `.reactifact/`, with the Change-Ids it folded, one a line."""

ORIGINAL = ""
"""Stands, in the list of compactions that a commit builds on, for a history that was not compacted."""


@dataclass(slots=True)
class Change:
    """One change: the commits that carry it, and what the graph needs of their records."""

    name: str  # the Change-Id; the commit's id for one that reactifact did not make
    commit: Oid  # the commit that stands for it
    version: int = 0
    is_versioned: bool = False
    baseline: int = 0
    is_own: bool = False
    parents: list[str] = field(default_factory=list)  # the first parent first
    folded: frozenset[str] = frozenset()


class ChangeGraph:
    """The changes that some commits reach."""

    def __init__(self, objects: Objects, heads: Iterable[Oid], *, is_complete: bool = True) -> None:
        """Read the graph. With `is_complete` false, commits that were pruned away end it."""
        self._objects = objects
        self.changes: dict[str, Change] = {}
        self.names: dict[Oid, str] = {}
        parents: dict[Oid, tuple[Oid, ...]] = {}
        variants: dict[str, list[Change]] = {}
        required = set(heads)
        waiting = list(required)
        while waiting:
            oid = waiting.pop()
            if oid in self.names:
                continue
            try:
                parents[oid] = objects.commit(oid).parents
            except MissingObject:
                if is_complete or oid in required:
                    raise
                continue
            found = self._change(oid)
            self.names[oid] = found.name
            variants.setdefault(found.name, []).append(found)
            waiting.extend(parents[oid])
        for name, found_here in variants.items():
            # the one that was rewritten last knows what was folded below it
            found_here.sort(key=lambda change: (len(change.folded), change.baseline, change.commit))
            self.changes[name] = found_here[-1]
        for name, found_here in variants.items():
            self._link(name, found_here, parents)

    def _change(self, oid: Oid) -> Change:
        record = own_record(self._objects, oid)
        if record is None:
            carried = nearest_record(self._objects, oid)
            return Change(oid, oid, 0 if carried is None else carried.version)
        return Change(
            record.change,
            oid,
            record.version,
            record.context_version is not None,
            record.baseline,
            is_own=True,
            folded=frozenset(read_folded(self._objects, oid)) if record.compactions else frozenset(),
        )

    def _link(self, name: str, variants: list[Change], parents: dict[Oid, tuple[Oid, ...]]) -> None:
        change = self.changes[name]
        for variant in reversed(variants):
            for parent in parents[variant.commit]:
                above = self.names.get(parent)
                if above is not None and above != name and above not in change.parents:
                    change.parents.append(above)
        change.folded = frozenset().union(*(variant.folded for variant in variants))
        known = set(change.parents)
        change.parents += sorted(f for f in change.folded if f in self.changes and f not in known)

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """Return changes and all that stand below them."""
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(self.changes[name].parents)
        return seen

    def oldest_first(self) -> list[str]:
        """Return all changes, each after its ancestors."""
        order: list[str] = []
        state: dict[str, bool] = {}
        for start in sorted(self.changes):
            waiting = [start]
            while waiting:
                name = waiting[-1]
                if state.get(name) is None:
                    state[name] = False
                    waiting.extend(p for p in self.changes[name].parents if p not in state)
                    continue
                waiting.pop()
                if not state[name]:
                    state[name] = True
                    order.append(name)
        return order

    def merge_bases(self, ours: Oid, theirs: Oid) -> list[Oid]:
        """Return a commit of each best common ancestor: ours where both sides have one."""
        mine = self.ancestors([self.names[ours]])
        common = mine & self.ancestors([self.names[theirs]])
        below: set[str] = set()
        for name in common:
            below.update(self.changes[name].parents)
        below = self.ancestors(below)
        return [self._standing(name, ours) for name in sorted(common - below)]

    def _standing(self, name: str, side: Oid) -> Oid:
        """Return the commit of a change in the history of `side`, else any."""
        candidates = {oid for oid, found in self.names.items() if found == name}
        seen: set[Oid] = set()
        waiting = [side] if len(candidates) > 1 else []
        while waiting:
            oid = waiting.pop()
            if oid in candidates:
                return oid
            if oid not in seen and oid in self.names:
                seen.add(oid)
                waiting.extend(self._objects.commit(oid).parents)
        return min(candidates)


def read_folded(objects: Objects, commit: Oid) -> list[str]:
    """Return the Change-Ids that a commit folded; most commits folded none."""
    entry = lookup(objects, current_tree(objects, commit), (BOOKKEEPING, FOLDED_FILE))
    return [] if entry is None else objects.read(entry.oid).data.decode().split("\n")[:-1]


def share_history(objects: Objects, ours: Oid, theirs: Oid) -> bool:
    """Tell whether two commits build on one and the same compaction, or on none.

    Then no change stands in their histories under two ids, and the commit graph tells all.
    """
    left, right = compactions_of(objects, ours), compactions_of(objects, theirs)
    return left == right and len(left) == 1


def compactions_of(objects: Objects, commit: Oid) -> list[str]:
    """Return the names of the compactions that a commit builds on, `ORIGINAL` for none."""
    record = nearest_record(objects, commit)
    return (record.compactions if record is not None else None) or [ORIGINAL]


def joined_compactions(lists: Iterable[list[str]]) -> list[str]:
    """Return what a commit notes of the compactions that its parents build on."""
    found = sorted({name for names in lists for name in names or [ORIGINAL]})
    return [] if found == [ORIGINAL] else found


# -- walking the commit graph: first-parent logs, ancestors, merge bases --


def first_parents(objects: Objects, head: Oid | None) -> Iterator[tuple[Oid, CommitRecord | None]]:
    """Yield the commits of a branch's own line, the newest first."""
    for oid, _ in own_line(objects, head):
        yield oid, read_record(objects, oid) if oid == head else earlier_record(objects, oid)


def listed_line(objects: Objects, head: Oid | None) -> Iterator[tuple[Oid, Listed]]:
    """Yield those commits of a branch's own line that have a record, the newest first, for a list of them."""
    if head is not None:
        read_record(objects, head)  # refuses a format that is too new
    for oid, item in own_line(objects, head):
        found = listed_record(objects, oid, item)
        if found is not None:
            yield oid, found


def own_line(objects: Objects, head: Oid | None) -> Iterator[tuple[Oid, GitObject]]:
    """Yield a commit and its first parents. Read ahead, further each time that the last reading helped."""
    ahead, passed = 1, 0
    while head is not None:
        if objects.prefetch_line(head, ahead):
            if 2 * passed >= ahead:
                ahead = min(2 * ahead, _AHEAD)
            elif 8 * passed < ahead:
                ahead //= 2
            passed = 0
        passed += 1
        item = objects.read(head)
        yield head, item
        head = first_parent(item)


_AHEAD = 1024  # commits


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


def reachable(objects: Objects, starts: Iterable[Oid]) -> Iterator[Oid]:
    """Yield every commit that some commits reach, each once. Raises `MissingObject`."""
    seen = set(starts)
    waiting = list(seen)
    while waiting:
        oid = waiting.pop()
        yield oid
        for parent in objects.commit(oid).parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)


def not_below(objects: Objects, tip: Oid, known: Oid | None, *, is_complete: bool = True) -> Iterator[Oid]:
    """Yield the commits that `tip` reaches and `known` does not, each before its parents.

    Costs those and the few beside them. Raises `MissingObject`; with `is_complete` false a commit that is
    absent ends the walk, as in a shallow clone.
    """
    depths = _Depths(objects)
    is_known = {tip: False} if known is None else {tip: tip == known, known: True}
    queue = [(-depths.of(oid), oid) for oid in is_known]
    heapq.heapify(queue)
    while any(not is_known[oid] for _, oid in queue):
        _, oid = heapq.heappop(queue)
        if not is_known[oid]:
            yield oid
        for parent in objects.commit(oid).parents:
            is_new = parent not in is_known
            is_known[parent] = is_known.get(parent, False) or is_known[oid]
            if is_new:
                try:
                    heapq.heappush(queue, (-depths.of(parent), parent))
                except MissingObject:
                    if is_complete:
                        raise


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


def depth_of(objects: Objects, commit: Oid) -> int:
    """Return the length, in commits, of the longest way from a commit to a root."""
    return _Depths(objects).of(commit)


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
