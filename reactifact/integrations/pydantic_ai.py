"""pydantic-ai agents as produces: their model calls recorded, their tools through the outbox where asked.

Needs the extra `pydantic-ai`. Agents run on asyncio, as pydantic-ai does; on another event loop they are
refused. `docs/adapters.md` shows how it is used.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from .._extras import needing
from ..context import Context
from ..interrupt import PendingAction
from ..produce import Produce, ProduceCall, produce
from ..providers import LLMResponse
from .calls import AgentCalls, NeedsAsyncio, RecordingRefused, recorder, require_asyncio, tool_dispatcher
from .conversation import Conversation

with needing("pydantic-ai"):
    from pydantic_ai import Agent, AgentRunResult, RunContext
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.toolsets import CombinedToolset, ToolsetTool, WrapperToolset

__all__ = ["MessageHistory", "NeedsAsyncio", "agent_produce", "recorder", "run_agent", "tool_dispatcher"]

M = TypeVar("M", bound=BaseModel)

_PARAMETERS: TypeAdapter[Any] = TypeAdapter(ModelRequestParameters)
_PASSING = frozenset({"timestamp", "run_id", "conversation_id"})  # other in each run, and not of the question


class MessageHistory:
    """The messages of pydantic-ai in a session's context (see `Conversation`)."""

    def __init__(self, context: Context, name: str = "main") -> None:
        self._conversation = Conversation(context, name)

    def messages(self) -> list[ModelMessage]:
        """Return all messages, for `message_history=`."""
        return ModelMessagesTypeAdapter.validate_python(self._conversation.messages())

    def add(self, messages: list[ModelMessage]) -> None:
        """Add messages, such as `result.new_messages()`."""
        self._conversation.add(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))

    def clear(self) -> None:
        """Remove all messages."""
        self._conversation.clear()


async def run_agent(
    call: ProduceCall,
    agent: Agent[Any, Any],
    prompt: str | None,
    *,
    outbox: Collection[str] = (),
    history: str | None = None,
    **options: Any,
) -> AgentRunResult[Any]:
    """Run an agent of pydantic-ai inside a produce, and return its result.

    Its model calls are noted on the commit they lead to, recorded or replayed where `resources.llm` is a
    `recorder`, and not made again when the execution is tried again. Calls of the tools named in `outbox`
    become intents `tool:<name>` (see `tool_dispatcher`), and the model is told that they are queued.
    `history` names a conversation of the session that goes before the prompt and takes the new messages.
    `options` are those of `Agent.run`. Raises `RecordingRefused` for an agent without a model and for a
    tool of `outbox` that the agent never had; `NeedsAsyncio` on trio; `ReplayMiss`.
    """
    require_asyncio("pydantic-ai", agent.name or "agent")
    calls = AgentCalls(call, agent.name or "agent", outbox)
    model = options.pop("model", None) or agent.model
    if model is None:
        raise RecordingRefused(f"agent {agent.name!r} has no model: give it one, or pass model=")
    recorded = _RecordedModel(model if isinstance(model, Model) else infer_model(model), calls)
    kept = None if history is None else MessageHistory(call.context, history)
    if kept is not None:
        options.setdefault("message_history", kept.messages())
    through = _OutboxToolset(CombinedToolset(agent.toolsets), calls)
    with agent.override(toolsets=[through], tools=[]) if calls.outbox else nullcontext():
        result = await agent.run(prompt, model=recorded, **options)
    if unknown := sorted(calls.outbox - through.seen):
        raise RecordingRefused(
            f"agent {agent.name!r} has no tool {', '.join(unknown)} to go through the outbox; "
            f"it has: {', '.join(sorted(through.seen)) or 'none'}"
        )
    if kept is not None:
        kept.add(result.new_messages())
    return result


def agent_produce(
    agent: Agent[Any, Any],
    creates: type[M],
    *,
    prompt: Callable[[ProduceCall], str],
    id: Callable[[ProduceCall], str] | None = None,
    outbox: Collection[str] = (),
    history: str | None = None,
    **options: Any,
) -> Produce[M]:
    """Return a produce that runs an agent whose output is `creates`, and writes what it gave.

    `prompt` makes the prompt of a call, `id` the artifact's id (default: the type's name in lower case and
    the id of what woke it). `reacts_to`, `retries`, `retry_on`, `backoff` and `jitter` are those of
    `@produce`, the rest is as in `run_agent`. Raises `TypeError` where the agent gives something else.
    """
    names = ("reacts_to", "retries", "retry_on", "backoff", "jitter")
    own = {name: options.pop(name) for name in names if name in options}

    @produce(creates, also_creates=PendingAction if outbox else None, **own)
    async def run(call: ProduceCall) -> None:
        result = await run_agent(call, agent, prompt(call), outbox=outbox, history=history, **options)
        if not isinstance(result.output, creates):
            raise TypeError(
                f"agent {agent.name!r} gave {type(result.output).__name__}, and the produce creates "
                f"{creates.__name__}: make the agent with output_type={creates.__name__}"
            )
        cause = "run" if call.trigger is None else call.trigger.id
        call.effects.upsert(result.output, id=id(call) if id else f"{creates.__name__.lower()}:{cause}")

    return run


class _RecordedModel(WrapperModel):
    """A model whose answers go through `AgentCalls`."""

    def __init__(self, wrapped: Model, calls: AgentCalls) -> None:
        super().__init__(wrapped)
        self._calls = calls

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async def ask() -> LLMResponse:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
            usage = {
                "prompt_tokens": response.usage.input_tokens,
                "completion_tokens": response.usage.output_tokens,
            }
            text = ModelMessagesTypeAdapter.dump_json([response]).decode()
            return LLMResponse(text, usage=usage)

        asked = {
            "messages": _lasting(ModelMessagesTypeAdapter.dump_python(messages, mode="json")),
            "settings": _lasting(json.loads(json.dumps(dict(model_settings or {}), default=str))),
            "parameters": _lasting(_PARAMETERS.dump_python(model_request_parameters, mode="json")),
        }
        text = await self._calls.model(self.wrapped.model_name, asked, ask)
        (found,) = ModelMessagesTypeAdapter.validate_json(text)
        assert isinstance(found, ModelResponse)
        return found

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        self._calls.refuse_stream()
        stream = self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context)
        async with stream as response:
            yield response


@dataclass
class _OutboxToolset(WrapperToolset[Any]):
    """The tools of an agent, of which some are planned instead of called."""

    calls: AgentCalls
    seen: set[str] = field(default_factory=set)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        found = await super().get_tools(ctx)
        self.seen.update(found)
        return found

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if name in self.calls.outbox:
            return self.calls.act(name, json.loads(json.dumps(tool_args)))
        return await super().call_tool(name, tool_args, ctx, tool)


def _lasting(value: Any) -> Any:
    """Return plain JSON without what is other in each run."""
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in _PASSING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value
