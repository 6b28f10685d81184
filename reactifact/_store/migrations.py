"""States and documents of an older format in today's shape.

Owns the tables of steps, one from each format to the next, and the reading of `format_version`. A step
is added when the format changes, in the same commit as a store written by the release before it
(`tests/fixtures/stores`). Stored history is never rewritten: a step runs when a commit is read, its
result is kept beside the store's objects, and the next commit of the branch is written in today's format.

The records of a ledger carry no format: they are of version 1 until one is written beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import FormatTooNew, StoreError
from . import canonical
from .canonical import refusing_damage
from .layout import BOOKKEEPING, FORMAT_VERSION, Meta, Waiting, versions_path
from .object_db import Objects, Staging, blob_entry
from .objects import TREE_MODE, Oid, TreeEntry, object_id
from .state import of_waiting
from .trees import Path, lookup, subtree, update, walk
from .versions import earlier_versions, folder_of, oldest_kept

FORMAT_FILE = "format.json"
RECORD_FILE = "commit.json"


class TreeStep(NamedTuple):
    """What turns the tree of a commit into that of the next format. Pure: equal trees, equal results.

    `record` turns the data of its `commit.json`, which the history of a branch reads for each commit;
    `tree` returns the tree with everything else turned, what it makes staged. A blob it makes anew
    that others name (the earlier versions of an artifact, by `previous`) has to be named anew there.
    """

    record: Callable[[dict[str, Any]], dict[str, Any]]
    tree: Callable[[Staging, Oid], Oid]


DocumentStep = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns a document of one format in the next."""


def _without_queue(record: dict[str, Any]) -> dict[str, Any]:
    """Format 1 kept the queue in the record, and did not say whether an agent was ever registered."""
    queue = record.get("queue", ())
    return {**{k: v for k, v in record.items() if k != "queue"}, "next_event": len(queue), "is_watched": True}


def _with_queue(staging: Staging, tree: Oid) -> Oid:
    """Give each event of the queue, which stood in `commit.json`, a file of its own."""
    entry = lookup(staging, tree, (BOOKKEEPING, RECORD_FILE))
    queue = [] if entry is None else _decoded(staging.read(entry.oid).data).get("queue", [])
    waiting = [Waiting(one["event"], one.get("owed"), order) for order, one in enumerate(queue)]
    found = {(BOOKKEEPING, "queue", *path): to for path, to in of_waiting(staging, waiting).items()}
    made = update(staging, tree, found)
    assert made is not None
    return made


TREE_STEPS: dict[int, TreeStep] = {1: TreeStep(_without_queue, _with_queue)}
"""What leads from a format of commits' trees to the one after it."""

DOCUMENT_STEPS: dict[int, DocumentStep] = {}
"""What leads from a format of `to_dict` documents to the one after it."""


def format_file(version: int = FORMAT_VERSION) -> bytes:
    """Return the bytes of the file that names the format of a commit's tree."""
    return canonical.encode({"format_version": version})


_TODAYS = object_id("blob", format_file())


def is_current(objects: Objects, tree: Oid) -> bool:
    """Tell whether a tree is in today's format. Raises `FormatTooNew`."""
    return _format_of(objects, tree, f"the state of tree {tree[:12]}") == FORMAT_VERSION


def current_record(objects: Objects, tree: Oid, data: bytes) -> bytes:
    """Return the bytes of a `commit.json`, which stands in `tree`, in today's format.

    Raises `FormatTooNew`, and `StoreError` where no step leads on.
    """
    version = _format_of(objects, tree, f"the state of tree {tree[:12]}")
    if version == FORMAT_VERSION:
        return data
    return canonical.encode(_record(data, range(version, FORMAT_VERSION)))


def current_tree(objects: Objects, commit: Oid, what: str = "") -> Oid:
    """Return the tree of a commit in today's format: its own one, or what the steps make of it.

    Raises `FormatTooNew`, and `StoreError` where no step leads on, each naming `what` it is about, by default
    the commit.
    """
    tree = objects.commit(commit).tree
    version = _format_of(objects, tree, what or f"the state of commit {commit[:12]}")
    if version == FORMAT_VERSION:
        return tree
    return objects.derived(tree, lambda staging: _brought_up(staging, tree, version))


