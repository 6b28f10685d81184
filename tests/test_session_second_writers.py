"""Several writers of one session: one runs at a time, a lost race is typed, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from support import Answer, Note, Question, answering_agents, commit

from reactifact import MergeConflict, Runtime, SessionStore
from reactifact.errors import SessionBusy, StaleSession

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.git"


async def test_a_lost_race_is_typed_and_refresh_goes_on_with_the_direct_changes(path: Path) -> None:
    first = await SessionStore(path).open("s")
    first.context.create(Note(text="base"), id="base")
    await first.save()
    second = await SessionStore(path).open("s")
    second.context.create(Note(text="theirs"), id="theirs")
    second.context.link("theirs", "about", "base")
    await second.save()
    first.context.create(Note(text="mine"), id="mine")
    first.context.update("base", Note(text="changed here"))
    with pytest.raises(StaleSession, match="refresh"):
        await first.save()
    assert await first.refresh()
    await first.save()
    again = (await SessionStore(path).open("s")).context
    assert {a.id: a.data.text for a in again.list_artifacts(Note)} == {
        "base": "changed here",
        "theirs": "theirs",
        "mine": "mine",
    }
    assert [r.source_id for r in again.incoming("base")] == ["theirs"]
    assert not await first.refresh()


async def test_refresh_gives_up_a_checkout_that_was_not_saved(path: Path) -> None:
    first = await SessionStore(path).open("s")
    first.context.create(Note(text="direct"), id="a")
    await commit(first.context, lambda call: call.effects.create(Note(), id="made"))
    first.context.create(Note(text="later"), id="later")
    await commit(first.context, lambda call: call.effects.update("a", text="changed"))
    first.context.create(Note(text="last"), id="last")
    await first.save()
    second = await SessionStore(path).open("s")
    first.context.update("later", Note(text="unsaved"))
    first.context.checkout(0)
    first.context.create(Note(text="mine"), id="mine")
    second.context.update("last", Note(text="theirs"))
    await second.save()
    assert await first.refresh()
    assert {a.id: a.data.text for a in first.context.list_artifacts(Note)} == {
        "a": "changed",
        "made": "",
        "later": "unsaved",
        "last": "theirs",
        "mine": "mine",
    }
    await first.save()


async def test_refresh_names_what_both_changed_and_changes_nothing(path: Path) -> None:
    first = await SessionStore(path).open("s")
    first.context.create(Note(text="base"), id="base")
    await first.save()
    second = await SessionStore(path).open("s")
    second.context.update("base", Note(text="theirs"))
    await second.save()
    first.context.update("base", Note(text="mine"))
    with pytest.raises(MergeConflict, match="base"):
        await first.refresh()
    held = first.context.get("base")
    assert held is not None
    assert held.data.text == "mine"


async def test_events_of_changes_that_were_applied_again_wake_agents(path: Path) -> None:
    first = await SessionStore(path).open("s")
    await first.save()
    second = await SessionStore(path).open("s")
    second.context.create(Note(text="theirs"), id="theirs")
    await second.save()
    first.context.create(Question(text="?"), id="q")
    runtime = Runtime(first.context, agents=answering_agents(), session=first)
    with pytest.raises(StaleSession):
        await runtime.arun()
    await first.refresh()
    assert await runtime.arun() == 2
    assert len((await SessionStore(path).open("s")).context.list_artifacts(Answer)) == 1


async def test_a_turn_on_a_branch_that_moved_is_refused_before_an_agent_runs(path: Path) -> None:
    first = await SessionStore(path).open("s")
    first.context.create(Question(text="?"), id="q")
    await first.save()
    second = await SessionStore(path).open("s")
    assert await Runtime(second.context, agents=answering_agents(), session=second).arun() == 2
    runtime = Runtime(first.context, agents=answering_agents(), session=first)
    with pytest.raises(StaleSession):
        await runtime.arun()
    assert runtime.last_stats is not None
    assert runtime.last_stats.runs == 0
    await first.refresh()
    assert await runtime.arun() == 0


async def test_whoever_opens_with_wait_has_the_session_alone(path: Path) -> None:
    store = SessionStore(path)
    async with await store.open("s", wait=0) as session:
        assert session.is_exclusive
        with pytest.raises(SessionBusy):
            await SessionStore(path).open("s", wait=0.05)
        session.context.create(Question(text="?"), id="q")
        assert await Runtime(session.context, agents=answering_agents(), session=session).arun() == 2
        other = await SessionStore(path).open("s")
        with pytest.raises(SessionBusy):
            await Runtime(other.context, agents=answering_agents(), session=other).arun()
    async with await store.open("s", wait=0) as session:
        assert session.loaded


async def test_twenty_writers_that_queue_up_lose_nothing(path: Path) -> None:
    async def write(number: int) -> None:
        async with await SessionStore(path, durability="os").open("s", wait=60) as session:
            session.context.create(Note(count=number), id=f"note:{number}")
            await session.save()

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(write, number)
    context = (await SessionStore(path).open("s")).context
    assert sorted(a.data.count for a in context.list_artifacts(Note)) == list(range(20))


async def test_a_session_deleted_while_it_is_open_stays_deleted(path: Path) -> None:
    store = SessionStore(path)
    session = await store.open("s")
    session.context.create(Note(text="x"), id="n")
    await session.save()
    await SessionStore(path).delete_session("s")
    session.context.update("n", Note(text="y"))
    with pytest.raises(StaleSession):
        await session.save()
    with pytest.raises(StaleSession, match="deleted"):
        await session.refresh()
    assert not await store.has_session("s")
