"""Merging one context into another: the plan of the store, made into models and messages.

Owns `MergeConflict` and the steps around the pure merge: the common base, objects of a foreign
store, the joined ledgers, the merge commit's record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import MissingObject, ReactifactError
from ..store.canonical import decode
from ..store.database import Objects, Staging, Tree
from ..store.history import merge_bases
from ..store.line import Line
from ..store.merge import Clash, CommonBase, MergePlan, Version, plan_merge
from ..store.objects import TREE_MODE, CommitObject, GitObject, Oid
from ..store.records import read_record, read_roots
from ..store.state import Origin, State
from .commits import Write
from .encoding import ACTION_TYPE
from .working import Working


class MergeConflict(ReactifactError):
    """Both sides changed an artifact, and differently; nothing was applied.

    `conflicts` is a list of texts sorted by artifact id; `details` holds for each the base, ours
    and theirs as plain data and the fields that differ.
    """

    def __init__(
        self,
        message: str,
        conflicts: list[str] | None = None,
        details: list[ConflictDetail] | None = None,
    ) -> None:
        super().__init__(message)
        self.conflicts = list(conflicts or [])
        self.details = list(details or [])


@dataclass(frozen=True)
class ConflictDetail:
    """One contested artifact: what each side holds, `None` where it has none."""

    artifact_id: str
    base: dict[str, Any] | None
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None
    fields: tuple[str, ...]

    def __str__(self) -> str:
        if self.ours is None or self.theirs is None:
            gone, kept = ("ours", "theirs") if self.ours is None else ("theirs", "ours")
            return f"{self.artifact_id}: deleted by {gone}, changed by {kept}"
        sides = ", ".join(
            f"{name}: {self.ours.get(name)!r} against {self.theirs.get(name)!r}" for name in self.fields
        )
        return f"{self.artifact_id}: changed differently on both sides ({sides})"


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


def plan(ours: Line, theirs: Line) -> MergePlan:
    """Compare two sealed lines; the objects of theirs are brought over first."""
    assert ours.tip is not None
    assert theirs.tip is not None
    same_store = ours.database is theirs.database
    objects: Objects = ours.objects
    if same_store:
        ours.objects.absorb(theirs.objects)
    else:
        objects = Union(ours.objects, theirs.objects)
    bases = merge_bases(objects, ours.tip, theirs.tip)
    fallback = None
    if not bases:
        point = _fork_point(theirs) or _fork_point(ours)
        fallback = None if point is None else read_roots(objects, point)
    base = CommonBase(objects, bases, fallback)
    found = plan_merge(objects, ours.state.roots, theirs.state.roots, base.content, base.links)
    if not same_store and not found.clashes:
        copy_history(theirs.objects, ours.objects, theirs.tip, set(bases))
    return found


def _fork_point(line: Line) -> Oid | None:
    """Return the commit a line was forked from: the nearest fork its history records."""
    if line.fork is not None:
        return line.fork.get("commit")
    oid = line.tip
    while oid is not None:
        commit = line.objects.commit(oid)
        record = read_record(line.objects, oid)
        if record is not None and record.fork is not None:
            found: Oid | None = record.fork.get("commit")
            return found
        oid = commit.parents[0] if commit.parents else None
    return None


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


def conflict(objects: Objects, clashes: list[Clash], other: str) -> MergeConflict:
    """Return the error that names every contested artifact."""
    details = [_detail(objects, clash) for clash in clashes]
    texts = [str(detail) for detail in details]
    return MergeConflict(
        f"cannot merge {other}: {len(texts)} artifact{'s' * (len(texts) != 1)} changed differently "
        f"on both sides, nothing was applied\n" + "\n".join(texts),
        texts,
        details,
    )


def _detail(objects: Objects, clash: Clash) -> ConflictDetail:
    base, ours, theirs = (_data(objects, side) for side in (clash.base, clash.ours, clash.theirs))
    left, right = ours or {}, theirs or {}
    differing = [k for k in {**left, **right} if left.get(k) != right.get(k)]
    return ConflictDetail(clash.artifact_id, base, ours, theirs, tuple(sorted(differing)))


def _data(objects: Objects, version: Version) -> dict[str, Any] | None:
    if version.stored is None:
        return None
    data: Any = decode(objects.read(version.stored.meta.payload).data)
    return data if isinstance(data, dict) else {"": data}


def join_ledgers(ours: Line, theirs: Line) -> list[str]:
    """Bring what another ledger knows into ours; return the ids of actions that changed."""
    one, other = ours.ledger, theirs.ledger
    if one is other or (one.ref == other.ref and ours.database is theirs.database):
        return []
    return ours.take_ledger(other)


def apply_plan(plan: MergePlan, working: Working, theirs: State, origin: Origin) -> list[Write]:
    """Take over what a plan says, versions as they are; return what was written."""
    writes: list[Write] = []
    state = working.state
    for stored in plan.adopt:
        meta = stored.meta
        kind = "create" if state.stored(meta.id) is None else "update"
        state.adopt(stored, origin.commit)
        if meta.type_id == ACTION_TYPE:
            working.expect(meta)
        working.journal(
            {
                "type": kind,
                "artifact_id": meta.id,
                "data_type": meta.type_id,
                "payload": meta.payload,
                "version": meta.version,
            }
        )
        writes.append(Write(meta.id, meta.version, kind))
    for artifact_id in plan.delete:
        gone = working.delete(artifact_id, origin)
        writes.append(Write(artifact_id, 0 if gone is None else gone.version, "delete"))
    for source, relation, target in plan.link:
        working.link(source, relation, target)
    for source, relation, target in plan.unlink:
        working.unlink(source, relation, target)
    return writes
