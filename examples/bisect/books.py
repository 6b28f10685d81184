"""The artifacts of the bisect example, and its one agent, which has a mistake in it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from reactifact import Agent, Consume, Context, ProduceCall, create_agent, produce

ACCOUNT = "account"


class Payment(BaseModel):
    """A payment that came in, in cents; a refund is negative."""

    TYPE_ID: ClassVar[str] = "example.Payment"

    cents: int


class Account(BaseModel):
    """What was booked so far, and the total of it."""

    TYPE_ID: ClassVar[str] = "example.Account"

    entries: list[int] = []
    total: int = 0


@produce(Account, reacts_to=Payment)
async def book(call: ProduceCall[Payment]) -> None:
    """Book a payment. The mistake: a refund is added like everything else."""
    known = call.context.get(ACCOUNT, Account)
    account = Account() if known is None else known.data
    cents = call.trigger.data.cents
    call.effects.upsert(
        Account(entries=[*account.entries, cents], total=account.total + abs(cents)), id=ACCOUNT
    )


def bookkeeper() -> Agent:
    """Return the agent that books payments."""
    return create_agent("bookkeeper", consumes=[Consume(Payment)], produces=[book])


def balances(context: Context) -> bool:
    """Tell whether the account's total is that of its entries: what is to hold in every state."""
    account = context.get(ACCOUNT, Account)
    return account is None or account.data.total == sum(account.data.entries)
