"""A pack that is made while it is written is a pack, and holds nothing of its content twice."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from support import git

from reactifact._store._backends.git.pack import PackStream, build_pack, is_whole, parse_index
from reactifact._store.objects import GitObject, Kind, Oid, object_id

MIB = 1024 * 1024


def objects_of(sizes: list[int]) -> dict[Oid, GitObject]:
    drawn = random.Random(1)
    found = {}
    kinds: tuple[Kind, ...] = ("blob", "tag", "commit")
    for number, size in enumerate(sizes):
        kind = kinds[number % 3] if size < 100 else "blob"
        data = drawn.randbytes(size // 2) + bytes(size - size // 2)
        found[object_id(kind, data)] = GitObject(kind, data)
    return found


@pytest.mark.parametrize("sizes", [[], [0, 1, 5000], [MIB, MIB + 1, 3 * MIB, 7, 70_000]], ids=str)
def test_git_takes_it_and_finds_the_same_index(sizes: list[int], tmp_path: Path) -> None:
    objects = objects_of(sizes)
    stream = PackStream(objects)
    pack = b"".join(stream.chunks())
    assert is_whole(pack)
    (tmp_path / "a.pack").write_bytes(pack)
    git(tmp_path, "init", "--bare", "--quiet", ".")
    git(tmp_path, "index-pack", "a.pack")
    assert (tmp_path / "a.idx").read_bytes() == stream.index()
    assert {entry.oid.hex() for entry in parse_index(stream.index())} == set(objects)


def test_small_objects_give_what_the_other_way_gives() -> None:
    objects = objects_of([10, 0, 3000, 5000, 100_000])
    stream = PackStream(objects)
    built = build_pack(objects)
    assert b"".join(stream.chunks()) == built.pack
    assert stream.index() == built.idx


def test_a_large_object_is_not_held_packed() -> None:
    objects = objects_of([12 * MIB])
    tracemalloc.start()
    try:
        size = sum(len(chunk) for chunk in PackStream(objects).chunks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 5 * MIB
    assert peak < 3 * MIB
