"""Trees as persistent maps from paths to files: look up, walk, update, compare.

Pure functions over `Objects`: the same for every backend. What is not touched is shared, so an
update costs the depth of what it changes and a comparison the size of the difference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from .object_db import Objects, Staging, Tree
from .object_db import Path as Path
from .objects import TREE_MODE, Oid, TreeEntry

Edits = Mapping[Path, TreeEntry | None]
"""What to put at each path; `None` removes it. A tree entry grafts a whole subtree."""


def lookup(objects: Objects, root: Oid | None, path: Path) -> TreeEntry | None:
    """Return the entry at `path` below `root`, or `None`."""
    if root is None or not path:
        return None if root is None else TreeEntry(TREE_MODE, root)
    entry: TreeEntry | None = None
    for name in path:
        if entry is not None:
            if entry.mode != TREE_MODE:
                return None
            root = entry.oid
        entry = objects.tree(root).get(name)
        if entry is None:
            return None
    return entry


def subtree(objects: Objects, root: Oid | None, path: Path) -> Oid | None:
    """Return the id of the tree at `path` below `root`, or `None`."""
    entry = lookup(objects, root, path)
    return entry.oid if entry is not None and entry.mode == TREE_MODE else None


def walk(objects: Objects, root: Oid | None, base: Path = ()) -> Iterator[tuple[Path, Oid]]:
    """Yield (path, blob id) of every file below `root`, in git's order."""
    if root is None:
        return
    entries = objects.tree(root)
    objects.prefetch(entry.oid for entry in entries.values() if entry.mode == TREE_MODE)
    for name, entry in entries.items():
        if entry.mode == TREE_MODE:
            yield from walk(objects, entry.oid, (*base, name))
        else:
            yield (*base, name), entry.oid


def read_ahead(objects: Objects, *wanted: tuple[Oid | None, Collection[Path]]) -> list[list[Oid]]:
    """Bring what stands at paths below some roots into the cache, one read a level for all of them.

    Returns the files that stand there, root by root. The empty path stands for all that is below. Blocks.
    """
    files: list[list[Oid]] = [[] for _ in wanted]
    level = [
        (number, TreeEntry(TREE_MODE, root), paths)
        for number, (root, paths) in enumerate(wanted)
        if root is not None and paths
    ]
    while level:
        objects.prefetch({entry.oid for _, entry, _ in level})
        below: list[tuple[int, TreeEntry, Collection[Path]]] = []
        for number, entry, paths in level:
            if entry.mode != TREE_MODE:
                files[number].append(entry.oid)
                continue
            tree = objects.tree(entry.oid)
            if () in paths:
                below += [(number, one, ((),)) for one in tree.values()]
                continue
            deeper: dict[str, list[Path]] = {}
            for path in paths:
                deeper.setdefault(path[0], []).append(path[1:])
            below += [(number, tree[name], rest) for name, rest in deeper.items() if name in tree]
        level = below
    return files


def files_below(objects: Objects, root: Oid | None) -> list[Path]:
    """Return the paths of all files below a root, in no order; one read a level."""
    found: list[Path] = []
    level: list[tuple[Path, Oid]] = [] if root is None else [((), root)]
    while level:
        objects.prefetch({oid for _, oid in level})
        below: list[tuple[Path, Oid]] = []
        for base, tree in level:
            for name, (mode, oid) in objects.tree(tree).items():
                if mode == TREE_MODE:
                    below.append(((*base, name), oid))
                else:
                    found.append((*base, name))
        level = below
    return found


def find_files(objects: Objects, root: Oid | None, paths: Iterable[Path]) -> dict[Path, Oid]:
    """Return the ids of the files that stand at some paths; each tree is looked at once, one read a level."""
    found: dict[Path, Oid] = {}
    level: list[tuple[Oid, int, list[Path]]] = [] if root is None else [(root, 0, list(paths))]
    while level:
        objects.prefetch({oid for oid, _, wanted in level if wanted})
        below: list[tuple[Oid, int, list[Path]]] = []
        for tree, depth, wanted in level:
            entries = objects.tree(tree) if wanted else {}
            deeper: dict[str, list[Path]] = {}
            for path in wanted:
                entry = entries.get(path[depth])
                if entry is None:
                    continue
                if len(path) > depth + 1:
                    deeper.setdefault(path[depth], []).append(path)
                elif entry.mode != TREE_MODE:
                    found[path] = entry.oid
            below += [
                (entries[name].oid, depth + 1, rest)
                for name, rest in deeper.items()
                if entries[name].mode == TREE_MODE
            ]
        level = below
    return found


