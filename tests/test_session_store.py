"""Sessions (API §19): open, save, reload, list, delete; when the runtime saves; two writers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support import (
    Answer,
    Echo,
    Note,
    Order,
    Outside,
    Place,
    Question,
    SpecialNote,
    answering_agents,
    commit,
    fsck,
    live,
    notifier,
    trigger_of,
)

from reactifact import (
    Consume,
    Context,
    EventType,
    ProduceCall,
    Runtime,
    RuntimeResources,
    Session,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store.branch import MAIN
from reactifact._store.names import branch_ref
from reactifact._store.protocol import RefUpdate
from reactifact.errors import NotAStore, SessionBusy, StaleSession

pytestmark = pytest.mark.anyio


def facts(context: Context) -> dict[str, Any]:
    """Return everything of a context that a reload must bring back."""
    return {
        "version": context.version,
        "head": context.head_id,
        "history": context.history(),
        "operations": [commit.operations for commit in context.history()],
        "reads": [commit.reads for commit in context.history()],
        "writes": [commit.writes for commit in context.history()],
        "snapshot": context.snapshot(),
        "order": [found.id for found in context.list_artifacts()],
        "artifacts": {
            found.id: (
                type(found.data),
                found.version,
                found.history,
                found.created_at,
                found.updated_at,
                found.created_by_commit,
            )
            for found in context.list_artifacts()
        },
        "relations": context.relations(),
        "events": context.pending_events(),
        "actions": [found.id for found in context.pending_actions()],
    }


async def lively(place: Place) -> Session:
    """Return a saved session with some of everything."""
    session = await place.store().open("s")
    context = session.context
    context.create(Question(text="why"), id="q")
    context.create(Order(item="x"), id="o")
    context.create(SpecialNote(text="direct", rank=2), id="n")
    context.update("n", SpecialNote(text="changed", rank=3))
    context.link("q", "about", "o")
    context.link("n", "about", "gone")
    await Runtime(context, [*answering_agents(), notifier()], session=session).arun()

    def sell(call: ProduceCall) -> None:
        call.effects.update("o", status="paid")
        call.effects.delete("q")

    await commit(context, sell)
    context.unlink("n")
    context.link("o", "sold", "n")
    context.create(Note(text="nobody reacts to it yet"), id="late")
    await session.save()
    return session


async def test_a_reload_gives_the_same_context(place: Place) -> None:
    session = await lively(place)
    before = facts(session.context)
    assert before["version"] == 4
    assert [event.artifact_id for event in session.context.pending_events()] == ["late"]
    reopened = await place.store().open("s")
    assert reopened.loaded
    assert facts(reopened.context) == before
    loaded = await place.load("s")
    assert facts(loaded) == before
    await reopened.save()  # saving what is saved changes nothing
    assert facts(await place.load("s")) == before


async def test_a_reloaded_session_goes_on_where_it_was(place: Place) -> None:
    session = await lively(place)
    reopened = await place.store().open("s")
    await commit(reopened.context, lambda call: call.effects.update("o", price=5))
    await reopened.save()
    context = await place.load("s")
    assert context.version == 5
    assert context.history()[:4] == session.context.history()
    assert context.history()[4].parent_id == session.context.head_id
    assert context.diff(4, 5)["changed"]["o"]["new"]["price"] == 5
    assert live(context, "o").version == 2


async def test_loaded_tells_whether_it_was_there(place: Place) -> None:
    session = await place.store().open("s")
    assert isinstance(session, Session)
    assert (session.session_id, session.loaded) == ("s", False)
    assert isinstance(session.context, Context)
    again = await place.store().open("s")
    assert not again.loaded  # nothing was saved yet
    session.context.create(Note(), id="n")
    await session.save()
    assert (await place.store().open("s")).loaded


async def test_an_empty_session_can_be_saved(place: Place) -> None:
    session = await place.store().open("s")
    await session.save()
    reopened = await place.store().open("s")
    assert reopened.context.list_artifacts() == []
    assert reopened.context.version == 0


async def test_has_list_and_delete(place: Place) -> None:
    store = place.store()
    assert await store.list_sessions() == []
    assert not await store.has_session("a")
    for name in ("b", "a", "c"):
        session = await store.open(name)
        session.context.create(Note(text=name), id="n")
        await session.save()
    assert await store.list_sessions() == ["a", "b", "c"]
    assert await store.has_session("b")
    await store.delete_session("b")
    await store.delete_session("b")  # absent is fine
    await (await store.open("c")).delete()
    for reader in (store, place.store()):
        assert await reader.list_sessions() == ["a"]
        assert not await reader.has_session("b")
        assert await reader.load_session("c") is None
    fresh = await store.open("b")
    assert not fresh.loaded
    assert fresh.context.list_artifacts() == []


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_others_write_meanwhile_is_deleted_too(
    place: Place, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    session = await place.store().open("s")
    session.context.create(Order(item="tea"), id="tea")
    await Runtime(session.context, [notifier()], session=session, dispatcher=Outside()).arun()
    store = place.store()
    backend = store.database.backend
    write, tip = backend.write, backend.refs()[branch_ref("s", MAIN)]

    def disturbed(objects: Any, updates: Any = ()) -> None:
        monkeypatch.undo()
        if moment == "after":
            write(objects, updates)
        write({}, [RefUpdate(branch_ref("s", name), None, tip) for name in ("early", "zoo")])
        if moment == "before":
            write({}, [RefUpdate(branch_ref("s", MAIN), tip, None)])
            write(objects, updates)

    monkeypatch.setattr(backend, "write", disturbed)
    await store.delete_session("s")
    assert place.store().database.backend.refs() == {}


async def test_deleting_takes_branches_and_ledger_along(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Order(item="x"), id="o")
    outside = Outside()
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    await place.branches().save_branch(session.context.branch(), session_id="s", name="b")
    await session.delete()
    assert await place.branches().list_branches("s") == []
    fresh = await place.store().open("s")
    fresh.context.create(Order(item="x"), id="o")
    await Runtime(fresh.context, [notifier()], session=fresh, dispatcher=outside).arun()
    assert outside.sent == ["notify:o", "notify:o"]  # another session of the same name


async def test_save_and_load_session_with_a_context_of_its_own(place: Place) -> None:
    context = Context()
    context.create(Question(text="why"), id="q")
    await Runtime(context, answering_agents()).arun()
    context.create(Note(text="open"), id="n")
    await place.store().save_session("s", context)
    assert await place.store().load_session("missing") is None
    loaded = await place.load("s")
    assert facts(loaded) == facts(context)
    context.create(Note(text="more"), id="more")
    await place.store().save_session("s", context)
    assert facts(await place.load("s")) == facts(context)


async def test_resources_are_handed_through(place: Place) -> None:
    resources = RuntimeResources()
    session = await place.store().open("s", resources)
    assert session.context.resources is resources
    await session.save()
    loaded = await place.store().load_session("s", resources)
    assert loaded is not None
    assert loaded.resources is resources


@pytest.mark.parametrize(
    "name", ["a:b", "branch:x:y", "\u0441\u0435\u0441\u0441\u0438\u044f" * 10, " ", "main"]
)
async def test_odd_session_ids(name: str, place: Place) -> None:
    session = await place.store().open(name)
    session.context.create(Note(text=name), id="n")
    await session.save()
    assert await place.store().list_sessions() == [name]
    assert live(await place.load(name), "n").data.text == name


async def test_better_33_branches_and_sessions_never_collide(place: Place) -> None:
    store, branches = place.store(), place.branches()
    for session_id, branch in (("a", "b:c"), ("a:b", "c"), ("branch:a", "b"), ("a", "b/c"), ("a/b", "c")):
        context = Context()
        context.create(Note(text=f"{session_id} | {branch}"), id="n")
        await branches.save_branch(context, session_id=session_id, name=branch)
    session = await store.open("branch:a:b")
    session.context.create(Note(text="a session"), id="n")
    await session.save()
    assert await place.store().list_sessions() == ["branch:a:b"]
    assert await place.branches().list_branches("a") == ["b/c", "b:c"]
    for session_id, branch in (("a", "b:c"), ("a:b", "c"), ("branch:a", "b"), ("a", "b/c"), ("a/b", "c")):
        loaded = await place.load(session_id, branch)
        assert live(loaded, "n").data.text == f"{session_id} | {branch}"


# -- when the runtime saves ---------------------------------------------------------------------------


class CountingSave:
    """Counts the saves of a session, and still saves."""

    def __init__(self, session: Session) -> None:
        self.count = 0
        self._save = session.save
        session.save = self  # type: ignore[method-assign]

    async def __call__(self) -> None:
        self.count += 1
        await self._save()


async def test_per_commit_saves_each_generation_and_the_settling_one(place: Place) -> None:
    session = await place.store().open("s")
    saves = CountingSave(session)
    session.context.create(Question(text="why"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun()
    assert saves.count == 3  # question -> answer -> echo -> nothing
    stored = await place.load("s")
    assert [found.data.text for found in stored.list_artifacts(Echo)] == ["RE: WHY"]


async def test_arun_once_persists(place: Place) -> None:
    session = await place.store().open("s")
    saves = CountingSave(session)
    session.context.create(Question(text="why"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun_once()
    assert saves.count == 1
    stored = await place.load("s")
    assert len(stored.list_artifacts(Answer)) == 1
    assert stored.list_artifacts(Echo) == []


async def test_per_turn_saves_once_at_the_end(place: Place) -> None:
    session = await place.store().open("s")
    saves = CountingSave(session)
    session.context.create(Question(text="why"), id="q")
    outside = Outside()
    runtime = Runtime(
        session.context,
        [*answering_agents(), notifier()],
        session=session,
        session_save_policy="per_turn",
        dispatcher=outside,
    )
    await runtime.arun_once()
    assert saves.count == 0
    assert not await place.store().has_session("s")
    session.context.create(Order(item="x"), id="o")
    await runtime.arun()
    assert saves.count == 1
    assert outside.sent == ["notify:o"]
    assert [found.data.text for found in (await place.load("s")).list_artifacts(Echo)] == ["RE: WHY"]


async def test_the_save_happens_after_the_batch_was_consumed_and_the_outbox_drained(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Order(item="x"), id="o")
    seen: list[tuple[list[str], list[str]]] = []
    save = session.save

    async def saving() -> None:
        queue = [event.artifact_id for event in session.context.pending_events()]
        seen.append((queue, [found.id for found in session.context.pending_actions()]))
        await save()

    session.save = saving  # type: ignore[method-assign]
    await Runtime(session.context, [notifier()], session=session, dispatcher=Outside()).arun_once()
    assert len(seen) == 1
    assert "o" not in seen[0][0]
    assert seen[0][1] == []


# -- restarts -----------------------------------------------------------------------------------------


async def test_a_trigger_saved_before_its_consumer_ran_fires_after_a_restart(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await session.save()
    reopened = await place.store().open("s")
    assert [event.artifact_id for event in reopened.context.pending_events()] == ["q"]
    assert reopened.context.pending_events()[0].artifact_type is Question
    assert await Runtime(reopened.context, answering_agents(), session=reopened).arun() == 2
    assert len((await place.load("s")).list_artifacts(Echo)) == 1


async def test_a_turn_cut_between_generations_goes_on_after_a_restart(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun_once()
    reopened = await place.store().open("s")
    assert await Runtime(reopened.context, answering_agents(), session=reopened).arun() == 1
    assert len((await place.load("s")).list_artifacts(Echo)) == 1


async def test_a_finished_run_fires_nothing_after_a_restart(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await Runtime(session.context, answering_agents(), session=session).arun()
    reopened = await place.store().open("s")
    assert reopened.context.pending_events() == []
    assert await Runtime(reopened.context, answering_agents(), session=reopened).arun() == 0
    assert reopened.context.version == 2


async def test_a_deletion_waits_in_the_queue_over_a_restart(place: Place) -> None:
    seen: list[tuple[str, Any]] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        assert call.event is not None
        seen.append((call.event.artifact_id, call.trigger))

    session = await place.store().open("s")
    session.context.create(Note(), id="n")
    session.context.drain_events()
    session.context.delete("n")
    await session.save()
    reopened = await place.store().open("s")
    gone = Consume(Note, None, [EventType.ARTIFACT_DELETED])
    agent = create_agent("x", consumes=[gone], produces=[look])
    await Runtime(reopened.context, [agent], session=reopened).arun()
    assert seen == [("n", None)]


# -- two writers --------------------------------------------------------------------------------------


async def test_a_save_over_somebody_elses_commits_is_refused(place: Place) -> None:
    first, second = await place.store().open("s"), await place.store().open("s")
    first.context.create(Note(text="first"), id="n")
    second.context.create(Note(text="second"), id="n")
    await first.save()
    with pytest.raises(StaleSession, match="'s'"):
        await second.save()
    assert live(await place.load("s"), "n").data.text == "first"
    again = await place.store().open("s")
    again.context.update("n", Note(text="second, repeated"))
    await again.save()
    assert live(await place.load("s"), "n").history == [Note(text="first")]


async def test_saving_another_context_over_a_session_is_refused(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(text="there"), id="n")
    await session.save()
    other = Context()
    other.create(Note(text="unrelated"), id="n")
    with pytest.raises(StaleSession, match="'s'"):
        await place.store().save_session("s", other)
    assert live(await place.load("s"), "n").data.text == "there"


async def test_a_second_runner_of_one_branch_is_told_at_once(git_place: Place) -> None:
    running, go_on = anyio.Event(), anyio.Event()

    @produce(Answer)
    async def wait(call: ProduceCall) -> Answer:
        running.set()
        await go_on.wait()
        return Answer(text=trigger_of(call).data.text)

    first = await git_place.store().open("s")
    first.context.create(Question(text="why"), id="q")
    await first.save()
    second = await git_place.store().open("s")
    agents = [create_agent("x", consumes=[Consume(Question)], produces=[wait])]
    async with anyio.create_task_group() as group:
        group.start_soon(Runtime(first.context, agents, session=first).arun)
        await running.wait()
        with pytest.raises(SessionBusy):
            await Runtime(second.context, agents, session=second).arun()
        go_on.set()
    assert [found.data.text for found in (await git_place.load("s")).list_artifacts(Answer)] == ["why"]


async def test_sessions_of_one_store_run_side_by_side(place: Place) -> None:
    store = place.store()

    async def turn(name: str) -> None:
        session = await store.open(name)
        session.context.create(Question(text=name), id="q")
        await Runtime(session.context, answering_agents(), session=session).arun()

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(turn, f"s{number}")
    assert await place.store().list_sessions() == [f"s{number}" for number in range(6)]
    for number in range(6):
        (echo,) = (await place.load(f"s{number}")).list_artifacts(Echo)
        assert echo.data.text == f"RE: S{number}"
    if place.path is not None:
        fsck(place.path)


# -- what is not a store ---------------------------------------------------------------------------------


def test_what_is_no_store_is_refused(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="int"):
        SessionStore(7)
    (tmp_path / "file").write_text("no repository")
    with pytest.raises(NotAStore, match="file"):
        SessionStore(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("somebody's")
    with pytest.raises(NotAStore, match="folder"):
        SessionStore(tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["letter.txt"]
