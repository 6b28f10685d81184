"""Packs and indexes written by hand, for any objects: what git itself would make of the same bytes."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from reactifact._store._backends.git.pack import (
    Entry,
    build_index,
    build_pack,
    holds_deltas,
    is_intact,
    join_packs,
    parse_index,
    plan_join,
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
    made = [build_pack(part) for part in parts]
    sources = [(pack.pack, parse_index(pack.idx)) for pack in made]
    assert all(is_intact(*source) and not holds_deltas(*source) for source in sources)
    pieces = plan_join(sources)
    joined = b"".join(join_packs([pack for pack, _ in sources], pieces))
    index = build_index((piece.entry for piece in pieces), joined[-20:])
    found = parse_index(index)
    assert [entry.oid.hex() for entry in found] == sorted(set().union(*parts))
    assert is_intact(joined, found)
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder, "x.pack")
        pack.write_bytes(joined)
        subprocess.run(
            ["git", "index-pack", "--strict", str(pack)], capture_output=True, check=True, timeout=60
        )
        assert pack.with_suffix(".idx").read_bytes() == index


@given(objects=blobs, data=st.data())
def test_a_flipped_bit_is_noticed(objects: dict[Oid, GitObject], data: st.DataObject) -> None:
    made = build_pack(objects)
    position = data.draw(st.integers(12, len(made.pack) - 21))
    damaged = bytearray(made.pack)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not is_intact(bytes(damaged), parse_index(made.idx))