def read_trees(objects: Objects, roots: Iterable[Oid | None], most: int | None = None) -> None:
    """Bring the trees below some roots into the cache, level by level, while a level has at most `most`."""
    level = {root for root in roots if root is not None}
    while level and (most is None or len(level) <= most):
        objects.prefetch(level)
        entries = [entry for oid in level for entry in objects.tree(oid).values()]
        level = {entry.oid for entry in entries if entry.mode == TREE_MODE}


def read_differences(
    objects: Objects, *pairs: tuple[Oid | None, Oid | None], files: bool = False
) -> list[list[Path]]:
    """Bring what `compare` will look at into the cache, one read a level; with `files` those that differ too.

    Returns the paths of the files that differ, pair by pair. Blocks.
    """
    found: list[list[Path]] = [[] for _ in pairs]
    level: list[tuple[int, Path, Oid | None, Oid | None]] = [
        (number, (), old, new) for number, (old, new) in enumerate(pairs) if old != new
    ]
    blobs: set[Oid] = set()
    while level:
        objects.prefetch({oid for _, _, *both in level for oid in both if oid is not None})
        below: list[tuple[int, Path, Oid | None, Oid | None]] = []
        for number, base, old, new in level:
            before: Tree = objects.tree(old) if old is not None else {}
            after: Tree = objects.tree(new) if new is not None else {}
            for name in before.keys() | after.keys():
                left, right = before.get(name), after.get(name)
                if left == right:
                    continue
                sides = [one for one in (left, right) if one is not None]
                if any(one.mode == TREE_MODE for one in sides):
                    down = [one.oid if one and one.mode == TREE_MODE else None for one in (left, right)]
                    below.append((number, (*base, name), down[0], down[1]))
                if any(one.mode != TREE_MODE for one in sides):
                    found[number].append((*base, name))
                    blobs |= {one.oid for one in sides if one.mode != TREE_MODE}
        level = below
    if files:
        objects.prefetch(blobs)
    return found


def update(objects: Staging, root: Oid | None, edits: Edits) -> Oid | None:
    """Apply `edits` below `root`; return the new tree's id, or `None` when nothing is left.

    An id put at a path is always taken from `edits`, never from what happens to exist in the
    store: an object is left out of a write only when the old tree reaches it.
    """
    if not edits:
        return root
    if len(edits) == 1:
        ((path, value),) = edits.items()
        return objects.put_at(root, path, value)
    here: dict[str, TreeEntry | None] = {}
    below: dict[str, dict[Path, TreeEntry | None]] = {}
    for path, value in edits.items():
        if len(path) == 1:
            here[path[0]] = value
        else:
            below.setdefault(path[0], {})[path[1:]] = value
    old: Tree = objects.tree(root) if root is not None else {}
    entries = dict(old)
    for name, value in here.items():
        if value is None:
            entries.pop(name, None)
        else:
            entries[name] = value
    for name, deeper in below.items():
        entry = entries.get(name)
        start = entry.oid if entry is not None and entry.mode == TREE_MODE else None
        oid = update(objects, start, deeper)
        if oid is None:
            entries.pop(name, None)
        elif oid != start:
            entries[name] = tuple.__new__(TreeEntry, (TREE_MODE, oid))
    if entries == old:
        return root
    return objects.put_tree(entries) if entries else None


def compare(
    objects: Objects, old: Oid | None, new: Oid | None, base: Path = ()
) -> Iterator[tuple[Path, Oid | None, Oid | None]]:
    """Yield (path, old blob, new blob) of every file that differs between two trees."""
    if old == new:
        return
    before: Tree = objects.tree(old) if old is not None else {}
    after: Tree = objects.tree(new) if new is not None else {}
    for name in sorted(before.keys() | after.keys()):
        left, right = before.get(name), after.get(name)
        if left == right:
            continue
        left_tree = left.oid if left and left.mode == TREE_MODE else None
        right_tree = right.oid if right and right.mode == TREE_MODE else None
        yield from compare(objects, left_tree, right_tree, (*base, name))
        left_blob = left.oid if left and left.mode != TREE_MODE else None
        right_blob = right.oid if right and right.mode != TREE_MODE else None
        if left_blob != right_blob:
            yield (*base, name), left_blob, right_blob
