"""Git called for another store: which one a name means, what is said of passwords, what a push may do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import git

from reactifact._sessions.remote import Move, open_remote, tracking_ref, without_secrets
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import RefUpdate
from reactifact.errors import RemoteError

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend(tmp_path: Path) -> GitBackend:
    git(tmp_path, "init", "--quiet", "--bare", "hub.git")
    made = GitBackend(tmp_path / "a.git", durability="os")
    assert made.repository.is_bare  # which makes it
    return made


def commits(backend: GitBackend, tmp_path: Path) -> tuple[Oid, Oid]:
    """Return two commits without a common parent, stored."""
    tree = git(tmp_path / "a.git", "hash-object", "-t", "tree", "-w", "--stdin", text="").strip()
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    made = [git(tmp_path / "a.git", *who, "commit-tree", tree, "-m", text).strip() for text in "ab"]
    return made[0], made[1]


def test_a_password_is_never_shown() -> None:
    said = "fatal: https://me:secret@host/x.git and ssh://git@host/y and https://me@host"
    assert (
        without_secrets(said) == "fatal: https://me:***@host/x.git and ssh://git@host/y and https://me@host"
    )
    assert tracking_ref("origin", "refs/heads/s/%outbox") == "refs/remotes/origin/s/%outbox"


async def test_a_name_means_what_git_knows_else_an_address(backend: GitBackend, tmp_path: Path) -> None:
    place = str(tmp_path / "a.git")
    with pytest.raises(RemoteError, match=r"git --git-dir=.* remote add origin"):
        await open_remote(backend, None)
    git(tmp_path / "a.git", "remote", "add", "one", str(tmp_path / "hub.git"))
    assert (await open_remote(backend, None)).name == "one"  # the only one
    git(tmp_path / "a.git", "remote", "add", "two", "https://host/two.git")
    with pytest.raises(RemoteError, match="one, two"):
        await open_remote(backend, None)
    git(tmp_path / "a.git", "remote", "add", "origin", "https://host/x.git")
    git(tmp_path / "a.git", "remote", "set-url", "--push", "origin", "https://host/push.git")
    found = await open_remote(backend, None)
    assert (found.name, found.url, found.push_url) == (
        "origin",
        "https://host/x.git",
        "https://host/push.git",
    )
    by_path = await open_remote(backend, str(tmp_path / "hub.git"))
    assert by_path.name.startswith("at-")
    assert by_path.git_dir == place
    assert not by_path.is_shallow


@pytest.mark.parametrize("atomic", ["true", "false"])
async def test_a_push_moves_forward_or_says_why_not(backend: GitBackend, tmp_path: Path, atomic: str) -> None:
    git(tmp_path / "hub.git", "config", "receive.advertiseAtomic", atomic)
    one, other = commits(backend, tmp_path)
    remote = await open_remote(backend, str(tmp_path / "hub.git"))
    assert await remote.list(["refs/heads/*"]) == {}
    branches = [Move("refs/heads/s/main", None, one), Move("refs/heads/s/%outbox", None, one)]
    assert await remote.push(branches) is None
    assert set(await remote.list(["refs/heads/*"])) == {"refs/heads/s/main", "refs/heads/s/%outbox"}
    why = await remote.push([Move("refs/heads/s/main", one, other), Move("refs/heads/s/x", None, one)])
    assert why is not None
    assert "rejected" in why
    held = await remote.list(["refs/heads/*"])
    assert held["refs/heads/s/main"] == one
    if atomic == "true":
        assert "refs/heads/s/x" not in held


async def test_what_was_fetched_is_there_and_no_ref_has_moved(backend: GitBackend, tmp_path: Path) -> None:
    other = GitBackend(tmp_path / "hub.git", durability="os")
    blob = GitObject("blob", b"x")
    oid = git(tmp_path / "hub.git", "hash-object", "-w", "--stdin", text="x").strip()
    other.write({oid: blob}, [RefUpdate("refs/reactifact/leases/s", None, oid)])
    remote = await open_remote(backend, str(tmp_path / "hub.git"))
    await remote.fetch(["refs/reactifact/leases/s"])
    assert backend.read_many([oid]) == {oid: blob}
    assert backend.refs() == {}
    with pytest.raises(RemoteError, match="git fetch"):
        await remote.fetch(["refs/heads/nothing"])
