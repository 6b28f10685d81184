"""Versions of artifacts that are kept although their commits are squashed, and where that ends.

Owns `.reactifact/versions/<x>/<y>/<z>/<id>/`: a folder `<n>/{meta,payload}.json` for each version that no
commit of the remaining history holds, and `trimmed.json`, which says the first version whose history
is kept. A text inside a JSON file keeps no object alive, a tree entry does: `git gc` and shallow clones
never lose what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import canonical
from .layout import Meta, Roots, versions_path
from .object_db import Objects, Staging, blob_entry
from .objects import TREE_MODE, Oid, TreeEntry
from .trees import Path, compare, lookup, subtree, update, walk

TRIMMED_FILE = "trimmed.json"

Entries = Mapping[str, TreeEntry]


def oldest_kept(objects: Objects, versions: Oid | None, artifact_id: str) -> int:
    """Return the first version of an artifact that a trimming has left; 0 where none was trimmed."""
    return oldest_kept_in(objects, subtree(objects, versions, versions_path(artifact_id)))


def oldest_kept_in(objects: Objects, folder: Oid | None) -> int:
    """Return the same for the folder of one artifact."""
    found = lookup(objects, folder, (TRIMMED_FILE,))
    if found is None:
        return 0
    record: Any = canonical.decode(objects.read(found.oid).data)
    return int(record["oldest"])


def folder_of(objects: Staging, metas: Mapping[int, tuple[Oid, Meta]], oldest: int = 0) -> Oid | None:
    """Stage the folder of an artifact's kept versions; `None` when there is nothing to say."""
    entries = {
        str(version): TreeEntry(
            TREE_MODE,
            objects.put_tree({"meta.json": blob_entry(oid), "payload.json": blob_entry(meta.payload)}),
        )
        for version, (oid, meta) in metas.items()
    }
    if oldest:
        data = canonical.encode({"oldest": oldest})
        entries[TRIMMED_FILE] = blob_entry(objects.put("blob", data))
    return objects.put_tree(entries) if entries else None


def earlier_versions(
    objects: Objects, meta: Meta, oldest: int, stop: Oid | None = None
) -> dict[int, tuple[Oid, Meta]]:
    """Return the versions before one, down to `oldest`, and to the last that a commit made.

    That last one is needed to compare committed states. The walk ends before the meta blob `stop`.
    """
    found: dict[int, tuple[Oid, Meta]] = {}
    is_committed = meta.commit is not None
    while meta.previous is not None and meta.previous != stop:
        if meta.version <= oldest and is_committed:
            break
        oid = meta.previous
        meta = Meta.decode(objects.read(oid).data)
        found[meta.version] = (oid, meta)
        is_committed = is_committed or meta.commit is not None
    return found


class VersionKeeper:
    """Works out `versions/` for the commits of a rewritten history, each after its ancestors."""

    def __init__(self, objects: Staging, keep: int | None) -> None:
        self._objects = objects
        self._keep = keep
        self._old: dict[str, Roots] = {}
        self._new: dict[str, Oid | None] = {}
        self._whole: dict[tuple[Oid, int], Oid | None] = {}

    def know(self, change: str, roots: Roots, versions: Oid | None) -> None:
        """Begin above a commit: what it held, and the kept versions that stand beside it now."""
        self._old[change], self._new[change] = roots, versions

    def versions(
        self, change: str, roots: Roots, *, line: str | None, others: Sequence[str] | None
    ) -> Oid | None:
        """Return the subtree for one commit.

        `line` is its first parent, `None` where that is folded; `others` are its other parents,
        `None` where any of its parents is folded.
        """
        made = self._everything(roots) if line is None else self._changed(roots, line, others)
        self._old[change], self._new[change] = roots, made
        return made

    def _everything(self, roots: Roots) -> Oid | None:
        edits: dict[Path, TreeEntry | None] = {}
        for _, oid in walk(self._objects, roots.meta):
            meta = Meta.decode(self._objects.read(oid).data)
            floor = oldest_kept(self._objects, roots.versions, meta.id)
            key = (oid, floor)
            if key not in self._whole:
                self._whole[key] = self._folder(meta, floor, None, {})
            _put(edits, meta.id, self._whole[key])
        return update(self._objects, None, edits)

    def _changed(self, roots: Roots, line: str, others: Sequence[str] | None) -> Oid | None:
        before = self._old[line]
        edits: dict[Path, TreeEntry | None] = {}
        for _, left, right in compare(self._objects, before.meta, roots.meta):
            if right is None:
                assert left is not None
                gone = Meta.decode(self._objects.read(left).data).id
                if subtree(self._objects, self._new[line], versions_path(gone)):
                    edits[versions_path(gone)] = None
                continue
            meta = Meta.decode(self._objects.read(right).data)
            own = self._entries(roots.versions, meta.id)
            was = self._entries(before.versions, meta.id)
            # what this commit added is needed by the operations in its record
            added = {n: e for n, e in own.items() if was.get(n) != e and n != TRIMMED_FILE}
            allowed: set[str] | None = None
            if others is not None:
                allowed = set(own)
                for parent in (line, *others):
                    allowed |= set(self._entries(self._new[parent], meta.id))
            floor = oldest_kept(self._objects, roots.versions, meta.id)
            if left is not None and Meta.decode(self._objects.read(left).data).sequence == meta.sequence:
                # the same artifact still, not one that was made anew under its id
                floor = max(floor, oldest_kept(self._objects, self._new[line], meta.id))
            folder = self._folder(meta, floor, allowed, added)
            if folder is not None or subtree(self._objects, self._new[line], versions_path(meta.id)):
                _put(edits, meta.id, folder)
        return update(self._objects, self._new[line], edits)

    def _folder(self, meta: Meta, floor: int, allowed: set[str] | None, added: Entries) -> Oid | None:
        if self._keep is not None:
            floor = max(floor, meta.version - self._keep)
        found = earlier_versions(self._objects, meta, floor)
        wanted = {n: stored for n, stored in found.items() if allowed is None or str(n) in allowed}
        folder = folder_of(self._objects, wanted, floor)
        if not added:
            return folder
        edits: dict[Path, TreeEntry | None] = {(name,): entry for name, entry in added.items()}
        return update(self._objects, folder, edits)

    def _entries(self, versions: Oid | None, artifact_id: str) -> Entries:
        folder = subtree(self._objects, versions, versions_path(artifact_id))
        return {} if folder is None else self._objects.tree(folder)


def _put(edits: dict[Path, TreeEntry | None], artifact_id: str, folder: Oid | None) -> None:
    edits[versions_path(artifact_id)] = None if folder is None else TreeEntry(TREE_MODE, folder)
