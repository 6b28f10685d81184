"""A session of a branch: work on a fork is as durable as on the session's own line; `at`, `rename`."""

from __future__ import annotations

from typing import Any

import pytest
from stores import KINDS, place_of
from support import Answer, Note, Order, Outside, Question, action, answering_agents, live, notifier

from reactifact import Budget, Context, Runtime, SessionStore
from reactifact.branching import BranchStore
from reactifact.errors import (
    NameTaken,
    ProtectedBranch,
    ReadOnlyContext,
    SessionBusy,
    StaleSession,
    StoreError,
    UnknownRevision,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[kind for kind in KINDS if kind != "own"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> SessionStore:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return SessionStore(place_of(request.param, tmp_path, dsn))


async def forked(store: SessionStore) -> BranchStore:
    """Return the branches of a store with session `s`, a note on main, and a fork `exp`."""
    session = await store.open("s")
    session.context.create(Note(text="main"), id="n")
    await session.save()
    branches = BranchStore(store.database)
    await branches.fork("s", "s/exp")
    return branches


async def test_agents_on_a_fork_are_saved_as_on_main(store: SessionStore) -> None:
    branches = await forked(store)
    outside = Outside()
    async with await store.open("s", branch="exp") as session:
        assert (session.branch, session.loaded) == ("exp", True)
        session.context.create(Question(text="why"), id="q")
        session.context.create(Order(item="tea"), id="o")
        agents = [*answering_agents(), notifier()]
        runtime = Runtime(
            session.context, agents, session=session, dispatcher=outside, session_save_policy="per_step"
        )
        await runtime.arun()
    found = await branches.load_branch("s", "exp")
    assert found is not None
    assert found.version == session.context.version == 3
    assert not found.pending_events()
    assert action(found, "notify:o").status == "dispatched"
    assert outside.sent == ["notify:o"]
    main = await store.load_session("s")
    assert main is not None
    assert main.get("q") is None


async def test_a_cut_generation_of_a_fork_goes_on_in_another_process(store: SessionStore) -> None:
    await forked(store)
    session = await store.open("s", branch="exp")
    session.context.create(Question(text="why"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun(budget=Budget(max_runs=1))
    again = await store.open("s", branch="exp")
    assert len(again.context.list_artifacts(Answer)) == 1
    assert await Runtime(again.context, answering_agents(), session=again).arun() == 1


async def test_two_branches_are_run_side_by_side_and_one_branch_by_one(store: SessionStore) -> None:
    await forked(store)
    async with await store.open("s", branch="exp", wait=0) as one:
        assert one.is_exclusive
        async with await store.open("s", wait=0):
            pass  # another branch has a lock of its own
        with pytest.raises(SessionBusy):
            await store.open("s", branch="exp", wait=0)


async def test_a_branch_that_is_not_there_is_named_with_those_that_are(store: SessionStore) -> None:
    await forked(store)
    with pytest.raises(UnknownRevision, match=r"session 's' has no branch 'nope'.*'exp'.*'main'"):
        await store.open("s", branch="nope")
    with pytest.raises(UnknownRevision, match="no session 'other'"):
        await store.open("other", branch="nope")
    session = await store.open("s", branch="exp")
    with pytest.raises(StoreError, match="delete_branch"):
        await session.delete()
    assert await store.has_session("s")


# -- looking at a state --


async def test_a_state_of_the_past_is_looked_at_and_not_changed(store: SessionStore) -> None:
    branches = await forked(store)
    async with branches.edit("s", message="Second") as context:
        context.update("n", Note(text="second"))
    await branches.tag("s", "good")
    async with branches.edit("s") as context:
        context.update("n", Note(text="third"))
    head = await branches.at("s")
    commit = (await branches.log("s"))[0].commit
    for name, text in (("s/good", "second"), ("s/main@v1", "second"), (commit, "third"), ("s", "third")):
        assert live(await branches.at(name), "n").data.text == text
    assert live(await branches.at("exp", session="s"), "n").data.text == "main"
    for change in (
        lambda: head.create(Note()),
        lambda: head.update("n", Note(text="x")),
        lambda: head.delete("n"),
        lambda: head.link("n", "to", "n"),
        lambda: head.interrupt("?"),
        lambda: head.checkout(0),
        lambda: head.compact(keep_commits=1),
        lambda: head.merge(Context()),
        lambda: head.merge_from(Context()),
        head.drain_events,
        head.discard_held,
    ):
        with pytest.raises(ReadOnlyContext, match="only looked at"):
            change()
    with pytest.raises(ReadOnlyContext, match=r"open the branch with SessionStore\.open"):
        await Runtime(head, answering_agents()).arun()
    assert live(head, "n").data.text == "third"
    fork = (await branches.at("s/good")).branch(name="again")
    fork.update("n", Note(text="anew"))
    await branches.save_branch(fork, session_id="s", name="again")
    assert live(await branches.at("s/again"), "n").data.text == "anew"


async def test_a_state_of_the_past_shows_the_deliveries_of_its_time(tmp_path: Any) -> None:
    store = SessionStore(tmp_path / "state.git")
    async with await store.open("s") as session:
        session.context.create(Order(item="tea"), id="o")
        runtime = Runtime(session.context, [notifier()], session=session, dispatcher=Outside())
        await runtime.arun()
    branches = BranchStore(store.database)
    assert action(await branches.at("s"), "notify:o").status == "dispatched"
    assert action(await branches.at("s@v1"), "notify:o").status == "pending"


# -- renaming --


async def test_a_renamed_branch_is_the_same_branch(store: SessionStore) -> None:
    branches = await forked(store)
    outside = Outside()
    session = await store.open("s", branch="exp")
    session.context.create(Order(item="tea"), id="o")
    await Runtime(session.context, [notifier()], session=session).arun()
    head = await branches.rename("s/exp", "s/trial")
    assert (head.session, head.branch) == ("s", "trial")
    assert await branches.list_branches("s") == ["trial"]
    with pytest.raises(StaleSession):
        await session.save() if session.context.create(Note(), id="late") else None
    async with await store.open("s", branch="trial") as again:
        assert again.context.get("o") is not None
        runtime = Runtime(again.context, [notifier()], session=again, dispatcher=outside)
        await runtime.arun()
        again.context.update("n", Note(text="trial"))
    assert outside.sent == ["notify:o"]
    assert await branches.merge(into="s", source="s/trial") is not None
    assert live(await branches.at("s"), "n").data.text == "trial"
    await branches.rename("trial", "x" * 300, session="s")  # so long that its ref is cut
    assert await branches.list_branches("s") == ["x" * 300]


async def test_what_is_refused_to_be_renamed(store: SessionStore) -> None:
    branches = await forked(store)
    await branches.fork("s", "s/other")
    await branches.tag("s", "tag")
    for target in ("s/other", "s/tag", "s/exp"):
        with pytest.raises(NameTaken):
            await branches.rename("s/exp", target)
    for source, target in (("s", "s/new"), ("s/exp", "s/main"), ("s/exp", "t/new"), ("s/exp", "new")):
        with pytest.raises(ValueError, match=r"keeps its name|names no branch of session 's'"):
            await branches.rename(source, target)
    with pytest.raises(UnknownRevision):
        await branches.rename("s/nope", "s/new")
    async with await store.open("s", branch="exp", wait=0):
        with pytest.raises(SessionBusy):
            await branches.rename("s/exp", "s/new")
    guarded = BranchStore(store.database, protected=["s/exp"])
    with pytest.raises(ProtectedBranch):
        await guarded.rename("s/exp", "s/new")
    assert await branches.list_branches("s") == ["exp", "other"]
