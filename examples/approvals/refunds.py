"""What the example is about: a refund, the answer that is asked for, and the agent that waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, Field

from reactifact import Agent, PendingAction, ProduceCall, step
from reactifact.errors import QuestionExpired


class Refund(BaseModel):
    """What a customer asks for; the amount is in cents."""

    TYPE_ID: ClassVar[str] = "example.approvals.Refund"

    customer: str = Field(min_length=1)
    cents: int = Field(gt=0)


class Approval(BaseModel):
    """What a person decides."""

    TYPE_ID: ClassVar[str] = "example.approvals.Approval"

    approved: bool


class Decision(BaseModel):
    """What became of a refund."""

    TYPE_ID: ClassVar[str] = "example.approvals.Decision"

    refund: str
    text: str


SMALL = 20_00
"""Up to this many cents nobody is asked."""

OPTIONS = {"approve": Approval(approved=True), "refuse": Approval(approved=False)}


def agents(patience: timedelta) -> list[Agent]:
    """Return the agent that decides on refunds; it waits for a person for as long as `patience`."""

    @step(consumes=Refund, produces=[Decision, PendingAction])
    async def decide(call: ProduceCall) -> None:
        assert call.trigger is not None
        refund, amount = call.trigger, f"{call.trigger.data.cents / 100:.2f}"
        text = "paid"
        if refund.data.cents > SMALL:
            try:
                question = f"Refund {amount} to {refund.data.customer}?"
                answer = await call.ask(Approval, question, deadline=patience, options=OPTIONS)
                text = "approved and paid" if answer.approved else "refused"
            except QuestionExpired:
                text = "refused: nobody answered in time"
        call.effects.create(Decision(refund=refund.id, text=text), id=f"decision:{refund.id}")
        if text.endswith("paid"):
            call.effects.act("refund", key=f"refund:{refund.id}", payload={"cents": refund.data.cents})

    return [decide]
