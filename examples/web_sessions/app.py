"""The application: `POST /sessions/{session_id}/orders` takes an order, and answers with its receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from reactifact import Agent, Consume, PendingAction, ProduceCall, Runtime, create_agent, produce
from reactifact.integrations.starlette import exception_handlers, lifespan, open_session


class Order(BaseModel):
    """What a customer ordered."""

    TYPE_ID: ClassVar[str] = "example.web.Order"

    item: str


class Receipt(BaseModel):
    """What the agent made of it."""

    TYPE_ID: ClassVar[str] = "example.web.Receipt"

    text: str


@produce(Receipt, also_creates=PendingAction)
async def confirm(call: ProduceCall) -> None:
    """Write a receipt, and let a mail go out."""
    order = call.trigger
    assert order is not None
    call.effects.upsert(Receipt(text=f"one {order.data.item}"), id=f"receipt:{order.id}")
    call.effects.act("mail", key=f"mail:{order.id}", payload={"item": order.data.item})


def agents() -> list[Agent]:
    """Return the agents of a session."""
    return [create_agent("confirmer", consumes=[Consume(Order)], produces=[confirm])]


def build(store: Path | str, dispatcher: Any) -> Starlette:
    """Return the application over a store; mails go through `dispatcher`."""

    async def order(request: Request) -> JSONResponse:
        session_id = request.path_params["session_id"]
        body = await request.json()
        async with open_session(request, session_id) as session:
            context = session.context
            number = len(context.list_artifacts(Order)) + 1
            made = context.create(Order(item=body["item"]), id=f"{session_id}:order:{number}")
            await Runtime(context, agents(), dispatcher=dispatcher, session=session).arun()
            receipt = context.get(f"receipt:{made.id}")
            assert receipt is not None
            return JSONResponse({"order": made.id, "receipt": receipt.data.text})

    return Starlette(
        routes=[Route("/sessions/{session_id}/orders", order, methods=["POST"])],
        lifespan=lifespan(store, dispatcher=dispatcher),
        exception_handlers=exception_handlers(),
    )
