"""Where a checkpoint and its pending writes stand in the tree of a commit, and the way there and back.

Below `thread/` of a commit on a branch stand `checkpoint.json` and `channels/` of the graph's own
namespace, and the same below `subgraphs/<namespace>/` for subgraphs that are under way. Below
`thread/writes/` of the branch `pending-writes` stand the writes that tasks made after a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from ..._store import canonical
from ..._store.names import decode_name, encode_name, fan_out
from ..._store.object_db import Objects, Staging, Tree, blob_entry
from ..._store.objects import TREE_MODE, Oid, TreeEntry
from ..._store.trees import Edits, Path, lookup, subtree, update, walk
from ...errors import StoreError
from .values import JSON, LIST, NONE, Values, decode_json, encode_json, entry_of, is_plain, suffix_of

CHECKPOINT = "checkpoint.json"
CHANNELS = "channels"
SUBGRAPHS = "subgraphs"
INDEX = "index"
WRITES = "writes"


class Key(NamedTuple):
    """A checkpoint of a thread: its namespace, empty for the graph itself, and its id."""

    namespace: str
    checkpoint: str


class Part(NamedTuple):
    """What is stored of one checkpoint, its channels not read yet."""

    head: dict[str, Any]  # of `checkpoint.json`
    tree: Oid

    @property
    def checkpoint_id(self) -> str:
        """The id of the checkpoint."""
        return str(self.head["id"])

    @property
    def parent(self) -> str | None:
        """The id of the checkpoint before it in its namespace."""
        return cast(str | None, self.head.get("parent"))

    @property
    def versions(self) -> dict[str, Any]:
        """The version of each channel; none where they are not plain JSON."""
        return cast(dict[str, Any], self.head.get("checkpoint", {}).get("channel_versions", {}))

    def folder(self, objects: Objects) -> tuple[Oid | None, Tree]:
        """Return the tree of the channels' values and what it holds."""
        found = subtree(objects, self.tree, (CHANNELS,))
        return found, {} if found is None else objects.tree(found)


# -- checkpoints -----------------------------------------------------------------------------------


def part_path(namespace: str) -> Path:
    """Return where a namespace stands below `thread/`; an empty path for the graph itself."""
    return (SUBGRAPHS, encode_name(namespace)) if namespace else ()


def read_part(objects: Objects, thread: Oid | None, namespace: str) -> Part | None:
    """Return what a commit's `thread/` holds of a namespace, or `None`."""
    path = part_path(namespace)
    tree = subtree(objects, thread, path) if path else thread
    entry = lookup(objects, tree, (CHECKPOINT,))
    if tree is None or entry is None:
        return None
    return Part(decode_json(objects.read(entry.oid).data), tree)


def put_part(
    objects: Staging,
    values: Values,
    thread: Oid | None,
    namespace: str,
    before: Part | None,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    parent: str | None,
    new_versions: ChannelVersions,
) -> Oid:
    """Put a checkpoint into a `thread/` and return the new tree.

    Channels that have the version which they had in `before`, the checkpoint that it follows, keep
    their files unread. Subgraphs below the namespace are over with it, and leave the tree.
    """
    kinds, channels = _put_channels(objects, values, before, checkpoint, new_versions)
    edits: dict[Path, TreeEntry | None] = {}
    if channels is not None:
        edits[(CHANNELS,)] = TreeEntry(TREE_MODE, channels)
    state = {name: value for name, value in checkpoint.items() if name != "channel_values"}
    head: dict[str, Any] = {"id": checkpoint["id"], "parent": parent, "channels": kinds}
    for name, value in (("checkpoint", state), ("metadata", metadata)):
        if is_plain(value, tuples=True):
            head[name] = value
        else:
            kind, data = values.encode(value)
            head[f"{name}_kind"] = kind
            edits[(name + suffix_of(kind),)] = blob_entry(objects.put("blob", data))
    edits[(CHECKPOINT,)] = blob_entry(objects.put("blob", canonical.encode(head)))
    return _with_part(objects, thread, namespace, edits)


def _put_channels(
    objects: Staging,
    values: Values,
    before: Part | None,
    checkpoint: Checkpoint,
    new_versions: ChannelVersions,
) -> tuple[dict[str, str], Oid | None]:
    """Return the kind of each channel's value and the tree of the values."""
    old_kinds: dict[str, str] = {} if before is None else before.head["channels"]
    old_versions = {} if before is None else before.versions
    root, folder = (None, {}) if before is None else before.folder(objects)
    given, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    kinds: dict[str, str] = {}
    files: set[str] = set()
    edits: dict[Path, TreeEntry | None] = {}
    for name in {**versions, **given}:
        old_kind = old_kinds.get(name)
        old_file = None if old_kind is None or old_kind == NONE else _channel_file(name, old_kind)
        is_same = name not in new_versions and name in versions and old_versions.get(name) == versions[name]
        if is_same and old_kind is not None:
            kinds[name] = old_kind
            if old_file is not None:
                files.add(old_file)
        elif name in given:
            old = None if old_file is None else folder.get(old_file)
            was = None if old is None or old_kind is None else (old_kind, old.oid)
            kind, oid = values.put(objects, given[name], was)
            kinds[name] = kind
            if oid is not None:
                file = _channel_file(name, kind)
                files.add(file)
                edits[(file,)] = entry_of(kind, oid)
    edits.update({(file,): None for file in folder if file not in files})
    return kinds, update(objects, root, edits) if edits else root


