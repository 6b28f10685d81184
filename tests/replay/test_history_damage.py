"""A changed byte, an exchanged payload, a forged message: `replay --verify-all` finds it."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from damage import make_store, unpack_objects
from support import fsck, git

from reactifact._sessions.stores import open_database
from reactifact._store import canonical
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.commits import CommitRecord, read_record, read_roots, state_hash
from reactifact._store.layout import Meta
from reactifact._store.names import branch_ref
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import CommitObject, Oid
from reactifact._store.protocol import RefUpdate
from reactifact._store.trees import update, walk
from reactifact.cli import main
from reactifact.replay import verify_history

anyio_test = pytest.mark.anyio

STEP = 7
"""By default every so manieth byte is flipped; the offset differs from object to object."""


@pytest.fixture(scope="module")
def anyio_backend() -> Any:
    return ("asyncio", {})


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: Any) -> Path:
    path = tmp_path / "state.git"
    await make_store(path)
    fsck(path)
    return path


def check(path: Path) -> int:
    return main(["replay", str(path), "--session", "s", "--verify-all"])


@anyio_test
async def test_a_store_that_is_whole_passes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(store) == 0
    assert "every State and every payload hash matches" in capsys.readouterr().out
    unpack_objects(store)
    assert check(store) == 0


def flip(store: Path, files: list[Path], step: int) -> tuple[int, list[str]]:
    """Flip bytes one at a time; return how many, and the flips that nobody noticed.

    A flip after which the file still decompresses to exactly the object it names (a repeat coded by the
    place of an equal one) has damaged nothing and is not counted.
    """
    count, missed = 0, []
    for number, file in enumerate(files):
        whole = file.read_bytes()
        for position in range(number % step, len(whole), step):
            changed = bytearray(whole)
            changed[position] ^= 0xFF
            put(file, changed)
            if found_by_us(store) or refused_by_git(store):
                count += 1
                continue
            if holds_what_it_names(file):
                continue
            missed.append(f"{file.parent.name}{file.name} byte {position}")
        put(file, whole)
    return count, missed


def put(file: Path, content: bytes) -> None:
    """Exchange a file, not its bytes: libgit2 keeps packs mapped, and a mapped file must not shrink."""
    fresh = file.with_suffix(".fresh")
    fresh.write_bytes(content)
    fresh.replace(file)


def holds_what_it_names(file: Path) -> bool:
    """Whether a loose object is, byte for byte, what its name says; nothing of ours is asked."""
    try:
        content = zlib.decompress(file.read_bytes())
    except zlib.error:
        return False
    return hashlib.sha1(content).hexdigest() == file.parent.name + file.name


def found_by_us(store: Path) -> bool:
    database = open_database(store, read_only=True)
    try:
        return not verify_history(database, "s").ok
    except Exception:
        return True  # refused before it could be checked
    finally:
        database.backend.close()


def refused_by_git(store: Path) -> bool:
    command = ["git", "-C", str(store), "fsck", "--strict", "--no-progress"]
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


@anyio_test
async def test_any_flipped_byte_of_a_sample_is_found(store: Path) -> None:
    files = unpack_objects(store)
    count, missed = flip(store, files, STEP * 8)
    assert count > len(files)
    assert missed == []
    assert check(store) == 0


@anyio_test
async def test_a_flipped_byte_of_a_pack_is_found(store: Path) -> None:
    packs = [file for file in (store / "objects" / "pack").iterdir() if file.suffix in (".pack", ".idx")]
    for file in packs:
        file.chmod(0o644)
    count, missed = flip(store, packs, STEP * 40)
    assert count > 50
    assert missed == []


@anyio_test
@pytest.mark.parametrize("kind", ["idx", "midx"])
async def test_a_damaged_index_is_named_before_it_is_followed(store: Path, kind: str) -> None:
    if kind == "midx":
        git(store, "multi-pack-index", "write")
        (damaged,) = (store / "objects" / "pack").glob("multi-pack-index")
    else:
        damaged = sorted((store / "objects" / "pack").glob("*.idx"))[0]
    content = bytearray(damaged.read_bytes())
    content[len(content) - 45] ^= 0xFF  # among the places in the pack: libgit2 would follow it anywhere
    put(damaged, content)
    report = verify_history(open_database(store, read_only=True), "s")
    assert not report.ok
    assert f"{damaged} is damaged; remove it" in str(report)
    damaged.unlink()
    if kind == "idx":
        git(store, "index-pack", str(damaged.with_suffix(".pack")))
    assert verify_history(open_database(store, read_only=True), "s").ok


@pytest.mark.full
@anyio_test
async def test_any_flipped_byte_is_found(store: Path) -> None:
    files = unpack_objects(store)
    count, missed = flip(store, files, 1)
    assert count > 10_000
    assert missed == []


@anyio_test
async def test_the_command_ends_with_one_for_each_damaged_object(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in unpack_objects(store):
        whole = file.read_bytes()
        changed = bytearray(whole)
        changed[len(whole) // 2] ^= 0xFF
        file.write_bytes(changed)
        assert check(store) == 1, file
        captured = capsys.readouterr()
        assert file.parent.name + file.name in captured.out + captured.err
        file.write_bytes(whole)
    for file in unpack_again(store):
        whole = file.read_bytes()
        file.unlink()
        assert check(store) == 1, file
        capsys.readouterr()
        file.write_bytes(whole)
    assert check(store) == 0


def unpack_again(store: Path) -> list[Path]:
    return sorted((store / "objects").glob("[0-9a-f][0-9a-f]/*"))[::5]


# -- valid for git, and still not the truth ----------------------------------------------------------

Forge = Callable[[Staging, CommitRecord, dict[Any, Any]], None]


class Forger:
    """Rewrites the history of a branch so that git finds nothing wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend = GitBackend(path, durability="os")
        self.objects = Staging(Database(self.backend))
        self.ref = branch_ref("s", "main")
        self.tip: Oid = self.backend.refs(self.ref)[self.ref]
        self.records: dict[Oid, CommitRecord] = {}  # those that are exchanged

    def payload_path(self, artifact_id: str) -> tuple[Any, ...]:
        roots = read_roots(self.objects, self.tip)
        name = artifact_id.replace(":", "%3A") + ".json"
        for path, _ in walk(self.objects, roots.artifacts):
            if path[-1] == name:
                return ("artifacts", *path)
        raise LookupError(artifact_id)

    def rewrite(
        self,
        change: Callable[[Oid, dict[tuple[str, ...], Any]], None],
        *,
        new_state: bool = False,
    ) -> None:
        """Rewrite every commit: `change(commit, edits)` says what becomes of its tree."""
        made: dict[Oid, Oid] = {}
        order: list[Oid] = []
        waiting = [self.tip]
        while waiting:
            oid = waiting[-1]
            parents = [p for p in self.objects.commit(oid).parents if p not in order]
            if parents:
                waiting += parents
                continue
            waiting.pop()
            if oid not in order:
                order.append(oid)
        for oid in order:
            old = self.objects.commit(oid)
            edits: dict[tuple[str, ...], Any] = {}
            change(oid, edits)
            tree = update(self.objects, old.tree, edits)
            assert tree is not None
            message = old.message
            parents = tuple(made.get(p, p) for p in old.parents)
            commit = CommitObject(tree, parents, old.author, old.committer, message)
            state = before = state_hash(read_roots(self.objects, oid))
            if new_state:
                state = state_hash(read_roots(self.objects, self.objects.put_commit(commit)))
            record = self.records.get(oid) or read_record(self.objects, oid)
            assert record is not None
            header = record.header(tree, parents, state)
            commit = replace(commit, message=message.replace(before, state), record=header)
            made[oid] = self.objects.put_commit(commit)
        self.backend.write(self.objects.objects, [RefUpdate(self.ref, self.tip, made[self.tip])])
        self.backend.close()


