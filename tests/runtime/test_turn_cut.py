"""A turn that is cancelled or killed loses neither what it was given nor what it has paid for."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from hanging_turn_child import agents as shop_agents
from support import Answer, Order, Place, Question, action, fsck, live, notifier, trigger_of
from test_runtime_shutdown import start

from reactifact import (
    Agent,
    Artifact,
    Budget,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._backends.git.backend import GitBackend
from reactifact.errors import StoreError
from reactifact.testing import FaultyBackend

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


class Desk:
    """An agent that answers questions; on the last one it hangs while it is told to."""

    def __init__(self, last: str = "q2") -> None:
        self.last = last
        self.hangs = True
        self.is_hanging = anyio.Event()
        self.ran: list[str] = []

    @property
    def agents(self) -> list[Agent]:
        @produce(Answer)
        async def answer(call: ProduceCall) -> Answer:
            question = trigger_of(call)
            self.ran.append(question.id)
            if question.id == self.last and self.hangs:
                self.is_hanging.set()
                await anyio.sleep_forever()
            return Answer(text=question.id)

        return [create_agent("desk", consumes=[Consume(Question)], produces=[answer])]


def ask(context: Context, *ids: str) -> None:
    for name in ids:
        context.create(Question(text="why"), id=name)


async def cut_by_a_scope(run: Any, desk: Desk) -> None:
    """Leave as a task group, `move_on_after` or a web framework does."""
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await desk.is_hanging.wait()
        group.cancel_scope.cancel()


async def cut_by_the_loop(run: Any, desk: Desk) -> None:
    """Leave as `task.cancel()` does; trio has nothing of the kind."""
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        await cut_by_a_scope(run, desk)
        return
    task = asyncio.ensure_future(run())
    await desk.is_hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


CUTS = [cut_by_a_scope, cut_by_the_loop]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("policy", ["per_commit", "per_turn"])
@pytest.mark.parametrize(("limit", "budget"), [(None, None), (3, None), (None, Budget(max_seconds=3600))])
async def test_a_cancelled_turn_stores_its_inputs_and_what_has_finished(
    place: Place, limit: int | None, budget: Budget | None, policy: Any, cut: Any
) -> None:
    desk, session = Desk(), await place.store().open("s")
    ask(session.context, "q0", "q1", "q2")
    runtime = Runtime(session.context, desk.agents, limit, session=session, session_save_policy=policy)
    runtime.budget = budget
    await cut(runtime.arun, desk)
    assert not runtime.in_flight
    desk.hangs = False
    desk.ran.clear()
    again = await place.store().open("s")
    assert [found.id for found in again.context.list_artifacts(Question)] == ["q0", "q1", "q2"]
    assert await Runtime(again.context, desk.agents, session=again).arun() == 1
    assert desk.ran == ["q2"]
    assert [found.data.text for found in again.context.list_artifacts(Answer)] == ["q0", "q1", "q2"]


class Remote(GitBackend):
    """A repository whose every call goes by way of a thread."""

    is_local = False


@pytest.mark.parametrize("kind", [GitBackend, Remote])
async def test_a_turn_that_is_cancelled_before_it_begins_stores_its_inputs(
    tmp_path: Path, kind: type[GitBackend]
) -> None:
    store = SessionStore(kind(tmp_path / "state.git", durability="os"))
    session = await store.open("s")
    ask(session.context, "q0")
    desk = Desk(last="")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Runtime(session.context, desk.agents, session=session).arun()
    assert desk.ran == []
    again = await store.open("s")
    assert await Runtime(again.context, desk.agents, session=again).arun() == 1


async def test_a_stream_whose_reader_leaves_stores_them_too(place: Place) -> None:
    desk, session = Desk(), await place.store().open("s")
    ask(session.context, "q0", "q2")
    runtime = Runtime(session.context, desk.agents, session=session)

    async def read() -> None:
        async for _ in runtime.astream():
            pass

    await cut_by_a_scope(read, desk)
    desk.hangs = False
    desk.ran.clear()
    again = await place.store().open("s")
    await Runtime(again.context, desk.agents, session=again).arun()
    assert desk.ran == ["q2"]


@pytest.mark.parametrize("cut", CUTS)
async def test_earlier_generations_of_a_cancelled_per_turn_turn_are_stored(place: Place, cut: Any) -> None:
    desk, session = Desk(), await place.store().open("s")
    ask(session.context, "q0")

    @produce(Question)
    async def ask_on(call: ProduceCall) -> None:
        call.effects.create(Question(text="and then"), id="q2")

    agents = [*desk.agents, create_agent("asker", consumes=[Consume(Answer)], produces=[ask_on])]
    runtime = Runtime(session.context, agents, session=session, session_save_policy="per_turn")
    await cut(runtime.arun, desk)
    stored = await place.load("s")
    assert [commit.author for commit in stored.history()] == ["desk", "asker"]
    assert [event.artifact_id for event in stored.pending_events()] == ["q2"]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_cut_turn_that_cannot_be_saved_says_so_and_stays_cut(
    caplog: pytest.LogCaptureFixture, cut: Any
) -> None:
    store = FaultyBackend(Place(None).store().database, fail_at=2)
    desk, session = Desk(), await SessionStore(store).open("s")
    ask(session.context, "q0", "q2")
    await cut(Runtime(session.context, desk.agents, session=session).arun, desk)
    (record,) = [one for one in caplog.records if "could not be saved" in one.getMessage()]
    assert "injected" in record.error  # type: ignore[attr-defined]
    await session.save()  # nothing is lost while the process lives
    desk.hangs = False
    desk.ran.clear()
    again = await SessionStore(store.inner).open("s")
    await Runtime(again.context, desk.agents, session=again).arun()
    assert desk.ran == ["q2"]


async def test_a_cancelled_flush_stores_that_it_was_interrupted(place: Place) -> None:
    desk, session = Desk(), await place.store().open("s")

    async def hang(context: Context, waiting: Artifact[PendingAction]) -> None:
        desk.is_hanging.set()
        await anyio.sleep_forever()

    session.context.create(Order(item="x"), id="o")
    await Runtime(session.context, [notifier()], session=session).arun()
    session.context.create(Question(text="beside it"), id="q")
    runtime = Runtime(session.context, dispatcher=hang, session=session)
    await cut_by_a_scope(runtime.flush_pending_actions, desk)
    stored = await place.load("s")
    assert action(stored, "notify:o").error == "interrupted"
    assert live(stored, "q").data.text == "beside it"


# -- what was given is stored before anything is paid for ---------------------------------------------


async def test_the_inputs_are_in_the_store_while_the_first_generation_runs(place: Place) -> None:
    seen: list[tuple[list[str], list[str]]] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> Answer:
        stored = await place.load("s")
        ids = [found.id for found in stored.list_artifacts(Question)]
        seen.append((ids, [event.artifact_id for event in stored.pending_events()]))
        return Answer(text="seen")

    session = await place.store().open("s")
    ask(session.context, "q")
    agent = create_agent("looker", consumes=[Consume(Question)], produces=[look])
    await Runtime(session.context, [agent], session=session).arun()
    assert seen == [(["q"], ["q"])]


async def test_a_store_that_cannot_be_written_is_told_before_an_agent_runs() -> None:
    store = FaultyBackend(Place(None).store().database, fail_at=1)
    desk, session = Desk(last=""), await SessionStore(store).open("s")
    ask(session.context, "q0")
    runtime = Runtime(session.context, desk.agents, session=session)
    with pytest.raises(StoreError, match="injected"):
        await runtime.arun()
    assert desk.ran == []
    assert await runtime.arun() == 1


async def test_it_costs_one_write_and_only_where_something_is_not_stored_yet() -> None:
    store = FaultyBackend(Place(None).store().database)
    desk, session = Desk(last=""), await SessionStore(store).open("s")
    runtime = Runtime(session.context, desk.agents, session=session)

    async def writes_of_a_turn() -> int:
        before = store.writes
        await runtime.arun()
        return store.writes - before

    ask(session.context, "q0")
    assert await writes_of_a_turn() == 2  # the question; the answer
    ask(session.context, "q1")
    await session.save()
    assert await writes_of_a_turn() == 1
    session.context.create(Answer(text="wakes nobody"), id="a")
    assert await writes_of_a_turn() == 1  # with the end of the turn
    assert await writes_of_a_turn() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_signal_in_the_first_generation_loses_no_input(
    git_place: Place, anyio_backend: Any, number: signal.Signals
) -> None:
    assert git_place.path is not None
    process = start(git_place.path, anyio_backend, "first")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    fsck(git_place.path)
    ran: list[str] = []
    session = await git_place.store().open("s")
    assert live(session.context, "q").data == Answer(text="42")
    await Runtime(session.context, shop_agents(ran.append), session=session).arun()
    # on Ctrl-C the turn still holds what had finished
    assert ran == (["echoer", "noter"] if number == signal.SIGKILL else ["noter"])
