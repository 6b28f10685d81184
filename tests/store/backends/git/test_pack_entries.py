"""Entries of packs that say what is not true are refused before libgit2 follows them.

Each store is read in a process of its own: libgit2 would end it, keep it for good, or fill its memory.
"""

from __future__ import annotations

import hashlib
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support import git

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.git.checked_packs import CheckedPacks
from reactifact._store._backends.git.pack import Entry, build_index, parse_index
from reactifact._store._backends.git.pack_entries import (
    BY_ID,
    BY_OFFSET,
    DamagedPack,
    MultiPackIndex,
    PackEntries,
    base_offset,
    delta_size,
    entry_head,
)
from reactifact._store.objects import GitObject, Oid, object_id
from reactifact.errors import DamagedIndex, ObjectTooLarge, StoreError

BLOB = 3
MB = 1024 * 1024
READING = """
import resource, sys
from reactifact._store._backends.git.backend import GitBackend
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
backend = GitBackend(sys.argv[1])
for asked in ([sys.argv[2]], sys.argv[2:]):
    try:
        print(*(item.data for item in backend.read_many(asked).values()))
    except Exception as error:
        print(type(error).__name__, error)
with open("/proc/self/status") as file:  # `ru_maxrss` is what the parent had, where that is more
    print("memory", next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) // 1024)
"""

TEXT = b"what a delta rests on, " * 8
OID, OTHER = object_id("blob", TEXT + b"!"), object_id("blob", TEXT)


def head(kind: int, size: int) -> bytes:
    byte = (kind << 4) | (size & 0x0F)
    size >>= 4
    found = bytearray()
    while size:
        found.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    return bytes([*found, byte])


