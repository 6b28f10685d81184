"""Errors of agents (API §16): raised, queued again, isolated; direct changes of a failed execution."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Note, Order, Place, Question, live, trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    Event,
    EventType,
    ProduceCall,
    RunOutcome,
    Runtime,
    create_agent,
    produce,
)
from reactifact.errors import ArtifactMutated

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


def asked(*names: str) -> Context:
    context = Context()
    for name in names or ("q",):
        context.create(Question(text=name), id=name)
    return context


class Flaky:
    """An agent that fails while it is told to."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.error = error
        self.runs = 0

        @produce(Answer)
        async def answer(call: ProduceCall) -> Answer:
            self.runs += 1
            call.effects.create(Answer(text="planned before the error"), id=f"early:{name}")
            if self.error is not None:
                raise self.error
            return Answer(text=f"{name} {trigger_of(call).id}")

        self.agent = create_agent(name, consumes=[Consume(Question)], produces=[answer])


async def test_an_error_leaves_arun_bare_and_nothing_is_committed() -> None:
    context = asked()
    boom = ConnectionError("no route")
    flaky = Flaky("x", boom)
    runtime = Runtime(context, [flaky.agent])
    with pytest.raises(ConnectionError) as caught:
        await runtime.arun()
    assert caught.value is boom
    assert context.version == 0
    assert context.list_artifacts(Answer) == []
    assert [event.artifact_id for event in context.pending_events()] == ["q"]
    assert not runtime.in_flight


async def test_another_arun_tries_again() -> None:
    context = asked()
    flaky = Flaky("x", ConnectionError("no route"))
    runtime = Runtime(context, [flaky.agent])
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await runtime.arun()
    flaky.error = None
    assert await runtime.arun() == 1
    assert flaky.runs == 3
    assert [found.data.text for found in context.list_artifacts(Answer)] == [
        "planned before the error",
        "x q",
    ]


