"""Loose objects and packs that git made: read as they are, refused where they are damaged."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest
from support import git

from reactifact._store._backends.bundle import unpack
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.git.pack_entries import DamagedPack
from reactifact._store.objects import GitObject, object_id
from reactifact._store.protocol import RefUpdate
from reactifact.errors import MissingObject, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    assert GitBackend(tmp_path / "state.git", durability="os").repository.is_bare
    return tmp_path / "state.git"


def loose(path: Path, text: str) -> tuple[str, Path]:
    oid = git(path, "hash-object", "-w", "--stdin", text=text).strip()
    file = path / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    return oid, file


def test_a_loose_object_is_read(path: Path) -> None:
    oid, _ = loose(path, "hello\n" * 1000)
    assert GitBackend(path).read_many([oid]) == {oid: GitObject("blob", b"hello\n" * 1000)}
    with pytest.raises(MissingObject):
        GitBackend(path).read_many(["0" * 40])


@pytest.mark.timeout(60)  # libgit2 never comes back from some of these
def test_every_damaged_byte_of_a_loose_object_is_refused(path: Path) -> None:
    oid, file = loose(path, '{\n  "text": "fact 1"\n}\n')
    whole = file.read_bytes()
    refusals: list[str] = []
    for position in range(len(whole)):
        for mask in (0xFF, 0x01, 0x80):
            changed = bytearray(whole)
            changed[position] ^= mask
            file.write_bytes(changed)
            try:
                found = GitBackend(path, read_only=True).read_many([oid])
            except StoreError as error:
                refusals.append(str(error))
            else:  # a bit that pads the compressed data: the object is what it was
                assert found[oid].data == b'{\n  "text": "fact 1"\n}\n'
                assert mask != 0xFF
    assert len(refusals) > 2.5 * len(whole)
    assert all(oid in text for text in refusals)
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        with pytest.raises(StoreError, match="is damaged"):
            GitBackend(path, read_only=True).read_many([oid])
    for other in (b"blob 3\0hell", b"blob 4", b"note 4\0hell", b"blob 4\0help"):
        file.write_bytes(zlib.compress(other))
        with pytest.raises(StoreError, match="is damaged"):
            GitBackend(path, read_only=True).read_many([oid])


def test_a_pack_with_deltas_of_both_kinds_is_unpacked(path: Path) -> None:
    lines = [f"line {number} {number * 7919 % 1000}\n" for number in range(3000)]
    texts = ["".join([*lines[:cut], f"changed {cut}\n", *lines[cut:]]) for cut in range(0, 3000, 100)]
    expected = {loose(path, text)[0]: text.encode() for text in texts}
    ids = "\n".join(expected).encode()
    for options in ([], ["--delta-base-offset"]):
        command = ["git", "-C", str(path), "pack-objects", "-q", "--stdout", "--depth=20", *options]
        pack = subprocess.run(command, input=ids, capture_output=True, check=True).stdout
        assert len(pack) < sum(map(len, texts)) / 10
        found = unpack(pack)
        assert {oid: item.data for oid, item in found.items()} == expected
        with pytest.raises(DamagedPack, match="checksum"):
            unpack(pack[:-40])


def test_objects_in_packs_are_read_without_a_look_for_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = GitBackend(tmp_path / "state.git")
    objects = {object_id("blob", data): GitObject("blob", data) for data in (b"%d" % n for n in range(50))}
    backend.write(objects, [RefUpdate("refs/heads/s/x", None, next(iter(objects)))])
    looked: list[str] = []

    def read_loose(folder: str, oid: str, *rest: object) -> None:
        looked.append(oid)

    monkeypatch.setattr("reactifact._store._backends.git.backend.read_loose", read_loose)
    assert GitBackend(tmp_path / "state.git").read_many(objects) == objects
    assert not looked
