"""`astream` (API §29): what a turn shows while it runs, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Place, Question, answering_agents, trigger_of

from reactifact import (
    Budget,
    Consume,
    Context,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    create_agent,
    current_request,
    produce,
)
from reactifact._runtime import stream as streams
from reactifact.runtime import active_runs, cancel_run
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


def asked(resources: RuntimeResources | None = None) -> Context:
    context = Context(resources)
    context.create(Question(text="why"), id="q")
    return context


def talker(*, then: Any = None) -> Any:
    @produce(Answer)
    async def talk(call: ProduceCall) -> Answer:
        for number in range(3):
            call.context.announce(f"step {number}", number=number)
            await anyio.lowlevel.checkpoint()
        if then is not None:
            await then()
        return Answer(text="done")

    return create_agent("talker", consumes=[Consume(Question)], produces=[talk])


def count_tasks() -> int:
    """Return the number of tasks of the running loop, system tasks included."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return len(asyncio.all_tasks())
    import trio

    return int(trio.lowlevel.current_statistics().tasks_living)


async def test_start_announcements_in_order_and_end() -> None:
    context = asked(RuntimeResources(clock=JumpingClock()))
    runtime = Runtime(context, [talker(), *answering_agents()[1:]])
    before = count_tasks()
    events = [event async for event in runtime.astream()]
    assert [(event.kind, event.message) for event in events] == [
        ("run_start", ""),
        ("status", "step 0"),
        ("status", "step 1"),
        ("status", "step 2"),
        ("run_end", ""),
    ]
    assert [event.data for event in events[1:4]] == [{"number": number} for number in range(3)]
    assert events[-1].data == {"outcome": RunOutcome.COMPLETED, "runs": 2, "duration": 0.0}
    assert len(context.list_artifacts(Echo)) == 1
    assert not runtime.in_flight
    assert count_tasks() == before


async def test_an_announcement_comes_while_the_turn_still_runs() -> None:
    go = anyio.Event()
    runtime = Runtime(asked(), [talker(then=go.wait)])
    async with aclosing(runtime.astream()) as stream:
        async for event in stream:
            if event.message == "step 2":
                assert runtime.in_flight
                assert runtime.context.version == 0
                go.set()
    assert runtime.context.version == 1


async def test_an_error_is_raised_from_the_iteration_instead_of_the_end() -> None:
    async def fail() -> None:
        raise ConnectionError("no route")

    runtime = Runtime(asked(), [talker(then=fail)])
    before, kinds = count_tasks(), []

    async def read() -> None:
        async for event in runtime.astream():
            kinds.append(event.kind)

    with pytest.raises(ConnectionError, match="no route"):
        await read()
    assert kinds == ["run_start", "status", "status", "status"]
    assert not runtime.in_flight
    assert count_tasks() == before
    assert [event.artifact_id for event in runtime.context.pending_events()] == ["q"]


@pytest.mark.parametrize("after", ["run_start", "step 1"])
async def test_closing_early_cancels_the_turn_and_leaves_no_task(after: str) -> None:
    cancelled: list[bool] = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    context = asked()
    runtime = Runtime(context, [talker(then=hang)])
    before = count_tasks()
    async with aclosing(runtime.astream()) as stream:
        async for event in stream:
            if after in (event.kind, event.message):
                break
    assert count_tasks() == before
    assert not runtime.in_flight
    assert active_runs() == []
    assert context.version == 0
    assert [event.artifact_id for event in context.pending_events()] == ["q"]
    again = Runtime(context, [talker()])
    assert await again.arun() == 1


async def test_a_reader_that_is_cancelled_cancels_the_turn() -> None:
    started = anyio.Event()

    async def hang() -> None:
        started.set()
        await anyio.sleep_forever()

    runtime = Runtime(asked(), [talker(then=hang)])
    before = count_tasks()

    async def read() -> None:
        async with aclosing(runtime.astream()) as stream:
            async for _ in stream:
                pass

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await started.wait()
        group.cancel_scope.cancel()
    assert not runtime.in_flight
    assert count_tasks() == before


async def test_closing_waits_a_bounded_time_for_a_run_that_ignores_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "CLOSING_SECONDS", 0.05)
    go, ignoring = anyio.Event(), anyio.Event()

    async def ignore() -> None:
        ignoring.set()
        with anyio.CancelScope(shield=True):
            await go.wait()

    runtime = Runtime(asked(), [talker(then=ignore)])
    before = count_tasks()
    async with aclosing(runtime.astream()) as stream:
        async for event in stream:
            if event.message == "step 2":
                await ignoring.wait()
                break
    assert runtime.in_flight  # it goes on by itself ...
    go.set()
    while runtime.in_flight:
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()
    assert count_tasks() == before  # ... and ends


