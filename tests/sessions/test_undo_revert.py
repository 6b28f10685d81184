"""Reverting one generation: its inverse as a commit on top, with what came after it kept."""

from __future__ import annotations

from typing import Any

import pytest
from stores import KINDS, place_of
from support import Kick, Note, Order, Outside, Receipt, action, commit, fsck, live, notifier

from reactifact import Context, MergeConflict, ProduceCall, Runtime, SessionStore
from reactifact.branching import BranchStore
from reactifact.errors import SessionBusy, StoreError, UnknownRevision
from reactifact.replay import verify_history

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[kind for kind in KINDS if kind != "own"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> SessionStore:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return SessionStore(place_of(request.param, tmp_path, dsn))


async def three_generations(store: SessionStore) -> BranchStore:
    """Return the branches of a store whose session `s` has versions 1 (create), 2 (rewrite), 3 (other)."""

    def create(call: ProduceCall) -> None:
        call.effects.create(Note(text="one", count=1), id="a")
        call.effects.create(Note(text="gone later"), id="b")

    def rewrite(call: ProduceCall) -> None:
        call.effects.update("a", text="two")
        call.effects.delete("b")
        call.effects.create(Note(text="new"), id="c")
        call.effects.link("a", "cites", "c")

    async with await store.open("s") as session:
        for work in (create, rewrite):
            await commit(session.context, work)
        await commit(session.context, lambda call: call.effects.create(Note(text="other"), id="d") and None)
    return BranchStore(store.database)


def texts(context: Context) -> dict[str, str]:
    return {note.id: note.data.text for note in context.list_artifacts(Note)}


async def test_a_generation_is_taken_back_and_what_came_after_it_stays(store: SessionStore) -> None:
    branches = await three_generations(store)
    done = await branches.revert("s", "s@v2")
    assert done is not None
    assert done.subject.startswith("Revert generation 1 of run ")
    found = await branches.at("s")
    assert texts(found) == {"a": "one", "b": "gone later", "d": "other"}
    assert not found.relations()
    assert (found.version, live(found, "a").version) == (4, 2)  # content of before, under a new version
    assert [note.text for note in live(found, "a").history] == ["one", "two"]
    assert not found.pending_events()  # it wakes nobody
    assert await branches.revert("s", "s@v2") is None  # nothing is left of it
    assert (await branches.at("s")).version == 4
    assert verify_history(store.database, "s").ok
    path = store.database.backend.location
    if path.endswith(".git"):
        fsck(path)
    again = await branches.revert("s", done.commit)  # a revert is reverted like any other commit
    assert again is not None
    assert texts(await branches.at("s")) == {"a": "two", "c": "new", "d": "other"}
    await branches.undo("s")
    assert texts(await branches.at("s")) == {"a": "one", "b": "gone later", "d": "other"}


async def test_what_was_changed_since_is_a_conflict_until_a_policy_settles_it(store: SessionStore) -> None:
    branches = await three_generations(store)
    async with branches.edit("s") as context:
        context.update("a", Note(text="three", count=1))
    before = (await branches.at("s")).head_id
    with pytest.raises(MergeConflict) as raised:
        await branches.revert("s", "s@v2")
    assert [detail.artifact_id for detail in raised.value.details] == ["a"]
    assert (await branches.at("s")).head_id == before
    assert await branches.revert("s", "s@v2", policy="ours") is not None
    assert texts(await branches.at("s")) == {"a": "three", "b": "gone later", "d": "other"}
    await branches.undo("s")
    await branches.revert("s", "s@v2", policy="theirs", message="Back")
    assert texts(await branches.at("s"))["a"] == "one"
    assert (await branches.log("s"))[0].subject == "Back"


async def test_an_intent_that_was_not_sent_goes_and_one_that_was_stays_delivered(store: SessionStore) -> None:
    outside = Outside()
    async with await store.open("s") as session:
        for item, dispatcher in (("sent", outside), ("kept", None)):
            session.context.create(Order(item=item), id=item)
            await Runtime(session.context, [notifier()], session=session, dispatcher=dispatcher).arun()
    branches = BranchStore(store.database)
    for version in (1, 2):
        await branches.revert("s", f"s@v{version}")
    async with await store.open("s") as session:
        assert session.context.pending_actions() == []
        assert session.context.list_artifacts(Receipt) == []
        await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
        assert outside.sent == ["notify:sent"]
        session.context.update("sent", Order(item="again"))  # planned anew, and was sent
        session.context.update("sent", Order(item="sent"))
        await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    assert outside.sent == ["notify:sent"]


async def test_a_generation_of_several_commits_is_taken_back_whole(store: SessionStore) -> None:
    async with await store.open("s") as session:
        for number in range(3):
            session.context.create(Order(item=str(number)), id=f"o{number}")
        runtime = Runtime(session.context, [notifier()], 3, session=session, session_save_policy="per_step")
        assert await runtime.arun() == 3
    branches = BranchStore(store.database)
    await branches.revert("s", "s@v2")
    found = await branches.at("s")
    assert found.list_artifacts(Receipt) == []
    assert not found.has_actions()
    assert len(found.list_artifacts(Order)) == 3


async def test_edits_merges_and_direct_changes_are_taken_back_too(store: SessionStore) -> None:
    branches = await three_generations(store)
    await branches.fork("s", "s/side")
    async with branches.edit("s", "side") as context:
        context.create(Note(text="side"), id="side")
    merged = await branches.merge(into="s", source="s/side")
    assert merged is not None
    done = await branches.revert("s", merged.commit)
    assert done is not None
    assert "side" not in texts(await branches.at("s"))
    session = await store.open("s")
    session.context.update("d", Note(text="direct"))
    await session.save()
    direct = next(one for one in await branches.log("s") if one.record and one.record.kind == "direct")
    assert await branches.revert("s", direct.commit) is not None
    assert texts(await branches.at("s"))["d"] == "other"


async def test_what_cannot_be_reverted(store: SessionStore) -> None:
    branches = await three_generations(store)
    root = (await branches.log("s"))[-1].commit
    with pytest.raises(StoreError, match="begins the branch"):
        await branches.revert("s", root)
    with pytest.raises(UnknownRevision):
        await branches.revert("s", "s@v9")
    await branches.fork("s", "s/side")
    async with branches.edit("s", "side") as context:
        context.create(Note(text="side"), id="side")
    with pytest.raises(UnknownRevision, match="not on the line"):
        await branches.revert("s", (await branches.log("s/side"))[0].commit)
    async with await store.open("s", wait=0):
        with pytest.raises(SessionBusy):
            await branches.revert("s", "s@v2")
    session = await store.open("s")
    session.context.compact(keep_commits=1)
    await session.save()
    with pytest.raises((StoreError, UnknownRevision, ValueError)):
        await branches.revert("s", "s@v1")
    assert live(await branches.at("s"), "kick").data == Kick(number=2)


async def test_a_revert_of_a_revert_lets_the_intent_wait_again(
    store: SessionStore,
) -> None:
    async with await store.open("s") as session:
        session.context.create(Order(item="tea"), id="o")
        await Runtime(session.context, [notifier()], session=session).arun()
    branches = BranchStore(store.database)
    reverted = await branches.revert("s", "s@v1")
    assert reverted is not None
    await branches.revert("s", reverted.commit)
    found = await branches.at("s")
    assert action(found, "notify:o").status == "pending"
    assert [one.id for one in found.pending_actions()] == ["action:notify:o"]
