"""The artifacts of the outbox example, and its one agent."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from reactifact import Agent, Consume, PendingAction, ProduceCall, create_agent, produce


class Order(BaseModel):
    """An order that came in."""

    TYPE_ID: ClassVar[str] = "example.Order"

    id: str
    customer: str
    note: str = ""


class Receipt(BaseModel):
    """What the agent makes of an order."""

    TYPE_ID: ClassVar[str] = "example.Receipt"

    order_id: str
    text: str


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process_order(call: ProduceCall[Order]) -> None:
    """Confirm an order: decide on a notification, and write the receipt."""
    order = call.trigger.data
    call.effects.act("notify", key=f"notify:{order.id}", payload={"to": order.customer})
    text = f"confirmed for {order.customer}" + (f": {order.note}" if order.note else "")
    call.effects.upsert(Receipt(order_id=order.id, text=text), id=f"receipt:{order.id}")


def notifier(name: str = "notifier") -> Agent:
    """Return the agent that confirms orders."""
    return create_agent(name, consumes=[Consume(Order)], produces=[process_order])
