"""Views: which artifacts, in which order, and how they are written."""

from __future__ import annotations

import json

import pytest
from support import Answer, Note, Place, Question, SpecialNote

from reactifact import Context, View
from reactifact.context import View as ViewOfContext


def filled() -> Context:
    context = Context()
    context.create(Note(text="one", count=1), id="n1")
    context.create(Question(text="why"), id="q1")
    context.create(SpecialNote(text="two", count=2, rank=9), id="s1")
    context.create(Answer(text="because"), id="a1")
    context.create(Note(text="three", count=3), id="n2")
    return context


def ids(view: View) -> list[str]:
    return [artifact.id for artifact in view]


def test_view_has_one_class_on_both_paths() -> None:
    assert View is ViewOfContext


def test_everything_in_the_order_of_the_store() -> None:
    view = filled().view()
    assert ids(view) == ["n1", "q1", "s1", "a1", "n2"]
    assert len(view) == 5
    assert view.artifacts == list(view)


def test_one_type_includes_its_subclasses() -> None:
    assert ids(filled().view(Note)) == ["n1", "s1", "n2"]
    assert ids(filled().view(SpecialNote)) == ["s1"]


def test_several_types_keep_the_order_of_the_store_and_name_each_artifact_once() -> None:
    context = filled()
    assert ids(context.view((Answer, Note))) == ["n1", "s1", "a1", "n2"]
    assert ids(context.view((SpecialNote, Note, Question))) == ["n1", "q1", "s1", "n2"]
    assert ids(context.view(())) == []


def test_an_update_does_not_move_an_artifact() -> None:
    context = filled()
    context.update("n1", Note(text="changed"))
    assert ids(context.view((Note, Question))) == ["n1", "q1", "s1", "n2"]


def test_condition_and_limit() -> None:
    context = filled()
    assert ids(context.view(Note, condition=lambda found: found.data.count > 1)) == ["s1", "n2"]
    assert ids(context.view(Note, condition=lambda found: found.data.count > 1, limit=1)) == ["s1"]
    assert ids(context.view(limit=2)) == ["n1", "q1"]
    assert ids(context.view(limit=0)) == []
    assert ids(context.view(Note, condition=lambda found: True, limit=0)) == []
    with pytest.raises(ValueError, match="0 or more"):
        context.view(limit=-1)


def test_a_view_does_not_change_the_context() -> None:
    context = filled()
    before = (context.snapshot(), context.version, len(context.pending_events()))
    context.view((Note, Answer), condition=lambda found: True).render()
    assert (context.snapshot(), context.version, len(context.pending_events())) == before


@pytest.mark.anyio
async def test_a_view_of_a_stored_session(place: Place) -> None:
    session = await place.store().open("s1")
    session.context.create(Note(text="one"), id="n1")
    session.context.create(Answer(text="two"), id="a1")
    await session.save()
    assert ids((await place.load("s1")).view((Answer, Note))) == ["n1", "a1"]


def test_render_writes_one_line_an_artifact() -> None:
    first, second = filled().view((Question, Answer)).render().splitlines()
    assert first == '[Question] q1 {"text": "why"}'
    assert second == '[Answer] a1 {"text": "because"}'


@pytest.mark.parametrize("text", ["two\nlines", "a\u2028b\u2029c\x85d\x0be\x1cf\r", "größer 茶"])
def test_a_line_stays_one_line_and_loses_nothing(text: str) -> None:
    context = Context()
    context.create(Question(text=text), id="q1")
    (line,) = context.view().render().splitlines()
    assert json.loads(line.removeprefix("[Question] q1 ")) == {"text": text}


def test_an_odd_id_is_quoted() -> None:
    context = Context()
    context.create(Question(text="x"), id="two\nlines")
    assert context.view().render() == r'[Question] "two\nlines" {"text": "x"}'


def test_render_cuts_to_exactly_the_number_of_characters() -> None:
    view = filled().view()
    whole = view.render()
    assert len(whole) > 40
    assert view.render(max_chars=40) == whole[:40]
    assert view.render(max_chars=len(whole) + 1) == whole
    assert view.render(max_chars=0) == ""
    with pytest.raises(ValueError, match="0 or more"):
        view.render(max_chars=-1)


def test_tokens_are_estimated_from_the_characters() -> None:
    view = filled().view()
    assert view.tokens_estimate == len(view.render()) // 4
    assert View([]).tokens_estimate == 1
    assert View([]).render() == ""
