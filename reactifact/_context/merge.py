"""Planning a merge on a scratch copy, and applying the plan to a working copy.

What differs is found by `_store/_history/merge`; what a merge function or a policy decides is `merging`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from pydantic import BaseModel

from .._store._backends.kv import MemoryBackend
from .._store._history.adoption.tree import roots_at
from .._store._history.listings import settle_listings
from .._store._history.merge import (
    NOTHING,
    Combined,
    CommonBase,
    MergePlan,
    plan_merge,
    plan_union,
    version_at,
)
from .._store.branch import Branch
from .._store.commits import down_from, make_commit, read_record
from .._store.graph import merge_bases
from .._store.layout import Meta, Roots, decode_edges
from .._store.object_db import Objects, Staging, Tree
from .._store.objects import TREE_MODE, CommitObject, GitObject, Oid
from .._store.state import Origin, State, Stored
from .._store.trees import compare
from ..artifacts import ACTION_TYPE
from ..commit import Write
from ..errors import MissingObject
from ..events import EventType
from ..merging import Combiner, MergeConflict, Policy, settle
from ..resources import RuntimeResources
from .working_copy import WorkingCopy

__all__ = ["Merge", "MergeConflict", "Union", "copy_history", "join_ledgers", "prepare"]


# -- merging one context into another: both sides as they stand, their common base, the plan --


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

    def prefetch_line(self, commit: Oid, most: int) -> bool:
        """Nothing is fetched ahead, as above."""
        return False

    def derived(self, source: Oid, make: Callable[[Staging], Oid]) -> Oid:
        """Return what `make` makes of an object, kept by the side that holds it."""
        return self._sides[0 if _holds(self._sides[0], source) else 1].derived(source, make)


class Side(NamedTuple):
    """What a line would hold if its direct changes were committed now; nothing of it is staged there."""

    line: Branch
    objects: Staging
    roots: Roots
    tip: Oid | None

    @staticmethod
    def of(line: Branch) -> Side:
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
        for oid in down_from(self.objects, self.tip):
            record = read_record(self.objects, oid)
            if record is not None and record.fork is not None:
                found: Oid | None = record.fork.get("commit")
                return found
        return None


class Merge(NamedTuple):
    """A merge that is planned and not applied."""

    plan: MergePlan
    objects: Objects
    bases: list[Oid]
    is_news: bool  # whether the other side changed anything since the base

    def stage(self, ours: Branch, theirs: Branch) -> None:
        """Bring the objects of the other side, which is sealed, and combined payloads into ours."""
        assert theirs.tip is not None
        if ours.database is theirs.database:
            ours.objects.absorb(theirs.objects)
        else:
            # a base that was compacted away here is known to the other side alone
            known = {oid for oid in self.bases if _holds(ours.objects, oid)}
            copy_history(theirs.objects, ours.objects, theirs.tip, known)
        self.stage_combined(ours)

    def stage_combined(self, ours: Branch) -> None:
        """Bring combined payloads into ours."""
        for item in self.plan.combine:
            if item.result.stored is not None:
                payload = self.objects.read(item.result.stored.meta.payload)
                ours.objects.put("blob", payload.data)


def prepare(ours: Branch, theirs: Branch, policy: Policy | None, *, three_way: bool = True) -> Merge:
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


def prepare_revert(ours: Branch, after: Oid, before: Roots, policy: Policy | None) -> Merge:
    """Plan to take back what led from the state `before` to that of the commit `after`.

    That is a merge of `before`, compared against `after`. What it restores gets a new version.
    """
    mine = Side.of(ours)
    scratch = Staging(mine.objects)
    combiner = Combiner(scratch, scratch, durable=not isinstance(ours.database.backend, MemoryBackend))
    plan = plan_merge(scratch, mine.roots, before, CommonBase(scratch, [after], combiner), combiner)
    if policy is not None and plan.clashes:
        settle(scratch, plan, policy, combiner)
    for stored in plan.adopt:
        here, then = (version_at(scratch, roots, stored.meta.id) for roots in (mine.roots, before))
        plan.combine.append(Combined(stored.meta.id, here, NOTHING, then))
    plan.combine = [replace(item, theirs=NOTHING) for item in plan.combine]
    plan.adopt = []
    plan.sort()
    return Merge(plan, scratch, [after], is_news=not plan.is_empty)


def _fallback(objects: Objects, mine: Side, other: Side) -> Roots | None:
    point = other.fork_point() or mine.fork_point()
    return None if point is None else roots_at(objects, point)


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


def join_ledgers(ours: Branch, theirs: Branch) -> list[str]:
    """Bring what another ledger knows into ours; return the ids of actions that changed."""
    one, other = ours.ledger, theirs.ledger
    if one is other or (one.ref == other.ref and ours.database is theirs.database):
        return []
    return ours.take_ledger(other)


# -- asking the guard rails --


def check_plan(merge: Merge, working: WorkingCopy, resources: RuntimeResources, author: str) -> None:
    """Ask the guard rails about each thing that a merge is to write, before anything of it is.

    Raises `NotAuthorized`, `GuardrailViolation`, and `TypeNotFoundError` for data that they cannot be shown.
    """
    if not resources.guards_access:
        return
    plan, state = merge.plan, working.state

    def data(stored: Stored | None) -> BaseModel | None:
        if stored is None:
            return None
        return working.version_data(stored.meta, merge.objects.read(stored.meta.payload).data)

    written = [(state.stored(one.meta.id), one) for one in plan.adopt]
    written += [(one.ours.stored, one.result.stored) for one in plan.combine if one.result.stored is not None]
    for current, new in written:
        verb = "create" if current is None else "update"
        resources.check(verb, new.meta.id, data(new), data(current), author)
    for artifact_id in plan.delete:
        resources.check("delete", artifact_id, None, data(state.stored(artifact_id)), author)
    for verb, links in (("link", plan.link), ("unlink", plan.unlink)):
        for source, _, _ in links:
            resources.check(verb, source, None, data(state.stored(source)), author)


def check_step(
    working: WorkingCopy, before: Roots, after: Roots, resources: RuntimeResources, author: str
) -> None:
    """Ask the guard rails about going from one state of a branch to another. Raises as `check_plan` does."""
    if not resources.guards_access:
        return
    objects = working.state.objects

    def read(oid: Oid | None) -> tuple[Meta | None, BaseModel | None]:
        if oid is None:
            return None, None
        meta = Meta.decode(objects.read(oid).data)
        return meta, working.version_data(meta, objects.read(meta.payload).data)

    for _, left, right in compare(objects, before.meta, after.meta):
        (old, current), (new, data) = read(left), read(right)
        if new is None and old is not None:
            resources.check("delete", old.id, None, current, author)
        elif new is not None and (old is None or old.payload != new.payload):
            resources.check("create" if old is None else "update", new.id, data, current, author)
    for _, left, right in compare(objects, before.relations, after.relations):
        was, now = _links(objects, left), _links(objects, right)
        for verb, links in (("link", now - was), ("unlink", was - now)):
            for source, _, _ in sorted(links):
                resources.check(verb, source, None, None, author)


def _links(objects: Objects, oid: Oid | None) -> set[tuple[str, str, str]]:
    if oid is None:
        return set()
    source, edges = decode_edges(objects.read(oid).data)
    return {(source, edge.relation, edge.target) for edge in edges}


# -- applying what a merge planned to the working state of a context --


def apply_plan(plan: MergePlan, working: WorkingCopy, theirs: State, origin: Origin) -> list[Write]:
    """Take over what a plan says, adopted versions as they are; return what was written.

    The objects of the plan are staged. Queues the events of it all; the caller decides whether they stay.
    """
    writes: list[Write] = []
    state = working.state
    adopted = {stored.meta.id for stored in plan.adopt}
    written = [_adopt(stored, state, origin) for stored in plan.adopt]
    for item in plan.combine:
        meta, is_theirs = _combine(item, state, origin)
        written.append((meta, item.ours.stored is not None))
        if is_theirs:
            adopted.add(meta.id)
    settle_listings(state, theirs, adopted)
    for meta, existed in written:
        _note(meta, existed, working, origin, writes)
    for artifact_id in plan.delete:
        gone = working.delete(artifact_id, origin)
        writes.append(Write(artifact_id, 0 if gone is None else gone.version, "delete"))
    for artifact_id in _taken_over(plan):
        state.take_versions(artifact_id, theirs)
    state.edges.update(plan.edges)
    state.next_sequence = max(state.next_sequence, theirs.next_sequence)
    for kind, links in (("link", plan.link), ("unlink", plan.unlink)):
        for source, relation, target in links:
            working.journal({"type": kind, "artifact_id": source, "relation": relation, "target_id": target})
    return writes


def _taken_over(plan: MergePlan) -> list[str]:
    """Return the artifacts that go on from the other side's versions."""
    found = [stored.meta.id for stored in plan.adopt]
    for item in plan.combine:
        mine, other = item.ours.stored, item.theirs.stored
        if other is not None and (mine is None or other.meta.version > mine.meta.version):
            found.append(other.meta.id)
    return found


