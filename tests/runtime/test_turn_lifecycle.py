"""`astream(lifecycle=True)`: what a turn does, as typed events, beside what a stream always yields."""

from __future__ import annotations

from typing import Any

import pytest
from support import Order, Outside, Place, Receipt, notifier

from reactifact import (
    Consume,
    Context,
    PendingAction,
    PendingQuestion,
    ProduceCall,
    Runtime,
    create_agent,
    produce,
)
from reactifact.streaming import (
    ActionDelivered,
    CommitMade,
    DeliveryStarted,
    ExecutionFailed,
    ExecutionFinished,
    ExecutionStarted,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LifecycleEvent,
    ProgressEvent,
    QuestionAsked,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)

pytestmark = pytest.mark.anyio


async def streamed(runtime: Runtime, **options: Any) -> list[ProgressEvent]:
    return [event async for event in runtime.astream(**options)]


async def read(runtime: Runtime, events: list[Any]) -> None:
    """Add to `events` what happens, up to an error."""
    async for event in runtime.astream(lifecycle=True):
        events.append(event)


async def ordered(place: Place, *, dispatcher: Any = None) -> tuple[Context, Runtime]:
    session = await place.store().open("s")
    session.context.create(Order(item="tea"), id="o")
    return session.context, Runtime(
        session.context, [notifier()], session=session, dispatcher=dispatcher, hints=False
    )


@pytest.mark.every_loop
async def test_a_turn_from_its_beginning_to_its_end(git_place: Place) -> None:
    context, runtime = await ordered(git_place, dispatcher=Outside())
    events = await streamed(runtime, lifecycle=True)
    assert [type(event) for event in events] == [
        ProgressEvent,
        TurnStarted,
        GenerationStarted,
        ExecutionStarted,
        ExecutionFinished,
        CommitMade,
        DeliveryStarted,
        ActionDelivered,
        GenerationFinished,
        TurnFinished,
        ProgressEvent,
    ]
    assert (events[0].kind, events[-1].kind) == ("run_start", "run_end")
    told = [event for event in events if isinstance(event, LifecycleEvent)]
    assert {(one.session_id, one.branch) for one in told} == {("s", "main")}
    assert len({one.run_id for one in told}) == 1
    (started,) = [event for event in told if type(event) is ExecutionStarted]
    assert (started.agent, started.artifact_id, started.event) == ("notifier", "o", "artifact_created")
    (made,) = [event for event in told if isinstance(event, CommitMade)]
    assert (made.commit, made.version) == (context.head_id, 1)
    assert made.artifact_ids == ("receipt:o", "action:notify:o")
    sent = next(event for event in told if isinstance(event, ActionDelivered))
    assert (sent.status, sent.key, sent.agent, sent.commit) == (
        "dispatched",
        "notify:o",
        "notifier",
        made.commit,
    )
    (finished,) = [event for event in told if isinstance(event, TurnFinished)]
    assert (finished.outcome, finished.runs, finished.errors) == ("completed", 1, 0)


async def test_a_stream_is_what_it_was_unless_the_lifecycle_is_asked_for(place: Place) -> None:
    _, runtime = await ordered(place)
    assert [event.kind for event in await streamed(runtime)] == ["run_start", "run_end"]


async def test_failures_are_told_and_raised() -> None:
    context = Context()

    @produce(Receipt)
    async def fail(call: ProduceCall) -> None:
        raise ConnectionError("no route")

    context.create(Order(item="tea"), id="o")
    runtime = Runtime(context, [create_agent("a", consumes=[Consume(Order)], produces=[fail])])
    events: list[Any] = []
    with pytest.raises(ConnectionError):
        await read(runtime, events)
    failed = [event for event in events if isinstance(event, ExecutionFailed | GenerationFailed | TurnFailed)]
    assert [type(event) for event in failed] == [ExecutionFailed, GenerationFailed, TurnFailed]
    assert {event.error for event in failed} == {"ConnectionError: no route"}


async def test_a_delivery_that_fails_is_told_with_its_status(place: Place) -> None:
    _, runtime = await ordered(place, dispatcher=Outside("notify:o"))
    events: list[Any] = []
    with pytest.raises(ConnectionError):
        await read(runtime, events)
    (sent,) = [event for event in events if isinstance(event, ActionDelivered)]
    assert (sent.status, sent.attempts, sent.error) == ("failed", 1, "ConnectionError: no route for notify:o")
    assert isinstance(events[-1], TurnFailed)


async def test_a_question_is_told_when_it_is_committed() -> None:
    context = Context()

    @produce(Receipt, also_creates=PendingQuestion)
    async def ask(call: ProduceCall) -> None:
        call.effects.ask("may I?", id="q")

    context.create(Order(item="tea"), id="o")
    agent = create_agent("a", consumes=[Consume(Order)], produces=[ask])
    events = await streamed(Runtime(context, [agent]), lifecycle=True)
    (asked,) = [event for event in events if isinstance(event, QuestionAsked)]
    assert (asked.artifact_id, asked.question) == ("q", "may I?")


async def test_announcements_stand_among_what_the_runtime_does() -> None:
    context = Context()

    @produce(Receipt)
    async def work(call: ProduceCall) -> None:
        call.context.announce("half way")

    context.create(Order(item="tea"), id="o")
    agent = create_agent("a", consumes=[Consume(Order)], produces=[work])
    events = await streamed(Runtime(context, [agent]), lifecycle=True)
    kinds = [event.kind for event in events]
    assert kinds.index("execution_started") < kinds.index("status") < kinds.index("execution_finished")


async def test_a_turn_inside_a_callback_has_observers_of_its_own() -> None:
    context, inner = Context(), Context()
    inner.create(Order(item="milk"), id="i")
    other = Runtime(inner, [notifier("inner")], hints=False)

    async def dispatch(context: Context, action: Any) -> None:
        await other.arun()

    context.create(PendingAction(kind="mail", idempotency_key="k"), id="action:k")
    events = await streamed(Runtime(context, [notifier()], dispatcher=dispatch), lifecycle=True)
    assert other.last_stats is not None
    assert other.last_stats.runs == 1
    assert not [event for event in events if isinstance(event, ExecutionStarted)]
