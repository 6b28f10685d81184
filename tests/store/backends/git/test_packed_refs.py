"""Packed refs, looked up where they stand in git's file: what we find is what git finds."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from building import put
from support import git

from reactifact._store._backends.git import packed_refs as lockfile
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.protocol import RefUpdate

COUNT = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with branches and annotated tags, whose lines in the file are followed by a second id."""
    path = tmp_path_factory.mktemp("made") / "store.git"
    backend = GitBackend(path, durability="os")
    oids = [put(backend, f"refs/heads/{number:03}/main", str(number)) for number in range(COUNT)]
    chance = random.Random(3)
    for name in ("a", "ä", "z", "user-1/main", "user-10/main", "user-1x", "%25/%outbox"):
        git(path, "update-ref", f"refs/heads/{name}", chance.choice(oids))
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for number in range(0, COUNT, 3):
        git(path, *identity, "tag", "-a", "-m", "mark", f"{number:03}", oids[number])
    git(path, "tag", "plain", oids[0])
    git(path, "pack-refs", "--all")
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store.git"))


def shown_by_git(path: Path) -> dict[str, str]:
    said = git(path, "for-each-ref", "--format=%(refname) %(objectname)")
    return dict(line.split(" ") for line in said.splitlines())


def rewrite(path: Path, form: str) -> None:
    """Put the file into a form that other programs write, or leave it as git wrote it."""
    packed = path / "packed-refs"
    header, *lines = packed.read_text().splitlines(keepends=True)
    assert "sorted" in header
    if form == "unsorted":
        entries = "".join(lines).replace("\n^", " ^").splitlines()
        random.Random(5).shuffle(entries)
        packed.write_text("".join(entry.replace(" ^", "\n^") + "\n" for entry in entries))
    elif form == "a header alone":
        packed.write_text(header)


FORMS = ["as git wrote it", "unsorted", "a header alone"]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_found_is_what_git_finds(path: Path, form: str) -> None:
    rewrite(path, form)
    expected = shown_by_git(path)
    assert (len(expected) > COUNT) is (form != "a header alone")
    backend = GitBackend(path)
    assert backend.refs() == expected
    names = [*expected, "refs/heads/user", "refs/", "refs/heads/0", "refs/tags/", "refs/zzz", "refs/heads/ä"]
    for name in names:
        for prefix in (name, name[:-1], f"{name}0"):
            if prefix.startswith("refs/"):
                found = backend.refs(prefix)
                assert found == {ref: oid for ref, oid in expected.items() if ref.startswith(prefix)}


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_ref_that_is_deleted_is_gone_for_git_and_us(path: Path, form: str) -> None:
    rewrite(path, form)
    backend = GitBackend(path, durability="os")
    expected = shown_by_git(path)
    for number, name in enumerate(random.Random(11).sample(sorted(expected), 12)):
        if number % 2:
            git(path, "update-ref", "-d", name)
        else:
            backend.write({}, [RefUpdate(name, expected[name], None)])
        del expected[name]
        assert backend.refs() == expected == shown_by_git(path)


def test_a_file_that_was_replaced_is_looked_up_anew(path: Path) -> None:
    backend = GitBackend(path, durability="os")
    before = backend.refs()
    oid = put(backend, "refs/heads/later/main", "later")
    git(path, "pack-refs", "--all")
    assert backend.refs() == {**before, "refs/heads/later/main": oid}
    backend.close()
    assert backend.refs("refs/heads/later/") == {"refs/heads/later/main": oid}


def test_git_cannot_pack_a_ref_that_is_being_deleted(path: Path) -> None:
    backend = GitBackend(path, durability="os")
    name = "refs/heads/loose/main"
    oid = put(backend, name, "loose")
    said: list[str] = []

    def pack(step: str) -> None:
        if step == "ref-unpacked":
            command = ("git", "-C", str(path), "-c", "core.packedRefsTimeout=0", "pack-refs", "--all")
            said.append(subprocess.run(command, capture_output=True, text=True, check=False).stderr)

    backend.fault = pack
    backend.write({}, [RefUpdate(name, oid, None)])
    assert "packed-refs.lock" in said[0]
    assert name not in backend.refs()
    assert name not in shown_by_git(path)
    assert not (path / "packed-refs.lock").exists()


