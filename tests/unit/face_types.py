"""What type checkers say of the public face: read by mypy and pyright, run by nobody.

An `ignore` stands where they must refuse; both report one that is not needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, assert_type

from pydantic import BaseModel

from reactifact import (
    Agent,
    Artifact,
    Budget,
    Consume,
    Context,
    Handle,
    PendingAction,
    PendingQuestion,
    Produce,
    ProduceCall,
    ResourceKey,
    Runtime,
    RuntimeResources,
    Session,
    SessionStore,
    create_agent,
    produce,
    step,
)
from reactifact.branching import BranchStore
from reactifact.recipes import find, find_all
from reactifact.streaming import ProgressEvent


class Order(BaseModel):
    item: str
    count: int = 1


class Receipt(BaseModel):
    text: str


# -- the call of a produce -----------------------------------------------------------------------


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def confirm(call: ProduceCall[Order]) -> Receipt:
    assert_type(call.trigger, Artifact[Order])
    assert_type(call.trigger.data, Order)
    assert_type(call.trigger.history, list[Order])
    assert_type(call.inputs[0], Artifact[Any])
    assert_type(find(call.inputs, Order), Artifact[Order] | None)
    assert_type(find_all(call.inputs, Order), list[Artifact[Order]])
    return Receipt(text=call.trigger.data.item)


@produce(Receipt, reacts_to=Order)
def bare(call: ProduceCall) -> None:
    assert_type(call.trigger, Artifact[Any] | None)


@produce(Receipt, reacts_to=Order)
def deletions_too(call: ProduceCall[Order | None]) -> None:
    assert_type(call.trigger, Artifact[Order] | None)
    print(call.trigger.data)  # type: ignore[union-attr]


@produce(Receipt, reacts_to=(Order, Receipt))
def two_types(call: ProduceCall[Order | Receipt]) -> None:
    assert_type(call.trigger.data, Order | Receipt)


@produce(Receipt, also_creates=(Order,))
def any_event(call: ProduceCall[Order]) -> list[Receipt]:
    return [Receipt(text=call.trigger.data.item)]


@produce(Receipt, reacts_to=Order)  # type: ignore[arg-type]
def wrong_type(call: ProduceCall[Receipt]) -> None:
    print(call.trigger.data.item)  # type: ignore[attr-defined]


class Confirm(Produce[Receipt]):
    reacts_to = Order

    async def produce(self, call: ProduceCall[Order]) -> Receipt:
        return Receipt(text=call.trigger.data.item)


@step(produces=Receipt, consumes=Order)
async def confirmer(call: ProduceCall[Order]) -> Receipt:
    return Receipt(text=call.trigger.data.item)


@step(produces=(Receipt, PendingAction), consumes=[Order, Consume(Receipt, wakes=False)])
def several(call: ProduceCall) -> None:
    pass


@step(produces=Receipt, consumes=Order)  # type: ignore[arg-type]
def wrong_step(call: ProduceCall[Receipt]) -> None:
    pass


assert_type(confirmer, Agent)
assert_type(create_agent("a", consumes=[Consume(Order)], produces=[confirm, bare, Confirm()]), Agent)


# -- effects -------------------------------------------------------------------------------------


def plan(call: ProduceCall[Order]) -> None:
    effects = call.effects
    assert_type(effects.create(Receipt(text="a")), Handle)
    assert_type(effects.create_once(Receipt(text="a"), id="r"), Handle | None)
    assert_type(effects.act("mail", key="k", payload={"to": "a"}), Handle | None)
    effects.update(call.trigger, count=2)
    with effects.edit(call.trigger) as data:
        assert_type(data, Order)
        data.count = 2
        data.count = "two"  # type: ignore[assignment]
        data.number = 2  # type: ignore[attr-defined]


# -- the context ---------------------------------------------------------------------------------


def read(context: Context) -> None:
    assert_type(context.create(Order(item="tea")), Artifact[Order])
    assert_type(context.get("o"), Artifact[Any] | None)
    assert_type(context.get("o", Order), Artifact[Order] | None)
    assert_type(context.list_artifacts(), list[Artifact[Any]])
    assert_type(context.list_artifacts(Order), list[Artifact[Order]])
    assert_type(context.latest(Order), Artifact[Order] | None)
    assert_type(context.pending_actions(), list[Artifact[PendingAction]])
    assert_type(context.pending_questions(), list[Artifact[PendingQuestion]])
    context.get("o", str)  # type: ignore[type-var]


# -- sessions and turns --------------------------------------------------------------------------


async def dispatch(context: Context, action: Artifact[PendingAction]) -> None:
    assert_type(action.data.idempotency_key, str)


async def turn(store: SessionStore, key: ResourceKey[int]) -> None:
    session = await store.open("s", RuntimeResources(), wait=1.0)
    assert_type(session, Session)
    runtime = Runtime(session.context, agents=[confirmer], session=session, dispatcher=dispatch)
    assert_type(await runtime.arun(budget=Budget(max_runs=3)), int)
    stream = runtime.astream()
    typed: AsyncGenerator[ProgressEvent, None] = stream
    async for event in typed:
        assert_type(event, ProgressEvent)
    await stream.aclose()
    async with store.edit("s") as context:
        assert_type(context, Context)
    assert_type(session.context.resources.require(key), int)


async def branches(store: BranchStore) -> None:
    assert_type(await store.load_branch("s", "b"), Context | None)
    assert_type(await store.undo("s"), str)
