"""Budgets, outcomes, stop and cancel (API §14, §15), without a real wait: the deadline's clock is ours."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import anyio
import pytest
from support import Answer, Echo, Note, Order, Place, Question, answering_agents, live, trigger_of

from reactifact import (
    Agent,
    Budget,
    BudgetTracker,
    Consume,
    Context,
    ProduceCall,
    RunOutcome,
    RunStats,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.runtime import RunInfo, active_runs, cancel_run

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


def chain(*, log: list[int] | None = None) -> Agent:
    """Return an agent that answers each note with the next one, for ever."""

    @produce(Note)
    async def go_on(call: ProduceCall) -> Note:
        count = trigger_of(call).data.count
        if log is not None:
            log.append(count)
        return Note(count=count + 1)

    return create_agent("chain", consumes=[Consume(Note)], produces=[go_on])


def started() -> Context:
    context = Context()
    context.create(Note(count=0), id="n")
    return context


def echo_orders(log: list[str]) -> Agent:
    @produce(Echo)
    async def echo(call: ProduceCall) -> Echo:
        log.append(trigger_of(call).id)
        return Echo(text=trigger_of(call).id)

    return create_agent("echo", consumes=[Consume(Order)], produces=[echo])


class HandClock:
    """A clock whose deadline comes when the test says so."""

    def __init__(self) -> None:
        self.expired = anyio.Event()
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return 100.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.expired.wait()


# -- runs and iterations ------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [0, 1, 3, 7])
async def test_an_endless_chain_stops_after_exactly_max_runs(runs: int) -> None:
    context = started()
    runtime = Runtime(context, [chain()], budget=Budget(max_runs=runs))
    assert await runtime.arun() == runs
    assert runtime.outcome == RunOutcome.BUDGET_RUNS_EXCEEDED
    assert context.version == runs
    assert len(context.pending_events()) == 1


async def test_max_runs_that_is_just_enough_is_no_excess() -> None:
    context = Context()
    context.create(Question(text="why"), id="q")
    runtime = Runtime(context, answering_agents(), budget=Budget(max_runs=2))
    assert await runtime.arun() == 2
    assert len(context.list_artifacts(Echo)) == 1
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.COMPLETED


async def test_each_turn_starts_afresh_and_the_argument_wins() -> None:
    context = started()
    runtime = Runtime(context, [chain()], budget=Budget(max_runs=2))
    assert await runtime.arun() == 2
    assert await runtime.arun() == 2
    assert await runtime.arun(budget=Budget(max_runs=5)) == 5
    assert await runtime.arun_once(budget=Budget(max_runs=5)) == 1
    assert context.version == 10


async def test_max_iterations_by_argument_and_by_budget() -> None:
    runtime = Runtime(started(), [chain()])
    assert await runtime.arun(max_iterations=3) == 3
    assert runtime.outcome == RunOutcome.ITERATIONS_EXHAUSTED
    assert await runtime.arun(max_iterations=3, budget=Budget(max_iterations=5)) == 5
    assert runtime.outcome == RunOutcome.ITERATIONS_EXHAUSTED


async def test_better_1_what_max_runs_cut_runs_in_the_next_turn() -> None:
    log: list[str] = []
    context = Context()
    for number in range(5):
        context.create(Order(item="x"), id=f"o{number}")
    runtime = Runtime(context, [echo_orders(log)], budget=Budget(max_runs=2))
    assert [await runtime.arun() for _ in range(4)] == [2, 2, 1, 0]
    assert log == ["o0", "o1", "o2", "o3", "o4"]


async def test_better_1_a_cut_event_is_owed_only_to_the_agents_that_did_not_run() -> None:
    logs: dict[str, list[str]] = {"one": [], "two": [], "three": []}
    agents = [echo_orders(log) for log in logs.values()]
    for agent, name in zip(agents, logs, strict=True):
        agent.name = name
    context = Context()
    context.create(Order(item="x"), id="o")
    runtime = Runtime(context, agents)
    assert await runtime.arun(budget=Budget(max_runs=2)) == 2
    assert runtime.outcome == RunOutcome.BUDGET_RUNS_EXCEEDED
    assert await runtime.arun() == 1
    assert list(logs.values()) == [["o"], ["o"], ["o"]]


async def test_better_1_what_max_runs_cut_runs_after_a_reload(place: Place) -> None:
    log: list[str] = []
    session = await place.store().open("s")
    for number in range(3):
        session.context.create(Order(item="x"), id=f"o{number}")
    runtime = Runtime(session.context, [echo_orders(log)], session=session, budget=Budget(max_runs=1))
    assert await runtime.arun() == 1
    reopened = await place.store().open("s")
    assert [event.artifact_id for event in reopened.context.pending_events()] == ["o1", "o2"]
    assert await Runtime(reopened.context, [echo_orders(log)], session=reopened).arun() == 2
    assert log == ["o0", "o1", "o2"]


# -- statistics ---------------------------------------------------------------------------------------


async def test_better_41_iterations_are_the_generations_that_ran() -> None:
    context = Context()
    context.create(Question(text="why"), id="q")
    runtime = Runtime(context, answering_agents())
    await runtime.arun(max_iterations=50)
    stats = runtime.last_stats
    assert isinstance(stats, RunStats)
    assert (stats.runs, stats.iterations, stats.outcome, stats.errors) == (2, 2, RunOutcome.COMPLETED, 0)
    assert stats.duration >= 0
    await runtime.arun()
    assert runtime.last_stats is not None
    assert (runtime.last_stats.runs, runtime.last_stats.iterations) == (0, 0)


async def test_better_42_after_an_exception_the_stats_are_of_this_turn() -> None:
    @produce(Answer)
    async def explode(call: ProduceCall) -> None:
        raise ConnectionError("no route")

    context = Context()
    for number in range(3):
        context.create(Question(text="why"), id=f"q{number}")
    await Runtime(context, answering_agents()).arun()
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Order)], produces=[explode])])
    await runtime.arun()
    context.create(Order(item="x"), id="o")
    with pytest.raises(ConnectionError):
        await runtime.arun()
    stats = runtime.last_stats
    assert stats is not None
    assert (stats.runs, stats.errors) == (1, 1)


def test_stats_and_tracker_add_up() -> None:
    stats = RunStats(1, 1, RunOutcome.COMPLETED, 0.5, prompt_tokens=3, completion_tokens=4)
    assert stats.total_tokens == 7
    tracker = BudgetTracker()
    assert tracker.exhausted(Budget()) is None
    tracker.record(prompt_tokens=5, completion_tokens=6, cost=0.25)
    tracker.record(prompt_tokens=1, completion_tokens=0)
    assert (tracker.total_tokens, tracker.cost) == (12, 0.25)
    assert tracker.exhausted(Budget(max_tokens=13)) is None
    assert tracker.exhausted(Budget(max_tokens=12)) == RunOutcome.BUDGET_TOKENS_EXCEEDED
    assert tracker.exhausted(Budget(max_cost=0.25)) == RunOutcome.BUDGET_COST_EXCEEDED


def test_budget_defaults_and_outcome_texts() -> None:
    budget = Budget()
    assert set(budget.model_dump().values()) == {None}
    assert not budget.tracks_llm_usage
    assert Budget(max_tokens=1).tracks_llm_usage
    assert Budget(max_cost=1).tracks_llm_usage
    assert {str(outcome) for outcome in RunOutcome} == {
        "completed",
        "iterations_exhausted",
        "budget_runs_exceeded",
        "budget_time_exceeded",
        "budget_tokens_exceeded",
        "budget_cost_exceeded",
        "quota_exceeded",
        "stopped",
    }


# -- deadline -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 4])
async def test_the_deadline_cancels_the_generation_and_keeps_its_events(
    limit: int | None, place: Place
) -> None:
    clock = HandClock()
    hang = [True]

    @produce(Answer)
    async def slow(call: ProduceCall) -> Answer:
        if hang[0]:
            clock.expired.set()
            await anyio.sleep_forever()
        return Answer(text="done")

    session = await place.store().open("s", RuntimeResources(clock=clock))
    session.context.create(Question(text="why"), id="q")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[slow])
    runtime = Runtime(session.context, [agent], limit, session=session, budget=Budget(max_seconds=30))
    await runtime.arun()
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    assert clock.slept == [30]
    assert not runtime.in_flight
    assert session.context.list_artifacts(Answer) == []
    reopened = await place.store().open("s")
    assert [event.artifact_id for event in reopened.context.pending_events()] == ["q"]
    assert reopened.context.version == 0
    hang[0] = False
    assert await Runtime(reopened.context, [agent], session=reopened).arun() == 1
    assert [found.data.text for found in reopened.context.list_artifacts(Answer)] == ["done"]


async def test_a_turn_in_time_ends_normally() -> None:
    context = Context(RuntimeResources(clock=HandClock()))
    context.create(Question(text="why"), id="q")
    runtime = Runtime(context, answering_agents(), budget=Budget(max_seconds=30))
    assert await runtime.arun() == 2
    assert runtime.outcome == RunOutcome.COMPLETED


async def test_an_error_under_a_deadline_comes_out_bare() -> None:
    @produce(Answer)
    async def explode(call: ProduceCall) -> None:
        raise TimeoutError("the agent's own")

    context = Context(RuntimeResources(clock=HandClock()))
    context.create(Question(text="why"), id="q")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[explode])
    with pytest.raises(TimeoutError, match="the agent's own"):
        await Runtime(context, [agent], budget=Budget(max_seconds=30)).arun()


# -- stop, list, cancel -------------------------------------------------------------------------------


async def test_request_stop_lets_the_generation_commit_and_starts_no_other() -> None:
    @produce(Note)
    async def stop_at_three(call: ProduceCall) -> Note:
        count = trigger_of(call).data.count
        if count == 2:
            runtime.request_stop()
        return Note(count=count + 1)

    context = started()
    agent = create_agent("x", consumes=[Consume(Note)], produces=[stop_at_three])
    runtime = Runtime(context, [agent])
    assert await runtime.arun() == 3
    assert runtime.outcome == RunOutcome.STOPPED
    assert [found.data.count for found in context.list_artifacts(Note)] == [0, 1, 2, 3]
    assert len(context.pending_events()) == 1


async def test_better_6_a_stop_ends_the_turn_in_progress_only() -> None:
    stopping = [True]

    @produce(Note)
    async def stop(call: ProduceCall) -> Note | None:
        if stopping[0]:
            runtime.request_stop()
        count = trigger_of(call).data.count
        return Note(count=count + 1) if count < 5 else None

    context = started()
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Note)], produces=[stop])])
    assert await runtime.arun() == 1
    outcomes = [runtime.outcome]
    stopping[0] = False
    assert await runtime.arun() == 5
    outcomes.append(runtime.outcome)
    assert outcomes == [RunOutcome.STOPPED, RunOutcome.COMPLETED]
    runtime.request_stop()  # no turn in progress: nothing to stop
    context.create(Note(count=5), id="late")
    assert await runtime.arun() == 1
    assert runtime.outcome == RunOutcome.COMPLETED


async def test_better_6_arun_once_obeys_a_stop_too() -> None:
    @produce(Note)
    async def stop(call: ProduceCall) -> Note:
        runtime.request_stop()
        return Note(count=1)

    context = started()
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Note)], produces=[stop])])
    assert await runtime.arun_once() == 1
    assert runtime.outcome == RunOutcome.STOPPED
    assert context.version == 1


async def test_better_6_after_ashutdown_a_turn_is_refused_with_the_reason() -> None:
    started_, go_on = anyio.Event(), anyio.Event()

    @produce(Note)
    async def wait(call: ProduceCall) -> Note:
        started_.set()
        await go_on.wait()
        return Note(count=1)

    context = started()
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Note)], produces=[wait])])
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        await started_.wait()
        group.start_soon(runtime.ashutdown)
        await anyio.lowlevel.checkpoint()
        assert runtime.in_flight  # it waits for the turn
        go_on.set()
    assert context.version == 1  # the generation finished and was committed, no other started
    assert runtime.outcome == RunOutcome.STOPPED
    for refused in (runtime.arun, runtime.arun_once):
        with pytest.raises(RuntimeError, match="shut"):
            await refused()
    assert await Runtime(context, []).arun() == 0  # another runtime goes on with the context


async def test_ashutdown_cancels_the_turn_when_its_time_has_passed() -> None:
    clock = HandClock()
    running = anyio.Event()

    @produce(Note)
    async def hang(call: ProduceCall) -> None:
        running.set()
        await anyio.sleep_forever()

    context = Context(RuntimeResources(clock=clock))
    context.create(Note(), id="n")
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Note)], produces=[hang])])
    errors: list[BaseException] = []

    async def turn() -> None:
        try:
            await runtime.arun()
        except BaseException as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(turn)
        await running.wait()
        clock.expired.set()
        await runtime.ashutdown(timeout=5)
        assert not runtime.in_flight
    assert clock.slept == [5]
    assert len(errors) == 1
    assert [event.artifact_id for event in context.pending_events()] == ["n"]
    assert active_runs() == []


async def test_ashutdown_without_a_turn_returns_at_once() -> None:
    runtime = Runtime(Context(), [])
    await runtime.ashutdown()
    await runtime.ashutdown(timeout=0)


async def test_active_runs_lists_a_turn_while_it_lasts() -> None:
    seen: list[RunInfo] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> Answer:
        seen.extend(active_runs())
        return Answer(text="a")

    context = Context()
    context.create(Question(text="why"), id="q")
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[look])])
    assert active_runs() == []
    await runtime.arun(request={"user": "ada"})
    (info,) = seen
    assert info.run_id
    assert info.session_id == ""
    assert info.generation >= 1
    assert dict(info.request) == {"user": "ada"}
    assert info.runtime_id == id(runtime)
    assert info.started_at.utcoffset() is not None
    assert active_runs() == []


async def test_cancel_run_tells_the_awaiter_and_frees_the_runtime() -> None:
    running = anyio.Event()
    hang = [True]

    @produce(Answer)
    async def slow(call: ProduceCall) -> Answer:
        running.set()
        if hang[0]:
            await anyio.sleep_forever()
        return Answer(text="a")

    context = Context()
    context.create(Question(text="why"), id="q")
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[slow])])
    errors: list[BaseException] = []

    async def turn() -> None:
        try:
            await runtime.arun()
        except BaseException as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(turn)
        await running.wait()
        (info,) = active_runs()
        assert not cancel_run("no such run")
        assert cancel_run(info.run_id)
    (error,) = errors
    on_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
    assert type(error) is asyncio.CancelledError if on_asyncio else type(error).__name__ == "RunCancelled"
    assert not runtime.in_flight
    assert active_runs() == []
    assert context.version == 0
    hang[0] = False
    assert await runtime.arun() == 1  # the event was not consumed
    assert live(context, "q").data.text == "why"