def _with_part(objects: Staging, thread: Oid | None, namespace: str, edits: Edits) -> Oid:
    """Return a `thread/` in which the part of a namespace holds these files and no others."""
    path = part_path(namespace)
    if not path:
        part = update(objects, None, {**edits, (INDEX,): lookup(objects, thread, (INDEX,))})
        assert part is not None
        return part
    part = update(objects, None, edits)
    assert part is not None
    root: dict[Path, TreeEntry | None] = {path: TreeEntry(TREE_MODE, part)}
    below = f"{namespace}|"
    for name, known in named_subgraphs(objects, thread):
        if known.startswith(below):
            root[SUBGRAPHS, name] = None
    made = update(objects, thread, root)
    assert made is not None
    return made


def named_subgraphs(objects: Objects, thread: Oid | None) -> Iterator[tuple[str, str]]:
    """Yield the folder and the namespace of each subgraph that a `thread/` holds; one cut is its folder."""
    folder = subtree(objects, thread, (SUBGRAPHS,))
    for name in [] if folder is None else objects.tree(folder):
        yield name, decode_name(name) or name


def prefetch_parts(objects: Objects, commits: Sequence[Oid]) -> None:
    """Bring what `read_part` and `checkpoint_of` ask for of the graph's own checkpoints into the cache."""
    objects.prefetch(commits)
    trees = [objects.commit(oid).tree for oid in commits]
    for path in ((), ("thread",), ("thread", CHANNELS)):
        found = [subtree(objects, tree, path) if path else tree for tree in trees]
        objects.prefetch(oid for oid in found if oid is not None)
    channels = [subtree(objects, tree, ("thread", CHANNELS)) for tree in trees]
    blobs = [lookup(objects, tree, ("thread", CHECKPOINT)) for tree in trees]
    objects.prefetch(
        [entry.oid for entry in blobs if entry is not None]
        + [
            entry.oid
            for tree in channels
            if tree is not None
            for entry in objects.tree(tree).values()
            if entry.mode != TREE_MODE
        ]
    )


def checkpoint_of(objects: Objects, values: Values, part: Part) -> Checkpoint:
    """Return a checkpoint as LangGraph gave it."""
    found = {**_described(objects, values, part, "checkpoint")}
    kinds = part.head["channels"]
    _, folder = part.folder(objects)
    ids = {name: _channel_id(folder, part, name, kind) for name, kind in kinds.items()}
    objects.prefetch(
        oid for name, oid in ids.items() if oid is not None and kinds[name] != LIST and not values.knows(oid)
    )
    found["channel_values"] = {name: values.get(objects, kinds[name], oid) for name, oid in ids.items()}
    return cast(Checkpoint, found)


def metadata_of(objects: Objects, values: Values, part: Part) -> CheckpointMetadata:
    """Return the metadata of a checkpoint."""
    return cast(CheckpointMetadata, _described(objects, values, part, "metadata"))


def _described(objects: Objects, values: Values, part: Part, name: str) -> dict[str, Any]:
    kind = part.head.get(f"{name}_kind")
    if kind is None:
        return cast(dict[str, Any], part.head[name])
    entry = lookup(objects, part.tree, (name + suffix_of(kind),))
    assert entry is not None
    return cast(dict[str, Any], values.decode(kind, objects.read(entry.oid).data))


def _channel_id(folder: Tree, part: Part, name: str, kind: str) -> Oid | None:
    if kind == NONE:
        return None
    entry = folder.get(_channel_file(name, kind))
    if entry is None:
        raise _absent(part, name)
    return entry.oid


def _channel_file(name: str, kind: str) -> str:
    return encode_name(name, suffix=suffix_of(kind))


# -- pending writes --------------------------------------------------------------------------------


def writes_path(key: Key) -> Path:
    """Return where the writes after a checkpoint stand below `thread/`."""
    name = f"{key.namespace}|{key.checkpoint}" if key.namespace else key.checkpoint
    return (WRITES, *fan_out(name)[:2], encode_name(name))


