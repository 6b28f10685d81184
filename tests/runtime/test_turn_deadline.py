"""`max_seconds` is a hard deadline (API §14, BETTER 3), on a clock that jumps."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Note, Order, Place, Question, action, notifier, trigger_of

from reactifact import (
    Artifact,
    Budget,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

THIRTY = Budget(max_seconds=30)


def timed() -> Context:
    return Context(RuntimeResources(clock=JumpingClock()))


def sleeper(seconds: float, name: str = "sleeper") -> Any:
    """Return an agent that answers a note with the next one, after some seconds."""

    @produce(Note)
    async def go_on(call: ProduceCall) -> Note:
        await call.context.resources.clock.sleep(seconds)
        return Note(count=trigger_of(call).data.count + 1)

    return create_agent(name, consumes=[Consume(Note)], produces=[go_on])


async def test_the_generations_before_the_deadline_are_committed_the_one_in_flight_is_not() -> None:
    context = timed()
    context.create(Note(), id="n")
    runtime = Runtime(context, [sleeper(12)], budget=THIRTY)
    assert await runtime.arun() == 2  # those that were committed, and not the one that was cut
    stats = runtime.last_stats
    assert stats is not None
    assert stats.runs == 3
    assert (stats.outcome, stats.duration) == (RunOutcome.BUDGET_TIME_EXCEEDED, 30)
    assert [found.data.count for found in context.list_artifacts(Note)] == [0, 1, 2]
    assert context.version == 2
    assert len(context.pending_events()) == 1
    assert not runtime.in_flight


async def test_an_argument_beats_the_runtimes_own_deadline() -> None:
    context = timed()
    context.create(Note(), id="n")
    runtime = Runtime(context, [sleeper(12)], budget=THIRTY)
    await runtime.arun(budget=Budget(max_seconds=5))
    assert context.version == 0
    await runtime.arun(max_iterations=4, budget=Budget())
    assert (context.version, runtime.outcome) == (4, RunOutcome.ITERATIONS_EXHAUSTED)


@pytest.mark.parametrize("limit", [None, 2])
async def test_better_3_an_agents_own_timeout_is_an_error_and_no_deadline(limit: int | None) -> None:
    @produce(Answer)
    async def impatient(call: ProduceCall) -> None:
        raise TimeoutError("the model did not answer")

    context = timed()
    context.create(Question(text="why"), id="q")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[impatient])
    runtime = Runtime(context, [agent], limit, budget=THIRTY)
    with pytest.raises(TimeoutError, match="the model did not answer"):
        await runtime.arun()
    assert runtime.outcome != RunOutcome.BUDGET_TIME_EXCEEDED
    assert len(context.pending_events()) == 1


async def test_a_scope_of_the_agents_own_that_times_out_is_no_deadline() -> None:
    @produce(Answer)
    async def fallback(call: ProduceCall) -> Answer:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return Answer(text="fallback")

    context = timed()
    context.create(Question(text="why"), id="q")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[fallback])
    runtime = Runtime(context, [agent], budget=THIRTY)
    assert await runtime.arun() == 1
    assert runtime.outcome == RunOutcome.COMPLETED
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["fallback"]


async def test_the_deadline_is_logged_with_its_seconds(caplog: pytest.LogCaptureFixture) -> None:
    context = timed()
    context.create(Note(), id="n")
    with caplog.at_level(logging.WARNING, logger="reactifact.runtime"):
        await Runtime(context, [sleeper(100)], budget=THIRTY).arun()
    (record,) = [found for found in caplog.records if found.getMessage() == "turn deadline exceeded"]
    assert record.levelno == logging.WARNING
    assert record.max_seconds == 30  # type: ignore[attr-defined]
    assert record.run_id  # type: ignore[attr-defined]


async def test_an_agent_sees_the_deadline_of_its_turn() -> None:
    seen: list[Any] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        seen.append((call.context.resources.budget, call.context.resources.budget_deadline))

    context = timed()
    context.create(Question(text="why"), id="q")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[look])
    await Runtime(context, [agent], budget=THIRTY).arun()
    assert seen == [(THIRTY, 30.0)]
    assert context.resources.budget_deadline is None


async def test_a_deadline_while_sending_records_the_attempt_and_keeps_the_commit(place: Place) -> None:
    hangs = [True]
    keys: list[str] = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        keys.append(artifact.data.idempotency_key)
        if hangs[0]:
            await anyio.sleep_forever()

    session = await place.store().open("s", RuntimeResources(clock=JumpingClock()))
    session.context.create(Order(item="x"), id="o")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=send, budget=THIRTY)
    assert await runtime.arun() == 1
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    stored = await place.load("s")
    assert stored.version == 1
    found = action(stored, "notify:o")
    assert (found.status, found.attempts, found.error) == ("pending", 1, "interrupted")
    hangs[0] = False
    await runtime.arun()
    assert keys == ["notify:o", "notify:o"]
    assert action(await place.load("s"), "notify:o").status == "dispatched"


async def test_under_per_turn_a_turn_that_ran_out_of_time_is_saved_and_its_actions_wait(place: Place) -> None:
    sent: list[str] = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        sent.append(artifact.data.idempotency_key)

    session = await place.store().open("s", RuntimeResources(clock=JumpingClock()))
    session.context.create(Order(item="x"), id="o")
    session.context.create(Note(), id="n")
    agents = [notifier(), sleeper(12)]
    runtime = Runtime(
        session.context, agents, session=session, dispatcher=send, session_save_policy="per_turn"
    )
    await runtime.arun(budget=THIRTY)
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    stored = await place.load("s")
    assert stored.version == 3  # the notifier's, and two notes
    assert sent == []  # the time was up
    assert action(stored, "notify:o").status == "pending"
    assert await runtime.flush_pending_actions() == 1
    assert sent == ["notify:o"]


async def test_under_per_turn_a_dispatcher_that_hangs_is_cut_by_the_deadline(place: Place) -> None:
    async def hang(context: Context, artifact: Artifact[PendingAction]) -> None:
        await anyio.sleep_forever()

    session = await place.store().open("s", RuntimeResources(clock=JumpingClock()))
    session.context.create(Order(item="x"), id="o")
    runtime = Runtime(
        session.context, [notifier()], session=session, dispatcher=hang, session_save_policy="per_turn"
    )
    assert await runtime.arun(budget=THIRTY) == 1
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    found = action(await place.load("s"), "notify:o")
    assert (found.status, found.attempts, found.error) == ("pending", 1, "interrupted")


async def test_a_deadline_of_zero_starts_nothing_that_waits() -> None:
    context = timed()
    context.create(Note(), id="n")
    runtime = Runtime(context, [sleeper(1)], budget=Budget(max_seconds=0))
    await runtime.arun()
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    assert context.version == 0
    assert context.list_artifacts(Echo) == []
