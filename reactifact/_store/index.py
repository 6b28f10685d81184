"""Indexes over subtrees that no file of the layout holds, built when first asked for.

Owns the order of a type's artifacts and the incoming side of relations. An index belongs to one
subtree id, and the index of a changed subtree is made from its predecessor by comparing the two,
so keeping it up to date costs what changed.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import MissingObject, StoreError
from .layout import Meta, Roots, decode_edges
from .names import decode_name, encode_name
from .object_db import Objects
from .objects import Oid
from .trees import Path, compare, files_below, find_files, lookup, read_differences, walk

Key = tuple[int, str]
"""(sequence, artifact id): the order of creation."""


@dataclass(slots=True)
class _Order:
    meta: Oid | None  # the subtree of bookkeeping that the order belongs to
    keys: list[Key]
    place: dict[str, int]  # id -> sequence


_LOOKED_UP = 4_096  # how many are kept


class _LookedUp(NamedTuple):
    """Where the bookkeeping of the artifacts of a type stands, which is asked for next."""

    meta: Oid | None
    metas: dict[str, Oid]


@dataclass(slots=True)
class _Incoming:
    tree: Oid | None = None
    sources: dict[str, frozenset[str]] = field(default_factory=dict)  # source -> targets
    targets: dict[str, set[str]] = field(default_factory=dict)  # target -> sources


@dataclass(slots=True)
class _Readers:
    """Who read what: the reverse of the reads that each artifact's last commit recorded."""

    tree: Oid | None = None
    reads: dict[str, Meta] = field(default_factory=dict)  # dependent -> its bookkeeping
    by_id: dict[str, set[str]] = field(default_factory=dict)  # artifact -> dependents
    by_type: dict[str, set[str]] = field(default_factory=dict)  # listed type -> dependents

    def note(self, meta: Meta) -> None:
        """Add what one artifact's last commit read."""
        if not meta.reads and not meta.listings:
            return
        self.reads[meta.id] = meta
        for read in meta.reads:
            self.by_id.setdefault(read.artifact_id, set()).add(meta.id)
        for listing in meta.listings:
            self.by_type.setdefault(listing.type_id, set()).add(meta.id)

    def forget(self, artifact_id: str) -> None:
        """Remove what one artifact's last commit read."""
        meta = self.reads.pop(artifact_id, None)
        if meta is None:
            return
        for read in meta.reads:
            _discard(self.by_id, read.artifact_id, artifact_id)
        for listing in meta.listings:
            _discard(self.by_type, listing.type_id, artifact_id)


