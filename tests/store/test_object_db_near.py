"""`NearObjects`: what was read ahead is held by the place at which it stood, and no longer."""

from __future__ import annotations

from reactifact._store.object_db import NearObjects
from reactifact._store.objects import BLOB_MODE, GitObject, TreeEntry, encode_tree, object_id


def blob(text: str) -> tuple[str, GitObject]:
    data = text.encode()
    return object_id("blob", data), GitObject("blob", data)


def test_what_comes_to_a_place_drives_out_what_stood_there() -> None:
    near = NearObjects()
    for number in range(10):
        oid, found = blob(f"{number}")
        near.hold({("meta", "a"): oid}, {oid: found})
        assert near.get(oid) == found
    assert len(near) == 1
    assert near.get(blob("8")[0]) is None


def test_an_object_of_two_places_stays_until_both_have_another() -> None:
    near = NearObjects()
    (shared, found), (other, another) = blob("shared"), blob("other")
    near.hold({("a",): shared, ("b",): shared}, {shared: found})
    near.hold({("a",): shared}, {shared: found})  # again, which counts once
    near.hold({("a",): other}, {other: another})
    assert near.get(shared) == found
    near.hold({("b",): other}, {other: another})
    assert near.get(shared) is None
    assert len(near) == 1


def test_a_tree_goes_with_its_object() -> None:
    near = NearObjects()
    leaf, _ = blob("leaf")
    entries = {"leaf.json": TreeEntry(BLOB_MODE, leaf)}
    data = encode_tree(entries)
    oid = object_id("tree", data)
    assert near.tree(oid) is None
    near.hold({("meta",): oid}, {oid: GitObject("tree", data)})
    assert near.tree(oid) == entries
    other, found = blob("other")
    near.hold({("meta",): other}, {other: found})
    assert near.tree(oid) is None
