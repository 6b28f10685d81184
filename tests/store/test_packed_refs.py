"""Packed refs, looked up where they stand in git's file: what we find is what git finds."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from building import put
from support import git

from reactifact.store.bare import GitBackend
from reactifact.store.protocol import RefUpdate

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
    elif form == "empty":
        packed.write_text("")
    elif form == "a header alone":
        packed.write_text(header)


FORMS = ["as git wrote it", "unsorted", "empty", "a header alone"]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_found_is_what_git_finds(path: Path, form: str) -> None:
    rewrite(path, form)
    expected = shown_by_git(path)
    assert (len(expected) > COUNT) is (form not in ("empty", "a header alone"))
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
