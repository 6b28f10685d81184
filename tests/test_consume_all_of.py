"""`Consume.all_of`: all parts that a plan announced are there, or its deadline came with those that came."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from support import Place

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.consume import AllOfConsume, Gathered
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio


class Plan(BaseModel):
    name: str
    count: int = 0
    ids: list[str] = []


class Finding(BaseModel):
    name: str
    text: str = ""


class Report(BaseModel):
    text: str


GATHER = Consume.all_of(
    Finding,
    announced_by=Plan,
    key=lambda data: data.name,
    expected=lambda plan: plan.ids or plan.count,
    deadline="plan:",
)


class Reporter:
    """Notes what it was woken with."""

    def __init__(self, consume: AllOfConsume = GATHER) -> None:
        self.seen: list[tuple[str, list[str], bool]] = []
        self.inputs: list[list[str]] = []

        @produce(Report)
        async def report(call: ProduceCall) -> None:
            found = consume.gathered(call)
            assert isinstance(found, Gathered)
            self.seen.append((found.plan.data.name, [one.id for one in found.parts], found.is_complete))
            self.inputs.append([one.id for one in call.inputs])
            call.effects.upsert(Report(text=str(len(found.parts))), id=f"report:{found.plan.data.name}")

        self.agent = create_agent("reporter", consumes=[consume], produces=[report])


def find(context: Context, name: str, *numbers: int) -> None:
    for number in numbers:
        context.create(Finding(name=name), id=f"{name}:{number}")


async def test_it_wakes_once_when_the_last_part_is_there() -> None:
    context, reporter = Context(), Reporter()
    runtime = Runtime(context, [reporter.agent])
    context.create(Plan(name="a", count=3), id="plan:a")
    find(context, "a", 1, 2)
    await runtime.arun()
    assert reporter.seen == []
    find(context, "a", 3)
    await runtime.arun()
    assert reporter.seen == [("a", ["a:1", "a:2", "a:3"], True)]
    assert reporter.inputs == [["plan:a", "a:1", "a:2", "a:3"]]


async def test_parts_that_come_in_one_generation_wake_it_once_for_each_plan() -> None:
    context, reporter = Context(), Reporter()
    for name in "ab":
        context.create(Plan(name=name, count=20), id=f"plan:{name}")
    for name in "ab":
        find(context, name, *range(20))
    find(context, "c", 1)  # announced by nobody
    await Runtime(context, [reporter.agent], max_concurrency=4).arun()
    assert [(name, len(parts)) for name, parts, _ in reporter.seen] == [("a", 20), ("b", 20)]


async def test_parts_may_be_there_before_the_plan_and_be_named_by_id() -> None:
    context, reporter = Context(), Reporter()
    find(context, "a", 1, 2, 3)
    runtime = Runtime(context, [reporter.agent])
    await runtime.arun()
    context.create(Plan(name="a", ids=["a:1", "a:4"]), id="plan:a")
    await runtime.arun()
    assert reporter.seen == []
    find(context, "a", 4)
    await runtime.arun()
    assert reporter.seen == [("a", ["a:1", "a:2", "a:3", "a:4"], True)]


async def test_a_plan_of_nothing_is_complete_at_once() -> None:
    context, reporter = Context(), Reporter()
    context.create(Plan(name="a"), id="plan:a")
    await Runtime(context, [reporter.agent]).arun()
    assert reporter.seen == [("a", [], True)]


@pytest.mark.parametrize("came", [0, 2])
async def test_the_deadline_wakes_it_with_those_that_came(place: Place, came: int) -> None:
    clock, reporter = JumpingClock(), Reporter()
    resources = RuntimeResources(clock=clock)

    @produce(Finding, also_creates=PendingAction, reacts_to=Plan)
    async def fan_out(call: ProduceCall) -> None:
        assert call.trigger is not None
        name = call.trigger.data.name
        for number in range(came):
            call.effects.create(Finding(name=name), id=f"{name}:{number}")
        call.effects.wake(clock.now() + timedelta(hours=1), key=f"plan:{name}")

    planner = create_agent("planner", consumes=[Consume(Plan)], produces=[fan_out])
    session = await place.store().open("s", resources)
    session.context.create(Plan(name="a", count=3), id="plan:a")
    await Runtime(session.context, [planner, reporter.agent], session=session).arun()
    assert reporter.seen == []
    clock.advance(3600)
    assert (await place.store().relay(None, once=True, resources=resources)).delivered == 1
    session = await place.store().open("s", resources)
    await Runtime(session.context, [planner, reporter.agent], session=session).arun()
    assert reporter.seen == [("a", [f"a:{number}" for number in range(came)], False)]
    # what comes late wakes it only where it completes the group
    find(session.context, "a", 7)
    if came == 0:
        await Runtime(session.context, [reporter.agent], session=session).arun()
        assert len(reporter.seen) == 1
        find(session.context, "a", 8, 9)
    await Runtime(session.context, [reporter.agent], session=session).arun()
    assert len(reporter.seen) == 2
    assert reporter.seen[1][2] is True


async def test_a_deadline_after_the_last_part_wakes_nobody() -> None:
    clock, reporter = JumpingClock(), Reporter()
    context = Context(RuntimeResources(clock=clock))

    @produce(PendingAction, reacts_to=Plan)
    async def plan(call: ProduceCall) -> None:
        call.effects.wake(clock.now() + timedelta(hours=1), key="plan:a")

    agents = [create_agent("planner", consumes=[Consume(Plan)], produces=[plan]), reporter.agent]
    context.create(Plan(name="a", count=1), id="plan:a")
    find(context, "a", 1)
    await Runtime(context, agents).arun()
    clock.advance(3600)
    await Runtime(context, agents).arun()
    assert reporter.seen == [("a", ["a:1"], True)]


async def test_what_was_gathered_counts_as_read() -> None:
    context, reporter = Context(), Reporter()
    context.create(Plan(name="a", count=2), id="plan:a")
    find(context, "a", 1, 2)
    await Runtime(context, [reporter.agent]).arun()
    reads = {read.artifact_id for read in context.history()[-1].reads}
    assert {"plan:a", "a:1", "a:2"} <= reads


def test_a_type_cannot_announce_itself() -> None:
    keyed: Any = lambda data: data.name  # noqa: E731
    with pytest.raises(ValueError, match="cannot announce itself"):
        Consume.all_of(Plan, announced_by=Plan, key=keyed, expected=lambda plan: 1)
