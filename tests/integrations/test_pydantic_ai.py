"""Agents of pydantic-ai as produces, with their own test models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents_support import Reply, Wish, turn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from reactifact import Consume, Context, FakeLLM, ProduceCall, Runtime, SessionStore, create_agent
from reactifact.errors import ReactifactError
from reactifact.integrations.pydantic_ai import (
    MessageHistory,
    agent_produce,
    recorder,
    run_agent,
    tool_dispatcher,
)
from reactifact.replay import ReplayLLM, ReplayMiss

pytestmark = pytest.mark.anyio


class Clerk:
    """A model that calls `lookup`, then `mail`, then says what it heard; and the tools it calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.looked_up: list[str] = []
        self.mailed: list[tuple[str, str]] = []

    def model(self) -> FunctionModel:
        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.asked += 1
            returned = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
            if not returned:
                return ModelResponse([ToolCallPart("lookup", {"item": "tea"})])
            if len(returned) == 1:
                return ModelResponse([ToolCallPart("mail", {"to": "ann", "text": str(returned[0].content)})])
            return ModelResponse([TextPart(f"mail: {returned[-1].content}")])

        return FunctionModel(answer)

    def agent(self) -> Agent[None, str]:
        made: Agent[None, str] = Agent(self.model(), name="clerk")

        @made.tool_plain
        def lookup(item: str) -> str:
            self.looked_up.append(item)
            return f"{item}: 4"

        @made.tool_plain
        def mail(to: str, text: str) -> str:
            self.mailed.append((to, text))
            return "mailed"

        return made

    async def body(self, call: ProduceCall) -> Any:
        return (await run_agent(call, self.agent(), call.trigger.data.text)).output  # type: ignore[union-attr]

    async def body_by_outbox(self, call: ProduceCall) -> Any:
        result = await run_agent(call, self.agent(), "go", outbox=["mail"])
        return result.output


async def test_an_agent_runs_as_a_produce_and_its_calls_are_noted(tmp_path: Path) -> None:
    clerk = Clerk()
    assert await turn(tmp_path / "s.git", clerk.body) == ["mail: mailed"]
    assert (clerk.asked, clerk.looked_up, clerk.mailed) == (3, ["tea"], [("ann", "tea: 4")])
    store = SessionStore(tmp_path / "s.git")
    session = await store.open("s")
    (commit,) = [one for one in session.context.history() if one.author == "answerer"]
    assert len(commit.details["calls"]) == 3
    await store.aclose()


async def test_recorded_calls_are_replayed_without_the_model(tmp_path: Path) -> None:
    path, clerk, again = tmp_path / "calls.jsonl", Clerk(), Clerk()
    first = await turn(tmp_path / "a.git", clerk.body, llm=recorder(path))
    replaying = ReplayLLM(path)
    assert await turn(tmp_path / "b.git", again.body, llm=replaying) == first
    assert (clerk.asked, again.asked, replaying.remaining) == (3, 0, 0)
    assert again.mailed == [("ann", "tea: 4")]  # tools that are not of the outbox run
    with pytest.raises(ReplayMiss):
        await turn(tmp_path / "c.git", again.body, llm=ReplayLLM(path), wish="wish:2")


async def test_a_tool_of_the_outbox_is_sent_after_the_commit(tmp_path: Path) -> None:
    clerk = Clerk()
    dispatcher = tool_dispatcher({"mail": lambda to, text: clerk.mailed.append((to, text))})
    said = await turn(tmp_path / "s.git", clerk.body_by_outbox, dispatcher=dispatcher)
    assert said == ["mail: queued: it is sent once this step is stored"]
    assert clerk.mailed == [("ann", "tea: 4")]
    assert clerk.looked_up == ["tea"]
    store = SessionStore(tmp_path / "s.git")
    action = (await store.open("s")).context.get("action:clerk:wish:1:0:1:mail")
    assert action is not None
    assert (action.data.kind, action.data.payload) == ("tool:mail", {"to": "ann", "text": "tea: 4"})
    await store.aclose()


async def test_a_second_try_asks_for_nothing_twice_and_sends_once(tmp_path: Path) -> None:
    clerk, failed = Clerk(), []

    async def body(call: ProduceCall) -> Any:
        found = await clerk.body_by_outbox(call)
        if not failed:
            failed.append(True)
            raise ConnectionError("after the agent")
        return found

    dispatcher = tool_dispatcher({"mail": lambda to, text: clerk.mailed.append((to, text))})
    await turn(tmp_path / "s.git", body, dispatcher=dispatcher, retries=1)
    assert (clerk.asked, clerk.mailed) == (3, [("ann", "tea: 4")])


async def test_an_outbox_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def body(call: ProduceCall) -> Any:
        return await run_agent(call, Clerk().agent(), "go", outbox=["post"])

    with pytest.raises(ReactifactError, match="no tool post to go through the outbox; it has: lookup, mail"):
        await turn(tmp_path / "s.git", body)


async def test_a_recording_that_cannot_hold_the_calls_is_refused(tmp_path: Path) -> None:
    llm = ReplayLLM(tmp_path / "calls.jsonl", mode="record", inner=FakeLLM("x"))
    with pytest.raises(ReactifactError, match=r"set resources.llm = recorder\("):
        await turn(tmp_path / "s.git", Clerk().body, llm=llm)


async def test_an_agent_without_a_model_is_refused(tmp_path: Path) -> None:
    async def body(call: ProduceCall) -> Any:
        return await run_agent(call, Agent(name="bare"), "go")

    with pytest.raises(ReactifactError, match="agent 'bare' has no model"):
        await turn(tmp_path / "s.git", body)


async def test_agent_produce_writes_what_the_agent_gives(tmp_path: Path) -> None:
    agent: Agent[None, Reply] = Agent(
        TestModel(custom_output_args={"text": "yes"}), output_type=Reply, name="short"
    )
    made = agent_produce(agent, Reply, prompt=lambda call: str(call.trigger.data.text), reacts_to=Wish)  # type: ignore[union-attr]
    context = Context()
    context.create(Wish(text="tea?"), id="w")
    await Runtime(context, [create_agent("a", consumes=[Consume(Wish)], produces=[made])]).arun()
    reply = context.get("reply:w")
    assert reply is not None
    assert reply.data == Reply(text="yes")


async def test_the_history_of_a_session_goes_before_the_prompt(tmp_path: Path) -> None:
    seen: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(len(messages))
        return ModelResponse([TextPart(f"answer {len(seen)}")])

    async def body(call: ProduceCall) -> Any:
        agent: Agent[None, str] = Agent(FunctionModel(answer), name="talker")
        return (await run_agent(call, agent, "hello", history="ann")).output

    await turn(tmp_path / "s.git", body)
    await turn(tmp_path / "s.git", body, wish="wish:2")
    assert seen == [1, 3]
    store = SessionStore(tmp_path / "s.git")
    history = MessageHistory((await store.open("s")).context, "ann")
    parts = [part for message in history.messages() for part in message.parts]
    said = [part.content for part in parts if hasattr(part, "content")]
    assert said == ["hello", "answer 1", "hello", "answer 2"]
    await store.aclose()
