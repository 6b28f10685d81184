"""Counting model calls: for the turn that makes them, with the model back in place afterwards."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from reactifact import (
    Budget,
    BudgetTracker,
    FakeLLM,
    LLMProvider,
    LLMRequest,
    LLMResponse,
    LLMResponseChunk,
    Message,
    RuntimeResources,
)
from reactifact.budget import metered

pytestmark = pytest.mark.every_loop

USAGE = {"prompt_tokens": 10, "completion_tokens": 4}
LIMITED = Budget(max_tokens=1000)


def asking(**extra: Any) -> LLMRequest:
    return LLMRequest([Message.user("hello")], extra=extra)


def shop(**options: Any) -> tuple[RuntimeResources, FakeLLM]:
    llm = FakeLLM("one two three", USAGE)
    return RuntimeResources(llm=llm, **options), llm


def counted(tracker: BudgetTracker) -> tuple[int, int, float]:
    return tracker.prompt_tokens, tracker.completion_tokens, tracker.cost


@pytest.mark.anyio
async def test_completions_are_counted_and_the_model_is_back_afterwards() -> None:
    resources, llm = shop()
    tracker = BudgetTracker()
    with metered(resources, tracker, LIMITED):
        assert resources.llm is not llm
        assert isinstance(resources.llm, LLMProvider)
        response = await resources.llm.complete(asking())
        await resources.llm.complete(asking())
    assert response == LLMResponse("one two three", None, "stop", USAGE)
    assert resources.llm is llm
    assert counted(tracker) == (20, 8, 0.0)
    await resources.llm.complete(asking())
    assert tracker.total_tokens == 28


@pytest.mark.anyio
async def test_streams_are_counted() -> None:
    resources, _ = shop()
    tracker = BudgetTracker()
    with metered(resources, tracker, LIMITED):
        chunks = [chunk async for chunk in resources.llm.stream(asking())]
    assert "".join(chunk.text for chunk in chunks) == "one two three"
    assert counted(tracker) == (10, 4, 0.0)


class Counting(LLMProvider):
    """Reports one completion token with every chunk, and notes that its stream was closed."""

    model = "inner-1"

    def __init__(self) -> None:
        self.is_closed = False

    async def complete(self, request: LLMRequest) -> LLMResponse:
        return LLMResponse("", usage={"prompt_tokens": None, "completion_tokens": 1})  # type: ignore[dict-item]

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        try:
            for text in "abc":
                yield LLMResponseChunk(text, usage={"completion_tokens": 1})
        finally:
            self.is_closed = True


@pytest.mark.anyio
async def test_a_stream_that_is_closed_early_is_counted_as_far_as_it_came() -> None:
    llm, tracker = Counting(), BudgetTracker()
    resources = RuntimeResources(llm=llm)
    with metered(resources, tracker, LIMITED):
        async with aclosing(resources.llm.stream(asking())) as chunks:
            async for chunk in chunks:
                if chunk.text == "b":
                    break
    assert counted(tracker) == (0, 2, 0.0)
    assert llm.is_closed


@pytest.mark.anyio
async def test_numbers_that_a_provider_leaves_out_count_as_none() -> None:
    resources, tracker = RuntimeResources(llm=Counting()), BudgetTracker()
    with metered(resources, tracker, LIMITED):
        await resources.llm.complete(asking())
    assert counted(tracker) == (0, 1, 0.0)


@pytest.mark.anyio
async def test_a_failing_call_counts_nothing_and_leaves_as_it_was_raised() -> None:
    resources, tracker = RuntimeResources(llm=FakeLLM([])), BudgetTracker()
    llm = resources.llm
    with pytest.raises(LookupError, match="FakeLLM"), metered(resources, tracker, LIMITED):
        await resources.llm.complete(asking())
    assert resources.llm is llm
    assert counted(tracker) == (0, 0, 0.0)


@pytest.mark.anyio
async def test_the_cost_comes_from_the_pricer() -> None:
    asked: list[tuple[str, int, int]] = []

    def price(model: str, prompt: int, completion: int) -> float:
        asked.append((model, prompt, completion))
        return prompt * 0.5 + completion

    resources, llm = shop(pricer=price)
    llm.model = "fake-1"  # type: ignore[attr-defined]  # providers name their model so
    tracker = BudgetTracker()
    with metered(resources, tracker, Budget(max_cost=5)):
        await resources.llm.complete(asking())
        await resources.llm.complete(asking(model="other"))
    assert asked == [("fake-1", 10, 4), ("other", 10, 4)]
    assert counted(tracker) == (20, 8, 18.0)


@pytest.mark.anyio
async def test_tokens_are_counted_even_if_the_pricer_fails() -> None:
    def price(model: str, prompt: int, completion: int) -> float:
        raise KeyError(model)

    resources, _ = shop(pricer=price)
    tracker = BudgetTracker()
    with metered(resources, tracker, LIMITED), suppress(KeyError):
        await resources.llm.complete(asking())
    assert counted(tracker) == (10, 4, 0.0)


@pytest.mark.anyio
async def test_without_a_pricer_the_cost_is_none_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resources, _ = shop()
    for _ in range(2):
        tracker = BudgetTracker()
        with metered(resources, tracker, Budget(max_cost=0.1)):
            await resources.llm.complete(asking())
        assert counted(tracker) == (10, 4, 0.0)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("reactifact.runtime", logging.WARNING)
    assert "pricer is None" in record.getMessage()
    with metered(resources, BudgetTracker(), Budget(max_tokens=1)):
        pass
    assert len(caplog.records) == 1


@pytest.mark.parametrize("budget", [None, Budget(), Budget(max_runs=3, max_seconds=5)])
def test_without_a_limit_on_tokens_or_cost_the_model_stays(budget: Budget | None) -> None:
    resources, llm = shop()
    with metered(resources, BudgetTracker(), budget):
        assert resources.llm is llm


def test_without_a_model_there_is_nothing_to_count() -> None:
    resources = RuntimeResources()
    with metered(resources, BudgetTracker(), LIMITED):
        assert resources.llm is None
    assert resources.llm is None


def test_the_wrapper_shows_what_the_model_has() -> None:
    resources = RuntimeResources(llm=Counting())
    with metered(resources, BudgetTracker(), LIMITED):
        assert resources.llm.model == "inner-1"
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = resources.llm.no_such_thing


def test_a_model_put_in_place_during_the_turn_stays() -> None:
    resources, _ = shop()
    other = FakeLLM()
    with metered(resources, BudgetTracker(), LIMITED):
        resources.llm = other
    assert resources.llm is other


# -- several turns on the same resources ---------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("first_to_end", [0, 1])
async def test_two_turns_at_once_count_their_own_calls(first_to_end: int) -> None:
    resources, llm = shop()
    trackers = [BudgetTracker(), BudgetTracker()]
    entered = [anyio.Event(), anyio.Event()]
    ended = anyio.Event()
    seen: list[bool] = []

    async def turn(number: int) -> None:
        with metered(resources, trackers[number], LIMITED):
            entered[number].set()
            await entered[1 - number].wait()
            for _ in range(number + 1):
                await resources.llm.complete(asking())
            seen.append(resources.budget_tracker is trackers[number])
            if number != first_to_end:
                await ended.wait()
                await resources.llm.complete(asking())
        if number == first_to_end:
            assert resources.llm is not llm
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(turn, 0)
        group.start_soon(turn, 1)
    assert resources.llm is llm
    assert seen == [True, True]
    calls = [1, 2]
    calls[1 - first_to_end] += 1
    assert [tracker.prompt_tokens for tracker in trackers] == [10 * count for count in calls]


@pytest.mark.anyio
async def test_a_turn_inside_a_turn_counts_for_both() -> None:
    resources, llm = shop()
    outer, inner = BudgetTracker(), BudgetTracker()
    with metered(resources, outer, LIMITED):
        await resources.llm.complete(asking())
        with metered(resources, inner, LIMITED):
            await resources.llm.complete(asking())
            assert resources.budget_tracker is inner
        assert resources.budget_tracker is outer
        await resources.llm.complete(asking())
    assert resources.llm is llm
    assert (outer.prompt_tokens, inner.prompt_tokens) == (30, 10)


@pytest.mark.anyio
async def test_other_resources_with_the_same_model_count_for_both() -> None:
    resources, llm = shop()
    outer, inner = BudgetTracker(), BudgetTracker()
    with metered(resources, outer, LIMITED):
        own = RuntimeResources(llm=resources.llm)
        with metered(own, inner, LIMITED):
            await own.llm.complete(asking())
            assert (own.budget_tracker, resources.budget_tracker) == (inner, outer)
    assert resources.llm is llm
    assert (outer.prompt_tokens, inner.prompt_tokens) == (10, 10)


@pytest.mark.anyio
async def test_a_turn_without_limits_is_not_counted_for_its_neighbour() -> None:
    resources, _ = shop()
    limited, free = BudgetTracker(), BudgetTracker()
    inside, done = anyio.Event(), anyio.Event()

    async def hold() -> None:
        with metered(resources, limited, LIMITED):
            inside.set()
            await done.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await inside.wait()
        with metered(resources, free, None):
            await resources.llm.complete(asking())
        done.set()
    assert (limited.total_tokens, free.total_tokens) == (0, 0)


@pytest.mark.anyio
async def test_tasks_of_a_turn_and_an_older_worker_task_count_for_it() -> None:
    resources, _ = shop()
    tracker = BudgetTracker()
    send, receive = anyio.create_memory_object_stream[Callable[[], Any]]()

    async def work() -> None:
        async with receive:
            async for job in receive:
                await job()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        async with send:
            with metered(resources, tracker, LIMITED):
                async with anyio.create_task_group() as own:
                    own.start_soon(resources.llm.complete, asking())
                    own.start_soon(resources.llm.complete, asking())
                await send.send(lambda: resources.llm.complete(asking()))
                await anyio.wait_all_tasks_blocked()
    assert tracker.prompt_tokens == 30


# -- what a turn shows on the resources ----------------------------------------------------------


class StoppedClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)

    def monotonic(self) -> float:
        return 100.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def shown(resources: RuntimeResources) -> tuple[Any, Any, Any]:
    return resources.budget, resources.budget_deadline, resources.budget_tracker


def test_the_budget_shows_on_the_resources_for_the_length_of_the_turn() -> None:
    resources = RuntimeResources(clock=StoppedClock())
    budget, tracker = Budget(max_seconds=5), BudgetTracker()
    with metered(resources, tracker, budget):
        assert shown(resources) == (budget, 105.0, tracker)
        assert resources.get("budget_tracker") is tracker
        with metered(resources, BudgetTracker(), None, deadline=7.0):
            assert shown(resources)[:2] == (None, 7.0)
        assert shown(resources) == (budget, 105.0, tracker)
    assert shown(resources) == (None, None, None)


def test_it_is_gone_after_a_failure_too() -> None:
    resources, llm = shop()
    with pytest.raises(KeyError), metered(resources, BudgetTracker(), LIMITED):
        raise KeyError("x")
    assert shown(resources) == (None, None, None)
    assert resources.llm is llm
