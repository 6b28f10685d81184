"""What is decided about orders: a receipt and a mail for each, and the sum of all receipts.

Owns the agents and the wording of the mails. Nothing here sends anything: the mail is planned under
the key `notify:<order id>` and delivered after the commit.
"""

from __future__ import annotations

from reactifact import Agent, Consume, PendingAction, ProduceCall, create_agent, produce

from .models import Order, Receipt, Sales

NOTIFY = "notify"


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
def confirm_order(call: ProduceCall[Order]) -> None:
    """Write the receipt of an order and plan the mail that brings it to the customer."""
    order = call.trigger.data
    receipt = Receipt(order_id=order.order_id, total=order.quantity * order.unit_price, text=_text(order))
    call.effects.upsert(receipt, id=f"receipt:{order.order_id}").link("receipt-for", call.trigger)
    call.effects.act(
        NOTIFY,
        key=f"{NOTIFY}:{order.order_id}",
        payload={
            "name": order.customer,
            "address": order.email,
            "subject": f"Your order {order.order_id}: {order.quantity} x {order.product}",
            "text": receipt.text,
        },
    )


@produce(Sales, reacts_to=Receipt)
def add_up(call: ProduceCall[Receipt]) -> None:
    """Add up all receipts; several new ones in one generation make one run."""
    receipts = [artifact.data for artifact in call.context.list_artifacts(Receipt)]
    total = sum((receipt.total for receipt in receipts), start=receipts[0].total * 0)
    call.effects.upsert(Sales(receipts=len(receipts), revenue=total), id="sales")


def new_agents() -> list[Agent]:
    """Return the agents of the job."""
    return [
        create_agent("confirmation", consumes=[Consume(Order)], produces=[confirm_order]),
        create_agent("accounting", consumes=[Consume(Receipt, debounce=True)], produces=[add_up]),
    ]


def _text(order: Order) -> str:
    lines = [
        f"Hello {order.customer},",
        "",
        f"thank you for your order {order.order_id}.",
        "",
        f"  {order.quantity} x {order.product} at {order.unit_price:.2f} EUR",
        f"  Total: {order.quantity * order.unit_price:.2f} EUR",
    ]
    if order.note:
        lines += ["", "You wrote:", *(f"> {line}" for line in order.note.splitlines())]
    return "\n".join([*lines, ""])