@pytest.mark.parametrize("after", ["run_start", "step 1", "step 2"])
async def test_a_break_cancels_the_turn_and_the_next_one_waits_for_it(after: str) -> None:
    hangs = [True]

    async def hang() -> None:
        if hangs[0]:
            await anyio.sleep_forever()

    context = asked()
    runtime = Runtime(context, [talker(then=hang)])
    before = count_tasks()
    async for event in runtime.astream():
        if after in (event.kind, event.message):
            break
    assert runtime.in_flight == (
        after != "run_start"
    )  # it is ending; nothing was begun before the second event
    with anyio.fail_after(5):
        kinds = [event.kind async for event in runtime.astream(max_iterations=0)]
    assert kinds == ["run_start", "run_end"]
    assert context.version == 0
    hangs[0] = False
    assert await runtime.arun() == 1
    assert not runtime.in_flight
    assert count_tasks() == before


async def test_an_error_in_the_body_of_the_loop_cancels_the_turn_too() -> None:
    runtime = Runtime(asked(), [talker(then=anyio.sleep_forever)])

    async def read() -> None:
        async for event in runtime.astream():
            if event.message == "step 2":
                raise LookupError("no such page")

    try:
        await read()
    except LookupError:
        pass
    else:
        pytest.fail("the body's own error was lost")
    with anyio.fail_after(5):
        while runtime.in_flight:  # nobody asks for another turn
            await anyio.lowlevel.checkpoint()
    assert runtime.context.version == 0


async def test_the_turn_after_a_break_waits_a_bounded_time_for_a_run_that_ignores_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "CLOSING_SECONDS", 0.05)
    go = anyio.Event()

    async def ignore() -> None:
        with anyio.CancelScope(shield=True):
            await go.wait()

    runtime = Runtime(asked(), [talker(then=ignore)])
    async for event in runtime.astream():
        if event.message == "step 2":
            await anyio.wait_all_tasks_blocked()
            break
    with pytest.raises(RuntimeError, match="not reentrant"):
        await runtime.arun()
    go.set()
    assert await runtime.arun(max_iterations=0) == 0


async def test_a_stream_that_is_kept_after_a_break_goes_on_and_can_be_closed() -> None:
    runtime = Runtime(asked(), [talker()])
    stream = runtime.astream()
    async for event in stream:
        if event.message == "step 0":
            break
    with pytest.raises(RuntimeError, match=r"not reentrant.*aclose"):
        await runtime.arun()
    assert [event.message async for event in stream] == ["step 1", "step 2", ""]
    assert [event async for event in stream] == []
    await stream.aclose()


async def test_a_cancelled_run_ends_its_stream_with_the_cancellation() -> None:
    runtime = Runtime(asked(), [talker(then=anyio.sleep_forever)])
    errors: list[str] = []

    async def read() -> None:
        try:
            async for event in runtime.astream():
                if event.message == "step 2":
                    (info,) = active_runs()
                    cancel_run(info.run_id)
        except BaseException as error:
            errors.append(type(error).__name__)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
    on_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
    assert errors == ["CancelledError" if on_asyncio else "RunCancelled"]
    assert not runtime.in_flight


async def test_budget_iterations_and_request_are_those_of_the_stream() -> None:
    requests: list[dict[str, Any]] = []

    @produce(Question)
    async def ask_on(call: ProduceCall) -> Question:
        requests.append(dict(call.request))
        return Question(text=trigger_of(call).data.text + "?")

    agent = create_agent("x", consumes=[Consume(Question)], produces=[ask_on])
    runtime = Runtime(asked(), [agent])
    ends = [
        [event async for event in runtime.astream(Budget(max_runs=2), request={"user": "ada"})][-1],
        [event async for event in runtime.astream(max_iterations=3)][-1],
    ]
    assert [end.data["outcome"] for end in ends] == [
        RunOutcome.BUDGET_RUNS_EXCEEDED,
        RunOutcome.ITERATIONS_EXHAUSTED,
    ]
    assert [end.data["runs"] for end in ends] == [2, 3]
    assert requests == [{"user": "ada"}] * 2 + [{}] * 3
    assert dict(current_request()) == {}


async def test_a_second_turn_beside_a_stream_is_refused() -> None:
    runtime = Runtime(asked(), [talker()])
    async with aclosing(runtime.astream()) as stream:
        async for event in stream:
            if event.message == "step 0":
                for other in (runtime.arun(), anext(runtime.astream())):
                    with pytest.raises(RuntimeError, match="not reentrant"):
                        await other


async def test_a_streamed_turn_is_saved_and_delivered_as_any_other(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    runtime = Runtime(session.context, answering_agents(), session=session, session_save_policy="per_turn")
    assert [event.kind async for event in runtime.astream()] == ["run_start", "run_end"]
    assert (await place.load("s")).version == 2


async def test_it_is_an_async_generator_that_closes() -> None:
    context = asked()
    stream = Runtime(context, [talker()]).astream()
    assert isinstance(stream, AsyncGenerator)
    assert (await stream.asend(None)).kind == "run_start"
    assert (await anext(stream)).kind == "status"
    with pytest.raises(KeyError, match="thrown"):
        await stream.athrow(KeyError("thrown"))
    assert active_runs() == []
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    await stream.aclose()  # once more does nothing
