"""Questions to a human (API §18)."""

from __future__ import annotations

import pytest
from support import Note, Place, live

from reactifact import (
    Agent,
    Consume,
    Context,
    MergeConflict,
    PendingQuestion,
    ProduceCall,
    Runtime,
    create_agent,
    produce,
)
from reactifact.errors import AnswerConflict

pytestmark = pytest.mark.anyio


def test_interrupt_asks_and_the_open_questions_are_listed() -> None:
    context = Context()
    assert not context.has_pending_question()
    assert context.latest_pending_question() is None
    first = context.interrupt("Ship it?", kind="approval", notes={"order": 7})
    second = context.interrupt("Sure?")
    assert first.data == PendingQuestion(question="Ship it?", kind="approval", notes={"order": 7})
    assert (second.data.kind, second.data.notes, second.data.answered) == ("general", {}, False)
    assert context.pending_questions() == [first, second]
    assert context.has_pending_question()
    assert context.latest_pending_question() is second


def test_resume_answers_and_leaves_other_ids_alone() -> None:
    context = Context()
    context.create(Note(), id="note")
    asked = context.interrupt("Ship it?")
    assert context.resume("unknown", "yes") is None
    assert context.resume("note", "yes") is None
    assert context.resume(asked.id, {"decision": "yes"}) is asked
    assert asked.data.answered
    assert asked.data.resolution == {"decision": "yes"}
    assert asked.data.resolved_at is not None
    assert asked.data.resolved_at.utcoffset() is not None
    assert context.pending_questions() == []
    assert not context.has_pending_question()


def test_the_first_answer_stands_until_a_change_is_asked_for() -> None:
    context = Context()
    asked = context.interrupt("Refund?")
    context.resume(asked.id, "yes")
    context.drain_events()
    version = asked.version
    assert context.resume(asked.id, "yes") is asked  # the same again: nothing happens
    assert (asked.version, context.pending_events()) == (version, [])
    with pytest.raises(AnswerConflict, match=r"answered with 'yes' already.*change=True"):
        context.resume(asked.id, "no")
    with pytest.raises(AnswerConflict):
        context.resume(asked.id, True)
    assert asked.data.resolution == "yes"
    assert context.resume(asked.id, "yes", change=True) is asked
    assert context.pending_events() == []
    context.resume(asked.id, "no", change=True)
    assert (asked.data.resolution, asked.version) == ("no", version + 1)
    assert len(context.pending_events()) == 1


async def test_two_agents_that_answer_one_question_leave_the_first_answer() -> None:
    context = Context()
    asked = context.interrupt("Refund?")

    def reviewer(name: str, answer: str) -> Agent:
        async def review(call: ProduceCall) -> None:
            call.effects.resume(asked.id, answer)

        return create_agent(name, consumes=[Consume(PendingQuestion)], produces=[produce(Note)(review)])

    runtime = Runtime(context, [reviewer("first", "yes"), reviewer("second", "no")])
    with pytest.raises(AnswerConflict):
        await runtime.arun()
    assert asked.data.resolution == "yes"


def test_branches_that_answer_differently_do_not_merge() -> None:
    context = Context()
    asked = context.interrupt("Refund?")
    fork = context.branch(name="fork")
    context.resume(asked.id, "yes")
    fork.resume(asked.id, "no")
    with pytest.raises(MergeConflict):
        context.merge(fork)
    assert asked.data.resolution == "yes"


@produce(Note)
async def act_on_answer(call: ProduceCall) -> Note:
    assert call.trigger is not None
    return Note(text=f"decided {call.trigger.data.resolution}")


def waiting_agent() -> object:
    consume = Consume.by_field(PendingQuestion, "answered", True)
    return create_agent("decider", consumes=[consume], produces=[act_on_answer])


async def test_an_answer_wakes_the_agent_that_waits_for_it() -> None:
    context = Context()
    runtime = Runtime(context, [waiting_agent()])  # type: ignore[list-item]
    asked = context.interrupt("Ship it?")
    assert await runtime.arun() == 0
    context.resume(asked.id, "yes")
    assert await runtime.arun() == 1
    assert [found.data.text for found in context.list_artifacts(Note)] == ["decided yes"]


async def test_an_open_question_survives_a_reload(place: Place) -> None:
    session = await place.store().open("s")
    asked = session.context.interrupt("Ship it?", notes={"order": 7})
    await session.save()
    reopened = await place.store().open("s")
    (found,) = reopened.context.pending_questions()
    assert (found.id, found.data) == (asked.id, asked.data)
    reopened.context.drain_events()
    reopened.context.resume(asked.id, "yes")
    runtime = Runtime(reopened.context, [waiting_agent()], session=reopened)  # type: ignore[list-item]
    assert await runtime.arun() == 1
    context = await place.load("s")
    assert live(context, asked.id).data.resolution == "yes"
    assert [note.data.text for note in context.list_artifacts(Note)] == ["decided yes"]


async def test_an_answer_is_the_same_whatever_the_order_of_its_keys(git_place: Place) -> None:
    session = await git_place.store().open("s")
    asked = session.context.interrupt("which?")
    session.context.resume(asked.id, {"b": [1, 2], "a": None})
    await session.save()
    context = await git_place.load("s")
    for same in ({"b": (1, 2), "a": None}, {"a": None, "b": [1, 2]}):
        context.resume(asked.id, same)
    for other in ({"a": None, "b": [1, 2.5]}, {"a": None, "b": [True, 2]}, {"a": None}):
        with pytest.raises(AnswerConflict):
            context.resume(asked.id, other)


class Unsayable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_an_answer_without_a_text_is_told_by_its_class() -> None:
    context = Context()
    asked = context.interrupt("which?")
    context.resume(asked.id, "yes")
    with pytest.raises(AnswerConflict, match="a Unsayable"):
        context.resume(asked.id, Unsayable())
