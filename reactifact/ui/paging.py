"""A part of a tree at a time: walks that go on from where an earlier page ended, at the cost of one page."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from .._store.object_db import Objects, Tree
from .._store.objects import TREE_MODE, Oid, TreeEntry
from .._store.trees import Path

T = TypeVar("T")


class Page(NamedTuple):
    """Some items, and where the next page goes on (`None`: there is no more)."""

    items: list[tuple[Path, Oid | None, Oid | None]]
    after: str | None


def files(
    objects: Objects, root: Oid | None, after: str | None, limit: int, names: Collection[str] | None = None
) -> Page:
    """Return the files of a tree behind a place, or of some of its folders: (path, `None`, blob)."""
    return _page(_differing(objects, None, root, _behind(after), (), names), limit)


def differing(objects: Objects, old: Oid | None, new: Oid | None, after: str | None, limit: int) -> Page:
    """Return the files behind a place that differ between two trees: (path, old blob, new blob)."""
    return _page(_differing(objects, old, new, _behind(after), ()), limit)


def _behind(after: str | None) -> Path:
    return () if not after else tuple(after.split("/"))


def _page(walk: Iterator[tuple[Path, Oid | None, Oid | None]], limit: int) -> Page:
    found = list(islice(walk, limit + 1))
    goes_on = "/".join(found[limit - 1][0]) if len(found) > limit else None
    return Page(found[:limit], goes_on)


def _differing(
    objects: Objects,
    old: Oid | None,
    new: Oid | None,
    behind: Path,
    base: Path,
    names: Collection[str] | None = None,
) -> Iterator[tuple[Path, Oid | None, Oid | None]]:
    if old == new:
        return
    before: Tree = objects.tree(old) if old is not None else {}
    after: Tree = objects.tree(new) if new is not None else {}
    for name in sorted(before.keys() | after.keys() if names is None else names):
        if behind and name < behind[0]:
            continue
        left, right = before.get(name), after.get(name)
        if left == right:
            continue
        here = (*base, name)
        deeper = behind[1:] if behind and name == behind[0] else ()
        yield from _differing(objects, _tree(left), _tree(right), deeper, here)
        is_done = behind == (name,)
        if not is_done and _blob(left) != _blob(right):
            yield here, _blob(left), _blob(right)


def _tree(entry: TreeEntry | None) -> Oid | None:
    return entry.oid if entry is not None and entry.mode == TREE_MODE else None


def _blob(entry: TreeEntry | None) -> Oid | None:
    return entry.oid if entry is not None and entry.mode != TREE_MODE else None
