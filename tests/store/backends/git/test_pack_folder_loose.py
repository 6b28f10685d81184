"""Loose objects and packs that git made: read as they are, refused where they are damaged."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from building import commit
from support import git

from reactifact._store._backends.bundle import unpack
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.git.checked_packs import borrowed_folders
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


LINE = """
import sys
from reactifact._store._backends.git.backend import GitBackend
backend = GitBackend(sys.argv[1])
print(list(backend.read_line(sys.argv[2], 9)))
try:
    backend.read_many([sys.argv[3]])
except Exception as error:
    print(error)
"""


def test_a_loose_parent_that_is_cut_keeps_nobody(path: Path) -> None:
    """libgit2 never comes back from one, so it is read in a process of its own."""
    parent, objects = commit("parent" * 50)
    tip, more = commit("tip", parent)
    body = b"commit %d\0" % len(objects[parent].data) + objects[parent].data
    file = path / "objects" / parent[:2] / parent[2:]
    file.parent.mkdir()
    file.write_bytes(zlib.compress(body))
    GitBackend(path).write({oid: item for oid, item in (objects | more).items() if oid != parent})
    assert list(GitBackend(path).read_line(tip, 9)) == [tip]
    for end in (9, len(zlib.compress(body)) // 2, len(zlib.compress(body)) - 5):
        file.write_bytes(zlib.compress(body)[:end])
        command = [sys.executable, "-c", LINE, str(path), tip, parent]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        line, error = done.stdout.splitlines()
        assert line == str([tip])
        assert error.startswith(f"object {parent} in {path} is damaged")


def test_loose_objects_of_a_store_that_is_borrowed_from_are_read_and_checked(
    path: Path, tmp_path: Path
) -> None:
    oid, file = loose(path, "hello")
    other, _ = loose(path, "others")
    clone = tmp_path / "clone.git"
    git(tmp_path, "clone", "-q", "--mirror", "--shared", str(path), str(clone))
    expected = {oid: GitObject("blob", b"hello"), other: GitObject("blob", b"others")}
    assert GitBackend(clone).read_many([oid]) == {oid: expected[oid]}
    assert GitBackend(clone).read_many([oid, other]) == expected
    GitBackend(clone).write({}, [RefUpdate("refs/heads/s/main", None, oid)])
    file.write_bytes(file.read_bytes()[:-6])
    with pytest.raises(StoreError, match=f"{oid}.*is damaged"):
        GitBackend(clone).read_many([oid])


def test_what_git_moves_out_of_a_pack_is_found(path: Path) -> None:
    oid, other = object_id("blob", b"moved"), object_id("blob", b"other")
    GitBackend(path).write({oid: GitObject("blob", b"moved")})
    GitBackend(path).write({other: GitObject("blob", b"other")})
    backend = GitBackend(path)
    backend.read_many([other])  # the packs are open
    for pack in list((path / "objects/pack").glob("*.pack")):
        content = pack.read_bytes()
        pack.unlink()
        pack.with_suffix(".idx").unlink()
        subprocess.run(["git", "-C", str(path), "unpack-objects", "-q"], input=content, check=True)
    assert backend.read_many([oid]) == {oid: GitObject("blob", b"moved")}
    backend.write({}, [RefUpdate("refs/heads/s/main", None, oid)])


@pytest.mark.timeout(60)  # each followed from each, that is for ever
def test_stores_that_borrow_from_each_other_are_looked_at_once(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.git"
    GitBackend(other).repository.free()
    lines = [f"{path}/objects/{'./' * at}\n{other}/objects/{'./' * at}\n" for at in range(50)]
    for store in (path, other):
        (store / "objects/info").mkdir(exist_ok=True)
        (store / "objects/info/alternates").write_text("".join(lines))
    assert list(borrowed_folders(str(path / "objects"))) == [f"{other}/objects//pack"]
    oid, _ = loose(other, "hello")
    assert GitBackend(path).read_many([oid]) == {oid: GitObject("blob", b"hello")}