def _brought_up(staging: Staging, tree: Oid, version: int) -> Oid:
    made = tree
    for step in range(version, FORMAT_VERSION):
        made = TREE_STEPS[step].tree(staging, made)
    edits: dict[Path, TreeEntry | None] = {
        (BOOKKEEPING, FORMAT_FILE): blob_entry(staging.put("blob", format_file()))
    }
    edits[BOOKKEEPING, RECORD_FILE] = None  # `current_record` reads it where it stands
    meta = subtree(staging, made, (BOOKKEEPING, "meta"))
    if meta is not None and meta != subtree(staging, tree, (BOOKKEEPING, "meta")):
        versions = _all_versions(staging, meta, subtree(staging, made, (BOOKKEEPING, "versions")))
        edits[BOOKKEEPING, "versions"] = None if versions is None else TreeEntry(TREE_MODE, versions)
    result = update(staging, made, edits)
    assert result is not None
    return result


def _all_versions(staging: Staging, metas: Oid, versions: Oid | None) -> Oid | None:
    """Return `versions/` with every version, the live ones too: no stored commit has them in this shape."""
    edits: dict[Path, TreeEntry | None] = {}
    for _, oid in walk(staging, metas):
        meta = Meta.decode(staging.read(oid).data)
        floor = oldest_kept(staging, versions, meta.id)
        kept = {meta.version: (oid, meta), **earlier_versions(staging, meta, floor)}
        folder = folder_of(staging, kept, floor)
        known = subtree(staging, versions, versions_path(meta.id))
        if folder is not None and known is not None:  # of an artifact that had the id before
            folder = update(staging, known, {(n,): entry for n, entry in staging.tree(folder).items()})
        assert folder is not None
        edits[versions_path(meta.id)] = TreeEntry(TREE_MODE, folder)
    return update(staging, versions, edits)


def _record(data: bytes, steps: range) -> dict[str, Any]:
    record: Any = _decoded(data)
    for step in steps:
        record = TREE_STEPS[step].record(record)
    made: dict[str, Any] = record
    return made


@refusing_damage("the commit.json of a commit")
def _decoded(data: bytes) -> dict[str, Any]:
    record: Any = canonical.decode(data)
    return dict(record.items())


def _format_of(objects: Objects, tree: Oid, what: str) -> int:
    """Return the format of a tree, from which steps lead on to today's."""
    entry = lookup(objects, tree, (BOOKKEEPING, FORMAT_FILE))
    if entry is None or entry.oid == _TODAYS:
        return FORMAT_VERSION
    version = _version(objects.read(entry.oid).data, what)
    _require_steps(TREE_STEPS, version, FORMAT_VERSION, what)
    return version


def current_document(document: Mapping[str, Any], version: int, wanted: int, where: str) -> dict[str, Any]:
    """Return a document of format `version` in format `wanted`.

    Raises `FormatTooNew`, and `StoreError` where no step leads on.
    """
    if version > wanted:
        raise FormatTooNew(
            f"{where} has format {version}, and this reactifact knows it up to {wanted}: a newer one wrote "
            f"it; upgrade reactifact"
        )
    _require_steps(DOCUMENT_STEPS, version, wanted, where)
    found = dict(document)
    for step in range(version, wanted):
        found = {**DOCUMENT_STEPS[step](found), "format_version": step + 1}
    return found


def _version(data: bytes, what: str) -> int:
    try:
        record: Any = canonical.decode(data)
        version = record["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{BOOKKEEPING}/{FORMAT_FILE} of {what} names no format_version: it was changed by hand or is "
            f"damaged; restore it from an earlier commit"
        ) from error
    if type(version) is not int or version > FORMAT_VERSION:
        raise FormatTooNew(
            f"{what} is in format_version {version!r}, and this reactifact reads up to "
            f"{FORMAT_VERSION}: install a newer reactifact to open it; nothing was changed"
        )
    return version


def _require_steps(steps: Mapping[int, object], version: int, wanted: int, what: str) -> None:
    missing = next((step for step in range(version, wanted) if step not in steps), None)
    if missing is not None:
        raise StoreError(
            f"{what} is in format_version {version}, and this reactifact has no step from {missing} to "
            f"{missing + 1}: open and save it with a release that still reads {version} (see CHANGELOG.md), "
            f"then with this one; nothing was changed"
        )
