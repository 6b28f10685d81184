"""What the tests of both agent libraries share: an order, a receipt, and a turn over them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from reactifact import (
    Agent,
    Consume,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    produce,
)
from reactifact import create_agent as make_agent


class Wish(BaseModel):
    text: str


class Reply(BaseModel):
    text: str


Body = Callable[[ProduceCall], Awaitable[Any]]


def agents_of(body: Body, *, retries: int = 0) -> list[Agent]:
    """Return the agent whose produce runs `body` and writes what it gives as a `Reply`."""

    @produce(Reply, also_creates=PendingAction, retries=retries, backoff=0)
    async def answer(call: ProduceCall) -> None:
        assert call.trigger is not None
        call.effects.upsert(Reply(text=str(await body(call))), id=f"reply:{call.trigger.id}")

    return [make_agent("answerer", consumes=[Consume(Wish)], produces=[answer])]


async def turn(
    path: Path, body: Body, *, llm: Any = None, dispatcher: Any = None, wish: str = "wish:1", retries: int = 0
) -> list[str]:
    """Let a wish wake the agent, in a store that is opened anew; return the texts of all replies."""
    store = SessionStore(path, durability="os")
    session = await store.open("s", RuntimeResources(llm=llm))
    session.context.create(Wish(text=f"please, {wish}"), id=wish)
    await Runtime(
        session.context, agents_of(body, retries=retries), dispatcher=dispatcher, session=session
    ).arun()
    found = [artifact.data.text for artifact in session.context.list_artifacts(Reply)]
    await store.aclose()
    return found
