"""A disk that takes upper and lower case for the same: ids that differ by case alone are refused.

The disk is a fake layer below `os`: every path below the test's folder is looked up as such a disk does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import blob
from support import Note, git

from reactifact import SessionStore
from reactifact._store._backends.git import GitBackend
from reactifact._store._backends.git.refs import RefFolder
from reactifact._store.objects import GitObject, object_id
from reactifact._store.protocol import RefUpdate
from reactifact.branching import BranchStore
from reactifact.cli import main
from reactifact.errors import NameTaken, StoreBusy

pytestmark = pytest.mark.anyio


OF_ONE_PATH = [
    "listdir",
    "open",
    "stat",
    "lstat",
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "scandir",
    "readlink",
    "utime",
    "chmod",
]
OF_TWO_PATHS = ("rename", "replace", "link")


@pytest.fixture
def folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir

    def on_the_disk(path: Any) -> Any:
        """Return the path of what a folding disk finds under a name."""
        whole = path if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        if isinstance(whole, int) or not whole.startswith(f"{tmp_path}/"):
            return path
        found = str(tmp_path)
        for part in whole[len(found) + 1 :].split("/"):
            try:
                listed = listdir(found)
            except OSError:
                listed = []
            same = (name for name in listed if name.casefold() == part.casefold())
            found += "/" + (part if part in listed else next(same, part))
        return found

    def folded(call: Callable[..., Any], paths: int) -> Callable[..., Any]:
        def on_disk(*arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                arguments = (*map(on_the_disk, arguments[:paths]), *arguments[paths:])
            return call(*arguments, **options)

        return on_disk

    for paths, names in ((1, OF_ONE_PATH), (2, OF_TWO_PATHS)):
        for name in names:
            monkeypatch.setattr(os, name, folded(getattr(os, name), paths))
    monkeypatch.setattr("builtins.open", folded(open, 1))


async def keep(place: Path, session_id: str, text: str) -> None:
    session = await SessionStore(place).open(session_id)
    session.context.create(Note(text=text), id="note")
    await session.save()


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize("packed", [False, True])
async def test_a_session_that_differs_by_case_alone_is_not_the_other(tmp_path: Path, packed: bool) -> None:
    place = tmp_path / "state.git"
    await keep(place, "tenant", "private")
    if packed:
        git(place, "pack-refs", "--all")
    store = SessionStore(place)
    assert not await store.has_session("Tenant")
    assert await store.load_session("Tenant") is None
    assert not (await store.open("Tenant")).loaded
    await store.delete_session("Tenant")
    with pytest.raises(NameTaken, match=r"refs/heads/Tenant/main cannot be made.*refs/heads/tenant is there"):
        await keep(place, "Tenant", "of another")
    kept = await SessionStore(place).load_session("tenant")
    assert kept is not None
    assert kept.get("note").data.text == "private"
    assert await SessionStore(place).list_sessions() == ["tenant"]


@pytest.mark.usefixtures("folding")
async def test_a_branch_that_differs_by_case_alone_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "state.git"
    await keep(place, "s", "x")
    branches = BranchStore(place)
    await branches.fork("s/main", "s/plan")
    with pytest.raises(NameTaken, match="upper and lower case"):
        await branches.fork("s/main", "s/Plan")
    assert await branches.list_branches("s") == ["plan"]
    await branches.fork("s/main", "s/other")


@pytest.mark.usefixtures("folding")
def test_two_that_differ_by_case_alone_and_are_made_at_once_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "state.git"
    oid, content = blob(b"x")
    theirs = object_id("blob", b"y")
    GitBackend(place).write({oid: content, theirs: GitObject("blob", b"y")})
    tried: list[str] = []
    make_way = RefFolder._make_way

    def and_then_the_other(folder: RefFolder, name: str) -> None:
        make_way(folder, name)
        if not tried:
            tried.append(name)
            other = GitBackend(place, lock_wait=0.0)
            with pytest.raises(StoreBusy):
                other.write({}, [RefUpdate("refs/heads/Tenant/main", None, theirs)])

    monkeypatch.setattr(RefFolder, "_make_way", and_then_the_other)
    GitBackend(place).write({}, [RefUpdate("refs/heads/tenant/main", None, oid)])
    assert tried == ["refs/heads/tenant/main"]
    assert GitBackend(place).refs("refs/heads/") == {"refs/heads/tenant/main": oid}
    with pytest.raises(NameTaken):
        GitBackend(place).write({}, [RefUpdate("refs/heads/Tenant/main", None, theirs)])


async def test_elsewhere_they_are_two_and_names_stay_readable(tmp_path: Path) -> None:
    place = tmp_path / "state.git"
    if os.path.exists(tmp_path.parent / tmp_path.name.upper()):
        pytest.skip("this disk folds case")
    await keep(place, "tenant", "one")
    await keep(place, "Tenant", "other")
    assert await SessionStore(place).list_sessions() == ["Tenant", "tenant"]
    assert "refs/heads/Tenant/main" in git(place, "for-each-ref", "--format=%(refname)")


@pytest.mark.parametrize("setting", ["core.ignorecase", "core.precomposeunicode"])
async def test_what_git_noted_of_the_disk_counts_beside_the_trial(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "state.git"
    git(tmp_path, "init", "-q", "--bare", "state.git")
    await keep(path, "Ann", "first")
    git(path, "config", setting, "true")
    with pytest.raises(NameTaken, match="ann"):
        await keep(path, "ann", "second")
    await keep(path, "bob", "other")
    assert await SessionStore(path).list_sessions() == ["Ann", "bob"]


async def test_a_check_names_what_a_clone_on_a_folding_disk_would_lose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.git"
    for name in ("Ann", "bob"):
        await keep(path, name, name)
    assert main(["replay", str(path), "--session", "bob", "--verify-all"]) == 0
    assert "upper and lower case" not in capsys.readouterr().err
    await keep(path, "ann", "second")
    assert main(["audit", str(path), "ann", "note", "--json"]) == 0
    report = tmp_path / "report.json"
    report.write_text(capsys.readouterr().out)
    for command in (
        ["replay", str(path), "--session", "bob", "--verify-all"],
        ["verify", str(path), str(report)],
    ):
        assert main(command) == 0
        said = capsys.readouterr().err
        assert "refs/heads/Ann and refs/heads/ann differ in upper and lower case alone" in said
        assert said.count("\n") == 1
