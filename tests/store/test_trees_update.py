"""Changing paths in trees: one at a time or together, what stands there afterwards is what was put there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import BLOB_MODE, TREE_MODE, Oid, TreeEntry, encode_tree, object_id, parse_tree
from reactifact._store.trees import Path, lookup, update, walk

# names of folders and files apart, so that neither stands in the way of the other
folders = st.sampled_from(["0", "1", "a", "f", "meta"])
files = st.sampled_from(["x.json", "y.json"])
paths = st.builds(lambda way, name: (*way, name), st.lists(folders, max_size=3).map(tuple), files)
edits = st.lists(st.tuples(paths, st.one_of(st.none(), st.binary(max_size=3))), max_size=12)


def content(objects: Staging, root: Oid | None) -> dict[Path, bytes]:
    return {path: objects.read(oid).data for path, oid in walk(objects, root)}


@given(edits)
def test_edits_one_by_one_and_together_give_the_same_tree(changes: list[tuple[Path, bytes | None]]) -> None:
    objects = Staging(Database(MemoryBackend()))
    expected: dict[Path, bytes] = {}
    one_by_one: Oid | None = None
    together: dict[Path, TreeEntry | None] = {}
    for path, data in changes:
        entry = None if data is None else blob_entry(objects.put("blob", data))
        one_by_one = update(objects, one_by_one, {path: entry})
        together[path] = entry
        expected.pop(path, None)
        if data is not None:
            expected[path] = data
    assert content(objects, one_by_one) == expected
    assert update(objects, None, together) == one_by_one
    for path in together:
        found = objects.find(one_by_one, path)
        assert found == lookup(objects, one_by_one, path)
        assert (found is None) == (path not in expected)


def test_a_file_in_the_way_of_a_folder_is_replaced_and_nothing_is_removed_below_it() -> None:
    objects = Staging(Database(MemoryBackend()))
    file = blob_entry(objects.put("blob", b"file"))
    root = update(objects, None, {("a",): file})
    assert objects.find(root, ("a", "b")) is None
    assert update(objects, root, {("a", "b"): None}) == root
    assert content(objects, update(objects, root, {("a", "b"): file})) == {("a", "b"): b"file"}


def test_what_is_stored_below_is_looked_up_as_what_is_staged() -> None:
    database = Database(MemoryBackend())
    below = Staging(database)
    root = update(below, None, {("0", "1", "x.json"): blob_entry(below.put("blob", b"x"))})
    database.write(below.objects, [])
    database.forget()  # so that each tree is read from the backend
    assert content(Staging(database), root) == {("0", "1", "x.json"): b"x"}
    assert Staging(database).find(root, ("0", "1", "x.json")) is not None
    assert Staging(database).find(root, ("0", "2", "x.json")) is None
    assert Staging(database).find(None, ("0",)) is None


@pytest.mark.parametrize("mode", [BLOB_MODE, TREE_MODE])
def test_a_tree_of_one_letter_names_is_encoded_in_order_with_its_modes(mode: int) -> None:
    oid = object_id("blob", b"")
    entries = {name: TreeEntry(TREE_MODE, oid) for name in "f3a"} | {"0": TreeEntry(mode, oid)}
    data = encode_tree(entries)
    assert parse_tree(data) == entries
    assert list(parse_tree(data)) == ["0", "3", "a", "f"]
