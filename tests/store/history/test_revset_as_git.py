"""Revisions as git writes them: every one means the commit that `git rev-parse` names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import pytest
from support import Note

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store._history.revset import find_tag, resolve
from reactifact.branching import BranchStore
from reactifact.errors import UnknownRevision


def git(store: Path, *arguments: str) -> str:
    command = ["git", "-C", str(store), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two sessions, a merge, and tags that git made."""
    place = tmp_path_factory.mktemp("revset") / "state.git"

    async def write() -> None:
        store, branches = SessionStore(place), BranchStore(place)
        for session in ("first", "second"):
            for number in range(3):
                async with store.edit(session) as context:
                    context.create(Note(count=number), id=f"n{number}")
        await branches.fork("first/main", "first/side")
        async with branches.edit("first", "side") as context:
            context.create(Note(text="side"), id="side")
        async with branches.edit("first") as context:
            context.create(Note(text="main"), id="main")
        await branches.merge(into="first/main", source="first/side")
        await store.aclose()
        await branches.aclose()

    anyio.run(write)
    git(place, "tag", "light", "first/main~1")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    git(place, *who, "tag", "-a", "-m", "words", "first/heavy", "first/main~2")
    git(place, *who, "tag", "-a", "-m", "words", "heavier", "first/heavy")
    return place


@pytest.mark.parametrize(
    "text",
    [
        *("HEAD", "@", "HEAD~", "HEAD~1", "HEAD~2", "@~3"),
        *("HEAD^", "HEAD^2", "HEAD^0", "HEAD^2~1", "HEAD^^", "HEAD~1^"),
        *("first/main~2", "second/main^", "refs/heads/second/main~1", "first/main^{commit}"),
        *("light", "light~1", "heavier^{commit}", "first/heavy^{commit}", "refs/tags/light"),
    ],
)  # fmt: skip
def test_it_is_the_commit_that_git_names(place: Path, text: str) -> None:
    database = open_database(place, read_only=True)
    assert resolve(database, text) == git(place, "rev-parse", text)
    database.backend.close()


def test_short_ids_take_steps_too(place: Path) -> None:
    database = open_database(place, read_only=True)
    commit = git(place, "rev-parse", "first/main")
    assert resolve(database, f"{commit[:8]}^2") == git(place, "rev-parse", "first/side")
    assert resolve(database, "^2", session="first") == git(place, "rev-parse", "first/side")
    assert resolve(database, "HEAD~1", session="second") == git(place, "rev-parse", "second/main~1")
    assert resolve(database, "v2~1", session="second") == resolve(database, "v1", session="second")
    database.backend.close()


def test_an_annotated_tag_is_a_tag_of_its_session(place: Path) -> None:
    database = open_database(place, read_only=True)
    tag = find_tag(database, "first/heavy")
    assert tag is not None
    assert tag.commit == git(place, "rev-parse", "first/main~2")
    assert resolve(database, "first/heavy~1") == git(place, "rev-parse", "first/main~3")
    assert resolve(database, "heavier") == git(place, "rev-parse", "heavier^{commit}")
    database.backend.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HEAD~99", "leads beyond"),
        ("first/side^2", "has 1 parent"),
        ("nothing~1", "'nothing' names no commit"),
        ("HEAD^{tree}", "names no commit"),
    ],
)
def test_what_leads_nowhere_is_named(place: Path, text: str, said: str) -> None:
    database = open_database(place, read_only=True)
    with pytest.raises(UnknownRevision, match=said.replace("^", r"\^")):
        resolve(database, text)
    database.backend.close()


def test_a_branch_whose_name_ends_like_a_step_is_itself(tmp_path: Path) -> None:
    async def write() -> None:
        store = SessionStore(tmp_path / "s.git")
        for session in ("a", "a~1"):
            async with store.edit(session) as context:
                context.create(Note(text=session), id="n")
        await store.aclose()

    anyio.run(write)
    database = open_database(tmp_path / "s.git", read_only=True)
    ref = "refs/heads/a%7E1/main"
    assert resolve(database, "a~1") == database.backend.refs(ref)[ref]
    database.backend.close()
