"""Collecting a bare repository: what no ref reaches is gone, what is reached stays, writers go on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support import git

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid, object_id
from reactifact._store.protocol import RefUpdate
from reactifact.errors import MissingObject, StoreError

KEPT, GONE = "refs/kv/kept", "refs/kv/gone"


def put(backend: GitBackend, ref: str, text: str, expected: Oid | None = None) -> Oid:
    """Let a ref hold a blob."""
    oid = object_id("blob", text.encode())
    backend.write({oid: GitObject("blob", text.encode())}, [RefUpdate(ref, expected, oid)])
    return oid


def packed(path: Path) -> list[str]:
    """Return the ids of all objects, wherever they stand."""
    return git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()


@pytest.mark.parametrize("repack", [False, True])
def test_what_no_ref_reaches_is_gone_from_every_pack(tmp_path: Path, repack: bool) -> None:
    path = tmp_path / "state.git"
    backend = GitBackend(path)
    kept, gone = put(backend, KEPT, "kept\n" * 99), put(backend, GONE, "kept\n" * 98 + "gone\n")
    old = put(backend, KEPT, "newer\n" * 99, kept)
    if repack:
        git(path, "repack", "-a", "-d", "-q", "-f")  # one pack, with deltas
    backend.write({}, [RefUpdate(GONE, gone, None)])
    backend.collect()
    assert packed(path) == [old]
    assert backend.read_many([old])[old].data == b"newer\n" * 99
    with pytest.raises(MissingObject):
        backend.read_many([gone])
    git(path, "fsck", "--full", "--strict")


def test_a_pack_of_which_all_is_reached_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    backend = GitBackend(path)
    put(backend, KEPT, "kept")
    before = sorted((path / "objects/pack").iterdir())
    backend.collect()
    backend.close()
    assert sorted((path / "objects/pack").iterdir()) == before


def test_loose_objects_kept_packs_reflogs_and_leftovers_go(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    backend = GitBackend(path)
    kept, gone = put(backend, KEPT, "kept"), put(backend, GONE, "gone")
    git(path, "gc", "--quiet")
    (pack,) = (path / "objects/pack").glob("*.pack")
    pack.with_suffix(".keep").write_text("by somebody")
    backend.write({}, [RefUpdate(GONE, gone, None)])
    loose = git(path, "hash-object", "-w", "--stdin", text="loose").strip()
    (path / "objects/pack/tmp_pack_abc").write_text("left")
    (path / "objects/tmp_objdir-incoming-abc/pack").mkdir(parents=True)
    (path / "logs/refs").mkdir(parents=True)
    backend.collect()
    assert packed(path) == [kept]
    assert loose not in packed(path)
    assert not (path / "objects/pack/tmp_pack_abc").exists()
    assert not (path / "objects/tmp_objdir-incoming-abc").exists()
    assert not (path / "logs").exists()


def test_a_writer_beside_it_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    backend, writer = GitBackend(path, durability="os"), GitBackend(path, durability="os")
    gone = put(backend, GONE, "gone")
    backend.write({}, [RefUpdate(GONE, gone, None)])
    published, walked = threading.Event(), threading.Event()
    waits = iter([True])

    def pause(step: str) -> None:
        if step == "pack-placed" and next(waits, False):
            published.set()
            assert walked.wait(20)

    writer.fault = pause
    backend.fault = lambda step: walked.set() if step == "collect-walked" else None
    made: list[Oid] = []
    thread = threading.Thread(target=lambda: made.append(put(writer, KEPT, "written beside it")))
    thread.start()
    assert published.wait(20)
    backend.collect()  # it has walked before the ref stood there, and waits for the pack that is held
    thread.join()
    assert packed(path) == made
    assert backend.read_many(made)[made[0]].data == b"written beside it"
    git(path, "fsck", "--full", "--strict")


def test_borrowed_objects_are_refused(tmp_path: Path) -> None:
    lender, path = tmp_path / "lender.git", tmp_path / "state.git"
    put(GitBackend(lender), KEPT, "kept")
    git(tmp_path, "clone", "-q", "--bare", "--shared", str(lender), str(path))
    backend = GitBackend(path)
    with pytest.raises(StoreError, match="borrows objects from"):
        backend.require_collectable()
    with pytest.raises(StoreError, match="git repack -a -d"):
        backend.collect()


def test_a_damaged_index_is_refused_and_nothing_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    backend = GitBackend(path)
    gone = put(backend, GONE, "gone")
    backend.write({}, [RefUpdate(GONE, gone, None)])
    (index,) = (path / "objects/pack").glob("*.idx")
    index.chmod(0o644)
    index.write_bytes(b"\xfftOc\0\0\0\7" + index.read_bytes()[8:])
    backend.close()
    with pytest.raises(StoreError, match=r"index|idx"):
        backend.collect()
    assert index.exists()
