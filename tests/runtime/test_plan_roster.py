"""What a turn costs beside agents that it does not wake, and that a roster follows its agents."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import Agent, Consume, Context, Event, EventType, Runtime, Trigger, create_agent, produce

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    name: str


class Receipt(BaseModel):
    order: str


class Elsewhere(BaseModel):
    name: str


@produce(Receipt, reacts_to=Order)
async def process(call: Any) -> None:
    call.effects.upsert(Receipt(order=call.trigger.id), id=f"receipt:{call.trigger.id}")


@produce(Receipt, reacts_to=Elsewhere)
async def never(call: Any) -> None:
    raise AssertionError("nothing of this type is ever written")


def runtime(others: int) -> Runtime:
    agents = [create_agent(f"clerk-{n}", consumes=[Consume(Order)], produces=[process]) for n in range(2)]
    agents += [
        create_agent(f"other-{n}", consumes=[Consume(Elsewhere)], produces=[never]) for n in range(others)
    ]
    return Runtime(Context(), agents=agents)


async def calls_of_a_turn(others: int) -> int:
    """Return how many Python calls a turn makes beside so many agents that consume another type."""
    used = runtime(others)
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    for number in range(4):
        if number == 3:
            sys.setprofile(count)
        used.context.create(Order(name=str(number)), id=f"order:{number}")
        try:
            await used.arun()
        finally:
            sys.setprofile(None)
    assert len(used.context.list_artifacts(Receipt)) == 4
    return calls


async def test_a_turn_makes_no_more_calls_beside_a_thousand_agents_that_it_does_not_wake() -> None:
    few, many = await calls_of_a_turn(0), await calls_of_a_turn(1_000)
    assert many < few * 1.1


async def test_an_agent_whose_triggers_are_changed_is_woken_by_what_they_say() -> None:
    used = runtime(1)
    used.context.create(Order(name="a"), id="order:a")
    await used.arun()
    assert used.last_stats.runs == 2
    late = used.agents[1]
    late.triggers = []
    used.context.create(Order(name="b"), id="order:b")
    await used.arun()
    assert used.last_stats.runs == 1
    late.triggers.append(Trigger(EventType.ARTIFACT_CREATED, Order))
    used.context.create(Order(name="c"), id="order:c")
    await used.arun()
    assert used.last_stats.runs == 2


async def test_an_agent_that_matches_in_a_way_of_its_own_is_always_asked() -> None:
    asked: list[str] = []

    class Own(Agent):
        def matching_triggers(self, event: Event, context: Context | None = None) -> list[Trigger]:
            asked.append(event.artifact_id)
            return [Trigger(event.type)]

        async def run(self, event: Event | None, context: Context) -> None:
            return None

    class Picky(Trigger):
        def matches(self, event: Event, context: Context | None = None) -> bool:
            asked.append(f"picky {event.artifact_id}")
            return False

    used = Runtime(Context(), agents=[Own("own"), Agent("picky", [Picky(EventType.ARTIFACT_DELETED)])])
    used.context.create(Order(name="a"), id="order:a")
    await used.arun()
    assert used.last_stats.runs == 1
    assert asked == ["order:a", "picky order:a"]