def other_payload(forger: Forger) -> Any:
    return blob_entry(forger.objects.put("blob", canonical.encode({"text": "FORGED"})))


def told(forger: Forger, capsys: pytest.CaptureFixture[str], forge: Any, *, new_state: bool = False) -> str:
    """Return what the check says of a history that `forge` rewrote and git finds in order."""
    forger.rewrite(forge, new_state=new_state)
    git(forger.path, "branch", "-D", "s/b")
    fsck(forger.path)
    assert check(forger.path) == 1
    return capsys.readouterr().out


def exchange(forger: Forger, edits: dict[Any, Any], oid: Oid, path: tuple[Any, ...]) -> bool:
    """Exchange the payload where it stands in a commit's tree."""
    roots = read_roots(forger.objects, oid)
    there = {("artifacts", *found) for found, _ in walk(forger.objects, roots.artifacts)}
    if path not in there:
        return False
    edits[path] = other_payload(forger)
    return True


@anyio_test
async def test_an_exchanged_payload_does_not_fit_the_state(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forger = Forger(store)
    path = forger.payload_path("finding:fact:0")
    out = told(forger, capsys, lambda oid, edits: exchange(forger, edits, oid, path) and None)
    assert "its State is" in out
    assert "(finder: " in out  # the first commit that does not match, by its sentence


@anyio_test
async def test_nor_the_bookkeeping_where_the_state_is_forged_too(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forger = Forger(store)
    path = forger.payload_path("finding:fact:0")
    out = told(forger, capsys, lambda oid, edits: exchange(forger, edits, oid, path) and None, new_state=True)
    assert "the payload of 'finding:fact:0' v0 is blob" in out


@anyio_test
async def test_nor_the_record_where_the_bookkeeping_is_forged_too(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forger = Forger(store)
    path = forger.payload_path("finding:fact:0")
    data = canonical.encode({"text": "FORGED"})

    def forge(oid: Oid, edits: dict[Any, Any]) -> None:
        if not exchange(forger, edits, oid, path):
            return
        roots = read_roots(forger.objects, oid)
        for place, blob in walk(forger.objects, roots.meta):
            if place == path[2:]:
                meta = Meta.decode(forger.objects.read(blob).data)
                meta = replace(
                    meta, payload=edits[path].oid, content_hash=canonical.content_hash(data), previous=None
                )
                entry = blob_entry(forger.objects.put("blob", meta.encode()))
                edits[".reactifact", "meta", *place] = entry

    out = told(forger, capsys, forge, new_state=True)
    assert "its record writes 'finding:fact:0' v0" in out


@anyio_test
async def test_a_forged_record_does_not_fit_its_message(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forger = Forger(store)

    def forge(oid: Oid, edits: dict[Any, Any]) -> None:
        record = read_record(forger.objects, oid)
        assert record is not None
        if record.kind == "agent":
            forger.records[oid] = replace(record, run_id="somebody else's")

    out = told(forger, capsys, forge)
    assert "its record says Run" in out


@anyio_test
async def test_a_payload_moved_to_another_id_is_found(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forger = Forger(store)
    path = forger.payload_path("fact:1")
    moved = (*path[:-1], "fact%3A9.json")

    def forge(oid: Oid, edits: dict[Any, Any]) -> None:
        if exchange(forger, edits, oid, path):
            roots = read_roots(forger.objects, oid)
            entries = {("artifacts", *p): o for p, o in walk(forger.objects, roots.artifacts)}
            edits[moved], edits[path] = blob_entry(entries[path]), None

    out = told(forger, capsys, forge, new_state=True)
    assert "'fact:1' has bookkeeping and no payload" in out


@anyio_test
@pytest.mark.parametrize("content", [b"[]\n", b"nonsense", b"{}\n", b"\xff", b'{"id": 5}\n'])
async def test_bookkeeping_that_is_none_is_told_and_not_raised(
    store: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    forger = Forger(store)
    path = forger.payload_path("finding:fact:0")

    def forge(oid: Oid, edits: dict[Any, Any]) -> None:
        roots = read_roots(forger.objects, oid)
        if path[2:] in {place for place, _ in walk(forger.objects, roots.meta)}:
            entry = blob_entry(forger.objects.put("blob", content))
            edits[".reactifact", "meta", *path[2:]] = entry

    forger.rewrite(forge)
    assert check(store) == 1
    assert "session s: commit " in capsys.readouterr().out