class Indexes:
    """The indexes of one line of history, each at the subtree it was last asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: dict[str, _Order] = {}
        self._incoming = _Incoming()
        self._readers = _Readers()
        self._looked_up = _LookedUp(None, {})

    def copy(self) -> Indexes:
        """Return indexes of their own for a fork, which goes on from the same subtrees."""
        twin = Indexes()
        with self._lock:
            twin._orders = dict(self._orders)
            relations, readers = self._incoming, self._readers
            twin._incoming = _Incoming(relations.tree, dict(relations.sources), _copied(relations.targets))
            twin._readers = _Readers(
                readers.tree, dict(readers.reads), _copied(readers.by_id), _copied(readers.by_type)
            )
        return twin

    def readers(self, objects: Objects, roots: Roots, artifact_id: str, type_id: str) -> list[Meta]:
        """Return the artifacts whose last commit read an artifact or listed its type."""
        with self._lock:
            index = self._reads(objects, roots)
            found = index.by_id.get(artifact_id, set()) | index.by_type.get(type_id, set())
            return [index.reads[dependent] for dependent in sorted(found)]

    def all_readers(self, objects: Objects, roots: Roots) -> list[Meta]:
        """Return every artifact whose last commit read something."""
        with self._lock:
            return list(self._reads(objects, roots).reads.values())

    def follow(self, before: Oid | None, after: Oid | None, changed: Mapping[str, Meta | None]) -> None:
        """Bring who read what from one subtree of bookkeeping to the next, given what differs there."""
        with self._lock:
            index = self._readers
            if index.tree is None or index.tree != before:
                return
            for artifact_id, meta in changed.items():
                index.forget(artifact_id)
                if meta is not None:
                    index.note(meta)
            index.tree = after

    def _reads(self, objects: Objects, roots: Roots) -> _Readers:
        try:
            return self._moved_reads(objects, roots)
        except MissingObject:  # the state it belonged to was dropped or compacted away
            self._readers = _Readers()
            return self._moved_reads(objects, roots)

    def _moved_reads(self, objects: Objects, roots: Roots) -> _Readers:
        index = self._readers
        if index.tree is not None and index.tree == roots.meta:
            return index
        if index.tree is None:
            read_differences(objects, (None, roots.meta), files=True)
        for _, old, new in compare(objects, index.tree, roots.meta):
            if old is not None:
                index.forget(Meta.decode(objects.read(old).data).id)
            if new is not None:
                index.note(Meta.decode(objects.read(new).data))
        index.tree = roots.meta
        return index

    def type_ids(self, objects: Objects, roots: Roots) -> list[str]:
        """Return the ids of all types that have artifacts."""
        if roots.artifacts is None:
            return []
        found = []
        for name, entry in objects.tree(roots.artifacts).items():
            whole = decode_name(name)
            found.append(whole if whole is not None else self._cut_type(objects, roots, entry.oid))
        return found

    def _cut_type(self, objects: Objects, roots: Roots, tree: Oid) -> str:
        path, _ = next(walk(objects, tree))
        return meta_at(objects, roots, path).type_id

    def order(self, objects: Objects, roots: Roots, type_id: str) -> list[Key]:
        """Return the keys of all artifacts of one type, in order. Do not change the list."""
        entry = lookup(objects, roots.artifacts, (encode_name(type_id),))
        if entry is None:
            return []
        with self._lock:
            known = self._orders.get(type_id)
            if known is None:
                known, self._looked_up = _built(objects, roots, entry.oid)
            elif known.meta != roots.meta:
                try:
                    known = _moved(objects, known, roots.meta, type_id)
                except MissingObject:  # the state it belonged to was dropped or compacted away
                    known, self._looked_up = _built(objects, roots, entry.oid)
            self._orders[type_id] = known
            return known.keys

    def looked_up(self, roots: Roots) -> Mapping[str, Oid]:
        """Return where bookkeeping of this state stands, by artifact: of those listed last, or of none."""
        found = self._looked_up
        return found.metas if found.meta == roots.meta else {}

    def sources(self, objects: Objects, roots: Roots) -> list[str]:
        """Return every id with outgoing relations."""
        with self._lock:
            return list(self._relations(objects, roots).sources)

    def incoming(self, objects: Objects, roots: Roots, target: str) -> list[str]:
        """Return every id with a relation to `target`."""
        with self._lock:
            return list(self._relations(objects, roots).targets.get(target, ()))

    def _relations(self, objects: Objects, roots: Roots) -> _Incoming:
        try:
            return self._moved_relations(objects, roots)
        except MissingObject:  # as above
            self._incoming = _Incoming()
            return self._moved_relations(objects, roots)

    def _moved_relations(self, objects: Objects, roots: Roots) -> _Incoming:
        index = self._incoming
        if index.tree is None:
            read_differences(objects, (None, roots.relations), files=True)
        for _, old, new in compare(objects, index.tree, roots.relations):
            if old is not None:
                source, _ = decode_edges(objects.read(old).data)
                for target in index.sources.pop(source, ()):
                    _discard(index.targets, target, source)
            if new is not None:
                source, edges = decode_edges(objects.read(new).data)
                index.sources[source] = frozenset(edge.target for edge in edges)
                for edge in edges:
                    index.targets.setdefault(edge.target, set()).add(source)
        index.tree = roots.relations
        return index


def _discard(sets: dict[str, set[str]], key: str, member: str) -> None:
    """Take a member out of the set under a key, which goes with its last one."""
    found = sets.get(key)
    if found is not None:
        found.discard(member)
        if not found:
            del sets[key]


def _copied(sets: dict[str, set[str]]) -> dict[str, set[str]]:
    return {key: set(found) for key, found in sets.items()}


def meta_at(objects: Objects, roots: Roots, path: Path) -> Meta:
    """Return the bookkeeping of the artifact at a path. Raises `StoreError` where there is none."""
    entry = lookup(objects, roots.meta, path)
    if entry is None:
        raise StoreError(
            f"{'/'.join(path)!r} has a payload and no bookkeeping: it was put there by hand, or the "
            f"bookkeeping is lost; see `reactifact replay STORE --verify-all`, and move the branch back to "
            f"a commit before it"
        )
    return Meta.decode(objects.read(entry.oid).data)


def _built(objects: Objects, roots: Roots, tree: Oid) -> tuple[_Order, _LookedUp]:
    paths = files_below(objects, tree)
    found = find_files(objects, roots.meta, paths)
    objects.prefetch(found.values())
    keys = []
    metas = {}
    for path in paths:
        oid = found.get(path)
        meta = meta_at(objects, roots, path) if oid is None else Meta.decode(objects.read(oid).data)
        keys.append((meta.sequence, meta.id))
        if oid is not None:
            metas[meta.id] = oid
    keys.sort()
    order = _Order(roots.meta, keys, {artifact_id: sequence for sequence, artifact_id in keys})
    return order, _LookedUp(roots.meta, metas if len(metas) <= _LOOKED_UP else {})


def _moved(objects: Objects, known: _Order, meta: Oid | None, type_id: str) -> _Order:
    """Return the order at another state, made from a known one by what differs between them."""
    gone: set[str] = set()
    came: dict[str, int] = {}
    for _, old, new in compare(objects, known.meta, meta):
        before = None if old is None else Meta.decode(objects.read(old).data)
        after = None if new is None else Meta.decode(objects.read(new).data)
        if before is not None and before.type_id == type_id:
            gone.add(before.id)
        if after is not None and after.type_id == type_id:
            came[after.id] = after.sequence
    stale = {i for i in gone if came.get(i) != known.place.get(i)}
    fresh = {i: s for i, s in came.items() if known.place.get(i) != s}
    if not stale and not fresh:
        return _Order(meta, known.keys, known.place)
    place = {**{i: s for i, s in known.place.items() if i not in stale}, **fresh}
    if stale:
        return _Order(meta, sorted((s, i) for i, s in place.items()), place)
    keys = list(known.keys)
    for artifact_id, sequence in fresh.items():
        bisect.insort(keys, (sequence, artifact_id))
    return _Order(meta, keys, place)
