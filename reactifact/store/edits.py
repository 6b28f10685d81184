"""The changes of a state as edits of its subtrees.

Owns which files a changed artifact, relation or intent means. `state` gathers the changes, `trees`
applies the edits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .database import Staging, blob_entry
from .layout import Waiting, artifact_path, encode_edges, file_path, versions_path, waiting_path
from .objects import TREE_MODE, TreeEntry
from .trees import Edits, Path, lookup, subtree

if TYPE_CHECKING:
    from .state import State


def of_artifacts(state: State, forgotten: set[str]) -> tuple[Edits, Edits, Edits]:
    """Return the edits of `artifacts/`, `meta/` and `versions/`."""
    artifacts: dict[Path, TreeEntry | None] = {}
    meta: dict[Path, TreeEntry | None] = {}
    versions: dict[Path, TreeEntry | None] = {}
    for artifact_id, stored in state.changed.items():
        entry = lookup(state.objects, state.roots.meta, file_path(artifact_id))
        old = None if entry is None else state.stored_at(entry.oid).meta
        if old is not None and (stored is None or old.type_id != stored.meta.type_id):
            artifacts[artifact_path(old.type_id, artifact_id)] = None
        if stored is not None:
            path = artifact_path(stored.meta.type_id, artifact_id)
            artifacts[path] = blob_entry(stored.meta.payload)
        meta[file_path(artifact_id)] = None if stored is None else blob_entry(stored.oid)
    for artifact_id in forgotten:
        if subtree(state.objects, state.roots.versions, versions_path(artifact_id)):
            versions[versions_path(artifact_id)] = None
    for artifact_id, folder in state.taken.items():
        versions[versions_path(artifact_id)] = None if folder is None else TreeEntry(TREE_MODE, folder)
    for (artifact_id, version), kept in state.kept.items():
        tree = {
            "meta.json": blob_entry(kept.oid),
            "payload.json": blob_entry(kept.meta.payload),
        }
        path = (*versions_path(artifact_id), str(version))
        versions[path] = TreeEntry(TREE_MODE, state.objects.put_tree(tree))
    return artifacts, meta, versions


def of_relations(state: State) -> Edits:
    """Return the edits of `relations/`."""
    found: dict[Path, TreeEntry | None] = {}
    for source, edges in state.edges.items():
        blob = state.objects.put("blob", encode_edges(source, edges)) if edges else None
        found[file_path(source)] = None if blob is None else blob_entry(blob)
    return found


def of_intents(state: State) -> Edits:
    """Return the edits of `outbox/`."""
    found: dict[Path, TreeEntry | None] = {}
    for action_id, intent in state.intents.items():
        blob = None if intent is None else state.objects.put("blob", intent.encode())
        found[file_path(action_id)] = None if blob is None else blob_entry(blob)
    return found


def of_waiting(objects: Staging, waiting: Iterable[Waiting]) -> dict[Path, TreeEntry | None]:
    """Return the edits of `queue/` that put events there."""
    found: dict[Path, TreeEntry | None] = {}
    for one in waiting:
        data = one.encode()
        found[waiting_path(one, data)] = blob_entry(objects.put("blob", data))
    return found
