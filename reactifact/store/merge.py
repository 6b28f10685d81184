"""Three-way merge by artifact id, over subtrees: a pure function of three states.

Owns the comparison (which side changed what, against which base) and its outcome as a plan.
Payloads are compared as blobs and relations as sets; text is never merged. It applies nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .database import Objects
from .history import merge_bases
from .layout import Meta, Roots, decode_edges, file_path
from .objects import Oid
from .records import read_roots
from .state import Stored
from .trees import compare, lookup

Links = frozenset[tuple[str, str]]
"""The (relation, target) pairs of one source."""


class Content(NamedTuple):
    """What a merge compares of an artifact."""

    type_id: str
    payload: Oid


class Version(NamedTuple):
    """One side of a comparison: its content and the version that holds it."""

    content: Content | None
    stored: Stored | None


CONTESTED = Content("", "")
"""The content of a base on which several merge bases do not agree: it equals no other."""

BaseContent = Callable[[str], Version]
BaseLinks = Callable[[str], Links]


@dataclass(slots=True)
class Clash:
    """An artifact that both sides changed, and differently."""

    artifact_id: str
    base: Version
    ours: Version
    theirs: Version


@dataclass(slots=True)
class MergePlan:
    """What taking over the other side means for ours."""

    adopt: list[Stored] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    link: list[tuple[str, str, str]] = field(default_factory=list)
    unlink: list[tuple[str, str, str]] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take over."""
        return not (self.adopt or self.delete or self.link or self.unlink or self.clashes)


def version_at(objects: Objects, roots: Roots, artifact_id: str) -> Version:
    """Return an artifact as a state holds it."""
    entry = lookup(objects, roots.meta, file_path(artifact_id))
    if entry is None:
        return Version(None, None)
    meta = Meta.decode(objects.read(entry.oid).data)
    return Version(Content(meta.type_id, meta.payload), Stored(entry.oid, meta))


def links_at(objects: Objects, roots: Roots, source: str) -> Links:
    """Return the relations of one source as a state holds them."""
    entry = lookup(objects, roots.relations, file_path(source))
    if entry is None:
        return frozenset()
    _, edges = decode_edges(objects.read(entry.oid).data)
    return frozenset((edge.relation, edge.target) for edge in edges)


def plan_merge(
    objects: Objects, ours: Roots, theirs: Roots, base: BaseContent, base_links: BaseLinks
) -> MergePlan:
    """Compare two states against their base. The cost is that of the difference."""
    plan = MergePlan()
    for artifact_id in _differing_ids(objects, ours, theirs):
        left = version_at(objects, ours, artifact_id)
        right = version_at(objects, theirs, artifact_id)
        if left.content == right.content:
            continue
        below = base(artifact_id)
        if right.content == below.content:
            continue
        if left.content != below.content:
            plan.clashes.append(Clash(artifact_id, below, left, right))
        elif right.stored is None:
            plan.delete.append(artifact_id)
        else:
            plan.adopt.append(right.stored)
    plan.clashes.sort(key=lambda clash: clash.artifact_id)
    plan.adopt.sort(key=lambda stored: (stored.meta.sequence, stored.meta.id))
    _plan_links(objects, ours, theirs, base_links, plan)
    return plan


def _differing_ids(objects: Objects, ours: Roots, theirs: Roots) -> list[str]:
    found: set[str] = set()
    for path, left, right in compare(objects, ours.artifacts, theirs.artifacts):
        roots = ours if left is not None else theirs
        assert left is not None or right is not None
        entry = lookup(objects, roots.meta, path[1:])
        if entry is not None:
            found.add(Meta.decode(objects.read(entry.oid).data).id)
    return sorted(found)


def _plan_links(objects: Objects, ours: Roots, theirs: Roots, base_links: BaseLinks, plan: MergePlan) -> None:
    for _, left, right in compare(objects, ours.relations, theirs.relations):
        oid = left or right
        assert oid is not None
        source, _ = decode_edges(objects.read(oid).data)
        mine = links_at(objects, ours, source)
        other = links_at(objects, theirs, source)
        below = base_links(source)
        order = {} if right is None else _order(objects, right)
        added = sorted(other - below - mine, key=lambda pair: order[pair])
        plan.link += [(source, relation, target) for relation, target in added]
        plan.unlink += [(source, r, t) for r, t in sorted((below - other) & mine)]


def _order(objects: Objects, oid: Oid) -> dict[tuple[str, str], int]:
    _, edges = decode_edges(objects.read(oid).data)
    return {(edge.relation, edge.target): edge.sequence for edge in edges}


class CommonBase:
    """The base of a merge: one commit, none, or several folded per id.

    Several merge bases (criss-cross histories) are folded in the order of their Change-Ids, each
    step a three-way merge over the bases of those two; what does not agree there equals nothing.
    """

    def __init__(self, objects: Objects, bases: list[Oid], fallback: Roots | None = None) -> None:
        self._objects = objects
        self._bases = bases
        self._roots = [read_roots(objects, oid) for oid in bases]
        if not bases and fallback is not None:
            self._roots = [fallback]
        self._lower: dict[int, CommonBase] = {}
        self.content = lru_cache(maxsize=None)(self._content)

    def _content(self, artifact_id: str) -> Version:
        if not self._roots:
            return Version(None, None)
        merged = version_at(self._objects, self._roots[0], artifact_id)
        for index in range(1, len(self._roots)):
            other = version_at(self._objects, self._roots[index], artifact_id)
            if other.content == merged.content:
                continue
            below = self._below(index).content(artifact_id).content
            if merged.content == below:
                merged = other
            elif other.content != below:
                return Version(CONTESTED, None)
        return merged

    def links(self, source: str) -> Links:
        """Return the relations of one source in the base."""
        if not self._roots:
            return frozenset()
        merged = links_at(self._objects, self._roots[0], source)
        for index in range(1, len(self._roots)):
            other = links_at(self._objects, self._roots[index], source)
            if other != merged:
                below = self._below(index).links(source)
                merged = ((merged | other) - (below - merged)) - (below - other)
        return merged

    def _below(self, index: int) -> CommonBase:
        if index not in self._lower:
            found: set[Oid] = set()
            for earlier in self._bases[:index]:
                found.update(merge_bases(self._objects, earlier, self._bases[index]))
            self._lower[index] = CommonBase(self._objects, sorted(found))
        return self._lower[index]
