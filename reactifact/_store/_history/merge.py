"""Three-way merge by artifact id, over subtrees: a pure function of three states.

Owns the comparison (which side changed what, against which base) and its outcome as a plan. Payloads
are compared as blobs and relations one by one; text is never merged. It applies nothing, and knows
no models: what a type's merge function makes of two sides comes in as `Combine`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from ..graph import in_change_order, is_ancestor, merge_bases
from ..index import meta_at
from ..layout import Edge, Meta, Roots, decode_edges, file_path
from ..object_db import Objects
from ..objects import Oid
from ..state import Stored
from ..trees import Path, compare, lookup, read_ahead, read_differences
from .adoption.tree import roots_at

T = TypeVar("T")

Links = dict[tuple[str, str], int]
"""The (relation, target) pairs of one source, each with its place in the order of all relations."""


class Content(NamedTuple):
    """What a merge compares of an artifact."""

    type_id: str
    payload: Oid


class Version(NamedTuple):
    """One side of a comparison: its content and the version that holds it."""

    content: Content | None
    stored: Stored | None


NOTHING = Version(None, None)
CONTESTED = Content("", "")
"""The content of a base on which several merge bases do not agree: it equals no other."""


class Combine(Protocol):
    """The merge functions of types, as the comparison asks for them."""

    def has(self, type_id: str) -> bool:
        """Tell whether the type has a merge function."""
        ...

    def __call__(self, artifact_id: str, base: Version, ours: Version, theirs: Version) -> Version | None:
        """Return what the function of the type makes of two sides; `None` where it leaves a conflict."""
        ...

    def is_same(self, one: Version, other: Version) -> bool:
        """Tell whether two different payloads are the same data to the present class of their type."""
        ...


class Base(Protocol):
    """What a merge is compared against."""

    @property
    def roots(self) -> list[Roots]: ...
    def content(self, artifact_id: str) -> Version: ...
    def links(self, source: str) -> Links: ...


@dataclass(slots=True)
class Clash:
    """An artifact that both sides changed, and differently."""

    artifact_id: str
    base: Version
    ours: Version
    theirs: Version


@dataclass(slots=True)
class Combined:
    """An artifact that gets a new version, made of what the two sides hold."""

    artifact_id: str
    ours: Version
    theirs: Version
    result: Version


@dataclass(slots=True)
class MergePlan:
    """What taking over the other side means for ours."""

    adopt: list[Stored] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    combine: list[Combined] = field(default_factory=list)
    edges: dict[str, tuple[Edge, ...]] = field(default_factory=dict)  # by source, whole
    link: list[tuple[str, str, str]] = field(default_factory=list)
    unlink: list[tuple[str, str, str]] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take over."""
        return not (self.adopt or self.delete or self.combine or self.edges or self.clashes)

    @property
    def takes_over(self) -> bool:
        """Whether anything but the order of relations changes."""
        return bool(self.adopt or self.delete or self.combine or self.link or self.unlink)

    def ids(self) -> set[str]:
        """Return the ids of all artifacts that it changes, and of the sources of relations."""
        named = [*self.adopt, *(one.result.stored for one in self.combine)]
        ids = {stored.meta.id for stored in named if stored is not None}
        return ids | {*self.delete, *self.edges, *(source for source, _, _ in [*self.link, *self.unlink])}

    def sort(self) -> None:
        """Put everything into an order that depends on the content alone."""
        self.adopt.sort(key=lambda stored: (stored.meta.sequence, stored.meta.id))
        self.delete.sort()
        self.combine.sort(key=lambda item: item.artifact_id)
        self.clashes.sort(key=lambda clash: clash.artifact_id)


def version_at(objects: Objects, roots: Roots, artifact_id: str) -> Version:
    """Return an artifact as a state holds it."""
    entry = lookup(objects, roots.meta, file_path(artifact_id))
    if entry is None:
        return NOTHING
    meta = Meta.decode(objects.read(entry.oid).data)
    return Version(Content(meta.type_id, meta.payload), Stored(entry.oid, meta))


def links_at(objects: Objects, roots: Roots, source: str) -> Links:
    """Return the relations of one source as a state holds them."""
    entry = lookup(objects, roots.relations, file_path(source))
    if entry is None:
        return {}
    _, edges = decode_edges(objects.read(entry.oid).data)
    return {(edge.relation, edge.target): edge.sequence for edge in edges}


def plan_merge(objects: Objects, ours: Roots, theirs: Roots, base: Base, combine: Combine) -> MergePlan:
    """Compare two states against their base. The cost is that of the difference."""
    plan = MergePlan()
    _read_ahead(objects, ours, theirs, base.roots)
    ids = set(_differing_ids(objects, ours, theirs))
    ids.update(_changed_alike(objects, ours, theirs, base, combine))
    for artifact_id in sorted(ids):
        left = version_at(objects, ours, artifact_id)
        right = version_at(objects, theirs, artifact_id)
        _plan_artifact(plan, artifact_id, left, right, base, combine)
    for source in _differing_sources(objects, ours, theirs):
        mine, other = links_at(objects, ours, source), links_at(objects, theirs, source)
        _plan_links(plan, source, mine, merged_links(base.links(source), mine, other))
    plan.sort()
    return plan


