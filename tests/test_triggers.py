"""Triggers (API §4): what wakes and what does not."""

from __future__ import annotations

import pytest
from support import Note, Order, SpecialNote

from reactifact import Context, Event, EventType, Trigger

CREATED = EventType.ARTIFACT_CREATED
UPDATED = EventType.ARTIFACT_UPDATED
DELETED = EventType.ARTIFACT_DELETED


def test_a_trigger_matches_kind_and_exact_type() -> None:
    assert Trigger(CREATED).matches(Event(CREATED, Note, "a"))
    assert Trigger(CREATED, Note).matches(Event(CREATED, Note, "a"))
    assert not Trigger(CREATED, Note).matches(Event(UPDATED, Note, "a"))
    assert not Trigger(CREATED, Note).matches(Event(CREATED, SpecialNote, "a"))
    assert not Trigger(CREATED, Note).matches(Event(CREATED, "gone.away.Model", "a"))


def test_a_condition_sees_the_artifact_as_it_is_now() -> None:
    context = Context()
    context.create(Note(count=1), id="a")
    (event,) = context.pending_events()
    trigger = Trigger(CREATED, Note, condition=lambda found: found.data.count > 1)
    assert not trigger.matches(event, context)
    context.update("a", Note(count=2))
    assert trigger.matches(event, context)
    context.delete("a")
    assert not trigger.matches(event, context)


def test_a_context_condition_sees_the_context_too() -> None:
    context = Context()
    context.create(Note(), id="a")
    (event,) = context.pending_events()
    trigger = Trigger(CREATED, Note, context_condition=lambda found, ctx: len(ctx.list_artifacts()) > 1)
    assert not trigger.matches(event, context)
    context.create(Order(item="x"), id="b")
    assert trigger.matches(event, context)


def test_a_condition_without_a_context_is_an_error() -> None:
    event = Event(CREATED, Note, "a")
    with pytest.raises(ValueError, match="context"):
        Trigger(CREATED, Note, condition=lambda found: True).matches(event)
    with pytest.raises(ValueError, match="context"):
        Trigger(CREATED, Note, context_condition=lambda found, ctx: True).matches(event)
