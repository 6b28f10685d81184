"""Commits linked anew onto others after a compaction, and a branch set back to an earlier state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from ...errors import MissingObject, StaleSession
from ..branch import Branch
from ..commits import CommitRecord, down_from, own_record, read_roots, require_record, state_hash
from ..graph import ChangeGraph, compactions_of, first_parents, joined_compactions
from ..layout import (
    BOOKKEEPING,
    Edge,
    Meta,
    Roots,
    artifact_path,
    decode_edges,
    encode_edges,
    file_path,
    versions_path,
)
from ..migrations import RECORD_FILE, current_tree
from ..names import branch_ref, is_ledger_ref
from ..object_db import Objects, Staging, blob_entry
from ..objects import TREE_MODE, Oid, TreeEntry
from ..trees import Path, compare, lookup, subtree, update
from ..versions import VersionKeeper, earlier_versions, folder_of, oldest_kept

# -- going on after somebody else compacted --


def follow(line: Branch) -> bool:
    """Go on from what the ref holds, where that is our own: a commit rewritten, or a write that got through.

    A write may have moved the ref and failed afterwards. Returns false, with nothing changed, where it is
    neither: then somebody else has written.
    """
    if line.ref is None:
        return False
    held = line.database.backend.refs(line.ref).get(line.ref)
    if held is None or held == line.published:
        return False
    if _is_staged(line, held):
        line.published, line.is_unsure = held, True
        return True
    if line.published is None:
        return False
    try:
        ours, theirs = own_record(line.objects, line.published), own_record(line.database, held)
        if ours is None or theirs is None or ours.change != theirs.change:
            return False
        return _relink(line, line.published, held)
    except MissingObject:
        return False  # what our commits stand on was collected meanwhile


def _is_staged(line: Branch, commit: Oid) -> bool:
    """Tell whether a commit is one of those that the line has made and not heard of as written."""
    staged = line.objects.objects
    return commit in takewhile(staged.__contains__, down_from(line.objects, line.tip))


def require_current(line: Branch) -> None:
    """Raise `StaleSession` when somebody else wrote the branch; go on as `follow` does where nobody did."""
    try:
        line.require_current()
    except StaleSession:
        if not follow(line):
            raise


def settle_fork(line: Branch) -> bool:
    """Make sure that the store will hold what a fork stands on, though it was compacted meanwhile.

    The fork is linked onto its fork point where that was kept; else the old history is written
    with it. Returns whether there was anything to do. Raises `StaleSession` when it was collected already.
    """
    try:
        return _settle_fork(line)
    except MissingObject as error:
        raise StaleSession(
            f"the history that fork {line.branch!r} of session {line.session!r} stands on was compacted and "
            f"removed by `git gc` or a prune before the fork was saved: fork the branch again ({error})"
        ) from error


def _settle_fork(line: Branch) -> bool:
    tip = line.seal()
    if tip is None:
        return False
    prefix = branch_ref(line.session, "x").rpartition("/")[0] + "/"
    heads = [oid for name, oid in line.database.backend.refs(prefix).items() if not is_ledger_ref(name)]
    own = compactions_of(line.objects, tip)
    if all(compactions_of(line.database, head) == own for head in heads):
        return False
    base: Oid | None = tip
    while base is not None and base in line.objects.objects:
        parents = line.objects.commit(base).parents
        base = parents[0] if parents else None
    if base is None:
        return False
    graph = ChangeGraph(line.database, heads, is_complete=False)
    record = own_record(line.objects, base)
    kept = None if record is None else graph.changes.get(record.change)
    if kept is not None and kept.commit != base:
        if base == tip:
            line.stand_on(kept.commit, line.published)
        else:
            _relink(line, base, kept.commit)
    elif kept is None:
        _stage_all(line, base)
    else:
        return False
    return True


def _relink(line: Branch, old: Oid, new: Oid) -> bool:
    """Make the commits above `old` anew above `new`, which is the same change."""
    objects = line.objects
    above: list[Oid] = []
    oid = line.seal()
    while oid is not None and oid != old:
        above.append(oid)
        parents = objects.commit(oid).parents
        oid = parents[0] if parents else None
    if oid is None:
        return False
    keeper = VersionKeeper(objects, None)
    keeper.know(old, read_roots(objects, old), read_roots(objects, new).versions)
    line_below, parent = old, new
    record = require_record(objects, new, "a commit that was compacted")
    for commit in reversed(above):
        roots = read_roots(objects, commit)
        versions = keeper.versions(commit, roots, line=line_below, others=None)
        record = _above(require_record(objects, commit, "a commit of ours"), record)
        edits: dict[Path, TreeEntry | None] = {
            (BOOKKEEPING, "versions"): None if versions is None else TreeEntry(TREE_MODE, versions),
            (BOOKKEEPING, RECORD_FILE): None,  # of format 1
        }
        found = objects.commit(commit)
        tree = update(objects, current_tree(objects, commit), edits)
        assert tree is not None
        line_below = commit
        parents = (parent, *found.parents[1:])
        header = record.header(tree, parents, state_hash(roots))
        parent = objects.put_commit(replace(found, tree=tree, parents=parents, record=header))
    line.tip, line.record = parent, record
    line.state.roots = line.state.roots._replace(versions=read_roots(objects, parent).versions)
    if line.published == old:
        line.published = new
    return True


def _above(record: CommitRecord, below: CommitRecord) -> CommitRecord:
    return replace(
        record,
        baseline=below.baseline,
        compactions=joined_compactions([below.compactions, record.compactions])
        if record.kind == "merge"
        else below.compactions,
    )


def _stage_all(line: Branch, start: Oid) -> None:
    """Stage all that a commit reaches, so that the next write holds it."""
    seen: set[Oid] = set()
    waiting = [start]
    while waiting:
        oid = waiting.pop()
        if oid in seen:
            continue
        seen.add(oid)
        found = line.objects.read(oid)
        line.objects.put(found.kind, found.data)
        if found.kind == "commit":
            commit = line.objects.commit(oid)
            waiting += [commit.tree, *commit.parents]
        elif found.kind == "tree":
            waiting += [entry.oid for entry in line.objects.tree(oid).values()]


# -- going back to a version: what the state is when later versions are dropped --


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
        thread=stand.thread,
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
