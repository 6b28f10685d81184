"""Packs and indexes written by hand, for any objects: what git itself would make of the same bytes."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactifact._store._backends.git import pack as pack_module
from reactifact._store._backends.git.pack import (
    Entry,
    PackJoin,
    PackSource,
    build_index,
    build_pack,
    parse_index,
)
from reactifact._store.objects import GitObject, Oid, object_id

blobs = st.lists(st.binary(max_size=5000), min_size=1, max_size=12).map(
    lambda contents: {object_id("blob", data): GitObject("blob", data) for data in contents}
)
entries = st.lists(
    st.builds(
        Entry,
        st.binary(min_size=20, max_size=20),
        st.integers(min_value=12, max_value=2**40) | st.integers(2**31 - 2, 2**31 + 2),
        st.integers(min_value=0, max_value=2**32 - 1),
    ),
    max_size=30,
    unique_by=lambda entry: entry.oid,
)


@given(objects=blobs)
@settings(max_examples=15)
def test_git_makes_the_same_index_of_our_pack(objects: dict[Oid, GitObject]) -> None:
    made = build_pack(objects)
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder, "x.pack")
        pack.write_bytes(made.pack)
        done = subprocess.run(
            ["git", "index-pack", "--strict", str(pack)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == made.name
        assert pack.with_suffix(".idx").read_bytes() == made.idx


@given(objects=blobs)
def test_equal_objects_give_equal_packs_in_any_order(objects: dict[Oid, GitObject]) -> None:
    assert build_pack(objects) == build_pack(dict(reversed(objects.items())))


@given(entries=entries)
def test_an_index_is_read_back_as_it_was_built(entries: list[Entry]) -> None:
    assert parse_index(build_index(entries, b"c" * 20)) == sorted(entries)


@given(parts=st.lists(blobs, min_size=1, max_size=5))
@settings(max_examples=15)
def test_joined_packs_hold_the_union_once(parts: list[dict[Oid, GitObject]]) -> None:
    sources = [PackSource(pack.pack, pack.idx) for pack in map(build_pack, parts)]
    assert all(source.can_be_merged() for source in sources)
    join = PackJoin(sources)
    joined = b"".join(join.chunks())
    index = join.index(joined[-20:])
    assert [entry.oid.hex() for entry in parse_index(index)] == sorted(set().union(*parts))
    assert PackSource(joined, index).can_be_merged()
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder, "x.pack")
        pack.write_bytes(joined)
        subprocess.run(
            ["git", "index-pack", "--strict", str(pack)], capture_output=True, check=True, timeout=60
        )
        assert pack.with_suffix(".idx").read_bytes() == index


def test_joining_many_objects_pauses_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [f"{number}".encode() for number in range(1000)]
    objects = [(object_id("blob", data), GitObject("blob", data)) for data in contents]
    packs = [build_pack(dict(objects[at : at + 200])) for at in range(0, 900, 100)]
    whole = PackJoin([PackSource(pack.pack, pack.idx) for pack in packs])
    joined = b"".join(whole.chunks())
    monkeypatch.setattr(pack_module, "_AT_ONCE", 100)
    steps: list[int] = []
    paced = PackJoin([PackSource(pack.pack, pack.idx) for pack in packs], lambda: steps.append(1))
    assert b"".join(paced.chunks()) == joined
    assert paced.index(joined[-20:]) == whole.index(joined[-20:])
    assert len(steps) > 30


@given(objects=blobs, data=st.data())
def test_a_flipped_bit_is_noticed(objects: dict[Oid, GitObject], data: st.DataObject) -> None:
    made = build_pack(objects)
    position = data.draw(st.integers(12, len(made.pack) - 21))
    damaged = bytearray(made.pack)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not PackSource(bytes(damaged), made.idx).can_be_merged()
