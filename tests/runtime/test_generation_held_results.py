"""Results kept when a generation fails or is cut (DESIGN §5, BETTER 4): only what is owed runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Note, Order, Place, Question, git, live, trigger_of

from reactifact import (
    Agent,
    Budget,
    Consume,
    Context,
    Event,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


class Bench:
    """Three agents on each question. The middle one fails, or hangs, while it is told to."""

    def __init__(self, work: Callable[[ProduceCall], Any] | None = None) -> None:
        self.runs: list[str] = []
        self.fails = False
        self.hangs = False
        self.work = work
        self.agents = [self._agent(name) for name in ("one", "two", "three")]

    def _agent(self, name: str) -> Agent:
        @produce(Answer, also_creates=Note)
        async def answer(call: ProduceCall) -> Answer:
            self.runs.append(name)
            if name == "one" and self.work is not None:
                self.work(call)
            if name == "two" and self.fails:
                raise ConnectionError("no route")
            if name == "two" and self.hangs:
                await anyio.sleep_forever()
            return Answer(text=f"{name} {trigger_of(call).id}")

        return create_agent(name, consumes=[Consume(Question)], produces=[answer])


def asked(resources: RuntimeResources | None = None) -> Context:
    context = Context(resources)
    context.create(Note(text="read me"), id="n")
    context.create(Order(item="x"), id="other")
    context.drain_events()
    context.create(Question(text="why"), id="q")
    return context


async def fail_once(context: Context, bench: Bench, limit: int | None = None) -> None:
    bench.fails = True
    with pytest.raises(ConnectionError, match="no route"):
        await Runtime(context, bench.agents, limit).arun()
    bench.fails = False
    assert sorted(bench.runs) == ["one", "three", "two"]  # trio starts tasks in any order
    assert context.version == 0
    bench.runs.clear()


def authors(context: Context) -> list[str]:
    return [commit.author for commit in context.history()]


@pytest.mark.parametrize("limit", [None, 3])
async def test_better_4_a_retry_runs_only_what_failed_and_commits_as_a_whole(limit: int | None) -> None:
    context, bench = asked(), Bench()
    await fail_once(context, bench, limit)
    runtime = Runtime(context, bench.agents, limit)
    assert await runtime.arun() == 1
    assert bench.runs == ["two"]
    assert authors(context) == ["one", "two", "three"]
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["one q", "two q", "three q"]
    assert context.pending_events() == []
    assert runtime.last_stats is not None
    assert runtime.last_stats.runs == 1  # what was held is not a run of this turn


async def test_better_4_held_results_are_saved_beside_the_queue(place: Place) -> None:
    session, bench = await place.store().open("s"), Bench()
    session.context.create(Question(text="why"), id="q")
    bench.fails = True
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await Runtime(session.context, bench.agents, session=session).arun()
    assert bench.runs == ["one", "two", "three", "two"]
    bench.fails = False
    bench.runs.clear()
    reopened = await place.store().open("s")
    assert await Runtime(reopened.context, bench.agents, session=reopened).arun() == 1
    assert bench.runs == ["two"]
    stored = await place.load("s")
    assert authors(stored) == ["one", "two", "three"]
    assert stored.discard_held() == 0  # nothing is held any more


async def test_better_4_held_results_stand_in_the_tree_only_while_there_are_any(git_place: Place) -> None:
    session, bench = await git_place.store().open("s"), Bench()
    session.context.create(Question(text="why"), id="q")
    bench.fails = True
    with pytest.raises(ConnectionError):
        await Runtime(session.context, bench.agents, session=session).arun()
    assert git_place.path is not None
    listing = ("ls-tree", "-r", "--name-only", "s/main", ".reactifact/held/")
    assert len(git(git_place.path, *listing).splitlines()) == 2
    bench.fails = False
    await Runtime(session.context, bench.agents, session=session).arun()
    assert git(git_place.path, *listing) == ""


@pytest.mark.parametrize("limit", [None, 3])
async def test_better_4_a_deadline_keeps_what_has_finished(limit: int | None, place: Place) -> None:
    resources = RuntimeResources(clock=JumpingClock())
    session, bench = await place.store().open("s", resources), Bench()
    session.context.create(Question(text="why"), id="q")
    bench.hangs = True
    runtime = Runtime(session.context, bench.agents, limit, session=session, budget=Budget(max_seconds=30))
    await runtime.arun()
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    finished = ["one"] if limit is None else ["one", "three"]  # "three" comes after the one that hangs
    bench.hangs = False
    bench.runs.clear()
    reopened = await place.store().open("s")
    assert reopened.context.version == 0
    await Runtime(reopened.context, bench.agents, session=reopened).arun()
    assert bench.runs == [name for name in ("one", "two", "three") if name not in finished]
    assert authors(reopened.context) == ["one", "two", "three"]


async def test_better_4_a_cancelled_turn_keeps_what_has_finished() -> None:
    context, bench = asked(), Bench()
    bench.hangs = True
    async with anyio.create_task_group() as group:
        group.start_soon(Runtime(context, bench.agents, 3).arun)
        while len(bench.runs) < 3:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    bench.hangs = False
    bench.runs.clear()
    assert await Runtime(context, bench.agents, 3).arun() == 1
    assert bench.runs == ["two"]


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_a_turn_that_is_cancelled_as_an_execution_ends_commits_nothing(limit: int) -> None:
    context = Context()
    context.create(Question(text="why"), id="q0")
    context.create(Question(text="how"), id="q1")
    ran: list[str] = []
    with anyio.CancelScope() as scope:

        @produce(Answer)
        def last_words(call: ProduceCall) -> Answer:
            ran.append(trigger_of(call).id)
            scope.cancel()
            return Answer(text="done")

        agents = [create_agent("x", consumes=[Consume(Question)], produces=[last_words])]
        await Runtime(context, agents, limit).arun()
    assert scope.cancelled_caught
    assert context.version == 0
    cut = len(ran)
    assert await Runtime(context, agents, limit).arun() == 2 - cut
    assert (ran, context.version) == (["q0", "q1"], 2)


# -- when it counts no more ---------------------------------------------------------------------------


def read_note(call: ProduceCall) -> None:
    call.context.get("n")


def read_missing(call: ProduceCall) -> None:
    call.context.get("not there yet")


def list_orders(call: ProduceCall) -> None:
    call.context.list_artifacts(Order)


def write_note(call: ProduceCall) -> None:
    call.effects.upsert(Note(text="written"), id="n")


def write_directly(call: ProduceCall) -> None:
    call.context.create(Echo(text="direct"), id="echo")


CHANGES: dict[str, tuple[Callable[[ProduceCall], Any], Callable[[Context], Any]]] = {
    "a version it read": (read_note, lambda context: context.update("n", Note(text="new"))),
    "what it read is gone": (read_note, lambda context: context.delete("n")),
    "what it missed is there": (
        read_missing,
        lambda context: context.create(Note(text="late"), id="not there yet"),
    ),
    "a type it listed": (list_orders, lambda context: context.update("other", Order(item="y"))),
    "a version it writes": (write_note, lambda context: context.update("n", Note(text="new"))),
    "an id it creates directly": (
        write_directly,
        lambda context: context.create(Echo(text="outside"), id="echo"),
    ),
}


@pytest.mark.parametrize("kind", list(CHANGES))
async def test_better_4_a_held_result_is_dropped_when_what_it_saw_has_changed(kind: str) -> None:
    work, change = CHANGES[kind]
    context, bench = asked(), Bench(work)
    await fail_once(context, bench)
    change(context)
    await Runtime(context, bench.agents).arun()
    assert bench.runs == ["one", "two"]
    assert authors(context) == ["one", "two", "three"]


@pytest.mark.parametrize("work", [read_note, read_missing, write_note])
async def test_better_4_a_held_result_stays_when_something_else_has_changed(work: Any) -> None:
    context, bench = asked(), Bench(work)
    await fail_once(context, bench)
    context.update("other", Order(item="y"))
    context.create(Order(item="z"), id="new")
    await Runtime(context, bench.agents).arun()
    assert bench.runs == ["two"]


async def test_discard_held_runs_everything_again() -> None:
    context, bench = asked(), Bench()
    await fail_once(context, bench)
    assert context.discard_held() == 2
    assert context.discard_held() == 0
    assert await Runtime(context, bench.agents).arun() == 3
    assert bench.runs == ["one", "two", "three"]


async def test_a_held_result_keeps_its_reads_direct_changes_and_actions(place: Place) -> None:
    def work(call: ProduceCall) -> None:
        call.context.get("n")
        call.context.create(Echo(text="direct"), id="echo")
        call.effects.link("q", "about", "n")
        call.effects.update("n", text="updated")

    session, bench = await place.store().open("s"), Bench(work)
    session.context.create(Note(text="read me"), id="n")
    session.context.drain_events()
    session.context.create(Question(text="why"), id="q")
    bench.fails = True
    with pytest.raises(ConnectionError):
        await Runtime(session.context, bench.agents, session=session).arun()
    bench.fails = False
    reopened = await place.store().open("s")
    await Runtime(reopened.context, bench.agents, session=reopened).arun()
    stored = await place.load("s")
    first = stored.history()[0]
    reads = [read.artifact_id for read in first.reads]
    assert (reads[0], "n" in reads) == ("q", True)
    assert live(stored, "echo").created_by_commit is None
    assert live(stored, "n").data.text == "updated"
    assert [relation.relation for relation in stored.relations()] == ["about"]


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_result_is_held_as_it_was_when_its_execution_ended(place: Place, reloads: bool) -> None:
    """A later execution changes the planned model in place: held is what would have been committed."""
    planned, fails = Note(text="planned", tags=["first"]), [True]

    @produce(Note)
    async def plan(call: ProduceCall) -> None:
        call.effects.create(planned, id="planned")
        call.context.create(planned, id="direct")

    @produce(Note)
    async def spoil(call: ProduceCall) -> None:
        planned.text = "spoiled"
        planned.tags.append("second")
        if fails[0]:
            raise ConnectionError("no route")

    agents = [create_agent(w.name, consumes=[Consume(Question)], produces=[w]) for w in (plan, spoil)]
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    with pytest.raises(ConnectionError):
        await Runtime(session.context, agents, session=session).arun()
    fails[0] = False
    if reloads:
        session = await place.store().open("s")
    assert await Runtime(session.context, agents, session=session).arun() == 1
    stored = await place.load("s")
    for artifact_id in ("planned", "direct"):
        assert live(stored, artifact_id).data == Note(text="planned", tags=["first"])


async def test_two_events_of_one_moment_have_results_of_their_own() -> None:
    """A clock that stands still gives events that look alike; neither takes the other's result."""
    runs: list[int] = []
    fails = [True]

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        runs.append(len(runs))
        if fails[0] and len(runs) == 2:
            raise ConnectionError("no route")
        return Answer(text=f"run {runs[-1]}")

    context = Context(RuntimeResources(clock=JumpingClock()))
    context.create(Question(text="a"), id="q")
    context.drain_events()
    context.update("q", Question(text="b"))
    context.update("q", Question(text="c"))
    agent = create_agent("x", consumes=[Consume(Question)], produces=[answer])
    with pytest.raises(ConnectionError):
        await Runtime(context, [agent]).arun()
    fails[0] = False
    assert await Runtime(context, [agent]).arun() == 1
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["run 0", "run 2"]


async def test_results_are_kept_when_the_turn_is_cut_while_an_isolated_error_is_reported() -> None:
    context, bench = asked(), Bench()
    bench.fails = True
    reporting = anyio.Event()

    async def report(agent: Agent, event: Event, error: BaseException) -> None:
        reporting.set()
        await anyio.sleep_forever()

    runtime = Runtime(context, bench.agents, isolate_errors=True, on_agent_error=report)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        await reporting.wait()
        group.cancel_scope.cancel()
    bench.fails = False
    bench.runs.clear()
    assert await Runtime(context, bench.agents).arun() == 1
    assert bench.runs == ["two"]


async def test_what_a_budget_leaves_out_holds_nothing_back() -> None:
    """A budget stops starting: what was started commits, what was not stays owed."""
    context, bench = asked(), Bench()
    assert await Runtime(context, bench.agents, budget=Budget(max_runs=2)).arun() == 2
    assert authors(context) == ["one", "two"]
    assert context.discard_held() == 0
    assert await Runtime(context, bench.agents).arun() == 1
    assert bench.runs == ["one", "two", "three"]
