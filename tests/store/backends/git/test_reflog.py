"""What git notes of the refs that it moves in a store: read, let go of, and gone with the ref."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support import git

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import CommitObject, GitObject, Oid, Signature, encode_commit, object_id
from reactifact._store.protocol import LogsMoves, RefUpdate
from reactifact.errors import LinkInStore

NAME = "refs/heads/s/main"
NONE = "0" * 40
WHO = Signature("Ann", "ann@example.com", 0)
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def backend(tmp_path: Path) -> GitBackend:
    return GitBackend(tmp_path / "store.git", durability="os")


def commits(backend: GitBackend, count: int) -> list[Oid]:
    """Return commits side by side, which stand in the store."""
    tree = GitObject("tree", b"")
    root = object_id("tree", b"")
    made = [
        GitObject("commit", encode_commit(CommitObject(root, (), WHO, WHO, f"{n}\n"))) for n in range(count)
    ]
    oids = [object_id("commit", one.data) for one in made]
    kept = [RefUpdate(f"refs/kept/{oid}", None, oid) for oid in oids]
    backend.write({root: tree, **dict(zip(oids, made, strict=True))}, kept)
    return oids


def folder(backend: GitBackend) -> Path:
    return Path(backend.location)


def test_moves_that_git_makes_are_told_and_ours_are_not(backend: GitBackend) -> None:
    assert isinstance(backend, LogsMoves)
    one, two, three = commits(backend, 3)
    assert backend.moves_by_git(NAME) == []
    backend.write({}, [RefUpdate(NAME, None, one)])
    assert backend.moves_by_git(NAME) == []
    git(folder(backend), "update-ref", NAME, two)
    git(folder(backend), "update-ref", "-m", "a\treason", NAME, three)
    assert [(move.old, move.new) for move in backend.moves_by_git(NAME)] == [(one, two), (two, three)]
    assert all(abs(datetime.now(UTC) - move.when) < timedelta(hours=1) for move in backend.moves_by_git(NAME))


def test_of_a_long_log_the_end_is_read(backend: GitBackend) -> None:
    one, two = commits(backend, 2)
    git(folder(backend), "update-ref", NAME, one)
    log = folder(backend) / "logs" / NAME
    line = f"{two} {one} A <a@b> 1700000000 +0000\tpush\n"
    log.write_text(line * 5_000 + "not a line of git's\n" + f"{one} {two} A <a@b> 1700000001 +0000\tpush\n")
    found = backend.moves_by_git(NAME)
    assert 100 < len(found) < 1_000
    assert (found[-1].old, found[-1].new) == (one, two)
    assert {(move.old, move.new) for move in found[:-1]} == {(two, one)}


def test_old_moves_are_let_go_of_and_young_ones_stay(backend: GitBackend) -> None:
    one, two = commits(backend, 2)
    git(folder(backend), "update-ref", NAME, one)
    git(folder(backend), "update-ref", "refs/heads/other/main", one)
    log = folder(backend) / "logs" / NAME
    log.write_text(f"{two} {one} A <a@b> 1700000000 +0000\told\n{log.read_text()}")
    assert backend.forget_moves(datetime.fromtimestamp(1_700_000_001, UTC)) == 1
    assert [move.old for move in backend.moves_by_git(NAME)] == [NONE]
    git(folder(backend), "update-ref", NAME, two)  # git goes on with it
    assert [move.new for move in backend.moves_by_git(NAME)] == [one, two]
    assert backend.forget_moves(LATER) == 3
    assert backend.moves_by_git(NAME) == []
    assert list((folder(backend) / "refs").rglob("*.lock")) == []


def test_what_is_let_go_of_is_removed_by_git(backend: GitBackend) -> None:
    one, two = commits(backend, 2)
    git(folder(backend), "update-ref", NAME, one)
    git(folder(backend), "update-ref", NAME, two)
    backend.write({}, [RefUpdate(f"refs/kept/{one}", one, None)])
    git(folder(backend), "gc", "-q", "--prune=now")
    assert git(folder(backend), "cat-file", "-t", one).strip() == "commit"
    backend.forget_moves(LATER)
    git(folder(backend), "gc", "-q", "--prune=now")
    with pytest.raises(AssertionError, match=r"could not get object info|Not a valid object"):
        git(folder(backend), "cat-file", "-t", one)


def test_a_ref_that_is_deleted_takes_its_log_along(backend: GitBackend) -> None:
    (one,) = commits(backend, 1)
    git(folder(backend), "update-ref", NAME, one)
    git(folder(backend), "symbolic-ref", "HEAD", NAME)
    git(folder(backend), "update-ref", "HEAD", one)
    backend.write({}, [RefUpdate(NAME, one, None)])
    assert not (folder(backend) / "logs" / NAME).exists()
    assert not (folder(backend) / "logs/refs/heads/s").exists()
    assert not (folder(backend) / "logs/HEAD").exists()


def test_a_log_is_neither_read_nor_removed_through_a_link(backend: GitBackend, tmp_path: Path) -> None:
    (one,) = commits(backend, 1)
    backend.write({}, [RefUpdate(NAME, None, one)])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main").write_text("mine\n")
    heads = folder(backend) / "logs/refs/heads"
    heads.mkdir(parents=True)
    os.symlink(outside, heads / "s")
    with pytest.raises(LinkInStore, match="is a symbolic link"):
        backend.forget_moves(LATER)
    with pytest.raises(LinkInStore, match="is a symbolic link"):
        backend.write({}, [RefUpdate(NAME, one, None)])
    assert (outside / "main").read_text() == "mine\n"
