"""Indexes of packs are read once before libgit2 follows them, and a damaged one is named."""

from __future__ import annotations

import hashlib
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from building import MAIN, blob, commit

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.git.checked_packs import CheckedPacks
from reactifact._store._backends.git.pack import CorruptPack, build_pack, check_index, parse_index
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import RefUpdate
from reactifact.errors import DamagedIndex

OIDS = 8 + 1024
Damage = Callable[[bytearray, int], None]
"""Changes the bytes of an index of so many objects."""


def signed(content: bytearray) -> None:
    """Make the checksum right again, as whoever means it would."""
    content[-20:] = hashlib.sha1(content[:-20], usedforsecurity=False).digest()


def place(value: int) -> Damage:
    def damage(content: bytearray, count: int) -> None:
        for at in range(count):
            struct.pack_into(">I", content, OIDS + 24 * count + 4 * at, value)
        signed(content)

    return damage


def large_place(content: bytearray, count: int) -> None:
    """Refer to a table of large places, and from there out of the pack."""
    for at in range(count):
        struct.pack_into(">I", content, OIDS + 24 * count + 4 * at, 0x80000000)
    content[-40:-40] = struct.pack(">Q", 1 << 40)
    signed(content)


def counts(content: bytearray, count: int) -> None:
    struct.pack_into(">I", content, 8 + 4 * 10, 0x7FFFFFFF)
    signed(content)


def more(content: bytearray, count: int) -> None:
    struct.pack_into(">I", content, 8 + 4 * 255, 0x0FFFFFFF)
    signed(content)


def flipped(content: bytearray, count: int) -> None:
    content[OIDS + 24 * count] ^= 0x80


def flipped_below(content: bytearray, count: int) -> None:
    """Lead out of the pack by a place that needs no table of large ones: found by the fuzz of stores."""
    content[OIDS + 24 * count] ^= 0x08


def zeroed(content: bytearray, count: int) -> None:
    content[100:] = bytes(len(content) - 100)


