"""Branches of git's own beside those of sessions, and tags that cannot be read: the others go on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support import Note, Order, Outside, Place, git, notifier

from reactifact import Runtime
from reactifact._store._history.revset import make_tag, readable_tags
from reactifact._store.names import MAX_REF_BYTES, encode_name, long_branch_ref, tag_ref
from reactifact.cli import main
from reactifact.errors import InvalidName, LedgerMissing, NameTaken, ReactifactError

pytestmark = pytest.mark.anyio

GONE = "1" * 40


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    """A store with a session `user-1` that planned an action and did not send it."""
    place = Place(tmp_path / "store.git")
    store = place.store()
    session = await store.open("user-1")
    session.context.create(Order(item="tea"), id="o1")
    await Runtime(session.context, [notifier()], session=session).arun()
    await store.aclose()
    return place


@pytest.mark.parametrize("name", ["hand/fix", "hand/main"])
async def test_a_branch_made_with_git_is_no_session(
    place: Place, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = Path(str(place.path))
    git(path, "branch", name, "user-1/main")
    store, branches = place.store(), place.branches()
    assert await store.list_sessions() == ["user-1"]
    assert [head.name for head in await branches.branches()] == ["user-1/main"]
    assert await store.pending_sessions() == ["user-1"]
    assert main(["sessions", str(path)]) == 0
    said = capsys.readouterr()
    assert "hand" not in said.out
    assert f"refs/heads/{name} is not a branch of a session" in said.err
    assert "commit of session 'user-1'" in said.err
    assert main(["log", str(path)]) == 0
    outside = Outside()
    report = await store.drain(outside)
    assert (report.tried, report.delivered, report.failed) == (1, 1, [])
    assert outside.sent == ["notify:o1"]
    await store.aclose()
    await branches.aclose()


@pytest.mark.parametrize("name", ["main", "fix"])
async def test_what_waits_on_a_branch_made_with_git_is_not_sent_a_second_time(
    place: Place, name: str
) -> None:
    git(Path(str(place.path)), "branch", f"hand/{name}", "user-1/main")
    store, branches, outside = place.store(), place.branches(), Outside()
    await store.drain(outside)
    for number in range(2):
        context = await branches.load_branch("hand", name)
        assert context is not None
        context.create(Note(text="x"), id=f"n{number}")
        with pytest.raises(LedgerMissing, match="hand"):
            await Runtime(context, [notifier()], dispatcher=outside).arun()
        await branches.save_branch(context, session_id="hand", name=name)
    assert outside.sent == ["notify:o1"]
    await store.rebuild_ledger("hand")
    context = await branches.load_branch("hand", name)
    assert context is not None
    await Runtime(context, [notifier()], dispatcher=outside).arun()
    assert outside.sent == ["notify:o1", "notify:o1"]  # as was asked for
    await store.aclose()
    await branches.aclose()


async def test_a_session_that_was_saved_under_another_id_is_one(place: Place) -> None:
    store, branches = place.store(), place.branches()
    context = await store.load_session("user-1")
    assert context is not None
    await store.save_session("copy", context.branch(name="c"))
    await branches.save_branch(context.branch(name="d"), session_id="other", name="x")
    assert await store.list_sessions() == ["copy", "user-1"]
    assert [head.name for head in await branches.branches()] == ["copy/main", "other/x", "user-1/main"]
    copied = await store.load_session("copy")
    assert copied is not None
    assert (copied.version, copied.head_id) == (context.version, context.head_id)
    await store.aclose()
    await branches.aclose()


async def test_a_branch_whose_history_is_all_of_git_is_named(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(str(place.path))
    tree = git(path, "mktree", text="").strip()
    identity = ("-c", "user.name=ann", "-c", "user.email=ann@x")
    commit = git(path, *identity, "commit-tree", tree, "-m", "by hand").strip()
    git(path, "branch", "team/main", commit)
    git(path, "branch", "plain", "user-1/main")
    store = place.store()
    assert await store.list_sessions() == ["user-1"]
    assert main(["sessions", str(path), "--json"]) == 0
    said = capsys.readouterr()
    assert "no commit of its history is one of reactifact's" in said.out
    assert "its name is not that of a session and a branch" in said.out
    assert said.err == ""
    await store.aclose()


async def test_a_damaged_tag_stops_no_log_of_a_healthy_branch(
    place: Place, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(str(place.path))
    branches = place.branches()
    whole = await branches.tag("user-1/main", "whole")
    (path / "refs/tags/user-1/gone").write_text(f"{GONE}\n")
    (path / "refs/tags/user-1/cut").write_text("abc\n")
    with caplog.at_level(logging.WARNING, "reactifact"):
        assert await branches.tags() == await branches.tags("user-1") == [whole]
    assert {record.__dict__["ref"] for record in caplog.records} == {
        "refs/tags/user-1/gone",
        "refs/tags/user-1/cut",
    }
    assert main(["log", str(path), "user-1"]) == 0
    said = capsys.readouterr()
    assert "tag whole" in said.out
    assert "tag refs/tags/user-1/gone cannot be read" in said.err
    assert "tag refs/tags/user-1/cut cannot be read" in said.err
    assert len(await branches.log("user-1/whole")) == len(await branches.log("user-1/main"))
    for name in ("gone", "cut"):
        with pytest.raises(ReactifactError, match=f"{GONE}|refs/tags/user-1/cut"):
            await branches.log(f"user-1/{name}")
    (entry,) = [one for one in await branches.log("user-1/main") if one.commit == whole.commit]
    assert (await branches.log(entry.commit[:12]))[0].commit == whole.commit
    await branches.aclose()


async def test_tags_and_branches_under_the_longer_names_of_earlier_versions_are_found(place: Place) -> None:
    session, name = "s" * 150, "n" * 120
    branches = place.branches()
    async with branches.edit(session) as context:
        context.create(Note(text="x"), id="n")
    await branches.fork(session, f"{session}/b", session=None)
    tip = (await branches.branches(session))[0].commit
    path = Path(str(place.path))
    longer = long_branch_ref(session, name)
    assert longer is not None
    old_tag = f"refs/tags/{encode_name(session)}/{'t' * 120}"
    assert len(old_tag) > MAX_REF_BYTES
    git(path, "update-ref", longer, tip)
    git(path, "update-ref", old_tag, tip)

    database = branches.database
    assert [tag.ref for tag in readable_tags(database, session)[0]] == [old_tag]
    assert make_tag(database, session, "t" * 120, tip).ref == tag_ref(session, "t" * 120) == old_tag
    assert (await branches.log("t" * 120, session=session))[0].commit == tip
    with pytest.raises(NameTaken):
        make_tag(database, session, name, tip)
    for taken in (name, "t" * 120):
        with pytest.raises(NameTaken):
            await branches.fork(session, f"{session}/{taken}")
    with pytest.raises(InvalidName, match="255"):
        make_tag(database, session, "u" * 120, tip)
    await branches.aclose()
