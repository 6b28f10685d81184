"""A small shop whose stores the tests of the command line read: models, agents, and what they did."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore
from reactifact.clock import SystemClock


class Order(BaseModel):
    customer: str
    items: list[str] = []
    note: str = ""


class Receipt(BaseModel):
    order_id: str
    text: str


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process_order(call: ProduceCall) -> None:
    order = call.trigger
    receipt = call.effects.upsert(Receipt(order_id=order.id, text="confirmed"), id=f"receipt:{order.id}")
    call.effects.link(receipt, "receipt_for", order)
    call.context.get(f"complaint:{order.id}")  # a look-up that finds nothing is a read too
    call.effects.act("mail", key=f"notify:{order.id}", payload={"to": order.data.customer})


async def dispatch(context: Context, action: Artifact[PendingAction]) -> None:
    if "@" not in action.data.payload["to"]:
        raise ValueError(f"no address: {action.data.payload['to']}\nsecond line \x1b[31m")


class SteppingClock(SystemClock):
    """Each look at it is a second later, so that no two times are equal."""

    def __init__(self, start: str) -> None:
        self.time = datetime.fromisoformat(start)

    def now(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time


def runtime_of(session: Any, *, delivering: bool = True) -> Runtime:
    agent = create_agent("notifier", consumes=[Consume(Order)], produces=[process_order])
    return Runtime(
        session.context,
        agents=[agent],
        session=session,
        dispatcher=dispatch if delivering else None,
        dispatch_errors="record",
    )


async def trade(path: Path) -> None:
    """Make the store: `user-1` with a branch, `team/a`, `team` with a branch `a`, and `shop` last."""
    store = SessionStore(path, durability="os")
    resources = RuntimeResources(clock=SteppingClock("2026-01-01T10:00:00+00:00"))
    user = await store.open("user-1", resources)
    runtime = runtime_of(user)
    user.context.create(Order(customer="ann@example.com", items=["tea"]), id="o1")
    await runtime.arun()  # v1, delivered
    user.context.create(Order(customer="nobody"), id="o2")
    await runtime.arun()  # v2, failed
    branches = BranchStore(path, durability="os")
    plan = user.context.branch(name="plan")
    plan.update("o1", Order(customer="ann@example.com", items=["tea", "cake"], note="hurry"))
    plan.delete("receipt:o1")
    plan.unlink("receipt:o2", "receipt_for", "o2")
    plan.commits.commit_edit(author="ann", message="Plan the party")
    await branches.save_branch(plan, session_id="user-1", name="plan b")
    for session_id, branch in (("team/a", None), ("team", "a"), ("team", "x/y")):
        session = await store.open(session_id, resources)
        session.context.create(Order(customer=f"{session_id} {branch}@x"), id="o1")
        await session.save()
        if branch is not None:
            await branches.save_branch(
                session.context.branch(name=branch), session_id=session_id, name=branch
            )
    shop = await store.open("shop", resources)
    shop.context.create(Order(customer="eve@example.com\x1b[2J"), id="o\n9")
    await runtime_of(shop, delivering=False).arun()
    await store.aclose()
    await branches.aclose()


def make_shop(path: Path) -> None:
    anyio.run(trade, path)
