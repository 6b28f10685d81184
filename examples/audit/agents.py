"""Two agents: one adds up what a department spent, one holds it against budget and policy.

Both compute in Python; no model is asked. Each also reacts to its result being stale, so that editing
an input recomputes what rests on it and nothing else.
"""

from __future__ import annotations

from reactifact import Agent, Consume, EventType, ProduceCall, create_agent, produce

from .models import Finding, Limit, Policy, Spending, Transaction

POLICY = "policy"
CHARGED_TO = "charged_to"
"""The relation from a transaction to the limit of its department."""


@produce(Spending)
async def add_up(call: ProduceCall[Limit | Spending]) -> None:
    """Add up one department: the one whose limit is new, or whose sum is stale."""
    department = call.trigger.data.department
    charged = call.context.incoming(f"limit:{department}", CHARGED_TO)
    transactions = [call.context.get(relation.source_id, Transaction) for relation in charged]
    found = [transaction for transaction in transactions if transaction is not None]
    total = Spending(
        department=department,
        cents=sum(transaction.data.cents for transaction in found),
        transactions=len(found),
    )
    made = call.effects.upsert(total, id=f"spending:{department}")
    for transaction in found:
        call.effects.link(made, "calculated_from", transaction)


@produce(Finding)
async def judge(call: ProduceCall[Spending | Finding]) -> None:
    """Hold one department's spending against its budget and the policy."""
    department = call.trigger.data.department
    spending = call.context.get(f"spending:{department}", Spending)
    limit = call.context.get(f"limit:{department}", Limit)
    policy = call.context.get(POLICY, Policy)
    assert spending is not None
    assert limit is not None
    assert policy is not None
    allowed = limit.data.cents * (100 + policy.data.percent) // 100
    finding = Finding(
        department=department,
        spent=spending.data.cents,
        allowed=allowed,
        over=max(0, spending.data.cents - allowed),
    )
    made = call.effects.upsert(finding, id=f"finding:{department}")
    for source in (spending, limit, policy):
        call.effects.link(made, "derived_from", source)


def agents() -> list[Agent]:
    """Return the agents of the example."""
    stale, created = [EventType.ARTIFACT_STALE], [EventType.ARTIFACT_CREATED]
    return [
        create_agent(
            "adder",
            consumes=[Consume(Limit, event_types=created), Consume(Spending, event_types=stale)],
            produces=[add_up],
        ),
        create_agent(
            "auditor",
            consumes=[Consume(Spending, event_types=created), Consume(Finding, event_types=stale)],
            produces=[judge],
        ),
    ]