def cut(content: bytearray, count: int) -> None:
    del content[len(content) // 2 :]


def emptied(content: bytearray, count: int) -> None:
    content.clear()


DAMAGES = [place(0xFFFFFFFF), place(0x7FFFFFFF), place(0), large_place, counts, more]
DAMAGES += [flipped, flipped_below, zeroed, cut, emptied]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.git"


def filled(path: Path, packs: int = 3) -> dict[Oid, GitObject]:
    """Make a store of so many packs; the last holds a commit that `MAIN` points at."""
    backend = GitBackend(path, durability="os")
    written: dict[Oid, GitObject] = {}
    for number in range(packs - 1):
        new = dict(blob(b"content %d %d" % (number, at)) for at in range(4))
        backend.write(new)
        written |= new
    tip, objects = commit("head")
    backend.write(objects, [RefUpdate(MAIN, None, tip)])
    backend.close()
    return written | objects


def put(file: Path, content: bytes) -> None:
    """Exchange a file, not its bytes: libgit2 may keep the old one mapped."""
    fresh = file.with_suffix(".fresh")
    fresh.write_bytes(content)
    fresh.replace(file)


def indexes(path: Path) -> list[Path]:
    return sorted((path / "objects/pack").glob("*.idx"))


def damage_one(path: Path, damage: Damage) -> Path:
    found = indexes(path)[0]
    content = bytearray(found.read_bytes())
    damage(content, len(parse_index(bytes(content))))
    put(found, bytes(content))
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_named_before_libgit2_follows_it(path: Path, damage: Damage) -> None:
    written = filled(path)
    behind = [entry.oid.hex() for entry in parse_index(indexes(path)[0].read_bytes())]
    damaged = damage_one(path, damage)
    for oid in behind:
        with pytest.raises(DamagedIndex, match=str(damaged)):
            GitBackend(path).read_many([oid])
    for oid in written.keys() - behind:  # others may be read, if they are read right
        with suppress(DamagedIndex):
            assert GitBackend(path).read_many([oid]) == {oid: written[oid]}
    with pytest.raises(DamagedIndex, match=str(damaged)):
        GitBackend(path).check_indexes()


@pytest.mark.parametrize("damage", [place(0x08000000), flipped_below])
def test_what_leads_out_of_a_pack_is_refused_before_anything_is_read(path: Path, damage: Damage) -> None:
    filled(path)
    damaged = damage_one(path, damage)
    with pytest.raises(DamagedIndex, match=f"{damaged}.*outside of the pack"):
        CheckedPacks(str(damaged.parent)).require()


def test_the_way_out_in_the_message_works(path: Path) -> None:
    written = filled(path)
    damaged = damage_one(path, zeroed)
    with pytest.raises(DamagedIndex) as raised:
        GitBackend(path).read_many(written)
    command = f"git index-pack {damaged.with_suffix('.pack')}"
    assert command in str(raised.value)
    damaged.unlink()
    subprocess.run(["git", "-C", str(path), *command.split()[1:]], check=True, capture_output=True)
    assert GitBackend(path).read_many(written) == written


@pytest.mark.parametrize("damage", DAMAGES)
def test_merging_packs_loses_nothing_to_a_damaged_index(path: Path, damage: Damage) -> None:
    written = filled(path, 20)
    damaged = damage_one(path, damage)
    backend = GitBackend(path)
    assert backend.maintain()
    assert len(indexes(path)) < 20
    damaged.unlink()
    subprocess.run(
        ["git", "-C", str(path), "index-pack", str(damaged.with_suffix(".pack"))],
        check=True,
        capture_output=True,
    )
    assert GitBackend(path).read_many(written) == written


def test_one_that_comes_later_is_checked_too(path: Path) -> None:
    written = filled(path)
    backend = GitBackend(path)
    assert backend.read_many(written) == written
    packed = build_pack(dict([blob(b"from elsewhere")]))
    base = path / "objects/pack" / f"pack-{'0' * 40}"
    content = bytearray(packed.idx)
    place(0xFFFFFFFF)(content, 1)
    put(base.with_suffix(".pack"), packed.pack)
    put(base.with_suffix(".idx"), bytes(content))
    with pytest.raises(DamagedIndex, match=base.name):
        backend.read_many(written)


def test_an_index_that_another_store_lends_is_checked(path: Path, tmp_path: Path) -> None:
    filled(path)
    clone = tmp_path / "clone.git"
    subprocess.run(
        ["git", "clone", "-q", "--mirror", "--shared", str(path), str(clone)], check=True, capture_output=True
    )
    tip = GitBackend(clone).refs()[MAIN]
    assert tip in GitBackend(clone).read_many([tip])
    damaged = damage_one(path, place(0xFFFFFFFF))
    with pytest.raises(DamagedIndex, match=damaged.name):
        GitBackend(clone).read_many([tip])


def test_what_has_not_changed_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = filled(path)
    backend = GitBackend(path)
    backend.read_many(written)
    looked: list[str] = []
    check = CheckedPacks._check

    def counted(self: CheckedPacks, path: str, whole: bool) -> None:
        assert not whole
        looked.append(path)
        check(self, path, whole)

    monkeypatch.setattr(CheckedPacks, "_check", counted)
    backend.read_many(written)
    assert looked == []
    backend.write(dict([blob(b"one more")]))
    backend.read_many(written)
    assert looked == []  # it knows what it wrote itself
    backend.maintain()
    backend.read_many(written)
    assert looked == []  # and merged
    GitBackend(path).write(dict([blob(b"by another")]))
    backend.read_many(written)
    assert len(looked) == 1  # the new one alone


def test_an_index_of_version_1_is_checked_as_well(path: Path, tmp_path: Path) -> None:
    filled(path, 1)
    (pack,) = (path / "objects/pack").glob("*.pack")
    old = tmp_path / "old.idx"
    subprocess.run(
        ["git", "index-pack", "--index-version=1", "-o", str(old), str(pack)], check=True, capture_output=True
    )
    content = bytearray(old.read_bytes())
    size = pack.stat().st_size
    check_index(bytes(content), size)
    struct.pack_into(">I", content, 1024, size)
    signed(content)
    with pytest.raises(CorruptPack):
        check_index(bytes(content), size)


CUTTING = """
import os, sys
from pathlib import Path
from reactifact._store._backends.git import checked_packs
from reactifact._store._backends.git.backend import GitBackend
from reactifact.errors import StoreError

path, file, *oids = sys.argv[1:]
checked_packs._LOOK_AGAIN = 0
backend = GitBackend(path)
backend.read_many(oids[:2])
content = Path(file).read_bytes()
os.chmod(file, 0o644)
os.truncate(file, 500)
for oid in oids:
    try:
        GitBackend(path).read_many([oid])
    except StoreError as error:
        assert file in str(error) or oid in str(error)
    try:
        backend.read_many([oid])
    except StoreError as error:
        print(error)
Path(file + ".new").write_bytes(content)
os.replace(file + ".new", file)
assert len(backend.read_many(oids)) == len(oids)
"""


@pytest.mark.parametrize("extension", [".pack", ".idx"])
def test_a_file_that_is_cut_while_it_is_in_use_is_named(path: Path, extension: str) -> None:
    """To read on in what libgit2 has mapped ends the process, so it is done in one of its own."""
    content = random.Random(7).randbytes(100_000)
    written = dict([blob(content + b"%d" % number) for number in range(9)])
    GitBackend(path).write(written)
    file = indexes(path)[0].with_suffix(extension)
    size = file.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", CUTTING, str(path), str(file), *written],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    assert all(
        line.startswith(f"{file} was cut from {size} to 500 bytes while it is in use") for line in lines
    )


def test_the_files_are_looked_at_again_once_a_second(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = filled(path)
    backend = GitBackend(path)
    backend.read_many(written)
    clock = [time.monotonic()]
    looks: list[str] = []
    look = os.scandir
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(os, "scandir", lambda folder: looks.append(str(folder)) or look(folder))
    for passed, wanted in ((0.0, 0), (0.9, 0), (0.2, 1), (0.9, 0), (5.0, 1)):
        clock[0] += passed
        looks.clear()
        for oid in written:
            backend.read_many([oid])
        assert looks == [str(path / "objects/pack")] * wanted