def plan_union(objects: Objects, ours: Roots, theirs: Roots) -> MergePlan:
    """Plan to take what ours has not or has in a lower version, and to unite the relations."""
    plan = MergePlan()
    _read_ahead(objects, ours, theirs, [])
    for artifact_id in _differing_ids(objects, ours, theirs):
        left = version_at(objects, ours, artifact_id).stored
        right = version_at(objects, theirs, artifact_id).stored
        if right is not None and (left is None or left.meta.version < right.meta.version):
            plan.adopt.append(right)
    for source in _differing_sources(objects, ours, theirs):
        mine, other = links_at(objects, ours, source), links_at(objects, theirs, source)
        if not other.keys() <= mine.keys():
            _plan_links(plan, source, mine, {**other, **mine})
    plan.sort()
    return plan


def _read_ahead(objects: Objects, ours: Roots, theirs: Roots, bases: Sequence[Roots]) -> None:
    """Read what the plan looks at, a level at a time: the differences, and what each state has there."""
    payloads, links = read_differences(
        objects, (ours.artifacts, theirs.artifacts), (ours.relations, theirs.relations)
    )
    metas = {path[1:] for path in payloads}
    wanted: list[tuple[Oid | None, Collection[Path]]] = []
    for roots in (ours, theirs, *bases):
        wanted += [(roots.meta, metas), (roots.relations, links)]
    read_ahead(objects, *wanted)


def _plan_artifact(
    plan: MergePlan, artifact_id: str, left: Version, right: Version, base: Base, combine: Combine
) -> None:
    has_function = left.stored is not None and right.stored is not None and combine.has(_type(left))
    is_alike = _same(left, right, combine)
    if is_alike and not has_function:
        return
    below = base.content(artifact_id)
    if _same(right, below, combine):
        return
    if _same(left, below, combine):
        if right.stored is None:
            plan.delete.append(artifact_id)
        else:
            plan.adopt.append(right.stored)
        return
    result = _combined(artifact_id, below, left, right, combine) if has_function else None
    if result is not None:
        if result.content != left.content:
            plan.combine.append(Combined(artifact_id, left, right, result))
    elif not is_alike:
        plan.clashes.append(Clash(artifact_id, below, left, right))


def _same(one: Version, other: Version, combine: Combine) -> bool:
    """Tell whether two versions hold the same: in their bytes, or as the present class reads them."""
    if one.content == other.content:
        return True
    return one.stored is not None and other.stored is not None and combine.is_same(one, other)


def _type(version: Version) -> str:
    return "" if version.content is None else version.content.type_id


def _combined(
    artifact_id: str, below: Version, left: Version, right: Version, combine: Combine
) -> Version | None:
    # A function that counts from a base which nobody knows would count something twice.
    return None if below.content == CONTESTED else combine(artifact_id, below, left, right)


def _differing_ids(objects: Objects, one: Roots, other: Roots) -> Iterator[str]:
    for path, left, _ in compare(objects, one.artifacts, other.artifacts):
        yield meta_at(objects, one if left is not None else other, path[1:]).id


def _changed_alike(
    objects: Objects, ours: Roots, theirs: Roots, base: Base, combine: Combine
) -> Iterator[str]:
    """Yield what both sides hold alike and no base does, of the types with a merge function."""
    if ours.artifacts is None or theirs.artifacts is None:
        return
    left, right = objects.tree(ours.artifacts), objects.tree(theirs.artifacts)
    for name in left.keys() & right.keys():
        for roots in base.roots or [Roots()]:
            known = None if roots.artifacts is None else objects.tree(roots.artifacts).get(name)
            below = None if known is None else known.oid
            for path, _, mine in compare(objects, below, left[name].oid, (name,)):
                if mine is None:
                    continue
                artifact_id = meta_at(objects, ours, path[1:]).id
                if not combine.has(_type(version_at(objects, ours, artifact_id))):
                    break  # all of one folder are of one type
                other = lookup(objects, theirs.artifacts, path)
                if other is not None and other.oid == mine:
                    yield artifact_id


# -- relations -------------------------------------------------------------------------------


def merged_links(base: Links, ours: Links, theirs: Links) -> Links:
    """Merge the relations of one source three-way; the result is the same from both sides.

    A relation stays where it stands in the order; where the sides place it differently, the side
    that moved it wins, and the earlier place if both did.
    """
    merged: Links = {}
    for pair in ours.keys() | theirs.keys():
        mine, other, was = ours.get(pair), theirs.get(pair), base.get(pair)
        if mine is None or other is None:
            only = mine if mine is not None else other
            if was is None and only is not None:
                merged[pair] = only
        elif mine == was:
            merged[pair] = other
        elif other == was:
            merged[pair] = mine
        else:
            merged[pair] = min(mine, other)
    return merged


