"""The model calls of a result that was held for the retry stand on its commit in the end."""

from __future__ import annotations

import pytest
from support import Echo, Place, Question

from reactifact import (
    Consume,
    FakeLLM,
    LLMRequest,
    Message,
    ProduceCall,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.replay import NotingLLM

pytestmark = pytest.mark.anyio


async def test_calls_of_held_results(place: Place) -> None:
    broken = [True]

    @produce(Echo)
    async def asks(call: ProduceCall) -> Echo:
        answer = await call.context.resources.llm.complete(LLMRequest([Message.user("?")]))
        return Echo(text=answer.text)

    @produce(Echo)
    async def fails(call: ProduceCall) -> Echo:
        if broken.pop():
            raise ConnectionError("down")
        return Echo(text="up")

    agents = [
        create_agent("asker", consumes=[Consume(Question)], produces=[asks]),
        create_agent("failer", consumes=[Consume(Question)], produces=[fails]),
    ]
    inner = FakeLLM(["one answer"])  # asked once more, it would raise
    resources = RuntimeResources(llm=NotingLLM(inner, model="m"))
    session = await place.store().open("s", resources)
    session.context.create(Question(text="?"), id="q")
    with pytest.raises(ConnectionError):
        await Runtime(session.context, agents=agents, session=session).arun()
    again = await place.store().open("s", resources)
    broken.append(False)
    await Runtime(again.context, agents=agents, session=again).arun()
    assert len(inner.requests) == 1
    asker = next(commit for commit in again.context.history() if commit.author == "asker")
    assert [call["model"] for call in asker.details["calls"]] == ["m"]  # type: ignore[attr-defined]
