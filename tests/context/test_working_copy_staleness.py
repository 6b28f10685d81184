"""Staleness (API §7): what was written from something that has changed since, and the events of it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from support import Answer, Echo, Note, Order, Place, Question, Receipt, commit, live, trigger_of

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
from reactifact._store.state import State, Stored

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


async def test_the_cost_of_listings_is_that_of_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = Counter[str]()

    def stored(state: State, artifact_id: str) -> Stored | None:
        looked_at[artifact_id] += 1
        return found(state, artifact_id)

    found = State.stored

    @produce(Answer)
    async def answer(call: ProduceCall) -> None:
        count = len(call.context.list_artifacts(Note))
        for number in range(50):
            call.effects.create(Answer(text=f"{number} of {count}"), id=f"a:{number:02}")

    context = begun(Context())
    for number in range(50):
        context.create(Note(text=str(number)), id=f"n:{number}")
    context.delete("q2")
    await Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[answer])]).arun()
    with monkeypatch.context() as patched:
        patched.setattr(State, "stored", stored)
        assert stale(context) == []
        assert {looked_at[f"n:{number}"] for number in range(50)} == {1}
    context.update("n:7", Note(text="new"))
    assert stale(context) == [f"a:{number:02}" for number in range(50)]


async def test_what_was_written_by_itself_hides_no_other_newer_one() -> None:
    @produce(Note)
    async def sum_up(call: ProduceCall) -> None:
        texts = [note.data.text for note in call.context.list_artifacts(Note)]
        call.effects.update("n", text="".join(texts))

    context = begun(Context())
    context.create(Note(text="b"), id="n2")
    context.create(Note(text="c"), id="n3")
    context.delete("q2")
    await Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[sum_up])]).arun()
    assert stale(context) == []
    context.create(Note(text="new"), id="n4")
    assert stale(context) == []
    context.update("n2", Note(text="again"))
    assert stale(context) == ["n"]


async def listed(context: Context, name: str, seen: dict[str, dict[str, int]] | None = None) -> None:
    """Let an agent write a receipt from all notes there are; note in `seen` what it saw."""

    def work(call: ProduceCall) -> None:
        notes = call.context.list_artifacts(Note)
        call.effects.create(Receipt(order="-".join(note.data.text for note in notes)), id=name)
        if seen is not None:
            seen[name] = {note.id: note.version for note in notes}

    await commit(context, work, kick=f"kick:{name}")


@pytest.mark.parametrize("others", [0, 20])
async def test_a_listing_is_stale_after_a_merge_wherever_it_was_made(others: int) -> None:
    context = Context()
    context.create(Note(text="old"), id="n")
    here, there = context.branch(name="here"), context.branch(name="there")
    for number in range(others):
        here.create(Order(item="x"), id=f"o:{number}")
    await listed(here, "r")
    there.update("n", Note(text="new"))
    into_reader, into_writer = here.clone(), there.clone()
    into_reader.merge(there)
    into_writer.merge(here)
    assert stale(into_reader) == stale(into_writer) == ["r"]
    await listed(into_reader, "later")
    assert stale(into_reader) == ["r"]


@pytest.mark.parametrize("others", [0, 20])
async def test_what_a_listing_saw_or_could_not_see_makes_nothing_stale_by_a_merge(others: int) -> None:
    context = Context()
    context.create(Note(text="old"), id="n")
    here, there = context.branch(name="here"), context.branch(name="there")
    for number in range(others):
        here.create(Order(item="x"), id=f"o:{number}")
    here.update("n", Note(text="new"))
    await listed(here, "r")
    there.create(Note(), id="unseen")
    for number in range(others + 5):
        there.update("unseen", Note(text=str(number)))
    into_reader, into_writer = here.clone(), there.clone()
    into_reader.merge(there)
    into_writer.merge(here)
    assert stale(into_reader) == stale(into_writer) == []
    into_reader.update("n", Note(text="newer"))
    assert stale(into_reader) == ["r"]


async def test_a_merge_with_events_tells_what_became_stale() -> None:
    context = Context()
    context.create(Note(text="old"), id="n")
    fork = context.branch(name="fork")
    for number in range(20):
        context.create(Order(item="x"), id=f"o:{number}")
    await listed(context, "r")
    assert stale(context) == []
    context.drain_events()
    fork.update("n", Note(text="new"))
    context.merge(fork, emit_events=True)
    assert (EventType.ARTIFACT_STALE, "r") in queued(context)


@pytest.mark.parametrize("seed", range(4, 10))
async def test_no_merge_hides_that_a_listing_is_stale(seed: int) -> None:
    random = Random(seed)
    context = Context()
    for number in range(4):
        context.create(Note(), id=f"n{number}")
    sides = [context, context.branch(name="fork")]
    seen: dict[str, dict[str, int]] = {}
    for step in range(40):
        side = random.randrange(2)
        one, other = sides[side], sides[1 - side]
        match random.choice(["update", "create", "order", "list", "merge"]):
            case "update":
                one.update(f"n{2 * random.randrange(2) + side}", Note(text=str(step)))
            case "create":
                one.create(Note(), id=f"new{step}")
            case "order":
                one.create(Order(item="x"), id=f"o{step}")
            case "list":
                await listed(one, f"r{step}", seen)
            case _:
                one.merge(other)
        for found in sides:
            versions = {note.id: note.version for note in found.list_artifacts(Note)}
            expected = [
                receipt.id
                for receipt in found.list_artifacts(Receipt)
                if any(versions[name] > version for name, version in seen[receipt.id].items())
            ]
            assert stale(found) == expected
