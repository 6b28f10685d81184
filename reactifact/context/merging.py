"""Merging one context into another: both sides as they stand, their common base, the plan.

Owns the steps around the pure comparison of `store/merge`: what a side would commit now, objects of
a foreign store, where the base is, the joined ledgers. Conflicts are told by `conflicts`, decided by
`resolving`, and the plan is applied by `adopting`. A plan is made on the side: until it is applied
neither context has changed, not even by a commit of its direct changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import MissingObject
from ..store.database import Objects, Staging, Tree
from ..store.history import merge_bases
from ..store.layout import Roots
from ..store.line import Line
from ..store.memory import MemoryBackend
from ..store.merge import CommonBase, MergePlan, plan_merge, plan_union
from ..store.objects import TREE_MODE, CommitObject, GitObject, Oid
from ..store.records import make_commit, read_record, read_roots
from .conflicts import MergeConflict
from .resolving import Combiner, Policy, settle

__all__ = ["Merge", "MergeConflict", "Union", "copy_history", "join_ledgers", "prepare"]


class Union:
    """Objects of two stores, ours first."""

    def __init__(self, ours: Objects, theirs: Objects) -> None:
        self._sides = (ours, theirs)

    def read(self, oid: Oid) -> GitObject:
        """Return one object from either side. Raises `MissingObject`."""
        try:
            return self._sides[0].read(oid)
        except MissingObject:
            return self._sides[1].read(oid)

    def tree(self, oid: Oid) -> Tree:
        """Return a parsed tree from either side."""
        try:
            return self._sides[0].tree(oid)
        except MissingObject:
            return self._sides[1].tree(oid)

    def commit(self, oid: Oid) -> CommitObject:
        """Return a parsed commit from either side."""
        try:
            return self._sides[0].commit(oid)
        except MissingObject:
            return self._sides[1].commit(oid)

    def prefetch(self, oids: Iterable[Oid]) -> None:
        """Nothing is fetched ahead: the two sides are asked one by one."""

    def derived(self, source: Oid, make: Callable[[Staging], Oid]) -> Oid:
        """Return what `make` makes of an object, kept by the side that holds it."""
        return self._sides[0 if _holds(self._sides[0], source) else 1].derived(source, make)


@dataclass(frozen=True, slots=True)
class Side:
    """What a line would hold if its direct changes were committed now; nothing of it is staged there."""

    line: Line
    objects: Staging
    roots: Roots
    tip: Oid | None

    @staticmethod
    def of(line: Line) -> Side:
        """Look at a line, whatever is open on it."""
        state = line.state.twin()
        state.restore(line.state.savepoint())
        roots = state.flush()
        tip = line.tip
        if line.draft is not None:
            tip = make_commit(state.objects, line.draft.record, line.draft.roots, line.draft.parents)
        return Side(line, state.objects, roots, tip)

    def fork_point(self) -> Oid | None:
        """Return the commit the line was forked from: the nearest fork its history records."""
        if self.line.fork is not None:
            return self.line.fork.get("commit")
        oid = self.tip
        while oid is not None:
            record = read_record(self.objects, oid)
            if record is not None and record.fork is not None:
                found: Oid | None = record.fork.get("commit")
                return found
            parents = self.objects.commit(oid).parents
            oid = parents[0] if parents else None
        return None


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that is planned and not applied."""

    plan: MergePlan
    objects: Objects
    bases: list[Oid]
    is_news: bool  # whether the other side changed anything since the base

    def stage(self, ours: Line, theirs: Line) -> None:
        """Bring the objects of the other side, which is sealed, and combined payloads into ours."""
        assert theirs.tip is not None
        if ours.database is theirs.database:
            ours.objects.absorb(theirs.objects)
        else:
            # a base that was compacted away here is known to the other side alone
            known = {oid for oid in self.bases if _holds(ours.objects, oid)}
            copy_history(theirs.objects, ours.objects, theirs.tip, known)
        for item in self.plan.combine:
            if item.result.stored is not None:
                payload = self.objects.read(item.result.stored.meta.payload)
                ours.objects.put("blob", payload.data)


def prepare(ours: Line, theirs: Line, policy: Policy | None, *, three_way: bool = True) -> Merge:
    """Compare two lines and decide what can be decided. Neither is changed.

    What merge functions and the policy raise reaches the caller.
    """
    mine, other = Side.of(ours), Side.of(theirs)
    scratch = Staging(mine.objects)
    objects: Objects = scratch
    if ours.database is theirs.database:
        mine.objects.absorb(theirs.objects)
        mine.objects.absorb(other.objects)
    else:
        objects = Union(scratch, other.objects)
    bases = [] if mine.tip is None or other.tip is None else merge_bases(objects, mine.tip, other.tip)
    if not three_way:
        plan = plan_union(objects, mine.roots, other.roots)
        return Merge(plan, objects, bases, is_news=False)
    combiner = Combiner(objects, scratch, durable=not isinstance(ours.database.backend, MemoryBackend))
    base = CommonBase(objects, bases, combiner, None if bases else _fallback(objects, mine, other))
    plan = plan_merge(objects, mine.roots, other.roots, base, combiner)
    if policy is not None and plan.clashes:
        settle(objects, plan, policy, combiner)
    return Merge(plan, objects, bases, _is_news(base, other, bases))


def _fallback(objects: Objects, mine: Side, other: Side) -> Roots | None:
    point = other.fork_point() or mine.fork_point()
    return None if point is None else read_roots(objects, point)


def _is_news(base: CommonBase, other: Side, bases: list[Oid]) -> bool:
    if other.tip is None or (other.tip in bases and other.line.state.is_clean):
        return False
    known = base.roots or [Roots()]
    return any((r.artifacts, r.relations) != (other.roots.artifacts, other.roots.relations) for r in known)


def _holds(objects: Objects, oid: Oid) -> bool:
    try:
        objects.read(oid)
    except MissingObject:
        return False
    return True


def copy_history(source: Objects, target: Staging, tip: Oid, known: set[Oid]) -> None:
    """Stage every object that `tip` reaches and the commits `known` do not."""
    seen: set[Oid] = set()

    def copy_tree(oid: Oid) -> None:
        if oid in seen:
            return
        seen.add(oid)
        target.put_tree(source.tree(oid))
        for entry in source.tree(oid).values():
            if entry.mode == TREE_MODE:
                copy_tree(entry.oid)
            elif entry.oid not in seen:
                seen.add(entry.oid)
                target.put("blob", source.read(entry.oid).data)

    waiting = [tip]
    while waiting:
        oid = waiting.pop()
        if oid in seen or oid in known:
            continue
        seen.add(oid)
        target.put("commit", source.read(oid).data)
        commit = source.commit(oid)
        copy_tree(commit.tree)
        waiting.extend(commit.parents)


def join_ledgers(ours: Line, theirs: Line) -> list[str]:
    """Bring what another ledger knows into ours; return the ids of actions that changed."""
    one, other = ours.ledger, theirs.ledger
    if one is other or (one.ref == other.ref and ours.database is theirs.database):
        return []
    return ours.take_ledger(other)