async def test_the_events_of_a_failed_generation_are_in_the_store(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    flaky = Flaky("x", ConnectionError("no route"))
    with pytest.raises(ConnectionError):
        await Runtime(session.context, [flaky.agent], session=session).arun()
    reopened = await place.store().open("s")
    assert reopened.loaded
    assert reopened.context.version == 0
    flaky.error = None
    assert await Runtime(reopened.context, [flaky.agent], session=reopened).arun() == 1


@pytest.mark.parametrize("limit", [None, 3])
async def test_nothing_of_the_generation_is_committed_when_one_fails(limit: int | None) -> None:
    context = asked()
    agents = [Flaky("ok"), Flaky("bad", ConnectionError("no route")), Flaky("fine")]
    with pytest.raises(ConnectionError):
        await Runtime(context, [flaky.agent for flaky in agents], limit).arun()
    assert context.version == 0
    assert context.list_artifacts(Answer) == []
    assert len(context.pending_events()) == 1


async def test_siblings_finish_before_the_first_error_is_raised() -> None:
    finished: list[str] = []
    failed = anyio.Event()

    @produce(Answer)
    async def fail(call: ProduceCall) -> None:
        failed.set()
        raise ConnectionError("first in the plan")

    @produce(Answer)
    async def late(call: ProduceCall) -> None:
        await failed.wait()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        finished.append("late")

    @produce(Answer)
    async def early(call: ProduceCall) -> None:
        raise ValueError("fails earlier in time, later in the plan")

    agents = [
        create_agent(name, consumes=[Consume(Question)], produces=[part])
        for name, part in (("a", fail), ("b", late), ("c", early))
    ]
    with pytest.raises(ConnectionError, match="first in the plan"):
        await Runtime(asked(), agents, max_concurrency=3).arun()
    assert finished == ["late"]


# -- isolated errors ----------------------------------------------------------------------------------


async def test_isolated_errors_let_the_others_go_on() -> None:
    reported: list[tuple[str, str, str]] = []

    def report(agent: Agent, event: Event, error: BaseException) -> None:
        reported.append((agent.name, event.artifact_id, str(error)))

    context = asked()
    agents = [Flaky("bad", ConnectionError("no route")), Flaky("ok")]
    runtime = Runtime(context, [flaky.agent for flaky in agents], isolate_errors=True, on_agent_error=report)
    assert await runtime.arun() == 2
    assert reported == [("bad", "q", "no route")]
    assert runtime.last_stats is not None
    assert (runtime.last_stats.errors, runtime.outcome) == (1, RunOutcome.COMPLETED)
    assert {found.data.text for found in context.list_artifacts(Answer)} == {
        "ok q",
        "planned before the error",
    }
    assert context.get("early:bad") is None
    assert context.pending_events() == []  # the event counts as handled
    assert await runtime.arun() == 0


def bad_agents() -> dict[str, Agent]:
    @produce(Answer)
    async def undeclared(call: ProduceCall) -> None:
        call.effects.create(Echo(text="nobody declared it"))

    @produce(Answer)
    async def unstorable(call: ProduceCall) -> None:
        call.effects.create(Answer(text="fine"), id="fine")
        call.effects.create(Answer(text="\ud800"), id="broken")

    @produce(Answer)
    async def bad_id(call: ProduceCall) -> None:
        call.effects.create(Answer(text="x"), id="\ud800")

    @produce(Answer)
    async def in_place(call: ProduceCall) -> None:
        trigger_of(call).data.text = "sneaked in"

    @produce(Answer)
    async def strange(call: ProduceCall) -> int:
        return 7

    def condition(found: Any) -> bool:
        raise LookupError("the condition itself fails")

    @produce(Answer)
    async def nothing(call: ProduceCall) -> None: ...

    agents = {
        part.name: create_agent(part.name, consumes=[Consume(Question)], produces=[part])
        for part in (undeclared, unstorable, bad_id, in_place, strange)
    }
    failing = Consume(Question, condition)
    return {**agents, "condition": create_agent("condition", consumes=[failing], produces=[nothing])}


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("kind", list(bad_agents()))
async def test_better_5_every_error_of_one_execution_is_isolated(kind: str, limit: int | None) -> None:
    errors: list[str] = []
    context = asked()
    good = Flaky("good")
    runtime = Runtime(
        context,
        [bad_agents()[kind], good.agent],
        limit,
        isolate_errors=True,
        on_agent_error=lambda agent, event, error: errors.append(agent.name),
    )
    await runtime.arun()
    assert [found.data.text for found in context.list_artifacts(Answer)] == [
        "planned before the error",
        "good q",
    ]
    assert errors == [kind]
    assert context.history()[0].author == "good"
    assert len(context.history()) == 1
    assert runtime.last_stats is not None
    assert runtime.last_stats.errors == 1
    assert live(context, "q").data.text == "q"
    assert context.pending_events() == []


async def test_better_5_an_error_in_the_callback_is_isolated_too() -> None:
    def report(agent: Agent, event: Event, error: BaseException) -> None:
        raise RuntimeError("the callback fails as well")

    context = asked()
    agents = [Flaky("bad", ConnectionError("no route")), Flaky("ok")]
    runtime = Runtime(context, [flaky.agent for flaky in agents], isolate_errors=True, on_agent_error=report)
    assert await runtime.arun() == 2
    assert [found.author for found in context.history()] == ["ok"]


@pytest.mark.parametrize("kind", list(bad_agents()))
async def test_without_isolation_the_same_errors_leave_arun(kind: str) -> None:
    context = asked()
    with pytest.raises((ValueError, LookupError, ArtifactMutated, TypeError)):
        await Runtime(context, [bad_agents()[kind]]).arun()
    assert context.version == 0
    assert set(context.snapshot()) == {"q"}
    assert [event.artifact_id for event in context.pending_events()] == ["q"]
    context.drain_events()
    context.create(Order(item="the session goes on"), id="o")
    assert live(context, "q").data.text == "q"


async def test_better_27_an_in_place_change_fails_its_execution_with_the_id() -> None:
    @produce(Answer)
    async def sneak(call: ProduceCall) -> None:
        call.context.list_artifacts(Note)[0].data.tags.append("sneaked in")

    context = Context()
    context.create(Note(tags=["a"]), id="note-7")
    context.drain_events()
    context.create(Question(text="why"), id="q")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[sneak])
    with pytest.raises(ArtifactMutated, match="note-7"):
        await Runtime(context, [agent]).arun()
    assert live(context, "note-7").data.tags == ["a"]
    assert live(context, "note-7").version == 0


# -- direct changes inside an execution ---------------------------------------------------------------


def direct_agent(fails: list[bool]) -> Agent:
    @produce(Answer)
    async def change(call: ProduceCall) -> None:
        call.context.create(Note(text="direct"))
        call.context.update("o", Order(item="x", status="seen"))
        call.context.link("q", "about", "o")
        assert live(call.context, "o").data.status == "seen"  # an execution reads its own writes
        assert len(call.context.list_artifacts(Note)) == 1
        if fails[0]:
            raise ConnectionError("no route")
        call.effects.create(Answer(text="done"))

    return create_agent("x", consumes=[Consume(Question)], produces=[change])


