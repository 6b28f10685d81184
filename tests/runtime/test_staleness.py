"""Staleness (API §7): what was written from something that has changed since, and the events of it."""

from __future__ import annotations

from typing import Any

import pytest
from support import Answer, Echo, Note, Order, Place, Question, live, trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    EventType,
    ProduceCall,
    Runtime,
    Trigger,
    create_agent,
    produce,
)

pytestmark = pytest.mark.anyio


def summarizer() -> Agent:
    """Return an agent that writes one answer for each question, from the note `n` as well."""

    @produce(Answer)
    async def summarize(call: ProduceCall) -> None:
        question, note = trigger_of(call), live(call.context, "n")
        call.effects.upsert(Answer(text=f"{question.data.text} {note.data.text}"), id=f"a:{question.id}")

    return create_agent("summarizer", consumes=[Consume(Question)], produces=[summarize])


def refresher(log: list[str]) -> Agent:
    """Return an agent that writes a stale answer anew."""

    @produce(Answer)
    async def refresh(call: ProduceCall) -> None:
        answer = trigger_of(call)
        log.append(answer.id)
        question, note = live(call.context, answer.id.removeprefix("a:")), live(call.context, "n")
        call.effects.update(answer, text=f"{question.data.text} {note.data.text}")

    stale = Consume(Answer, event_types=[EventType.ARTIFACT_STALE])
    return create_agent("refresher", consumes=[stale], produces=[refresh])


def begun(context: Context) -> Context:
    context.create(Note(text="sun"), id="n")
    context.drain_events()
    for name in ("q1", "q2"):
        context.create(Question(text=name), id=name)
    return context


def stale(context: Context) -> list[str]:
    return [artifact.id for artifact in context.stale_artifacts()]


def queued(context: Context) -> list[tuple[EventType, str]]:
    return [(event.type, event.artifact_id) for event in context.pending_events()]


async def test_what_read_an_older_version_is_stale_until_it_is_written_again() -> None:
    context = begun(Context())
    runtime = Runtime(context, [summarizer()])
    await runtime.arun()
    assert not context.has_stale()
    context.update("n", Note(text="rain"))
    assert stale(context) == ["a:q1", "a:q2"]
    assert context.has_stale()
    context.update("q1", Question(text="q1 again"))
    await runtime.arun()
    assert stale(context) == ["a:q2"]
    assert live(context, "a:q1").data.text == "q1 again rain"


async def test_a_write_with_equal_data_clears_it_too() -> None:
    @produce(Answer)
    async def copy(call: ProduceCall) -> None:
        live(call.context, "n")
        call.effects.upsert(Answer(text="always the same"), id="a")

    context = begun(Context())
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[copy])])
    await runtime.arun()
    context.update("n", Note(text="rain"))
    assert stale(context) == ["a"]
    context.update("q1", Question(text="again"))
    await runtime.arun()
    assert stale(context) == []
    assert live(context, "a").version == 0


async def test_an_equal_update_makes_nothing_stale_and_a_listing_counts_as_a_read() -> None:
    @produce(Answer)
    async def count(call: ProduceCall) -> None:
        call.effects.upsert(Answer(text=f"{len(call.context.list_artifacts(Order))}"), id="a")

    context = begun(Context())
    context.create(Order(item="x"), id="o")
    await Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[count])]).arun()
    context.update("o", Order(item="x"))
    assert stale(context) == []
    context.update("o", Order(item="y"))
    assert stale(context) == ["a"]


async def test_what_it_wrote_itself_and_what_was_created_directly_is_not_stale() -> None:
    @produce(Note)
    async def append(call: ProduceCall) -> None:
        note = live(call.context, "n")
        call.effects.update(note, text=note.data.text + "!")

    context = begun(Context())
    context.create(Echo(text="direct"), id="e")
    await Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[append])]).arun()
    assert "n" not in stale(context)
    assert "e" not in stale(context)


async def test_a_stale_event_for_each_dependent_follows_the_update() -> None:
    context = begun(Context())
    await Runtime(context, [summarizer()]).arun()
    context.drain_events()
    context.update("n", Note(text="rain"))
    assert queued(context) == [
        (EventType.ARTIFACT_UPDATED, "n"),
        (EventType.ARTIFACT_STALE, "a:q1"),
        (EventType.ARTIFACT_STALE, "a:q2"),
    ]
    (event,) = [event for event in context.pending_events() if event.artifact_id == "a:q1"]
    assert event.artifact_type is Answer


async def test_agents_consume_stale_events_and_write_anew() -> None:
    log: list[str] = []
    context = begun(Context())
    runtime = Runtime(context, [summarizer(), refresher(log)])
    await runtime.arun()
    assert log == []
    context.update("n", Note(text="rain"))
    assert await runtime.arun() == 2
    assert log == ["a:q1", "a:q2"]
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["q1 rain", "q2 rain"]
    assert not context.has_stale()


async def test_an_update_by_an_agent_makes_stale_within_the_turn() -> None:
    log: list[str] = []

    @produce(Note)
    async def change(call: ProduceCall) -> None:
        call.effects.update("n", text="rain")

    changer = create_agent("changer", consumes=[Consume(Order)], produces=[change])
    context = begun(Context())
    runtime = Runtime(context, [summarizer(), changer, refresher(log)])
    await runtime.arun()
    context.create(Order(item="x"))
    assert await runtime.arun() == 3
    assert log == ["a:q1", "a:q2"]


async def test_staleness_survives_save_and_load(place: Place) -> None:
    session = await place.store().open("s")
    begun(session.context)
    await Runtime(session.context, [summarizer()], session=session).arun()
    session.context.update("n", Note(text="rain"))
    await session.save()
    stored = await place.load("s")
    assert stale(stored) == ["a:q1", "a:q2"]
    log: list[str] = []
    reopened = await place.store().open("s")
    await Runtime(reopened.context, [summarizer(), refresher(log)], session=reopened).arun()
    assert log == ["a:q1", "a:q2"]
    assert stale(await place.load("s")) == []


async def test_an_update_after_a_reload_makes_stale_events_too(place: Place) -> None:
    session = await place.store().open("s")
    begun(session.context)
    await Runtime(session.context, [summarizer()], session=session).arun()
    reopened = await place.store().open("s")
    reopened.context.update("n", Note(text="rain"))
    log: list[str] = []
    await Runtime(reopened.context, [refresher(log)], session=reopened).arun()
    assert log == ["a:q1", "a:q2"]


async def test_a_trigger_on_stale_events_of_any_type() -> None:
    seen: list[Any] = []

    class Watcher(Agent):
        triggers = (Trigger(EventType.ARTIFACT_STALE),)

        async def run(self, event: Any, context: Context) -> None:
            seen.append((event.type, event.artifact_id))

    context = begun(Context())
    runtime = Runtime(context, [summarizer(), Watcher()])
    await runtime.arun()
    context.update("q1", Question(text="new"))
    await runtime.arun()
    # the summarizer answers q1 anew in the same generation in which the watcher hears of it
    assert seen == [(EventType.ARTIFACT_STALE, "a:q1")]
    assert not context.has_stale()