def _adopt(stored: Stored, state: State, origin: Origin) -> tuple[Meta, bool]:
    """Take a version over; return it, and whether there was one before."""
    known = state.stored(stored.meta.id)
    state.adopt(stored, origin.commit)
    return stored.meta, known is not None


def _combine(item: Combined, state: State, origin: Origin) -> tuple[Meta, bool]:
    """Write a new version on top of the side with the higher one, so that no version goes back.

    Returns it, and whether it is that of the other side.
    """
    mine, other, result = item.ours.stored, item.theirs.stored, item.result.stored
    assert result is not None
    if other is not None and (mine is None or other.meta.version > mine.meta.version):
        if item.result.content == item.theirs.content:
            return _adopt(other, state, origin)[0], True
        state.adopt(other, origin.commit)
    like = result.meta
    return state.put(like.id, like.type_id, state.payload(like), like.revision, origin), False


def _note(meta: Meta, existed: bool, working: WorkingCopy, origin: Origin, writes: list[Write]) -> None:
    kind = "update" if existed else "create"
    if meta.type_id == ACTION_TYPE:
        working.expect(meta)
    working.journal(
        {
            "type": kind,
            "artifact_id": meta.id,
            "data_type": meta.type_id,
            "payload": meta.payload,
            "revision": meta.revision,
            "version": meta.version,
        }
    )
    model = working.type_of(meta)
    if existed:
        working.emit_update(model, meta.id, origin.when)
    else:
        working.emit(EventType.ARTIFACT_CREATED, model, meta.id, origin.when)
    writes.append(Write(meta.id, meta.version, kind))
