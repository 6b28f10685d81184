"""Going back to a version: what the state is when later versions are dropped.

Owns the rule. What a dropped commit wrote returns to what it was before the first of them wrote it;
what none of them wrote stays, direct changes made later included. It is decided on trees: the same for
artifacts, relations and intents, whatever kind of commit wrote them. Moving the line is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .database import Objects, Staging, blob_entry
from .history import first_parents
from .kept_versions import earlier_versions, folder_of, oldest_kept
from .layout import Edge, Meta, Roots, artifact_path, decode_edges, encode_edges, file_path, versions_path
from .objects import TREE_MODE, Oid, TreeEntry
from .records import read_roots
from .trees import Path, compare, lookup, subtree, update

Pair = tuple[str, str]
"""(relation, target) of one source."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Where a line stands after going back."""

    commit: Oid  # the newest commit that is not dropped
    roots: Roots  # the state, with the later direct changes that stay
    next_sequence: int
    operations: list[dict[str, Any]]  # the direct changes that stay, as a commit's record names them


@dataclass(slots=True)
class _Dropped:
    """What the dropped commits touched, and what it was before."""

    sources: dict[Path, Roots]  # file of an artifact -> the state before the first that wrote it
    edges: dict[str, dict[Pair, Edge | None]]  # source -> relation -> what it was


def reset_to(objects: Staging, tip: Oid, version: int, run_id: str = "") -> Reset:
    """Work out the state when every versioned commit above `version` is dropped.

    With `run_id` the direct changes that executions of that run made are dropped too.
    """
    commit, gone, next_sequence = _dropped_commits(objects, tip, version, run_id)
    dropped = _Dropped({}, {})
    for oid in gone:
        _note(objects, oid, dropped)
    stand, now = read_roots(objects, commit), read_roots(objects, tip)
    operations: list[dict[str, Any]] = []
    roots = _returned(objects, stand, now, dropped, operations)
    return Reset(commit, roots, next_sequence, operations)


def _dropped_commits(objects: Objects, tip: Oid, version: int, run_id: str) -> tuple[Oid, list[Oid], int]:
    """Return the newest commit before all dropped ones, those, the oldest first, and the next sequence."""
    stand, gone = tip, list[Oid]()
    next_sequence = 0
    is_next = False
    for oid, record in first_parents(objects, tip):
        if is_next:
            stand, is_next = oid, False
        if record is None:
            continue
        next_sequence = max(next_sequence, record.next_sequence)
        is_versioned = record.context_version is not None
        if record.version < version or (record.version == version and is_versioned):
            break
        if is_versioned or (run_id and record.run_id == run_id):
            gone.append(oid)
            is_next = True
    return stand, gone[::-1], next_sequence


def _note(objects: Objects, oid: Oid, dropped: _Dropped) -> None:
    """Note what one dropped commit touched."""
    parents = objects.commit(oid).parents
    before = read_roots(objects, parents[0]) if parents else Roots()
    after = read_roots(objects, oid)
    for path, _, _ in compare(objects, before.meta, after.meta):
        dropped.sources.setdefault(path, before)
    for _, left, right in compare(objects, before.relations, after.relations):
        source, old = _edges(objects, left)
        other, new = _edges(objects, right)
        was = dropped.edges.setdefault(source or other, {})
        for pair in old.keys() | new.keys():
            if old.get(pair) != new.get(pair):
                was.setdefault(pair, old.get(pair))


def _edges(objects: Objects, oid: Oid | None) -> tuple[str, dict[Pair, Edge]]:
    if oid is None:
        return "", {}
    source, edges = decode_edges(objects.read(oid).data)
    return source, {(edge.relation, edge.target): edge for edge in edges}


