"""Direct changes (DESIGN §5, BETTER 51): buffered per execution; from outside, for the next generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Note, Order, Place, Question, git, live, trigger_of

from reactifact import Agent, Consume, Context, ProduceCall, Runtime, create_agent, produce

pytestmark = pytest.mark.anyio


def agent(work: Callable[[ProduceCall], Any], consumes: Any = Question, name: str = "x") -> Agent:
    @produce(Answer)
    async def act(call: ProduceCall) -> None:
        result = work(call)
        if result is not None:
            await result

    return create_agent(name, consumes=[Consume(consumes)], produces=[act])


def asked() -> Context:
    context = Context()
    context.create(Order(item="x"), id="o")
    context.drain_events()
    context.create(Question(text="why"), id="q")
    return context


# -- inside an execution ------------------------------------------------------------------------------


async def test_an_execution_reads_its_own_writes_and_nobody_else_does() -> None:
    seen: list[Any] = []

    def change(call: ProduceCall) -> None:
        context = call.context
        assert context.create(Note(text="mine"), id="n").version == 0
        context.update("o", Order(item="x", status="seen"))
        context.link("q", "about", "o")
        context.delete("q")
        seen.append(
            (
                live(context, "n").data.text,
                live(context, "o").data.status,
                [relation.target_id for relation in context.relations("q")],
                context.get("q"),
                [found.id for found in context.list_artifacts(Note)],
                sorted(context.snapshot()),
            )
        )

    def look(call: ProduceCall) -> None:
        context = call.context
        order = live(context, "o").data
        seen.append((context.get("n"), order.status, context.relations(), trigger_of(call).id))

    context = asked()
    await Runtime(context, [agent(change), agent(look, name="y")]).arun()
    assert seen == [("mine", "seen", ["o"], None, ["n"], ["n", "o"]), (None, "open", [], "q")]
    assert sorted(context.snapshot()) == ["n", "o"]


@pytest.mark.parametrize("limit", [None, 2])
async def test_better_51_they_are_dropped_when_the_execution_fails(limit: int | None) -> None:
    fails = [True]

    def change(call: ProduceCall) -> None:
        call.context.create(Note(text="mine"))
        call.context.update("o", Order(item="x", status="seen"))
        call.context.link("q", "about", "o")
        if fails[0]:
            raise ConnectionError("no route")

    context = asked()
    runtime = Runtime(context, [agent(change)], limit)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await runtime.arun()
        assert sorted(context.snapshot()) == ["o", "q"]
        assert (live(context, "o").version, context.relations()) == (0, [])
    fails[0] = False
    await runtime.arun()
    assert len(context.list_artifacts(Note)) == 1  # not doubled by the retries
    assert live(context, "o").version == 1


async def test_better_51_they_are_dropped_with_an_isolated_error() -> None:
    def change(call: ProduceCall) -> None:
        call.context.create(Note(text="mine"))
        raise ConnectionError("no route")

    context = asked()
    await Runtime(context, [agent(change)], isolate_errors=True).arun()
    assert context.list_artifacts(Note) == []


async def test_they_are_committed_before_the_patch_as_the_applications(git_place: Place) -> None:
    def change(call: ProduceCall) -> None:
        call.effects.create(Answer(text="planned"), id="a")
        call.context.create(Note(text="direct"), id="n")

    session = await git_place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await session.save()
    await Runtime(session.context, [agent(change)], session=session).arun()
    context = await git_place.load("s")
    assert context.version == 1
    assert (live(context, "n").created_by_commit, live(context, "a").created_by_commit) == (
        None,
        context.head_id,
    )
    assert git_place.path is not None
    log = git(git_place.path, "log", "--reverse", "--format=%an", "s/main", "--", "artifacts").splitlines()
    assert log == ["application", "application", "x"]  # the question, the note, the answer


async def test_they_wake_agents_in_the_next_generation() -> None:
    def change(call: ProduceCall) -> None:
        call.context.create(Note(text="direct"))

    woken: list[str] = []
    context = asked()
    agents = [agent(change), agent(lambda call: woken.append(trigger_of(call).data.text), Note, "y")]
    runtime = Runtime(context, agents)
    assert await runtime.arun() == 2
    assert woken == ["direct"]
    assert runtime.last_stats is not None
    assert runtime.last_stats.iterations == 2


async def test_two_executions_that_change_one_field_directly_run_one_after_the_other() -> None:
    def add(call: ProduceCall) -> None:
        found = live(call.context, "o").data
        call.context.update("o", found.model_copy(update={"price": found.price + 1}))

    context = asked()
    assert await Runtime(context, [agent(add), agent(add, name="y")]).arun() == 3  # the later one twice
    assert live(context, "o").data.price == 2


# -- from outside, during a turn ----------------------------------------------------------------------


class Waiting:
    """An agent on questions that waits, and tells what it sees afterwards."""

    def __init__(self, plan: Callable[[ProduceCall], Any] = lambda call: None) -> None:
        self.running, self.go = anyio.Event(), anyio.Event()
        self.seen: list[Any] = []

        async def work(call: ProduceCall) -> None:
            self.running.set()
            await self.go.wait()
            order = call.context.get("o")
            self.seen.append((None if order is None else order.data.status, call.context.get("late")))
            plan(call)

        self.agent = agent(work)


async def run_and(runtime: Runtime, waiting: Waiting, change: Callable[[], Any]) -> None:
    """Run a turn and make a change from outside while its execution waits."""
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        await waiting.running.wait()
        change()
        waiting.go.set()


async def test_a_change_from_outside_queues_for_the_next_generation(place: Place) -> None:
    woken: list[str] = []

    def note(call: ProduceCall) -> None:
        woken.append(trigger_of(call).id)

    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    waiting = Waiting(lambda call: call.effects.create(Answer(text="42"), id="a"))
    runtime = Runtime(session.context, [waiting.agent, agent(note, Order, "y")], session=session)
    await run_and(runtime, waiting, lambda: session.context.create(Order(item="late"), id="late"))
    assert waiting.seen == [(None, None)]  # an execution sees its snapshot
    assert woken == ["late"]
    stored = await place.load("s")
    assert live(stored, "late").created_by_commit is None
    assert [commit.author for commit in stored.history()] == ["x"]
    assert stored.pending_events() == []


async def test_a_change_from_outside_is_seen_at_once_outside() -> None:
    context = asked()
    waiting = Waiting()

    def change() -> None:
        context.update("o", Order(item="x", status="changed"))
        assert live(context, "o").data.status == "changed"

    await run_and(Runtime(context, [waiting.agent]), waiting, change)
    assert waiting.seen == [("open", None)]
    assert live(context, "o").data.status == "changed"


async def test_a_change_from_outside_and_a_patch_on_other_fields_combine() -> None:
    context = asked()
    waiting = Waiting(lambda call: call.effects.update("o", price=7))
    await run_and(
        Runtime(context, [waiting.agent]),
        waiting,
        lambda: context.update("o", Order(item="x", status="changed")),
    )
    order = live(context, "o").data
    assert (order.status, order.price) == ("changed", 7)


async def test_a_change_from_outside_of_the_same_field_runs_the_execution_again() -> None:
    context = asked()

    def add(call: ProduceCall) -> None:
        call.effects.update("o", price=live(call.context, "o").data.price + 1)

    waiting = Waiting(add)
    await run_and(
        Runtime(context, [waiting.agent]), waiting, lambda: context.update("o", Order(item="x", price=10))
    )
    assert live(context, "o").data.price == 11
    assert len(waiting.seen) == 2


async def test_a_change_from_outside_stays_when_the_turn_fails() -> None:
    context = asked()

    def fail(call: ProduceCall) -> None:
        raise ConnectionError("no route")

    waiting = Waiting(fail)
    errors: list[Exception] = []

    async def turn() -> None:
        try:
            await Runtime(context, [waiting.agent]).arun()
        except ConnectionError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(turn)
        await waiting.running.wait()
        context.create(Echo(text="late"), id="late")
        waiting.go.set()
    assert len(errors) == 1
    assert live(context, "late").data.text == "late"
    assert [event.artifact_id for event in context.pending_events()] == ["q", "late"]
