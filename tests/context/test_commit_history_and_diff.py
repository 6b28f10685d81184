"""Commits and provenance (API §6, §7) and `diff` (API §8)."""

from __future__ import annotations

import gc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from support import Answer, Echo, Note, Order, Place, Question, answering_agents, commit, live

from reactifact import (
    Agent,
    Consume,
    Context,
    Create,
    Delete,
    Event,
    EventType,
    Patch,
    ProduceCall,
    Runtime,
    Trigger,
    create_agent,
    produce,
)
from reactifact._store.layout import Meta, ReadRecord
from reactifact.commit import Commit, Read, Write
from reactifact.errors import TypeNotFoundError

pytestmark = pytest.mark.anyio


def test_commits_reads_and_writes_compare_by_value() -> None:
    when = datetime(2024, 2, 29, tzinfo=UTC)

    def made() -> Commit:
        return Commit("a", "m", [Delete("x")], id="1", timestamp=when, reads=[Read("x", 0)])

    assert made() == made()
    assert made() != Commit("b", "m", [Delete("x")], id="1", timestamp=when, reads=[Read("x", 0)])
    assert Write("x", 0, "create") == Write("x", 0, "create")
    fresh = Commit("a", "m", [])
    assert (fresh.parent_id, fresh.context_version, fresh.reads, fresh.writes) == (None, None, [], [])
    assert fresh.id != Commit("a", "m", []).id
    assert fresh.timestamp.utcoffset() is not None


async def test_one_commit_an_execution_in_a_chain() -> None:
    context = Context()
    context.create(Question(text="why"), id="q")
    assert (context.version, context.head_id, context.history()) == (0, None, [])
    await Runtime(context, answering_agents()).arun()
    first, second = context.history()
    assert (first.author, second.author) == ("answerer", "echoer")
    assert (first.context_version, second.context_version) == (1, 2)
    assert (first.parent_id, second.parent_id) == (None, first.id)
    assert context.version == 2
    assert context.head_id == second.id
    assert first.timestamp.utcoffset() is not None
    (answer,) = context.list_artifacts(Answer)
    assert first.writes == [Write(answer.id, 0, "create")]
    (operation,) = first.operations
    assert isinstance(operation, Create)
    assert (operation.data, operation.artifact_id) == (Answer(text="re: why"), answer.id)
    assert answer.created_by_commit == first.id
    assert live(context, "q").created_by_commit is None


async def test_history_is_a_fresh_list() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(), id="n"))
    context.history().clear()
    assert len(context.history()) == 1
    assert context.commit_log() == context.history()


async def test_the_trigger_is_read_first_at_the_version_seen() -> None:
    context = Context()
    context.create(Note(text="other"), id="a")
    context.create(Question(text="why"), id="q")
    context.update("q", Question(text="why not"))

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        call.context.get("a")
        call.context.get("missing")
        call.context.get("a")
        return Answer(text="because")

    agent = create_agent(
        "x", consumes=[Consume(Question, None, [EventType.ARTIFACT_CREATED])], produces=[answer]
    )
    await Runtime(context, [agent]).arun()
    (found,) = context.history()
    assert found.reads == [Read("q", 1), Read("a", 0), Read("missing", -1)]


async def test_an_agent_without_consumes_reads_its_trigger_too() -> None:
    class Bare(Agent):
        triggers = (Trigger(EventType.ARTIFACT_CREATED, Question),)

        async def run(self, event: Event | None, context: Context) -> Patch:
            return Patch().create(Answer(text="yes"), id="a")

    context = Context()
    context.create(Question(text="why"), id="q")
    await Runtime(context, [Bare()]).arun()
    (found,) = context.history()
    assert found.reads == [Read("q", 0)]
    assert found.author == "Bare"


async def test_better_36_reads_are_what_was_read_not_what_is_matched() -> None:
    @produce(Echo)
    async def one(call: ProduceCall) -> Echo:
        return Echo(text="only the trigger")

    @produce(Echo)
    async def all_of_them(call: ProduceCall) -> Echo:
        return Echo(text=str(len(call.inputs)))

    context = Context()
    for number in range(20):
        context.create(Note(count=number), id=f"n{number:02}")
    context.drain_events()
    context.create(Question(text="how many"), id="q")
    feeds = [Consume(Question), Consume(Note, wakes=False)]
    narrow = create_agent("narrow", consumes=feeds, produces=[one])
    wide = create_agent("wide", consumes=feeds, produces=[all_of_them])
    await Runtime(context, [narrow, wide]).arun()
    first, second = context.history()
    assert first.reads == [Read("q", 0)]
    assert second.reads[0] == Read("q", 0)
    assert set(second.reads) == {Read("q", 0), *(Read(f"n{number:02}", 0) for number in range(20))}
    assert len(second.reads) == 21  # each once