def _returned(
    objects: Staging, stand: Roots, now: Roots, dropped: _Dropped, operations: list[dict[str, Any]]
) -> Roots:
    meta: dict[Path, TreeEntry | None] = {}
    artifacts: dict[Path, TreeEntry | None] = {}
    versions: dict[Path, TreeEntry | None] = {}
    outbox: dict[Path, TreeEntry | None] = {}
    changed = {path for path, _, _ in compare(objects, stand.meta, now.meta)} | dropped.sources.keys()
    waited = {path for path, _, _ in compare(objects, stand.outbox, now.outbox)}
    for path in sorted(changed | waited):
        outbox[path] = lookup(objects, dropped.sources.get(path, now).outbox, path)
    for path in sorted(changed):
        source = dropped.sources.get(path, now)
        old, new = lookup(objects, stand.meta, path), lookup(objects, source.meta, path)
        if old == new:
            continue
        meta[path] = new
        was, becomes = _meta(objects, old), _meta(objects, new)
        if was is not None:
            artifacts[artifact_path(was.type_id, was.id)] = None
            versions[versions_path(was.id)] = None
        if becomes is not None:
            artifacts[artifact_path(becomes.type_id, becomes.id)] = blob_entry(becomes.payload)
            folder = _versions(objects, source, becomes, None if old is None else old.oid)
            if folder is not None or was is not None:
                versions[versions_path(becomes.id)] = folder
        operations.append(_operation(was, becomes))
    return Roots(
        artifacts=update(objects, stand.artifacts, artifacts),
        relations=_relations(objects, stand, now, dropped, operations),
        outbox=update(objects, stand.outbox, outbox),
        meta=update(objects, stand.meta, meta),
        versions=update(objects, stand.versions, versions),
    )


def _meta(objects: Objects, entry: TreeEntry | None) -> Meta | None:
    return None if entry is None else Meta.decode(objects.read(entry.oid).data)


def _versions(objects: Staging, source: Roots, meta: Meta, stand: Oid | None) -> TreeEntry | None:
    """Keep the versions between the one that stays and the one that the commit below holds."""
    oldest = oldest_kept(objects, source.versions, meta.id)
    folder = folder_of(objects, earlier_versions(objects, meta, oldest, stand), oldest)
    beside = subtree(objects, source.versions, versions_path(meta.id))
    if folder is not None and beside is not None:
        edits: dict[Path, TreeEntry | None] = {(n,): e for n, e in objects.tree(beside).items()}
        folder = update(objects, folder, edits)
    found = folder or beside
    return None if found is None else TreeEntry(TREE_MODE, found)


def _operation(was: Meta | None, becomes: Meta | None) -> dict[str, Any]:
    if becomes is None:
        assert was is not None
        return {"type": "delete", "artifact_id": was.id}
    return {
        "type": "create" if was is None else "update",
        "artifact_id": becomes.id,
        "data_type": becomes.type_id,
        "payload": becomes.payload,
        "revision": becomes.revision,
        "version": becomes.version,
    }


def _relations(
    objects: Staging, stand: Roots, now: Roots, dropped: _Dropped, operations: list[dict[str, Any]]
) -> Oid | None:
    sources = set(dropped.edges)
    for _, left, right in compare(objects, stand.relations, now.relations):
        sources.update(name for name in (_edges(objects, left)[0], _edges(objects, right)[0]) if name)
    edits: dict[Path, TreeEntry | None] = {}
    for source in sorted(sources):
        path = file_path(source)
        below = lookup(objects, stand.relations, path)
        here = lookup(objects, now.relations, path)
        _, old = _edges(objects, None if below is None else below.oid)
        _, edges = _edges(objects, None if here is None else here.oid)
        for pair, edge in dropped.edges.get(source, {}).items():
            edges.pop(pair, None)
            if edge is not None:
                edges[pair] = edge
        ordered = sorted(edges.values(), key=lambda edge: (edge.sequence, edge.relation, edge.target))
        data = encode_edges(source, ordered) if ordered else None
        edits[path] = None if data is None else blob_entry(objects.put("blob", data))
        for kind, pairs in (("link", edges.keys() - old.keys()), ("unlink", old.keys() - edges.keys())):
            operations += [
                {"type": kind, "artifact_id": source, "relation": relation, "target_id": target}
                for relation, target in sorted(pairs)
            ]
    return update(objects, stand.relations, edits)