def put_pending(
    objects: Staging,
    values: Values,
    thread: Oid | None,
    key: Key,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Oid | None:
    """Put what a task wrote into a `thread/` and return the new tree.

    What stands there under the same index stays, but for the channels of `WRITES_IDX_MAP`.
    """
    folder = writes_path(key)
    file = (*folder, encode_name(task_id, suffix=".json"))
    entry = lookup(objects, thread, file)
    known = [] if entry is None else decode_json(objects.read(entry.oid).data)["writes"]
    found: dict[int, dict[str, Any]] = {one["index"]: one for one in known}
    edits: dict[Path, TreeEntry | None] = {}
    for place, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, place)
        if index in found and index >= 0:
            continue
        kind, data = values.encode(value)
        one: dict[str, Any] = {"channel": channel, "index": index}
        if kind == JSON:
            one["value"] = value
        else:
            one["kind"] = kind
            edits[*folder, _value_name(task_id, index, kind)] = blob_entry(objects.put("blob", data))
        found[index] = one
    record = {"task": task_id, "path": task_path, "writes": [found[index] for index in sorted(found)]}
    edits[file] = blob_entry(objects.put("blob", encode_json(record)))
    return update(objects, thread, edits)


def read_pending(objects: Objects, values: Values, thread: Oid | None, key: Key) -> list[PendingWrite]:
    """Return the writes after a checkpoint, in the order in which LangGraph applies them."""
    folder = subtree(objects, thread, writes_path(key))
    if folder is None:
        return []
    objects.prefetch(oid for _, oid in walk(objects, folder))
    entries = objects.tree(folder)
    found: list[tuple[tuple[str, str, int], PendingWrite]] = []
    for name, entry in entries.items():
        if not name.endswith(".json"):
            continue
        record = decode_json(objects.read(entry.oid).data)
        for one in record["writes"]:
            task, index = record["task"], one["index"]
            if "kind" in one:
                blob = entries[_value_name(task, index, one["kind"])]
                value = values.decode(one["kind"], objects.read(blob.oid).data)
            else:
                value = one["value"]
            found.append((writes_sort_key(record["path"], task, index), (task, one["channel"], value)))
    return [write for _, write in sorted(found, key=lambda one: one[0])]


def _value_name(task_id: str, index: int, kind: str) -> str:
    return encode_name(f"{task_id}.{index}", suffix=suffix_of(kind))


# -- what people read ------------------------------------------------------------------------------


def described(before: Part | None, checkpoint: Checkpoint, metadata: Mapping[str, Any], name: str) -> str:
    """Return the sentence for a checkpoint: its step, its source, the nodes that ran, what they wrote."""
    seen = {} if before is None else before.head.get("checkpoint", {}).get("versions_seen", {})
    moved = [n for n, versions in checkpoint["versions_seen"].items() if seen.get(n) != versions]
    ran = sorted(node for node in moved if not node.startswith("__"))
    if not ran and "__start__" in moved:
        ran = ["the input"]
    old = {} if before is None else before.versions
    versions = checkpoint["channel_versions"]
    wrote = shown(channel for channel, version in versions.items() if version != old.get(channel))
    text = f"step {metadata.get('step', '?')} ({metadata.get('source', 'unknown')})"
    if name:
        text = f"{name.split('|')[-1].split(':')[0]} {text}"
    done = f"wrote {wrote}" if wrote else "ran" if ran else ""
    done = f"{', '.join(ran)} {done}".strip()
    return f"{text}: {done}" if done else text


def described_writes(channels: Sequence[str], task_path: str, task_id: str) -> str:
    """Return the sentence for what a task wrote."""
    who = node_of(task_path, task_id)
    said = [text for channel, text in _SAID.items() if channel in channels]
    wrote = shown(channels)
    return f"{who} {' and '.join([*said, *([f'wrote {wrote}'] if wrote else [])]) or 'ran'}"


_SAID = {
    INTERRUPT: "was interrupted",
    RESUME: "was resumed",
    ERROR: "failed",
    SCHEDULED: "was scheduled",
}


def shown(channels: Iterable[str]) -> str:
    """Return the channels that a graph's author named, without those that LangGraph steers by."""
    return ", ".join(sorted({name for name in channels if not name.startswith(("__", "branch:"))}))


def node_of(task_path: str, task_id: str) -> str:
    """Return the node that a task runs, from its path, else a short name of the task."""
    kind, _, rest = task_path.partition(", ")
    name = rest.split(", ")[0]
    if kind.endswith("pull") and name:
        return "the input" if name == "__start__" else name
    return f"task {task_id[:8]}" if task_id.strip("0-") else "the run"


def _absent(part: Part, name: str) -> StoreError:
    return StoreError(
        f"checkpoint {part.checkpoint_id} has no file for its channel {name!r}: its tree {part.tree} was "
        f"changed by hand or is damaged; restore it from an earlier commit, a clone or a backup"
    )
