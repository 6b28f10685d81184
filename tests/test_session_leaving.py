"""Leaving the `async with` of a session: its changes are saved, or it is said what was dropped."""

from __future__ import annotations

import logging

import anyio
import pytest
from support import Answer, Note, Order, Place, Question, answering_agents, commit, notifier

from reactifact import Runtime, SessionStore
from reactifact.errors import SessionBusy, StaleSession
from reactifact.testing import FaultyBackend

pytestmark = pytest.mark.anyio


async def test_changes_that_were_never_saved_are_saved_at_the_end(place: Place) -> None:
    async with await place.store().open("s") as session:
        session.context.create(Note(text="kept"), id="n")
        session.context.link("n", "about", "x")
    stored = await place.load("s")
    assert [found.data.text for found in stored.list_artifacts(Note)] == ["kept"]
    assert [event.artifact_id for event in stored.pending_events()] == ["n"]
    assert len(stored.relations("n")) == 1


async def test_so_are_commits_deliveries_and_events_that_were_taken_off(place: Place) -> None:
    async with await place.store().open("s") as session:
        await commit(session.context, lambda call: call.effects.create(Note(), id="n"))
        session.context.create(Order(item="x"), id="o")
        await Runtime(session.context, [notifier()]).arun()
    assert (await place.load("s")).version == 2
    async with await place.store().open("s") as session:
        session.context.mark_dispatched("action:notify:o")
    assert (await place.load("s")).pending_actions() == []
    async with await place.store().open("s") as session:
        session.context.create(Question(text="why"), id="q")
    async with await place.store().open("s") as session:
        assert session.context.drain_events() != []
    assert (await place.load("s")).pending_events() == []


async def test_where_nothing_was_changed_nothing_is_written() -> None:
    store = FaultyBackend(Place(None).store().database)
    async with await SessionStore(store).open("s"):
        pass
    assert not await SessionStore(store).has_session("s")
    async with await SessionStore(store).open("s") as session:
        session.context.create(Question(text="why"), id="q")
        await Runtime(session.context, answering_agents(), session=session).arun()
        before = store.writes
    assert store.writes == before
    async with await SessionStore(store).open("s") as session:
        other = await SessionStore(store).open("s")
        other.context.create(Note(text="theirs"), id="n")
        await other.save()
        assert session.context.get("q") is not None  # whoever only reads is not told that it moved
        before = store.writes
    assert store.writes == before


async def test_an_exception_drops_them_and_says_which(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async def block() -> None:
        async with await place.store().open("s", wait=0) as session:
            session.context.create(Note(text="saved"), id="saved")
            await session.save()
            session.context.update("saved", Note(text="changed"))
            await commit(session.context, lambda call: call.effects.create(Note(), id="made"))
            session.context.create(Note(text="open"), id="last")
            raise ValueError("my own")

    with pytest.raises(ValueError, match="my own") as caught:
        await block()
    (note,) = caught.value.__notes__
    assert "session 's' was left by ValueError" in note
    assert "update saved" in note
    assert note.index("update saved") < note.index("create made") < note.index("create last")
    assert "create saved" not in note
    (record,) = [one for one in caplog.records if one.name == "reactifact.session"]
    assert (record.levelno, record.getMessage()) == (logging.WARNING, note)
    stored = await place.load("s")
    assert [(found.id, found.data.text) for found in stored.list_artifacts(Note)] == [("saved", "saved")]
    async with await place.store().open("s", wait=0):
        pass  # its lock was given back


async def test_many_dropped_changes_are_counted(place: Place) -> None:
    async def block() -> None:
        async with await place.store().open("s") as session:
            for number in range(1000):
                session.context.create(Note(), id=f"n{number}")
            raise ValueError("my own")

    with pytest.raises(ValueError, match="my own") as caught:
        await block()
    (note,) = caught.value.__notes__
    assert "create n9 and 990 more;" in note


async def test_a_cancellation_says_it_too_and_an_exception_that_drops_nothing_is_left_alone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.CancelScope() as scope:
        async with await place.store().open("s") as session:
            session.context.create(Note(), id="n")
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert [one.getMessage().count("create n;") for one in caplog.records] == [1]

    async def block() -> None:
        async with await place.store().open("s") as session:
            session.context.create(Note(), id="n")
            await session.save()
            raise ValueError("my own")

    with pytest.raises(ValueError, match="my own") as caught:
        await block()
    assert not hasattr(caught.value, "__notes__")


async def test_a_save_at_the_end_that_fails_is_raised_and_the_lock_is_given_back(git_place: Place) -> None:
    async def block() -> None:
        async with await git_place.store().open("s", wait=0) as session:
            other = await git_place.store().open("s")
            other.context.create(Note(text="theirs"), id="n")
            await other.save()
            session.context.create(Note(text="mine"), id="n")
            with pytest.raises(SessionBusy):
                await git_place.store().open("s", wait=0)

    with pytest.raises(StaleSession):
        await block()
    async with await git_place.store().open("s", wait=0) as session:
        assert session.context.list_artifacts(Answer) == []


async def test_a_session_that_was_deleted_inside_is_not_written_again(place: Place) -> None:
    async with await place.store().open("s") as session:
        session.context.create(Note(), id="n")
        await session.delete()
    assert not await place.store().has_session("s")
