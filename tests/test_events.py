"""Events (API §4): the queue and its dictionary form."""

from __future__ import annotations

from support import Note, Order

from reactifact import Context, Event, EventType
from reactifact.types import type_id_of

CREATED = EventType.ARTIFACT_CREATED
UPDATED = EventType.ARTIFACT_UPDATED
DELETED = EventType.ARTIFACT_DELETED


def test_event_types_are_their_texts() -> None:
    assert [str(kind) for kind in EventType] == [
        "artifact_created",
        "artifact_updated",
        "artifact_deleted",
        "artifact_stale",
    ]


def test_events_are_queued_first_in_first_out() -> None:
    context = Context()
    context.create(Note(), id="a")
    context.create(Order(item="x"), id="b")
    context.update("a", Note(text="changed"))
    context.delete("b")
    found = [(event.type, event.artifact_type, event.artifact_id) for event in context.pending_events()]
    assert found == [
        (CREATED, Note, "a"),
        (CREATED, Order, "b"),
        (UPDATED, Note, "a"),
        (DELETED, Order, "b"),
    ]


def test_pending_events_is_a_copy() -> None:
    context = Context()
    context.create(Note(), id="a")
    context.pending_events().clear()
    assert len(context.pending_events()) == 1


def test_drain_returns_and_empties_the_queue() -> None:
    context = Context()
    context.create(Note(), id="a")
    assert [event.artifact_id for event in context.drain_events()] == ["a"]
    assert context.pending_events() == []
    assert context.drain_events() == []


def test_consume_events_removes_exactly_these_objects() -> None:
    context = Context()
    context.create(Note(), id="a")
    context.create(Note(), id="b")
    first, second = context.pending_events()
    twin = Event(second.type, second.artifact_type, second.artifact_id, second.timestamp)
    context.create(Note(), id="late")
    assert twin == second
    context.consume_events([first, twin])  # equal is not enough: the object itself counts
    assert [event.artifact_id for event in context.pending_events()] == ["b", "late"]


def test_an_event_writes_the_type_id_and_reads_the_class() -> None:
    event = Event(CREATED, Note, "a")
    data = event.to_dict()
    assert set(data) == {"type", "artifact_type", "artifact_id", "timestamp"}
    assert (data["type"], data["artifact_type"]) == ("artifact_created", type_id_of(Note))
    back = Event.from_dict(data)
    assert back == event
    assert back.artifact_type is Note
    assert back.timestamp == event.timestamp


def test_an_event_of_an_unknown_type_keeps_the_text() -> None:
    data = {"type": "artifact_deleted", "artifact_type": "gone.away.Model", "artifact_id": "a"}
    event = Event.from_dict(data)
    assert event.artifact_type == "gone.away.Model"
    assert event.to_dict()["artifact_type"] == "gone.away.Model"
