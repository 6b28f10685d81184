"""What both programs share: an order wakes an agent, which writes a receipt and mails it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from reactifact import (
    Consume,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.integrations.calls import recorder, tool_dispatcher
from reactifact.replay import ReplayLLM

Body = Callable[[ProduceCall], Awaitable[str]]


class Order(BaseModel):
    """What was ordered."""

    TYPE_ID: ClassVar[str] = "example.adapters.Order"

    item: str


class Receipt(BaseModel):
    """What the agent said of it."""

    TYPE_ID: ClassVar[str] = "example.adapters.Receipt"

    text: str


async def turn(store: Path, llm: Any, body: Body, mails: list[str]) -> str:
    """Let an order wake the agent in a new store; return the text of its receipt."""

    @produce(Receipt, also_creates=PendingAction)
    async def confirm(call: ProduceCall) -> None:
        call.effects.upsert(Receipt(text=await body(call)), id="receipt:1")

    opened = SessionStore(store)
    async with await opened.open("shop", RuntimeResources(llm=llm)) as session:
        session.context.create(Order(item="samovar"), id="order:1")
        agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[confirm])]
        dispatcher = tool_dispatcher({"mail": lambda to, text: mails.append(f"{to}: {text}")})
        await Runtime(session.context, agents, dispatcher=dispatcher, session=session).arun()
        receipt = session.context.get("receipt:1")
        assert receipt is not None
        text = str(receipt.data.text)
    await opened.aclose()
    return text


async def show(folder: Path, body: Body, asked: Callable[[], int]) -> None:
    """Run the turn, then run it again from its recording, and print what came of both."""
    recording, mails = folder / "calls.jsonl", list[str]()
    print("receipt:", await turn(folder / "first.git", recorder(recording), body, mails))
    print(f"asked the model {asked()} times; sent {mails}")
    before = asked()
    print("replayed:", await turn(folder / "again.git", ReplayLLM(recording), body, []))
    print(f"asked the model {asked() - before} times")