async def test_writes_carry_the_version_after_the_write() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="n"))

    def change(call: ProduceCall) -> None:
        call.effects.update("n", text="b")
        call.effects.create(Note(), id="m")
        call.effects.delete("n")

    await commit(context, change)
    assert context.history()[-1].writes == [
        Write("n", 1, "update"),
        Write("m", 0, "create"),
        Write("n", 1, "delete"),
    ]


async def test_diff_tells_what_was_committed_between_two_versions() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="n"))
    await commit(context, lambda call: call.effects.create(Order(item="x"), id="o"))
    await commit(context, lambda call: call.effects.update("n", text="b"))
    await commit(context, lambda call: call.effects.delete("o"))
    note = {"text": "a", "count": 0, "tags": [], "extra": {}}
    order = {"item": "x", "status": "open", "price": 0, "carrier": ""}
    changed = {"old": note, "new": {**note, "text": "b"}}
    nothing: dict[str, Any] = {"added": {}, "removed": {}, "changed": {}}
    assert context.version == 4
    assert context.diff(0, 1) == {**nothing, "added": {"n": note}}
    assert context.diff(1, 3) == {**nothing, "added": {"o": order}, "changed": {"n": changed}}
    assert context.diff(3, 4) == {**nothing, "removed": {"o": order}}
    assert context.diff(2, 4) == {**nothing, "removed": {"o": order}, "changed": {"n": changed}}
    assert context.diff(1, 1) == nothing
    assert context.diff(0, 4) == {**nothing, "added": {"n": {**note, "text": "b"}}}


async def test_what_was_created_directly_is_not_in_the_diff() -> None:
    context = Context()
    context.create(Note(text="direct"), id="d")
    await commit(context, lambda call: call.effects.create(Note(), id="n"))
    context.create(Note(text="late"), id="l")
    assert set(context.diff(0, 1)["added"]) == {"n"}


@pytest.mark.parametrize(("old", "new"), [(-1, 0), (1, 0), (0, 2), (2, 3)])
async def test_diff_refuses_versions_out_of_range(old: int, new: int) -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(), id="n"))
    with pytest.raises(ValueError, match="0 <= a <= b <= 1"):
        context.diff(old, new)


async def test_direct_changes_are_in_the_store_but_carry_no_version(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(text="a"), id="n")
    session.context.update("n", Note(text="b"))
    await session.save()
    context = await place.load("s")
    assert (context.version, context.history()) == (0, [])
    assert live(context, "n").data.text == "b"
    assert live(context, "n").version == 1
    assert [note.text for note in live(context, "n").history] == ["a"]


def test_bookkeeping_that_is_remembered_is_bounded_by_what_it_holds() -> None:
    """A commit may have read thousands of artifacts: a number of records is no bound of memory."""
    reads = tuple(ReadRecord(f"document:{number}", 0) for number in range(1_000))
    when = "2030-01-01T00:00:00+00:00"
    meta = Meta("a", "T", 0, 0, 0, when, when, "0" * 40, "", "", "", None, None, None, None, reads)
    written = [replace(meta, id=f"a{number}").encode() for number in range(800)]
    found = {id(Meta.decode(data)) for data in written[-10:]}
    assert len(found) == 10
    gc.collect()
    kept = sum(1 for held in gc.get_objects() if type(held) is Meta and len(held.reads) == 1_000)
    assert 0 < kept < 600
    decoded = Meta.decode(written[0])
    assert decoded == replace(meta, id="a0")


async def test_a_repr_needs_no_class_and_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context()

    def work(call: ProduceCall) -> None:
        call.effects.create(Note(text="x"), id="a")

    await commit(context, work)

    def missing(*_: object) -> None:
        raise TypeNotFoundError("unknown artifact type")

    monkeypatch.setattr("reactifact._context.history.resolve", missing)
    (found,) = context.history()
    assert f"id={found.id!r}" in repr(context.history())
    assert "Write(artifact_id='a'" in repr(found)
    with pytest.raises(TypeNotFoundError):
        _ = found.operations
