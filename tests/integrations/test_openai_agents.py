"""Agents of the OpenAI Agents SDK as produces, with a model of its own interface that needs no key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool, handoff
from agents.memory import Session as SessionProtocol
from agents_support import turn
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from reactifact import ProduceCall, SessionStore
from reactifact.errors import ReactifactError
from reactifact.integrations.openai_agents import (
    ConversationSession,
    recorder,
    run_agent,
    tool_dispatcher,
)
from reactifact.replay import ReplayLLM, ReplayMiss

pytestmark = pytest.mark.anyio


def text(said: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=said, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


def tool_call(name: str, arguments: str) -> ResponseFunctionToolCall:
    made = {"name": name, "arguments": arguments, "call_id": f"call-{name}"}
    return ResponseFunctionToolCall(type="function_call", **made)


class Scripted(Model):
    """A model of the SDK's own interface that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **options: Any
    ) -> ModelResponse:
        self.asked.append(input)
        usage = Usage(requests=1, input_tokens=7, output_tokens=2, total_tokens=9)
        return ModelResponse(output=[self.answers.pop(0)], usage=usage, response_id=None)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


class Clerk:
    """An agent that mails, then says what it heard."""

    def __init__(self) -> None:
        self.mailed: list[str] = []
        self.model = Scripted(tool_call("mail", '{"to": "ann"}'), text("done"))

        @function_tool
        def mail(to: str) -> str:
            """Mail somebody."""
            self.mailed.append(to)
            return "mailed"

        self.agent = Agent(name="clerk", instructions="Be brief.", model=self.model, tools=[mail])

    async def body(self, call: ProduceCall) -> Any:
        return (await run_agent(call, self.agent, call.trigger.data.text)).final_output  # type: ignore[union-attr]

    async def body_by_outbox(self, call: ProduceCall) -> Any:
        return (await run_agent(call, self.agent, "go", outbox=["mail"])).final_output


async def test_an_agent_runs_as_a_produce_and_its_calls_are_noted(tmp_path: Path) -> None:
    clerk = Clerk()
    assert await turn(tmp_path / "s.git", clerk.body) == ["done"]
    assert clerk.mailed == ["ann"]
    assert clerk.agent.model is clerk.model  # the application's agent is as it was
    store = SessionStore(tmp_path / "s.git")
    (commit,) = [one for one in (await store.open("s")).context.history() if one.author == "answerer"]
    assert len(commit.details["calls"]) == 2
    await store.aclose()


async def test_recorded_calls_are_replayed_without_the_model(tmp_path: Path) -> None:
    path, clerk, again = tmp_path / "calls.jsonl", Clerk(), Clerk()
    first = await turn(tmp_path / "a.git", clerk.body, llm=recorder(path))
    replaying = ReplayLLM(path)
    assert await turn(tmp_path / "b.git", again.body, llm=replaying) == first
    assert (len(clerk.model.asked), again.model.asked, replaying.remaining) == (2, [], 0)
    assert '"prompt_tokens": 7' in path.read_text()
    with pytest.raises(ReplayMiss):
        await turn(tmp_path / "c.git", again.body, llm=ReplayLLM(path), wish="wish:2")


async def test_a_tool_of_the_outbox_is_sent_after_the_commit(tmp_path: Path) -> None:
    clerk = Clerk()
    dispatcher = tool_dispatcher({"mail": lambda to: clerk.mailed.append(to)})
    assert await turn(tmp_path / "s.git", clerk.body_by_outbox, dispatcher=dispatcher) == ["done"]
    assert clerk.mailed == ["ann"]
    assert clerk.model.asked[1][-1]["output"] == "queued: it is sent once this step is stored"


async def test_a_tool_nobody_delivers_fails_its_intent(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no tool delivers 'tool:mail'"):
        await turn(tmp_path / "s.git", Clerk().body_by_outbox, dispatcher=tool_dispatcher({}))


async def test_an_outbox_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    clerk = Clerk()

    async def body(call: ProduceCall) -> Any:
        return await run_agent(call, clerk.agent, "go", outbox=["post"])

    with pytest.raises(ReactifactError, match="no function tool post to go through the outbox; it has: mail"):
        await turn(tmp_path / "s.git", body)
    assert clerk.model.asked == []


async def test_calls_of_an_agent_that_is_handed_over_to_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    def pair() -> tuple[Agent[Any], list[Scripted]]:
        models = [Scripted(tool_call("transfer_to_second", "{}")), Scripted(text("from the second"))]
        second: Agent[Any] = Agent(name="second", model=models[1])
        return Agent(name="first", model=models[0], handoffs=[second]), models

    def body_of(agent: Agent[Any]) -> Any:
        async def body(call: ProduceCall) -> Any:
            return (await run_agent(call, agent, "go")).final_output

        return body

    agent, models = pair()
    assert await turn(tmp_path / "a.git", body_of(agent), llm=recorder(path)) == ["from the second"]
    assert [len(model.asked) for model in models] == [1, 1]
    agent, models = pair()
    assert await turn(tmp_path / "b.git", body_of(agent), llm=ReplayLLM(path)) == ["from the second"]
    assert [len(model.asked) for model in models] == [0, 0]
    by_hand: Agent[Any] = Agent(name="by hand", model=models[0], handoffs=[handoff(agent)])
    with pytest.raises(ReactifactError, match="by a Handoff made by hand"):
        await turn(tmp_path / "c.git", body_of(by_hand))


async def test_the_session_of_the_sdk_is_kept_in_a_session(tmp_path: Path) -> None:
    path = tmp_path / "s.git"
    model = Scripted(text("one"), text("two"))
    agent: Agent[Any] = Agent(name="talker", model=model)
    for prompt in ("hello", "again"):
        store = SessionStore(path)
        async with await store.open("s") as session:
            kept = ConversationSession(session, "ann")
            assert isinstance(kept, SessionProtocol)
            config = RunConfig(tracing_disabled=True)
            await Runner.run(agent, prompt, session=kept, run_config=config)
        await store.aclose()
    assert [item["role"] for item in model.asked[1]] == ["user", "assistant", "user"]
    store = SessionStore(path)
    async with await store.open("s") as session:
        kept = ConversationSession(session, "ann")
        items: list[Any] = await kept.get_items()
        assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]
        assert await kept.get_items(1) == items[-1:]
        assert await kept.pop_item() == items[-1]
        assert len(await ConversationSession(session, "ann").get_items()) == 3
        await kept.clear_session()
        assert await kept.get_items() == []
        assert await kept.pop_item() is None
    await store.aclose()


async def test_a_conversation_inside_a_produce_is_kept_with_the_execution(tmp_path: Path) -> None:
    model = Scripted(text("one"), text("two"))
    agent: Agent[Any] = Agent(name="talker", model=model)

    async def body(call: ProduceCall) -> Any:
        return (await run_agent(call, agent, "hello", history="ann")).final_output

    await turn(tmp_path / "s.git", body)
    await turn(tmp_path / "s.git", body, wish="wish:2")
    assert [item["role"] for item in model.asked[1]] == ["user", "assistant", "user"]