async def test_better_51_direct_changes_of_a_failed_execution_are_dropped(place: Place) -> None:
    fails = [True]
    session = await place.store().open("s")
    context = session.context
    context.create(Order(item="x"), id="o")
    context.create(Question(text="why"), id="q")
    runtime = Runtime(context, [direct_agent(fails)], session=session)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await runtime.arun()
        assert context.list_artifacts(Note) == []
        assert live(context, "o").data.status == "open"
        assert context.relations() == []
    assert (await place.load("s")).list_artifacts(Note) == []
    fails[0] = False
    await runtime.arun()
    stored = await place.load("s")
    for found in (context, stored):
        assert [note.data.text for note in found.list_artifacts(Note)] == ["direct"]  # once
        assert live(found, "o").data.status == "seen"
        assert [relation.relation for relation in found.relations()] == ["about"]
        assert [commit.author for commit in found.history()] == ["x"]


async def test_direct_changes_of_an_execution_are_direct_and_come_before_its_patch() -> None:
    context = Context()
    context.create(Order(item="x"), id="o")
    context.create(Question(text="why"), id="q")
    await Runtime(context, [direct_agent([False])]).arun()
    (commit,) = context.history()
    assert len(commit.operations) == 1
    (note,) = context.list_artifacts(Note)
    assert note.created_by_commit is None
    assert set(context.diff(0, 1)["added"]) == {context.list_artifacts(Answer)[0].id}


async def test_siblings_do_not_see_each_others_direct_changes() -> None:
    seen: list[int] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        seen.append(len(call.context.list_artifacts(Note)))

    context = Context()
    context.create(Order(item="x"), id="o")
    context.create(Question(text="why"), id="q")
    looker = create_agent("looker", consumes=[Consume(Question)], produces=[look])
    await Runtime(context, [direct_agent([False]), looker]).arun()
    assert seen == [0]
    assert len(context.list_artifacts(Note)) == 1


# -- where an error came from -------------------------------------------------------------------------


def notes_of(error: BaseException | None) -> list[str]:
    return [note for note in getattr(error, "__notes__", []) if note.startswith("reactifact: raised by")]


@pytest.mark.parametrize("limit", [None, 3])
async def test_an_error_says_which_agent_failed_on_what_and_in_which_run(limit: int | None) -> None:
    context = asked("q", "q2")
    boom = ConnectionError("no route")
    runtime = Runtime(context, [Flaky("fine").agent, Flaky("broken", boom).agent], limit)
    runs: list[str] = []
    for _ in range(2):  # an error that is raised again says where it was raised last
        with pytest.raises(ConnectionError) as caught:
            await runtime.arun()
        (note,) = notes_of(caught.value)
        found = re.fullmatch(
            r"reactifact: raised by agent 'broken', on (\S+) of (\S*)Question 'q', run ([0-9a-f]{32})", note
        )
        assert found is not None, note
        assert found[1] == EventType.ARTIFACT_CREATED.value
        runs.append(found[3])
    assert len(set(runs)) == 2
    assert caught.value is boom


async def test_an_isolated_error_and_one_of_a_condition_say_it_too() -> None:
    seen: list[BaseException] = []

    def explode(artifact: Any) -> bool:
        raise LookupError("no such field")

    @produce(Answer)
    async def answer(call: ProduceCall) -> None: ...

    context = asked("q")
    unasked = create_agent("asker", consumes=[Consume(Question, condition=explode)], produces=[answer])
    agents = [Flaky("broken", ConnectionError("no route")).agent, unasked]
    await Runtime(
        context, agents, isolate_errors=True, on_agent_error=lambda agent, event, error: seen.append(error)
    ).arun()
    assert sorted(note.split(",")[0] for error in seen for note in notes_of(error)) == [
        "reactifact: raised by agent 'asker'",
        "reactifact: raised by agent 'broken'",
    ]


class Stubborn(Exception):
    """It lets nobody add anything to it."""

    def add_note(self, note: str, /) -> None:
        raise RuntimeError("no notes")


async def test_an_error_that_takes_no_note_is_raised_as_it_is() -> None:
    with pytest.raises(Stubborn):
        await Runtime(asked("q"), [Flaky("broken", Stubborn("mine")).agent]).arun()
