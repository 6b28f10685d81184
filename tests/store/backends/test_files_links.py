"""Symbolic links inside a store lead nowhere: it is refused by name, and nothing outside is touched."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from building import MAIN, blob, commit

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.protocol import ObjectBackend, RefUpdate
from reactifact.checkpoints import SQLiteKVBackend
from reactifact.errors import LinkInStore, ReactifactError

OWN = [
    *("HEAD", "config", "description", "info", "info/attributes", "packed-refs", "objects", "objects/pack"),
    *("objects/info", "objects/info/commit-graphs", "refs", "reactifact", "reactifact/locks"),
    *("reactifact/writers", "refs/heads", "refs/heads/s", MAIN),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.git"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deeper").mkdir(parents=True)
    for name in ("bashrc", "0123456789abcdef", "deeper/notes", "main"):
        (folder / name).write_text("mine\n")
    return folder


def filled(path: Path) -> str:
    tip, objects = commit("head")
    backend = GitBackend(path, durability="os")
    backend.write(objects, [RefUpdate(MAIN, None, tip)])
    backend.close()
    return tip


def content(folder: Path) -> dict[str, bytes | None]:
    return {
        str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None
        for file in sorted(folder.rglob("*"))
    }


def replace_by_link(place: Path, target: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def use(path: Path, tip: str) -> None:
    """Do with a store all that writes to it."""
    backend = GitBackend(path, durability="os")
    backend.refs()
    with backend.lock("run s/main"):
        new, objects = commit("next", tip)
        backend.write(objects, [RefUpdate(MAIN, tip, new)])
    backend.maintain()
    backend.forget_history()
    backend.write({}, [RefUpdate(MAIN, new, None)])
    backend.close()


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_a_link_in_a_repository_is_refused_by_name(
    path: Path, outside: Path, name: str, dangling: bool
) -> None:
    tip = filled(path)
    before = content(outside)
    inside = content(path)
    target = outside if inside.get(name, b"") is None else outside / "bashrc"
    replace_by_link(path / name, outside / "nothing" if dangling else target)
    with pytest.raises(LinkInStore, match=f"{path / name} is a symbolic link"):
        use(path, tip)
    assert content(outside) == before


@pytest.mark.parametrize("name", ["reactifact-creating", "info", "objects/pack", "refs/heads"])
def test_a_store_is_not_made_through_a_link(path: Path, outside: Path, name: str) -> None:
    path.mkdir()
    (path / "reactifact-creating").touch()
    replace_by_link(path / name, outside)
    before = content(outside)
    with pytest.raises(ReactifactError, match=r"is a symbolic link|with other things in it"):
        GitBackend(path)
    assert content(outside) == before


def lock_of_a_run(folder: Path) -> Path:
    return folder / f"named-{hashlib.sha256(b'run s/main').hexdigest()[:40]}"


@pytest.mark.parametrize("which", ["named", "HEAD", "stripe"])
def test_a_lock_file_that_is_a_link_is_not_written_through(path: Path, outside: Path, which: str) -> None:
    tip = filled(path)
    locks = path / "reactifact/locks"
    names = {
        "named": [lock_of_a_run(locks).name],
        "HEAD": ["HEAD"],
        "stripe": [f"stripe-{at:02}" for at in range(64)],
    }
    for name in names[which]:
        replace_by_link(locks / name, outside / "bashrc")
    (path / "HEAD").write_text("ref: refs/heads/absent\n")
    before = content(outside)
    with pytest.raises(LinkInStore, match=str(locks)):
        use(path, tip)
    assert content(outside) == before


@pytest.mark.parametrize("name", ["0123456789abcdef", "bashrc"])
def test_only_what_carries_our_mark_is_swept(path: Path, name: str) -> None:
    filled(path)
    writers = path / "reactifact/writers"
    writers.mkdir(exist_ok=True)
    mine, link = writers / name, writers / "fedcba9876543210"
    mine.write_text("mine\n")
    dead = writers / "00000000000000ff"
    dead.write_bytes(b"reactifact writer: process 1 on nowhere\n")
    GitBackend(path).close()
    assert mine.read_text() == "mine\n"
    assert not dead.exists()
    link.symlink_to(mine)
    with pytest.raises(LinkInStore, match=str(link)):
        GitBackend(path).maintain()
    assert mine.read_text() == "mine\n"


def write_under_lock(place: Path) -> None:
    backend = SQLiteKVBackend(place, durability="os")
    with backend.lock("run s/main"):
        backend.write(dict([blob(b"more")]), [])


@pytest.mark.parametrize("part", ["-locks", "-locks/named", "-wal", "-shm", "-journal"])
def test_links_beside_a_sqlite_file_are_not_followed(tmp_path: Path, outside: Path, part: str) -> None:
    place = tmp_path / "s.db"
    tip, objects = commit("head")
    backend = SQLiteKVBackend(place, durability="os")
    backend.write(objects, [RefUpdate(MAIN, None, tip)])
    backend.close()
    if part == "-locks/named":
        replace_by_link(lock_of_a_run(tmp_path / "s.db-locks"), outside / "bashrc")
    else:
        replace_by_link(Path(f"{place}{part}"), outside if part == "-locks" else outside / "bashrc")
    before = content(outside)
    with pytest.raises(LinkInStore, match=str(place)):
        write_under_lock(place)
    assert content(outside) == before


@pytest.mark.parametrize("kind", ["git", "sqlite"])
def test_a_folder_of_locks_that_was_taken_away_is_made_again(tmp_path: Path, kind: str) -> None:
    backend: ObjectBackend
    if kind == "git":
        backend, folder = GitBackend(tmp_path / "s.git", durability="os"), tmp_path / "s.git/reactifact"
    else:
        backend, folder = SQLiteKVBackend(tmp_path / "s.db", durability="os"), tmp_path / "s.db-locks"
    tip, objects = commit("head")
    backend.write(objects, [RefUpdate(MAIN, None, tip)])
    with backend.lock("run s/main"):
        pass
    shutil.rmtree(folder)
    with backend.lock("run s/main"):
        new, objects = commit("next", tip)
        backend.write(objects, [RefUpdate(MAIN, tip, new)])
    assert backend.refs() == {MAIN: new}
    with backend.lock("run s/main"):
        shutil.rmtree(folder)
        os.makedirs(folder)
        with backend.lock("run s/main"):  # whoever took the folder away took the lock in it away
            pass
    backend.write(dict([blob(b"after")]), [])
    backend.close()
