"""Agents of the OpenAI Agents SDK as produces, and its `Session` in a session of reactifact.

Needs the extra `openai-agents`. Agents run on asyncio, as the SDK does; on another event loop they are
refused. `docs/adapters.md` shows how it is used.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from .._extras import needing
from ..context import Context
from ..produce import ProduceCall
from ..providers import LLMResponse
from ..session import Session
from .calls import AgentCalls, NeedsAsyncio, RecordingRefused, recorder, require_asyncio, tool_dispatcher
from .conversation import Conversation

with needing("openai-agents"):
    from agents import (
        Agent,
        AgentOutputSchemaBase,
        FunctionTool,
        Handoff,
        Model,
        ModelProvider,
        ModelResponse,
        ModelSettings,
        ModelTracing,
        RunConfig,
        Runner,
        RunResult,
        Tool,
        TResponseInputItem,
        Usage,
    )
    from agents.items import TResponseOutputItem, TResponseStreamEvent
    from agents.memory import SessionSettings

__all__ = ["ConversationSession", "NeedsAsyncio", "recorder", "run_agent", "tool_dispatcher"]

_OUTPUT: TypeAdapter[Any] = TypeAdapter(list[TResponseOutputItem])
_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


class ConversationSession:
    """The SDK's `Session` over a conversation of a reactifact session.

    `place` is an open `Session`, which is saved after each change, or a context: inside a produce
    `call.context`, whose changes are kept with the execution.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, place: Session | Context, name: str = "main") -> None:
        self.session_id = name
        self._session = place if isinstance(place, Session) else None
        self._conversation = Conversation(place.context if isinstance(place, Session) else place, name)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, or the last `limit` of them, the oldest first."""
        found: list[Any] = self._conversation.messages(limit)
        return found

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items behind the last. Raises `StaleSession` where somebody else wrote the session."""
        self._conversation.add([_JSON.dump_python(item, mode="json", exclude_none=True) for item in items])
        await self._save()

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; `None` where there is none. Raises as `add_items` does."""
        found: Any = self._conversation.pop()
        await self._save()
        return found  # type: ignore[no-any-return]

    async def clear_session(self) -> None:
        """Remove all items. Raises as `add_items` does."""
        self._conversation.clear()
        await self._save()

    async def _save(self) -> None:
        if self._session is not None:
            await self._session.save()


async def run_agent(
    call: ProduceCall,
    agent: Agent[Any],
    input: str | list[TResponseInputItem],
    *,
    outbox: Collection[str] = (),
    history: str | None = None,
    run_config: RunConfig | None = None,
    **options: Any,
) -> RunResult:
    """Run an agent of the SDK inside a produce, and return its result.

    Its model calls, and those of the agents it hands over to, are noted on the commit they lead to, recorded
    or replayed where `resources.llm` is a `recorder`, and not made again when the execution is tried again.
    Calls of the function tools named in `outbox` become intents `tool:<name>` (see `tool_dispatcher`), and
    the model is told that they are queued. `history` names a conversation of the session. `options` are
    those of `Runner.run`; tracing is off unless `run_config` says otherwise. Raises `RecordingRefused` for a
    `Handoff` made by hand, whose agent cannot be seen, and for an `outbox` tool that no agent has;
    `NeedsAsyncio` on trio; `ReplayMiss`.
    """
    require_asyncio("the OpenAI Agents SDK", agent.name)
    calls = AgentCalls(call, agent.name, outbox)
    config = run_config or RunConfig(tracing_disabled=True)
    if isinstance(config.model, Model):
        config = replace(config, model=_RecordedModel(config.model, calls))
    config = replace(config, model_provider=_RecordedProvider(config.model_provider, calls))
    clones: dict[int, Agent[Any]] = {}
    recorded = _recorded(agent, calls, clones)
    known = {tool.name for one in clones.values() for tool in one.tools if isinstance(tool, FunctionTool)}
    if unknown := sorted(calls.outbox - known):
        raise RecordingRefused(
            f"agent {agent.name!r} has no function tool {', '.join(unknown)} to go through the outbox; "
            f"it has: {', '.join(sorted(known)) or 'none'}"
        )
    if history is not None:
        options["session"] = ConversationSession(call.context, history)
    return await Runner.run(recorded, input, run_config=config, **options)


def _recorded(agent: Agent[Any], calls: AgentCalls, clones: dict[int, Agent[Any]]) -> Agent[Any]:
    """Return a copy of an agent, and of those it hands over to, whose calls go through `calls`."""
    known = clones.get(id(agent))
    if known is not None:
        return known
    made = agent.clone(tools=[_through(tool, calls) for tool in agent.tools])
    clones[id(agent)] = made
    if isinstance(agent.model, Model):
        made.model = _RecordedModel(agent.model, calls)
    handoffs: list[Any] = []
    for handoff in agent.handoffs:
        if isinstance(handoff, Handoff):
            raise RecordingRefused(
                f"agent {agent.name!r} hands over to {handoff.agent_name!r} by a Handoff made by hand: the "
                f"calls of that agent could not be recorded; name the agent itself in handoffs="
            )
        handoffs.append(_recorded(handoff, calls, clones))
    made.handoffs = handoffs
    return made


def _through(tool: Tool, calls: AgentCalls) -> Tool:
    if not isinstance(tool, FunctionTool) or tool.name not in calls.outbox:
        return tool

    async def plan(context: Any, arguments: str) -> str:
        return calls.act(tool.name, json.loads(arguments or "{}"))

    return replace(tool, on_invoke_tool=plan)


class _RecordedProvider(ModelProvider):
    """The models of a provider, their answers through `AgentCalls`."""

    def __init__(self, inner: ModelProvider, calls: AgentCalls) -> None:
        self._inner = inner
        self._calls = calls

    def get_model(self, model_name: str | None) -> Model:
        return _RecordedModel(self._inner.get_model(model_name), self._calls, model_name or "")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _RecordedModel(Model):
    """A model whose answers go through `AgentCalls`."""

    def __init__(self, inner: Model, calls: AgentCalls, name: str = "") -> None:
        self._inner = inner
        self._calls = calls
        self._name = name or str(getattr(inner, "model", "") or type(inner).__name__)

    async def close(self) -> None:
        await self._inner.close()

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any,
    ) -> ModelResponse:
        async def ask() -> LLMResponse:
            response = await self._inner.get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )
            said = {
                "output": _OUTPUT.dump_python(response.output, mode="json", exclude_unset=True),
                "usage": _USAGE.dump_python(response.usage, mode="json"),
                "response_id": response.response_id,
            }
            used = response.usage
            counts = {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens}
            return LLMResponse(json.dumps(said), usage=counts)

        asked = {
            "system": system_instructions,
            "input": _JSON.dump_python(input, mode="json"),
            "settings": model_settings.to_json_dict(),
            "tools": [_described(tool) for tool in tools],
            "output": None if output_schema is None else _schema(output_schema),
            "handoffs": [[one.tool_name, one.input_json_schema] for one in handoffs],
            "previous": previous_response_id,
            "conversation": conversation_id,
            "prompt": _JSON.dump_python(prompt, mode="json"),
        }
        found = json.loads(await self._calls.model(self._name, asked, ask))
        output = _OUTPUT.validate_python(found["output"])
        return ModelResponse(
            output=output, usage=_USAGE.validate_python(found["usage"]), response_id=found["response_id"]
        )

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        self._calls.refuse_stream()
        async for event in self._inner.stream_response(*args, **options):
            yield event


def _described(tool: Tool) -> Any:
    return [tool.name, tool.params_json_schema] if isinstance(tool, FunctionTool) else [tool.name]


def _schema(schema: AgentOutputSchemaBase) -> Any:
    return "text" if schema.is_plain_text() else [schema.name(), schema.json_schema()]