def number(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def back(distance: int) -> bytes:
    digits = [distance & 0x7F]
    while distance := distance >> 7:
        distance -= 1
        digits.append(0x80 | (distance & 0x7F))
    return bytes(reversed(digits))


def delta(base: int = len(TEXT), made: int = len(TEXT) + 1) -> bytes:
    """Return a delta that adds one byte to its base."""
    return number(base) + number(made) + b"\x90" + bytes([len(TEXT)]) + b"\x01!"


def by_id(base: Oid, data: bytes, size: int | None = None) -> bytes:
    return head(BY_ID, len(data) if size is None else size) + bytes.fromhex(base) + zlib.compress(data)


def by_offset(distance: int, data: bytes) -> bytes:
    return head(BY_OFFSET, len(data)) + back(distance) + zlib.compress(data)


WHOLE = head(BLOB, len(TEXT)) + zlib.compress(TEXT)
NOISE = random.Random(5).randbytes(200)


def packed(*entries: tuple[Oid, bytes], cut: int = 0) -> tuple[bytes, bytes]:
    """Return a pack of entries as they are given, without its last `cut` bytes, and its index."""
    body = b"PACK" + struct.pack(">II", 2, len(entries))
    listed = []
    for oid, entry in entries:
        listed.append(Entry(bytes.fromhex(oid), len(body), zlib.crc32(entry)))
        body += entry
    body = body[: len(body) - cut]
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    return body + checksum, build_index(listed, checksum)


def stored(path: Path, pack: bytes, index: bytes) -> Path:
    """Make a store that holds a pack; return the pack."""
    GitBackend(path).repository.free()
    base = path / "objects/pack" / f"pack-{'5' * 40}"
    base.with_suffix(".pack").write_bytes(pack)
    base.with_suffix(".idx").write_bytes(index)
    return base.with_suffix(".pack")


def read(path: Path, *oids: Oid) -> Sequence[str]:
    """Return what a process says that reads the first object, then all; what memory it took is the last."""
    done = subprocess.run(
        [sys.executable, "-c", READING, str(path), *oids], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def test_deltas_of_both_kinds_are_read(tmp_path: Path) -> None:
    for name, entry in (("id", by_id(OTHER, delta())), ("offset", by_offset(len(WHOLE), delta()))):
        stored(tmp_path / name, *packed((OTHER, WHOLE), (OID, entry)))
        expected = {OID: GitObject("blob", TEXT + b"!"), OTHER: GitObject("blob", TEXT)}
        assert GitBackend(tmp_path / name).read_many([OID, OTHER]) == expected
        assert read(tmp_path / name, OID)[0] == str(TEXT + b"!")


@pytest.mark.parametrize(
    ("entries", "cut", "said"),
    [
        pytest.param([(OID, by_id("ab" * 20, delta(made=200 * MB)))], 0, "rests on nothing", id="no base"),
        pytest.param(
            [(OTHER, by_id("ab" * 20, delta())), (OID, by_id(OTHER, delta(made=200 * MB)))],
            0,
            "rests on nothing",
            id="base without a base",  # pygit2 then wrote where the size of the object said
        ),
        pytest.param([(OID, by_id(OID, delta()))], 0, "rests on itself", id="on itself"),
        pytest.param(
            [(OID, by_id(OTHER, delta())), (OTHER, by_id(OID, delta()))], 0, "rests on itself", id="circle"
        ),
        pytest.param([(OTHER, WHOLE), (OID, by_offset(0, delta()))], 0, "on nothing", id="distance 0"),
        pytest.param(
            [(OTHER, WHOLE), (OID, by_offset(len(WHOLE) + 5, delta()))], 0, "outside", id="before the first"
        ),
        pytest.param(
            [(OTHER, WHOLE), (OID, by_offset(2**40, delta()))], 0, "before its beginning", id="far before"
        ),
        pytest.param([(OTHER, WHOLE), (OID, head(5, 9) + b"x")], 0, "unknown type 5", id="type"),
        pytest.param([(OTHER, WHOLE), (OID, b"\xff" * 30)], 0, "a size that no object has", id="size"),
        pytest.param(
            [(OTHER, WHOLE), (OID, head(BY_ID, 200) + bytes.fromhex(OTHER) + zlib.compress(NOISE, 0))],
            205,
            "ends too early",
            id="cut",
        ),
        pytest.param(
            [(OTHER, WHOLE), (OID, head(BY_ID, 20) + bytes.fromhex(OTHER) + NOISE)],
            0,
            "cannot be decompressed",
            id="not compressed",
        ),
        pytest.param(
            [(OTHER, WHOLE), (OID, by_id(OTHER, b"\xff" * 40))], 0, "a size that no object", id="no delta"
        ),
        pytest.param([(OTHER, WHOLE), (OID, by_id(OTHER, b"\x05"))], 0, "ends too early", id="short delta"),
    ],
)
def test_a_delta_that_libgit2_must_not_follow_is_named(
    tmp_path: Path, entries: list[tuple[Oid, bytes]], cut: int, said: str
) -> None:
    pack = stored(tmp_path / "s.git", *packed(*entries, cut=cut))
    first, second, _ = read(tmp_path / "s.git", OID, OTHER)
    for line in (first, second):
        assert line.startswith("StoreError object ")
        assert f"{OID} in {pack} is damaged: " in line or f"{OTHER} in {pack} is damaged: " in line
        assert said in line
        assert "git fsck" in line
    with pytest.raises(StoreError, match=OID):
        GitBackend(tmp_path / "s.git").read_many([OID])
    if (OTHER, WHOLE) in entries:  # what is sound beside it is read
        assert GitBackend(tmp_path / "s.git").read_many([OTHER])[OTHER].data == TEXT


@pytest.mark.parametrize(
    "entries",
    [
        [(OID, head(BLOB, 2**40) + zlib.compress(TEXT))],
        [(OID, head(BLOB, 900 * MB) + zlib.compress(TEXT))],
        [(OTHER, WHOLE), (OID, by_id(OTHER, delta(made=900 * MB)))],
        [(OTHER, WHOLE), (OID, by_id(OTHER, delta(), size=900 * MB))],
        [(OTHER, head(BLOB, 900 * MB) + zlib.compress(TEXT)), (OID, by_id(OTHER, delta()))],
    ],
)
def test_an_entry_takes_no_memory_for_what_it_says_to_become(
    tmp_path: Path, entries: list[tuple[Oid, bytes]]
) -> None:
    pack = stored(tmp_path / "s.git", *packed(*entries))
    first, _, memory = read(tmp_path / "s.git", OID, OTHER)
    assert first.startswith(f"ObjectTooLarge object {OID} in {pack} has ")
    assert int(memory.split()[1]) < 300


def test_the_limit_is_that_of_the_store(tmp_path: Path) -> None:
    stored(tmp_path / "s.git", *packed((OTHER, WHOLE), (OID, by_id(OTHER, delta()))))
    small = GitBackend(tmp_path / "s.git", max_object=len(TEXT))
    assert small.read_many([OTHER])[OTHER].data == TEXT
    with pytest.raises(ObjectTooLarge, match=OID):
        small.read_many([OID])
    with pytest.raises(ObjectTooLarge, match=OTHER):
        GitBackend(tmp_path / "s.git", max_object=len(TEXT) - 1).read_many([OTHER])


def texts(path: Path, count: int) -> dict[Oid, GitObject]:
    """Write blobs that resemble each other, in packs of git's with deltas."""
    lines = [f"line {at} {at * 7919 % 1000}\n" for at in range(100)]
    written = {}
    for at in range(count):
        text = "".join([*lines[: at % 100], f"changed {at}\n", *lines[at % 100 :]])
        written[git(path, "hash-object", "-w", "--stdin", text=text).strip()] = GitObject(
            "blob", text.encode()
        )
    ids = "\n".join(written) + "\n"
    git(path, "pack-objects", "-q", "--depth=50", str(path / "objects/pack/pack"), text=ids)
    git(path, "prune-packed", "-q")
    return written


def test_what_git_packed_is_read_whichever_way_it_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.git"
    GitBackend(path).repository.free()
    written = texts(path, 60)
    assert GitBackend(path).read_many(written) == written
    (index,) = (path / "objects/pack").glob("*.idx")
    content, pack = index.read_bytes(), index.with_suffix(".pack").read_bytes()
    places = {entry.oid: entry.offset for entry in parse_index(content)}
    entries = PackEntries(content, pack, MB)
    assert {oid: entries.find(oid) for oid in places} == places
    assert entries.find(bytes(20)) is entries.find(b"\xff" * 20) is None
    for place in places.values():
        entries.require(place)
    assert {entry_head(pack, place)[0] for place in places.values()} >= {BLOB, BY_ID}
    old = tmp_path / "old.idx"
    git(path, "index-pack", "--index-version=1", "-o", str(old), str(index.with_suffix(".pack")))
    first = PackEntries(old.read_bytes(), pack, MB)
    assert {oid: first.find(oid) for oid in places} == places
    for name in ("_CHECKED_AT_ONCE", "_SCANNED"):  # as packs that are too large for it
        monkeypatch.setattr(f"reactifact._store._backends.git.checked_packs.{name}", 10)
        checked = CheckedPacks(str(path / "objects/pack"))
        checked.require()
        assert checked.asks
        assert GitBackend(path).read_many(written) == written


@pytest.mark.parametrize("small", [1, 1200])  # of many entries only the few that are larger are looked at
def test_packs_of_ours_are_not_asked_about_single_objects(tmp_path: Path, small: int) -> None:
    backend = GitBackend(tmp_path / "s.git")
    contents = [*(b"%d" % number for number in range(small)), b"b" * 9999]
    backend.write({object_id("blob", data): GitObject("blob", data) for data in contents})
    checked = CheckedPacks(str(tmp_path / "s.git/objects/pack"))
    checked.require()
    assert not checked.asks


def moved(content: bytearray) -> None:
    """Let git's index over packs lead to the middle of an object."""
    at = content.index(b"OOFF")
    start = int.from_bytes(content[at + 4 : at + 12])
    for place in range(start + 4, start + 8 * 20, 8):
        struct.pack_into(">I", content, place, int.from_bytes(content[place : place + 4]) + 1)


def named_less(content: bytearray) -> None:
    at = content.index(b"OOFF")
    start = int.from_bytes(content[at + 4 : at + 12])
    for place in range(start, start + 8 * 20, 8):
        struct.pack_into(">I", content, place, 7)


def without_names(content: bytearray) -> None:
    content[content.index(b"PNAM")] ^= 1


def counts(content: bytearray) -> None:
    at = content.index(b"OIDF")
    start = int.from_bytes(content[at + 4 : at + 12])
    struct.pack_into(">I", content, start, 0x7FFFFFFF)


def other_version(content: bytearray) -> None:
    content[4] = 9


@pytest.mark.parametrize("damage", [moved, named_less, without_names, counts, other_version])
def test_an_index_over_packs_that_leads_elsewhere_is_named(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    path = tmp_path / "s.git"
    GitBackend(path).repository.free()
    written = texts(path, 20)
    git(path, "multi-pack-index", "write")
    assert GitBackend(path).read_many(written) == written
    file = path / "objects/pack/multi-pack-index"
    content = bytearray(file.read_bytes())
    index = MultiPackIndex(bytes(content))
    (table,) = (path / "objects/pack").glob("*.idx")
    places = {entry.oid: (table.stem, entry.offset) for entry in parse_index(table.read_bytes())}
    assert {oid: index.find(oid) for oid in places} == places
    damage(content)
    content[-20:] = hashlib.sha1(content[:-20], usedforsecurity=False).digest()
    file.unlink()
    file.write_bytes(content)
    line = read(path, *written)[0]
    assert line.startswith(f"DamagedIndex {file} is damaged; remove it")
    with pytest.raises(DamagedIndex, match=str(file)):
        GitBackend(path).read_many(written)
    file.unlink()
    assert GitBackend(path).read_many(written) == written


def test_heads_are_read_as_git_writes_them() -> None:
    for size in (0, 15, 16, 2047, 2048, 10**9):
        encoded = head(BLOB, size)
        assert entry_head(encoded, 0) == (BLOB, size, len(encoded))
        assert delta_size(number(size), 0) == (size, len(number(size)))
    for distance in (1, 127, 128, 16511, 16512):
        assert base_offset(bytes(20_000) + back(distance), 20_000)[0] == distance
    with pytest.raises(DamagedPack, match="no object has"):
        entry_head(b"\xff" * 20, 0)
