"""What small bytes say they become is believed up to a limit that can be set, and takes no memory before."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
import subprocess
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from building import MAIN, blob, commit

from reactifact._store import canonical
from reactifact._store._backends.bundle import MAX_TOTAL, SIGNATURES, BundleBackend, unpack
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.git.pack import _entry_header, build_pack
from reactifact._store._backends.git.pack_entries import DamagedPack
from reactifact._store.objects import MAX_OBJECT, object_id
from reactifact._store.protocol import RefUpdate
from reactifact.checkpoints import SQLiteKVBackend
from reactifact.errors import NotAStore, ObjectTooLarge, StoreError

MB = 1024 * 1024
BLOB, DELTA = 3, 7


@contextmanager
def little_memory(most: int = 4 * MB) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def pack_of(*entries: tuple[int, int, bytes, bytes]) -> bytes:
    """Return a pack of (type, the size that it says, what stands before the data, the data unpacked)."""
    body = b"PACK" + struct.pack(">II", 2, len(entries))
    for kind, size, before, data in entries:
        body += _entry_header(kind, size) + before + zlib.compress(data, 9)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def number(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def growing_delta(base: bytes, size: int, says: int | None = None) -> bytes:
    """Return a delta that copies the whole of `base` (64 kB) until there are `size` bytes."""
    assert len(base) == 0x10000
    return number(len(base)) + number(says or size) + b"\x80" * (size // len(base))


def bundle_at(path: Path, pack: bytes, oid: str) -> Path:
    path.write_bytes(SIGNATURES[0] + f"{oid} refs/heads/s/main\n\n".encode() + pack)
    return path


BASE = bytes(0x10000)
BASE_ID = object_id("blob", BASE)
GROWING = growing_delta(BASE, 16 * MB)
LYING = growing_delta(BASE, 16 * MB, says=100)
ZEROS = bytes(16 * MB)


@pytest.mark.parametrize(
    "pack",
    [
        pack_of((BLOB, len(ZEROS), b"", ZEROS)),
        pack_of((BLOB, 6 << 30, b"", b"little")),
        pack_of(
            (BLOB, len(BASE), b"", BASE),
            (DELTA, len(GROWING), bytes.fromhex(BASE_ID), GROWING),
        ),
        pack_of(*[(BLOB, MB, b"", bytes(MB - 1) + bytes([at])) for at in range(5)]),
    ],
    ids=["large", "says it is large", "delta", "many"],
)
def test_a_bundle_that_becomes_more_than_is_taken_is_refused(tmp_path: Path, pack: bytes) -> None:
    path = bundle_at(tmp_path / "b.bundle", pack, BASE_ID)
    with (
        little_memory(8 * MB),
        pytest.raises(ObjectTooLarge, match=f"{path}.*max_object=|{path}.*max_total="),
    ):
        BundleBackend(path, max_object=MB, max_total=4 * MB)


@pytest.mark.parametrize(
    "pack",
    [
        pack_of((BLOB, 10, b"", ZEROS)),
        pack_of(
            (BLOB, len(BASE), b"", BASE),
            (DELTA, len(LYING), bytes.fromhex(BASE_ID), LYING),
        ),
        pack_of((BLOB, 1 << 80, b"", b"little")),
    ],
    ids=["blob", "delta", "endless size"],
)
def test_a_bundle_that_says_less_than_it_becomes_takes_no_memory(tmp_path: Path, pack: bytes) -> None:
    path = bundle_at(tmp_path / "b.bundle", pack, BASE_ID)
    with little_memory(), pytest.raises(NotAStore, match="is damaged"):
        BundleBackend(path)
    with pytest.raises(DamagedPack):
        unpack(pack)


def test_the_limits_can_be_set(tmp_path: Path) -> None:
    objects = dict([blob(ZEROS)])
    (oid,) = objects
    path = bundle_at(tmp_path / "b.bundle", build_pack(objects).pack, oid)
    assert BundleBackend(path).read_many([oid]) == objects
    assert BundleBackend(path, max_object=16 * MB, max_total=16 * MB).read_many([oid]) == objects
    assert MAX_OBJECT < MAX_TOTAL
    for kind in (GitBackend, SQLiteKVBackend):
        place = tmp_path / kind.__name__
        with pytest.raises(ObjectTooLarge, match=oid):
            kind(place, durability="os", max_object=MB).write(objects)
        kind(place, durability="os", max_object=16 * MB).write(objects)
        assert kind(place, durability="os").read_many([oid]) == objects
        with pytest.raises(ObjectTooLarge, match=oid):
            kind(place, durability="os", max_object=16 * MB - 1).read_many([oid])


def test_a_row_takes_no_more_than_it_says_and_says_no_more_than_is_taken(tmp_path: Path) -> None:
    place = tmp_path / "s.db"
    tip, objects = commit("head")
    SQLiteKVBackend(place, durability="os").write(objects, [RefUpdate(MAIN, None, tip)])
    for size, data, error in [
        (4 << 30, zlib.compress(ZEROS), ObjectTooLarge),
        (10, zlib.compress(ZEROS), StoreError),
        (-1, zlib.compress(ZEROS), StoreError),
        (2**62, b"x", ObjectTooLarge),
    ]:
        with sqlite3.connect(place) as connection:
            connection.execute("UPDATE objects SET size = ?, data = ?", (size, data))
        connection.close()
        with little_memory(), pytest.raises(error, match=tip):
            SQLiteKVBackend(place, durability="os").read_many([tip])


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (b"blob %d\0" % len(ZEROS), ObjectTooLarge),
        (b"blob 10\0", StoreError),
        (b"blob 99999999999999\0", ObjectTooLarge),
        (b"blob " + b"9" * 5000 + b"\0", StoreError),
    ],
)
def test_a_loose_object_takes_no_more_than_it_says(
    tmp_path: Path, head: bytes, error: type[StoreError]
) -> None:
    path = tmp_path / "s.git"
    assert GitBackend(path).repository.is_bare
    oid = object_id("blob", ZEROS)
    place = path / "objects" / oid[:2] / oid[2:]
    place.parent.mkdir()
    place.write_bytes(zlib.compress(head + ZEROS))
    with little_memory(), pytest.raises(error, match=oid):
        GitBackend(path, max_object=MB).read_many([oid])


def test_a_delta_in_a_pack_of_git_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "s.git"
    assert GitBackend(path).repository.is_bare
    pack = tmp_path / "bomb.pack"
    pack.write_bytes(
        pack_of((BLOB, len(BASE), b"", BASE), (DELTA, len(GROWING), bytes.fromhex(BASE_ID), GROWING))
    )
    assert pack.stat().st_size < 400
    index = ["git", "-C", str(path), "index-pack", "--stdin"]
    subprocess.run(index, input=pack.read_bytes(), check=True, capture_output=True)
    oid = object_id("blob", ZEROS)
    with pytest.raises(ObjectTooLarge, match=oid):
        GitBackend(path, max_object=MB).read_many([oid])
    assert GitBackend(path).read_many([oid, BASE_ID])[oid].data == ZEROS


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 100_000, "1e999", "-1e999", "NaN", '{"a":' * 100_000])
def test_json_that_is_too_deep_or_too_long_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"deep|digits|larger|no JSON number"):
        canonical.decode(text.encode())
