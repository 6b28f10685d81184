"""Model and tool calls of another library's agent, brought to the recordings and the outbox of reactifact.

Owns the provider that stands for "whatever the other library asks", which recording a call belongs to, and
how a tool call becomes an intent. It knows none of those libraries.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from .._context.working_copy import note_call
from ..context import Context
from ..errors import ReactifactError
from ..interrupt import PendingAction
from ..produce import ProduceCall
from ..providers import LLMProvider, LLMRequest, LLMResponse, LLMResponseChunk, Message
from ..replay.llm import Mode, NotingLLM, ReplayLLM, ReplayMiss, request_key, response_hash
from ..threads import in_thread

__all__ = ["AgentCalls", "NeedsAsyncio", "RecordingRefused", "recorder", "tool_dispatcher"]

QUEUED = "queued: it is sent once this step is stored"
"""What a model is told of a tool that goes through the outbox."""

Ask = Callable[[], Awaitable[LLMResponse]]


class RecordingRefused(ReactifactError, ValueError):
    """A call of another library's agent that could not be recorded, or not be replayed."""


class NeedsAsyncio(ReactifactError, RuntimeError):
    """An agent of a library that runs on asyncio alone was run on another event loop."""


def require_asyncio(library: str, agent: str) -> None:
    """Refuse an agent where another event loop than asyncio's runs. Raises `NeedsAsyncio`."""
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        raise NeedsAsyncio(
            f"agent {agent!r} was not run: {library} starts asyncio tasks, and another event loop runs here; "
            f"run the turn on asyncio, by asyncio.run(main()). Its messages, recorded calls and intents "
            f"are read and delivered on any loop"
        )


@dataclass
class _Asked(LLMRequest):
    """A request that knows how it is asked in the other library."""

    ask: Ask | None = None


class _AnyLibrary(LLMProvider):
    """Asks what an `_Asked` says, and anything else the application's own provider."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner

    async def complete(self, request: LLMRequest) -> LLMResponse:
        if isinstance(request, _Asked) and request.ask is not None:
            return await request.ask()
        return await self._own().complete(request)  # type: ignore[no-any-return]

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        async for chunk in self._own().stream(request):
            yield chunk

    def _own(self) -> Any:
        if self.inner is None:
            raise RecordingRefused(
                "resources.llm is a recorder without a provider of its own, and was asked by something other "
                "than an adapter: give recorder(inner=...) the provider that answers"
            )
        return self.inner


def recorder(
    recording: str | os.PathLike[str], *, mode: Mode = "record", inner: Any = None, model: str = ""
) -> ReplayLLM:
    """Return what `resources.llm` must be for the calls of adapters to be recorded, or answered from a file.

    `inner` is the application's own provider, where produces ask one beside the adapters. Raises as
    `ReplayLLM` does.
    """
    return ReplayLLM(recording, mode=mode, inner=_AnyLibrary(inner), model=model)


class AgentCalls:
    """The calls of one run of another library's agent inside a produce.

    `outbox` names the tools whose calls become intents.
    """

    def __init__(self, call: ProduceCall, name: str, outbox: Collection[str] = ()) -> None:
        self._call = call
        self._name = name
        self.outbox = frozenset([outbox] if isinstance(outbox, str) else outbox)
        self._llm = _llm_of(call.context.resources.llm)
        self._asked = 0
        self._acted = 0

    async def model(self, model: str, asked: Mapping[str, Any], ask: Ask) -> str:
        """Return the answer of a model as text: from the recording, or by `ask`, which is then recorded.

        `asked` is what makes the question its own, as plain JSON. A try of the same execution after a
        failure gets the answers of the one before. Raises `ReplayMiss` for what is not recorded.
        """
        text = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        request = _Asked([Message("user", text)], extra={"model": model}, ask=ask)
        key = request_key(request, self._llm.model)
        self._asked += 1
        was_asked = False

        async def answer() -> str:
            nonlocal was_asked
            was_asked = True
            return (await self._llm.complete(request)).text

        found = await self._call.memo(f"{self._name}:{self._asked}:{key}", answer)
        if not was_asked:
            note_call(model=model, request=key, response=response_hash(found))
        return found

    def refuse_stream(self) -> None:
        """Raise `ReplayMiss` where answers come from a recording: streams are not in it."""
        if isinstance(self._llm, ReplayLLM) and self._llm.mode == "replay":
            raise ReplayMiss(
                f"agent {self._name!r} asked for a streamed answer, and {self._llm.recording} holds none: "
                f"streams are passed through unrecorded; run the agent without streaming"
            )

    def act(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Plan a tool call as an intent of kind `tool:<name>`, and return what the model is told.

        Its key is made of the agent, what woke it and the place of the call, so that a second try of the
        execution plans the same.
        """
        self._acted += 1
        trigger = self._call.trigger
        cause = "run" if trigger is None else f"{trigger.id}:{trigger.version}"
        key = f"{self._name}:{cause}:{self._acted}:{tool}"
        self._call.effects.act(f"tool:{tool}", key=key, payload=dict(arguments))
        return QUEUED


def tool_dispatcher(tools: Mapping[str, Callable[..., Any]]) -> Callable[[Context, Any], Awaitable[None]]:
    """Return a dispatcher that calls, for an intent of kind `tool:<name>`, the function of that name.

    Functions that are not coroutines are called in a worker thread. Delivery is at least once, as for every
    dispatcher. Raises `LookupError`, which fails the intent, for a tool that is not among them.
    """

    async def dispatch(context: Context, action: Any) -> None:
        data: PendingAction = action.data
        name = data.kind.removeprefix("tool:")
        function = tools.get(name) if data.kind.startswith("tool:") else None
        if function is None:
            raise LookupError(
                f"no tool delivers {data.kind!r} ({data.idempotency_key}): tool_dispatcher was given "
                f"{', '.join(sorted(tools)) or 'none'}"
            )
        if inspect.iscoroutinefunction(function):
            await function(**data.payload)
        else:
            await in_thread(lambda: function(**data.payload))

    return dispatch


def _llm_of(given: Any) -> NotingLLM:
    """Return what records or answers the calls of adapters. Raises `RecordingRefused`."""
    if isinstance(given, ReplayLLM) and given.mode == "replay":
        return given
    if isinstance(given, NotingLLM) and isinstance(given.inner, _AnyLibrary):
        return given
    if isinstance(given, ReplayLLM):
        raise RecordingRefused(
            f"resources.llm records to {given.recording}, but can only ask its own provider: the calls of "
            f"this agent would be missing there; set resources.llm = recorder(path, inner=provider)"
        )
    return NotingLLM(_AnyLibrary())
