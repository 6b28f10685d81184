"""Walks over trees that go on where a page ended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactifact._sessions.stores import open_database
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import Oid
from reactifact._store.trees import compare, update, walk
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.ui.paging import differing, files

NAMES = st.lists(st.sampled_from("abc"), min_size=3, max_size=3).map(tuple)
TREES = st.dictionaries(NAMES, st.integers(0, 3), max_size=20)


def database() -> Database:
    return open_database(InMemoryKVBackend())


def tree(staging: Staging, content: dict[tuple[str, ...], int]) -> Oid | None:
    return update(staging, None, {p: blob_entry(staging.put("blob", b"%d" % n)) for p, n in content.items()})


@given(TREES, TREES, st.integers(1, 6))
def test_pages_together_are_what_compare_finds(
    old: dict[tuple[str, ...], int], new: dict[tuple[str, ...], int], size: int
) -> None:
    staging = Staging(database())
    left, right = tree(staging, old), tree(staging, new)
    found = []
    after: str | None = ""
    while after is not None:
        page = differing(staging, left, right, after, size)
        assert len(page.items) <= size
        found += page.items
        after = page.after
    assert found == list(compare(staging, left, right))


@given(TREES, st.integers(1, 6))
def test_pages_of_files_are_what_walk_finds(content: dict[tuple[str, ...], int], size: int) -> None:
    staging = Staging(database())
    root = tree(staging, content)
    found = []
    after: str | None = None
    while True:
        page = files(staging, root, after, size)
        found += [(path, blob) for path, _, blob in page.items]
        after = page.after
        if after is None:
            break
    assert sorted(found) == sorted(walk(staging, root))


def test_a_place_that_is_gone_is_gone_on_from() -> None:
    staging = Staging(database())
    root = tree(staging, {("a", "a", "a"): 1, ("b", "b", "b"): 1})
    assert [path for path, _, _ in files(staging, root, "a/b/c", 9).items] == [("b", "b", "b")]
    assert files(staging, root, "z", 9).items == []
