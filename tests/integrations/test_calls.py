"""Calls of another library's agent: recorded and answered anew, and tools that go through the outbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import Answer, Question

from reactifact import Consume, Context, PendingAction, ProduceCall, Runtime, create_agent, produce
from reactifact.integrations.calls import (
    QUEUED,
    AgentCalls,
    RecordingRefused,
    recorder,
    tool_dispatcher,
)
from reactifact.providers import FakeLLM, LLMRequest, LLMResponse, Message
from reactifact.replay import ReplayLLM, ReplayMiss

pytestmark = pytest.mark.anyio


async def turn(context: Context, work: Any, **options: Any) -> None:
    """Run one produce of an agent called `clerk` on a question."""

    @produce(Answer, also_creates=[PendingAction])
    async def act(call: ProduceCall) -> None:
        await work(call)

    agent = create_agent("clerk", consumes=[Consume(Question)], produces=[act])
    context.create(Question(text="how many?"), id="question:1")
    await Runtime(context, agents=[agent], **options).arun()


async def answers(call: ProduceCall, asked: list[str]) -> None:
    calls = AgentCalls(call, "clerk")

    async def ask() -> LLMResponse:
        asked.append("model")
        return LLMResponse(text=f"answer {len(asked)}")

    first = await calls.model("m", {"q": 1}, ask)
    second = await calls.model("m", {"q": 1}, ask)
    call.effects.create(Answer(text=f"{first}, {second}"), id="answer:1")


async def test_answers_are_recorded_and_come_from_the_recording(tmp_path: Path) -> None:
    asked: list[str] = []
    for mode in ("record", "replay"):
        context = Context()
        context.resources.llm = recorder(tmp_path / "calls.jsonl", mode=mode)  # type: ignore[arg-type]
        await turn(context, lambda call: answers(call, asked))
        found = context.get("answer:1")
        assert found is not None
        assert found.data.text == "answer 1, answer 2"
    assert asked == ["model", "model"]


async def test_what_is_not_recorded_is_no_answer(tmp_path: Path) -> None:
    recording = tmp_path / "calls.jsonl"
    context = Context()
    context.resources.llm = recorder(recording)
    await turn(context, lambda call: answers(call, []))
    other = Context()
    other.resources.llm = recorder(recording, mode="replay")

    async def something_else(call: ProduceCall) -> None:
        await AgentCalls(call, "clerk").model("m", {"q": 2}, lambda: pytest.fail("asked"))

    with pytest.raises(ReplayMiss):
        await turn(other, something_else)


async def test_a_try_again_gets_the_answers_of_the_one_before() -> None:
    asked: list[str] = []
    tries: list[int] = []

    @produce(Answer, retries=1)
    async def act(call: ProduceCall) -> None:
        tries.append(1)
        await answers(call, asked)
        if len(tries) == 1:
            raise ConnectionError("after the model was paid")

    agent = create_agent("clerk", consumes=[Consume(Question)], produces=[act])
    context = Context()
    context.create(Question(text="how many?"))
    await Runtime(context, agents=[agent]).arun()
    assert (len(tries), len(asked)) == (2, 2)


async def test_a_recorder_that_cannot_ask_for_adapters_is_refused(tmp_path: Path) -> None:
    context = Context()
    context.resources.llm = ReplayLLM(tmp_path / "calls.jsonl", mode="record", inner=FakeLLM([]))
    with pytest.raises(RecordingRefused, match=r"recorder\(path, inner=provider\)"):
        await turn(context, lambda call: answers(call, []))


async def test_a_recorder_without_a_provider_answers_adapters_alone(tmp_path: Path) -> None:
    llm = recorder(tmp_path / "calls.jsonl")
    with pytest.raises(RecordingRefused, match=r"recorder\(inner=\.\.\.\)"):
        await llm.complete(LLMRequest([Message("user", "x")]))


async def test_a_tool_call_is_an_intent_with_a_key_of_its_own() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    async def plan(call: ProduceCall) -> None:
        calls = AgentCalls(call, "clerk", outbox=["mail"])
        assert calls.outbox == {"mail"}
        assert calls.act("mail", {"to": "ann"}) == QUEUED
        assert calls.act("mail", {"to": "bob"}) == QUEUED
        assert sent == []

    def mail(to: str) -> None:
        sent.append(("mail", {"to": to}))

    context = Context()
    await turn(context, plan, dispatcher=tool_dispatcher({"mail": mail}))
    assert sent == [("mail", {"to": "ann"}), ("mail", {"to": "bob"})]
    keys = [found.data.idempotency_key for found in context.list_artifacts(PendingAction)]
    assert keys == ["clerk:question:1:0:1:mail", "clerk:question:1:0:2:mail"]


async def test_a_tool_that_nobody_gave_fails_by_name() -> None:
    async def plan(call: ProduceCall) -> None:
        AgentCalls(call, "clerk").act("fax", {})

    with pytest.raises(LookupError, match=r"no tool delivers 'tool:fax'.*given mail"):
        await turn(Context(), plan, dispatcher=tool_dispatcher({"mail": print}))