def _differing_sources(objects: Objects, one: Roots, other: Roots) -> Iterator[str]:
    for _, left, right in compare(objects, one.relations, other.relations):
        oid = left or right
        assert oid is not None
        yield decode_edges(objects.read(oid).data)[0]


def _plan_links(plan: MergePlan, source: str, mine: Links, merged: Links) -> None:
    if merged == mine:
        return
    edges = [Edge(relation, target, sequence) for (relation, target), sequence in merged.items()]
    edges.sort(key=lambda edge: (edge.sequence, edge.relation, edge.target))
    plan.edges[source] = tuple(edges)
    plan.link += [(source, e.relation, e.target) for e in edges if (e.relation, e.target) not in mine]
    plan.unlink += [(source, *pair) for pair in sorted(mine.keys() - merged.keys())]


# -- the base --------------------------------------------------------------------------------


class CommonBase:
    """The base of a merge: one commit, none, or several folded per id.

    Several merge bases (criss-cross histories) are folded in the order of their Change-Ids, each
    step a three-way merge over the bases of those two; what does not agree there equals nothing.
    """

    def __init__(
        self, objects: Objects, bases: list[Oid], combine: Combine, fallback: Roots | None = None
    ) -> None:
        self._objects = objects
        self._bases = bases
        self._combine = combine
        self.roots = [roots_at(objects, oid) for oid in bases]
        if not bases and fallback is not None:
            self.roots = [fallback]
        self._lower: dict[int, CommonBase] = {}
        self._contents: dict[str, Version] = {}
        self._links: dict[str, Links] = {}

    def content(self, artifact_id: str) -> Version:
        """Return an artifact in the base."""
        return _answer(self, artifact_id, CommonBase._content_of, lambda base: base._contents)

    def links(self, source: str) -> Links:
        """Return the relations of one source in the base."""
        return _answer(self, source, CommonBase._links_of, lambda base: base._links)

    def _content_of(self, artifact_id: str) -> Steps[Version]:
        if not self.roots:
            return NOTHING
        merged = version_at(self._objects, self.roots[0], artifact_id)
        for index in range(1, len(self.roots)):
            other = version_at(self._objects, self.roots[index], artifact_id)
            merged = yield from self._folded(artifact_id, index, merged, other)
            if merged.content == CONTESTED:
                break
        return merged

    def _folded(self, artifact_id: str, index: int, merged: Version, other: Version) -> Steps[Version]:
        both = merged.stored is not None and other.stored is not None
        has_function = both and self._combine.has(_type(merged))
        is_alike = _same(merged, other, self._combine)
        if is_alike and not has_function:
            return merged
        below = yield self._below(index)
        if _same(merged, below, self._combine):
            return other
        if _same(other, below, self._combine):
            return merged
        result = _combined(artifact_id, below, merged, other, self._combine) if has_function else None
        if result is not None:
            return result
        return merged if is_alike else Version(CONTESTED, None)

    def _links_of(self, source: str) -> Steps[Links]:
        if not self.roots:
            return {}
        merged = links_at(self._objects, self.roots[0], source)
        for index in range(1, len(self.roots)):
            other = links_at(self._objects, self.roots[index], source)
            if other != merged:
                below = yield self._below(index)
                merged = merged_links(below, merged, other)
        return merged

    def _below(self, index: int) -> CommonBase:
        if index not in self._lower:
            found: set[Oid] = set()
            for earlier in self._bases[:index]:
                found.update(merge_bases(self._objects, earlier, self._bases[index]))
            best = in_change_order(self._objects, _best(self._objects, found))
            self._lower[index] = CommonBase(self._objects, best, self._combine)
        return self._lower[index]


Steps = Generator[CommonBase, T, T]
"""The folding of several bases: yields the base below whose answer it needs, and returns its own."""


def _answer(
    base: CommonBase,
    name: str,
    steps: Callable[[CommonBase, str], Steps[T]],
    known: Callable[[CommonBase], dict[str, T]],
) -> T:
    """Ask a base for something, and those below for what that needs, each once.

    On a stack of its own: branches that met a thousand times are a thousand bases deep.
    """
    answer = known(base).get(name)
    if answer is not None:
        return answer
    waiting = [(base, steps(base, name))]
    while True:
        asking, running = waiting[-1]
        try:
            below = running.send(answer) if answer is not None else next(running)
        except StopIteration as done:
            made: T = done.value
            answer = known(asking)[name] = made
            waiting.pop()
            if not waiting:
                return made
            continue
        answer = known(below).get(name)
        if answer is None:
            waiting.append((below, steps(below, name)))


def _best(objects: Objects, commits: Iterable[Oid]) -> list[Oid]:
    """Leave out the commits that are ancestors of others."""
    found = list(commits)
    return [
        oid for oid in found if not any(other != oid and is_ancestor(objects, oid, other) for other in found)
    ]
