"""What the review example stores: letters from customers, what an agent makes of them, and what goes out."""

from __future__ import annotations

from pydantic import BaseModel, Field

from reactifact import Agent, Consume, PendingAction, ProduceCall, create_agent, produce


class Letter(BaseModel):
    """What a customer wrote."""

    sender: str
    text: str


class Claim(BaseModel):
    """What the agent read in a letter; a person may correct it."""

    sender: str
    reason: str
    cents: int = Field(ge=0, le=100_00)


class Refund(BaseModel):
    """What is paid back for a claim."""

    sender: str
    cents: int


def _amount(text: str) -> int:
    """Return the first number in a text, as euros: the mistake that the person finds is here."""
    digits = "".join(char if char.isdigit() else " " for char in text).split()
    return int(digits[0]) * 100 if digits else 0


@produce(Claim, reacts_to=Letter)
async def read_letter(call: ProduceCall) -> None:
    """Make a claim of a letter."""
    assert call.trigger is not None
    letter = call.trigger.data
    claim = Claim(sender=letter.sender, reason=letter.text, cents=_amount(letter.text))
    call.effects.upsert(claim, id=call.trigger.id.replace("letter", "claim"))


@produce(Refund, also_creates=[PendingAction], reacts_to=Claim)
async def pay_back(call: ProduceCall) -> None:
    """Plan the refund of a claim; until it is sent, a corrected claim replaces it."""
    assert call.trigger is not None
    claim = call.trigger.data
    refund = Refund(sender=claim.sender, cents=claim.cents)
    call.effects.upsert(refund, id=call.trigger.id.replace("claim", "refund"))
    call.effects.act("refund", key=f"refund:{call.trigger.id}", payload=refund.model_dump())


def agents() -> list[Agent]:
    """Return the two agents of the office."""
    return [
        create_agent("reader", consumes=[Consume(Letter)], produces=[read_letter]),
        create_agent("cashier", consumes=[Consume(Claim)], produces=[pay_back]),
    ]
