"""Debounce: several events of a batch become one run, within one consume of an agent."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import Budget, Context, ProduceCall, RunOutcome, Runtime, produce
from reactifact.agents import Agent, create_agent
from reactifact.consume import AbsentConsume, Consume, JoinConsume
from reactifact.events import EventType
from reactifact.triggers import Trigger


class Reading(BaseModel):
    sensor: str
    value: int = 0


class Alarm(BaseModel):
    sensor: str


def watcher(*consumes: Any, triggers: list[Trigger] | None = None) -> tuple[Agent, list[str]]:
    woken: list[str] = []

    @produce(Alarm)
    async def watch(call: ProduceCall) -> None:
        assert call.event is not None
        woken.append(call.event.artifact_id)

    return create_agent("watcher", consumes=consumes, produces=[watch], triggers=triggers), woken


def readings(context: Context, *ids: str) -> None:
    for artifact_id in ids:
        context.create(Reading(sensor=artifact_id[0]), id=artifact_id)


def of(sensor: str, **options: Any) -> Consume:
    return Consume.by_field(Reading, "sensor", sensor, **options)


@pytest.mark.anyio
async def test_several_events_become_one_run_with_the_last_event() -> None:
    context = Context()
    agent, woken = watcher(Consume(Reading, debounce=True))
    readings(context, "a1", "b1", "a2")
    context.update("a1", Reading(sensor="a", value=5))
    runtime = Runtime(context, agents=[agent], budget=Budget(max_runs=1))
    await runtime.arun()
    assert woken == ["a1"]
    assert runtime.last_stats is not None
    assert (runtime.last_stats.runs, runtime.last_stats.outcome) == (1, RunOutcome.COMPLETED)
    assert context.pending_events() == []


@pytest.mark.anyio
async def test_two_consumes_of_one_type_are_debounced_apart() -> None:
    context = Context()
    agent, woken = watcher(of("a", debounce=True), of("b", debounce=True))
    readings(context, "a1", "b1", "a2", "b2", "b3")
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["a2", "b3"]


@pytest.mark.anyio
async def test_an_event_of_several_consumes_stands_for_all_of_them() -> None:
    context = Context()
    everything = Consume(Reading, debounce=True)
    agent, woken = watcher(of("a", debounce=True), everything)
    readings(context, "a1", "b1", "a2")
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["a2"]
    readings(context, "a3", "b2")
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["a2", "a3", "b2"]


@pytest.mark.anyio
async def test_one_consume_over_several_types_is_one_scope() -> None:
    context = Context()
    both = JoinConsume(Reading, Alarm, key=lambda data: data.sensor, debounce=True)
    agent, woken = watcher(both)
    readings(context, "a1", "b1", "c1")
    context.create(Alarm(sensor="a"), id="alarm a")
    context.create(Alarm(sensor="b"), id="alarm b")
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["alarm b"]


@pytest.mark.anyio
async def test_two_correlated_consumes_are_debounced_apart() -> None:
    context = Context()

    def sensor(data: Any) -> str:
        return str(data.sensor)

    agent, woken = watcher(
        AbsentConsume(
            Reading, absent_type=Alarm, key=sensor, condition=lambda d: d.value == 0, debounce=True
        ),
        AbsentConsume(Reading, absent_type=Alarm, key=sensor, condition=lambda d: d.value > 0, debounce=True),
    )
    readings(context, "a1", "a2")
    context.create(Reading(sensor="b", value=1), id="b1")
    context.create(Reading(sensor="b", value=2), id="b2")
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["a2", "b2"]


@pytest.mark.anyio
async def test_an_event_that_also_matches_without_debounce_runs_by_itself() -> None:
    context = Context()
    agent, woken = watcher(Consume(Reading, debounce=True), of("a"))
    readings(context, "b1", "a1", "b2", "a2")
    await Runtime(context, agents=[agent]).arun()
    assert sorted(woken) == ["a1", "a2", "b2"]


@pytest.mark.anyio
async def test_agents_are_debounced_apart_also_with_a_consume_in_common() -> None:
    context = Context()
    common = Consume(Reading, debounce=True)
    (first, by_first), (second, by_second) = watcher(common), watcher(common)
    readings(context, "a1", "a2")
    await Runtime(context, agents=[first, second]).arun()
    assert (by_first, by_second) == (["a2"], ["a2"])


@pytest.mark.anyio
async def test_triggers_without_a_consume_are_debounced_within_their_type() -> None:
    context = Context()
    kinds = [EventType.ARTIFACT_CREATED, EventType.ARTIFACT_UPDATED]
    agent, woken = watcher(triggers=[Trigger(kind, Reading, debounce=True) for kind in kinds])
    readings(context, "a1", "a2")
    context.update("a1", Reading(sensor="a", value=9))
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["a1"]


@pytest.mark.anyio
async def test_what_a_budget_cuts_is_debounced_again_later() -> None:
    context = Context()
    agent, woken = watcher(of("a", debounce=True), of("b", debounce=True))
    readings(context, "a1", "b1", "a2", "b2")
    await Runtime(context, agents=[agent]).arun(budget=Budget(max_runs=1))
    assert woken == ["a2"]
    assert [event.artifact_id for event in context.pending_events()] == ["b1", "b2"]
    readings(context, "b3")
    await Runtime(context, agents=[agent]).arun()
    assert woken == ["a2", "b3"]