CHILD = Path(__file__).with_name("writer_child.py")


def test_the_lock_of_a_killed_deletion_goes_when_the_store_is_opened(path: Path) -> None:
    name, lock = "refs/heads/000/main", path / "packed-refs.lock"
    command = [sys.executable, str(CHILD), "delete", str(path), name, "ref-unpacked"]
    root = os.pathsep.join(map(str, CHILD.parents[3:5]))
    assert subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": root}).returncode < 0
    assert lock.exists()
    (path / "packed-refs.part").touch()  # as a kill while it was written leaves it
    GitBackend(path, read_only=True)
    assert lock.exists()
    backend = GitBackend(path)
    assert not lock.exists()
    assert not (path / "packed-refs.part").exists()
    git(path, "pack-refs", "--all")
    assert backend.refs() == shown_by_git(path)


def test_opening_leaves_the_locks_of_git_and_of_a_deletion_in_progress(path: Path) -> None:
    backend = GitBackend(path, durability="os")
    oid = backend.refs()["refs/heads/000/main"]
    lock = path / "packed-refs.lock"
    lock.touch()  # git's own
    GitBackend(path).maintain()
    assert lock.exists()
    lock.unlink()
    stood: list[bool] = []

    def open_another(step: str) -> None:
        if step == "ref-unpacked":
            GitBackend(path).maintain()
            stood.append(lock.exists())

    backend.fault = open_another
    backend.write({}, [RefUpdate("refs/heads/000/main", oid, None)])
    assert stood == [True]


def test_a_deletion_costs_little_among_many_packed_refs(path: Path) -> None:
    backend = GitBackend(path, durability="os")
    oid = backend.refs()["refs/heads/000/main"]
    packed = path / "packed-refs"
    names = sorted(f"refs/tags/zzz/{number:05}" for number in range(20_000))
    packed.write_text(packed.read_text() + "".join(f"{oid} {name}\n" for name in names))
    begin = time.process_time()
    backend.write({}, [RefUpdate(name, oid, None) for name in names[::200]])
    assert time.process_time() - begin < 1.0
    assert list(backend.refs("refs/tags/zzz/")) == [name for name in names if name not in names[::200]]


def test_head_leaves_thousands_of_branches_soon(path: Path) -> None:
    backend = GitBackend(path, durability="os")
    oid = backend.refs()["refs/heads/000/main"]
    names = [*(f"refs/heads/zz/{number:05}" for number in range(10_000)), "refs/heads/zz/main"]
    header, *lines = (path / "packed-refs").read_text().splitlines(keepends=True)
    branches = [line for line in lines if " refs/heads/" in line and " refs/heads/z" not in line]
    packed = sorted([*branches, *(f"{oid} {name}\n" for name in names)], key=lambda line: line[41:])
    (path / "packed-refs").write_text("".join([header, *packed]))
    git(path, "symbolic-ref", "HEAD", "refs/heads/zz/main")
    begin = time.process_time()
    backend._head.prepare([RefUpdate(name, oid, None) for name in names])
    assert time.process_time() - begin < 1.0
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/000/main\n"


def test_git_may_hold_the_file_for_as_long_as_it_wants(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = GitBackend(path, durability="os")
    oid = backend.refs()["refs/heads/000/main"]
    lock = path / "packed-refs.lock"
    lock.touch()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if sum(slept) > 8:
            lock.unlink(missing_ok=True)

    monkeypatch.setattr(lockfile, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: sum(slept)))
    backend.write({}, [RefUpdate("refs/heads/000/main", oid, None)])
    assert sum(slept) > 8
    assert "refs/heads/000/main" not in shown_by_git(path)
    assert not lock.exists()
