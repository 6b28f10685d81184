"""`reactifact hooks install`: a push that is not a state is refused when it is made, in the same words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import pytest
from support import Note, Order, Outside, git, notifier

from reactifact import Runtime, SessionStore
from reactifact._sessions.clones import install_hook
from reactifact.branching import BranchStore
from reactifact.cli import main
from reactifact.errors import NotAStore, StoreError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A clone of a store with the hook and one note, whose path is beside it."""

    async def make() -> None:
        store = SessionStore(tmp_path / "state.git", durability="os")
        session = await store.open("s")
        session.context.create(Note(text="start"), id="n")
        await Runtime(session.context, [], session=session).arun()
        await session.save()
        await store.aclose()

    anyio.run(make)
    assert main(["hooks", "install", str(tmp_path / "state.git")]) == 0
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", "s/main", str(tmp_path / "state.git"), str(folder))
    return folder


def push(work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "by hand", "--allow-empty")
    return subprocess.run(
        ["git", "-C", str(work), "push", *options, "origin", "HEAD:s/main"],
        capture_output=True,
        text=True,
        check=False,
    )


def note(work: Path) -> Path:
    (found,) = work.glob("artifacts/*/*/*/*/n.json")
    return found


def test_a_valid_push_is_taken(work: Path) -> None:
    note(work).write_text('{"text": "better"}')
    assert push(work).returncode == 0
    assert main(["show", str(work.parent / "state.git"), "n", "--session", "s"]) == 0


def test_a_push_that_is_not_a_state_is_refused_with_file_and_line(work: Path) -> None:
    before = git(work, "ls-remote", "origin", "s/main")
    note(work).write_text('{\n"text": \n}')
    done = push(work)
    assert done.returncode == 1
    assert "n.json:3: it is not JSON" in done.stderr
    assert "the last good commit is" in done.stderr
    assert git(work, "ls-remote", "origin", "s/main") == before
    note(work).write_text('{"text": "mended"}')
    assert push(work).returncode == 0


def test_another_branch_of_the_same_push_is_judged_alone_and_branches_of_others_are_let_be(
    work: Path,
) -> None:
    git(work, "checkout", "-q", "--orphan", "website")
    git(work, "rm", "-rfq", ".")
    (work / "index.html").write_text("hello")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "a page")
    git(work, "push", "-q", "origin", "HEAD:refs/heads/pages/website")


def test_a_ledger_is_neither_deleted_nor_set_back_by_a_push(work: Path, tmp_path: Path) -> None:
    async def send() -> None:
        store = SessionStore(tmp_path / "state.git", durability="os")
        async with await store.open("s") as session:
            for name in ("a", "b"):
                session.context.create(Order(item=name), id=name)
            outside = Outside()
            await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
        await store.aclose()

    anyio.run(send)
    git(work, "fetch", "-q")
    for source, reason in (
        ("", "is not deleted by a push"),
        ("+origin/s/%outbox~1", "would lose deliveries"),
    ):
        done = subprocess.run(
            ["git", "-C", str(work), "push", "origin", f"{source}:refs/heads/s/%outbox"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert reason in done.stderr


def test_the_hook_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    BranchStore(tmp_path / "state.git")
    git(tmp_path, "init", "-q", "--bare", "other.git")
    hook = tmp_path / "other.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(StoreError, match=r"is there and is not reactifact's: call `"):
        install_hook(str(tmp_path / "other.git"))
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"
    with pytest.raises(NotAStore, match="not a bare git repository"):
        install_hook(str(tmp_path))
