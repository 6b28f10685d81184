"""What of the adapters runs on every event loop, and what says that it needs asyncio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import pydantic_ai
import pytest
from agents_support import turn
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.test import TestModel
from stores import place_of

from reactifact import Context, PendingAction, ProduceCall, SessionStore
from reactifact.integrations import openai_agents
from reactifact.integrations import pydantic_ai as for_pydantic_ai
from reactifact.integrations.calls import AgentCalls, NeedsAsyncio, recorder, tool_dispatcher
from reactifact.providers import LLMResponse
from reactifact.replay import ReplayLLM

pytestmark = pytest.mark.anyio
ON_TRIO = pytest.mark.parametrize("anyio_backend", [("trio", {})], indirect=True, ids=["trio"])


class Asked:
    """Counts how often a model was asked."""

    times = 0

    async def __call__(self) -> LLMResponse:
        self.times += 1
        return LLMResponse("as you wish")


@ON_TRIO
async def test_an_agent_of_pydantic_ai_is_refused_on_trio_before_it_asks(tmp_path: Path) -> None:
    model = TestModel()
    clerk = pydantic_ai.Agent(model, name="clerk")

    async def body(call: ProduceCall) -> Any:
        return await for_pydantic_ai.run_agent(call, clerk, "go", history="ann")

    with pytest.raises(NeedsAsyncio, match="agent 'clerk' was not run: pydantic-ai starts asyncio tasks"):
        await turn(tmp_path / "s.git", body)
    assert model.last_model_request_parameters is None


@ON_TRIO
async def test_an_agent_of_the_openai_sdk_is_refused_on_trio_before_it_asks(tmp_path: Path) -> None:
    clerk = agents.Agent(name="clerk", model="no such model")

    async def body(call: ProduceCall) -> Any:
        return await openai_agents.run_agent(call, clerk, "go", history="ann")

    with pytest.raises(NeedsAsyncio, match="agent 'clerk' was not run: the OpenAI Agents SDK"):
        await turn(tmp_path / "s.git", body)


@pytest.mark.every_loop
async def test_calls_are_recorded_replayed_and_planned_on_every_loop(tmp_path: Path) -> None:
    asked, sent = Asked(), []
    path = tmp_path / "calls.jsonl"

    async def body(call: ProduceCall) -> str:
        calls = AgentCalls(call, "clerk", "mail")
        said = await calls.model("small", {"prompt": "go"}, asked)
        return f"{said}, {calls.act('mail', {'to': 'ann'})}"

    dispatcher = tool_dispatcher({"mail": lambda to: sent.append(to)})
    first = await turn(tmp_path / "a.git", body, llm=recorder(path), dispatcher=dispatcher)
    again = await turn(tmp_path / "b.git", body, llm=ReplayLLM(path), dispatcher=dispatcher)
    assert first == again == ["as you wish, queued: it is sent once this step is stored"]
    assert (asked.times, sent) == (1, ["ann", "ann"])


@pytest.mark.every_loop
async def test_a_tool_that_is_a_coroutine_is_awaited_and_another_runs_in_a_thread() -> None:
    called = []

    async def awaited(to: str) -> None:
        called.append(("awaited", to))

    dispatch = tool_dispatcher({"one": awaited, "two": lambda to: called.append(("in a thread", to))})
    context = Context()
    for name in ("one", "two"):
        data = PendingAction(kind=f"tool:{name}", idempotency_key=name, payload={"to": "ann"})
        await dispatch(context, context.create(data, id=name))
    assert called == [("awaited", "ann"), ("in a thread", "ann")]


@pytest.mark.every_loop
@pytest.mark.parametrize("kind", ["memory", "git", "sqlite", "postgres"])
async def test_both_histories_are_kept_on_every_loop_and_store(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    place = place_of(kind, tmp_path, dsn)
    async with await SessionStore(place).open("s") as session:
        kept = openai_agents.ConversationSession(session, "sdk")
        await kept.add_items([{"role": "user", "content": "hello"}])
        history = for_pydantic_ai.MessageHistory(session.context, "pydantic")
        history.add([ModelRequest.user_text_prompt("hello, too")])
    async with await SessionStore(place).open("s") as session:
        kept = openai_agents.ConversationSession(session, "sdk")
        assert await kept.get_items() == [{"role": "user", "content": "hello"}]
        (message,) = for_pydantic_ai.MessageHistory(session.context, "pydantic").messages()
        assert message.parts[0].content == "hello, too"  # type: ignore[union-attr]
