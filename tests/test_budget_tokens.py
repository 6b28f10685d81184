"""`max_tokens` and `max_cost` (API §14, BETTER 2): what was paid for is committed, the rest stays queued."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from support import Answer, Question, trigger_of

from reactifact import (
    Agent,
    Budget,
    Consume,
    Context,
    FakeLLM,
    LLMRequest,
    Message,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 60, "completion_tokens": 40}


def thinker() -> Agent:
    """Return an agent that pays 100 tokens for each answer."""

    @produce(Answer)
    async def think(call: ProduceCall) -> Answer:
        question = trigger_of(call)
        response = await call.context.resources.llm.complete(LLMRequest([Message.user(question.data.text)]))
        return Answer(text=f"{question.id}: {response.text}")

    return create_agent("thinker", consumes=[Consume(Question)], produces=[think])


def asked(count: int = 5, **resources: Any) -> Context:
    context = Context(RuntimeResources(llm=FakeLLM("42", usage=USAGE), **resources))
    for number in range(count):
        context.create(Question(text=f"question {number}"), id=f"q{number}")
    return context


def answered(context: Context) -> list[str]:
    return [found.data.text for found in context.list_artifacts(Answer)]


async def test_better_2_finished_results_are_committed_and_the_rest_stays_queued() -> None:
    context = asked()
    runtime = Runtime(context, [thinker()], budget=Budget(max_tokens=250))
    assert await runtime.arun() == 3  # the third overshoots
    stats = runtime.last_stats
    assert stats is not None
    assert stats.outcome == RunOutcome.BUDGET_TOKENS_EXCEEDED
    assert (stats.prompt_tokens, stats.completion_tokens, stats.total_tokens) == (180, 120, 300)
    assert answered(context) == ["q0: 42", "q1: 42", "q2: 42"]
    waiting = [event.artifact_id for event in context.pending_events() if event.artifact_type is Question]
    assert waiting == ["q3", "q4"]
    assert await runtime.arun() == 2  # the next turn starts afresh
    assert runtime.outcome == RunOutcome.COMPLETED
    assert len(answered(context)) == 5


async def test_better_2_what_was_started_beside_the_call_that_overshoots_finishes_and_commits() -> None:
    class Together(FakeLLM):
        """Answers when three ask."""

        def __init__(self) -> None:
            super().__init__("42", usage=USAGE)
            self.asking = 0
            self.all_here = anyio.Event()

        async def complete(self, request: LLMRequest) -> Any:
            self.asking += 1
            if self.asking == 3:
                self.all_here.set()
            await self.all_here.wait()
            return await super().complete(request)

    context = asked()
    context.resources.llm = Together()
    runtime = Runtime(context, [thinker()], 3, budget=Budget(max_tokens=100))
    assert await runtime.arun() == 3
    assert runtime.outcome == RunOutcome.BUDGET_TOKENS_EXCEEDED
    assert runtime.last_stats is not None
    assert runtime.last_stats.total_tokens == 300
    assert len(answered(context)) == 3
    assert context.version == 3


async def test_a_used_up_budget_starts_no_further_generation() -> None:
    @produce(Question)
    async def ask_on(call: ProduceCall) -> Question:
        await call.context.resources.llm.complete(LLMRequest([Message.user("go on")]))
        return Question(text="more")

    context = asked(1)
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[ask_on])])
    assert await runtime.arun(budget=Budget(max_tokens=300)) == 3
    assert runtime.outcome == RunOutcome.BUDGET_TOKENS_EXCEEDED
    assert len(context.pending_events()) == 1


async def test_the_model_is_in_place_again_after_a_turn_and_after_an_error() -> None:
    fails = [False]

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        assert call.context.resources.llm is not llm
        if fails[0]:
            raise ConnectionError("no route")

    context = asked(1)
    llm = context.resources.llm
    agent = create_agent("x", consumes=[Consume(Question)], produces=[look])
    runtime = Runtime(context, [agent], budget=Budget(max_tokens=10))
    await runtime.arun()
    assert context.resources.llm is llm
    fails[0] = True
    context.create(Question(text="again"))
    with pytest.raises(ConnectionError):
        await runtime.arun()
    assert context.resources.llm is llm


async def test_tokens_are_in_the_stats_after_an_exception_too() -> None:
    @produce(Answer)
    async def pay_and_fail(call: ProduceCall) -> None:
        await call.context.resources.llm.complete(LLMRequest([Message.user("x")]))
        raise ConnectionError("no route")

    context = asked(1)
    agent = create_agent("x", consumes=[Consume(Question)], produces=[pay_and_fail])
    runtime = Runtime(context, [agent], budget=Budget(max_tokens=1000))
    with pytest.raises(ConnectionError):
        await runtime.arun()
    assert runtime.last_stats is not None
    assert (runtime.last_stats.total_tokens, runtime.last_stats.errors) == (100, 1)


async def test_max_cost_counts_what_the_pricer_says() -> None:
    def pricer(model: str, prompt: int, completion: int) -> float:
        return prompt * 0.001 + completion * 0.01

    context = asked(pricer=pricer)
    runtime = Runtime(context, [thinker()], budget=Budget(max_cost=0.9))
    assert await runtime.arun() == 2
    stats = runtime.last_stats
    assert stats is not None
    assert stats.outcome == RunOutcome.BUDGET_COST_EXCEEDED
    assert stats.cost == pytest.approx(0.92)
    assert len(answered(context)) == 2


async def test_max_cost_without_a_pricer_is_inert_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    context = asked()
    runtime = Runtime(context, [thinker()], budget=Budget(max_cost=0.01))
    with caplog.at_level(logging.WARNING):
        assert await runtime.arun() == 5
    assert runtime.outcome == RunOutcome.COMPLETED
    assert runtime.last_stats is not None
    assert runtime.last_stats.cost == 0
    assert [found for found in caplog.records if "pricer is None" in found.getMessage()]
