"""Questions to a human: those that are open, with a form that answers where this is allowed.

A question that was asked with a model is answered by that model's fields, or by one of its options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ..._html import Child, Html, data, el
from ..._store import canonical
from ..._store.index import meta_at
from ..._store.layout import Meta
from ..._store.names import encode_name
from ..._store.object_db import Objects
from ..._store.state import State
from ...errors import AnswerInvalid
from ...interrupt import PendingQuestion, TypedQuestion
from ...types.ids import type_id_of
from ...types.registry import known_model
from .. import forms
from ..asked import Asked, BadQuery
from ..forms import Sent
from ..frame import Page, chip, counted, empty, moment, pager, span
from ..paging import files

LOOKED_AT = 100
"""Questions that one page reads, answered ones included: nothing but reading them tells the two apart."""

_TYPES = frozenset(encode_name(type_id_of(model)) for model in (PendingQuestion, TypedQuestion))


@dataclass(frozen=True)
class Question:
    """A question as it is stored. `now` is the time that its deadline is held against."""

    id: str
    meta: Meta
    data: Mapping[str, Any]
    now: datetime

    @property
    def status(self) -> Literal["open", "answered", "expired"]:
        """How it stands."""
        if self.data.get("answered"):
            return "answered"
        is_over = self.deadline is not None and self.now >= self.deadline
        return "expired" if self.data.get("expired") or is_over else "open"

    @property
    def deadline(self) -> datetime | None:
        """Until when it is open."""
        found = self.data.get("deadline")
        return datetime.fromisoformat(found) if isinstance(found, str) else None

    @property
    def answer_type(self) -> str | None:
        """The type id of the model that an answer has to be; `None` where anything will do."""
        return self.data.get("answer_type")

    @property
    def labels(self) -> list[str]:
        """The labels of the only answers that are taken; none where there is no such limit."""
        return [str(option["label"]) for option in self.data.get("options") or ()]


class Questions(NamedTuple):
    """The unanswered ones among those that were looked at, the oldest first; where the next page goes on."""

    items: list[Question]
    after: str | None

    @property
    def open(self) -> list[Question]:
        """Those that still take an answer."""
        return [one for one in self.items if one.status == "open"]


def unanswered_questions(
    objects: Objects, state: State, now: datetime, after: str | None = None
) -> Questions:
    """Return the unanswered questions of a state, `LOOKED_AT` at a time in the order of their paths."""
    page = files(objects, state.roots.artifacts, after, LOOKED_AT, _TYPES)
    objects.prefetch(blob for _, _, blob in page.items if blob is not None)
    found = []
    for path, _, blob in page.items:
        assert blob is not None
        question: Any = canonical.decode(objects.read(blob).data)
        if not question.get("answered"):
            meta = meta_at(objects, state.roots, path[1:])
            found.append(Question(meta.id, meta, question, now))
    return Questions(sorted(found, key=lambda one: (one.meta.sequence, one.id)), page.after)


def questions_page(asked: Asked) -> Page:
    """Return the questions of a branch that nobody has answered."""
    found = unanswered_questions(asked.database, asked.state(), asked.now, asked.text("after"))
    older = None if found.after is None else asked.url("/questions", after=found.after)
    note = None
    if older is not None or asked.text("after"):
        note = (
            f"{LOOKED_AT} questions are looked at for one page; the answered ones among them are not shown."
        )
    expired = [one for one in found.items if one.status == "expired"]
    body = [
        el(
            "div",
            el("h1", "Open questions"),
            el(
                "p",
                counted(len(found.open), "question"),
                " on branch ",
                chip(asked.head.branch, "branch"),
                class_="muted",
            ),
            class_="head",
        ),
        el("p", note, class_="muted") if note else None,
        _listed(asked, found.open) if found.open else empty("Nobody waits for an answer here."),
        el("section", el("h2", "Expired without an answer"), _listed(asked, expired)) if expired else None,
        pager(asked, older, "Look at more", asked.url("/questions") if asked.text("after") else None),
    ]
    return Page("Open questions", body, tab="/questions", is_live=asked.text("after") is None)


def read_question(asked: Asked, question_id: str) -> Question | None:
    """Return one question of the branch, `None` where the id is absent or that of something else."""
    stored = asked.state(asked.head.commit).stored(question_id)
    if stored is None or encode_name(stored.meta.type_id) not in _TYPES:
        return None
    found: Any = canonical.decode(asked.database.read(stored.meta.payload).data)
    return Question(question_id, stored.meta, found, asked.now)


def given_answer(question: Question | None, sent: Sent) -> tuple[Any, str | None]:
    """Return the answer that a form carries: its data, and the label of an option.

    Raises `BadQuery` for what is not JSON, `AnswerInvalid` for no option.
    """
    text = (sent.get("answer") or [""])[-1].replace("\r\n", "\n")  # a browser sends lines so
    if question is None or question.answer_type is None:
        if (sent.get("kind") or ["text"])[-1] != "json":
            return text, None
        try:
            return json.loads(text), None
        except ValueError as error:
            raise BadQuery(f"The answer is not JSON: {error}.") from error
    if question.labels:
        number = (sent.get("option") or [""])[-1]
        if not number.isascii() or not number.isdigit() or int(number) >= len(question.labels):
            raise AnswerInvalid(f"question {question.id!r} takes one of its options: choose one")
        return None, question.labels[int(number)]
    return forms.answer_of(_form(question), sent), None


def refused_page(asked: Asked, question: Question, sent: Sent, error: AnswerInvalid) -> Page:
    """Return the page of one question whose answer was not taken, with what was typed and what is wrong."""
    body = [
        el("h1", "Not what was asked for"),
        el("p", "Nothing was written; the question is still open.", class_="notice bad", role="alert"),
        el("ol", _question(asked, question, sent, error), class_="stack"),
        el("p", asked.link("All open questions", "/questions", "button")),
    ]
    return Page("Not what was asked for", body, tab="/questions", status=422)


def _listed(asked: Asked, questions: list[Question]) -> Html:
    return el("ol", [_question(asked, one) for one in questions], class_="stack")


def _question(
    asked: Asked, one: Question, sent: Sent | None = None, error: AnswerInvalid | None = None
) -> Html:
    notes = one.data.get("notes")
    return el(
        "li",
        el("p", one.data.get("question", ""), class_="question"),
        el(
            "p",
            chip(one.data.get("kind", "general"), "ask"),
            " ",
            asked.artifact(one.id),
            " asked by ",
            el("b", one.meta.author),
            " at ",
            moment(one.meta.created_at),
            [" · answered with a ", el("code", one.answer_type)] if one.answer_type else None,
            class_="muted small",
        ),
        _until(one),
        el("details", el("summary", "Notes"), data(notes)) if notes else None,
        _answer(asked, one, sent, error) if one.status == "open" else None,
        class_="card",
    )


def _until(one: Question) -> Html | None:
    if one.status == "expired":
        when = ["it was open until ", moment(one.deadline)] if one.deadline is not None else None
        return el("p", chip("expired", "bad"), " ", when, class_="small")
    if one.deadline is None:
        return None
    left = span((one.deadline - one.now).total_seconds())
    return el("p", chip(f"{left} left", "wait"), " open until ", moment(one.deadline), class_="small")


def _answer(asked: Asked, one: Question, sent: Sent | None, error: AnswerInvalid | None) -> Html | None:
    if asked.secret is None:
        return None
    if one.answer_type is not None and known_model(one.answer_type) is None:
        return el(
            "p",
            "An answer is validated by the model ",
            el("code", one.answer_type),
            ", which this server does not have: start it with --models and the name of its module.",
            class_="notice",
        )
    key = f"a-{one.meta.sequence}"
    return el(
        "form",
        el("input", type="hidden", name="secret", value=asked.secret),
        _fields(one, key, sent, error),
        el("button", "Answer", type="submit", class_="primary"),
        method="post",
        action=asked.url("/answer", b=asked.head.branch, id=one.id),
        class_="answer",
    )


def _fields(one: Question, key: str, sent: Sent | None, error: AnswerInvalid | None) -> Child:
    if one.answer_type is None:
        return [
            el("label", "Answer", for_=key),
            el("textarea", "", name="answer", id=key, rows=2, required=True),
            el(
                "fieldset",
                el("legend", "Is sent as"),
                _radio(f"{key}-text", "kind", "text", "a text", is_chosen=True),
                _radio(f"{key}-json", "kind", "json", "JSON"),
            ),
        ]
    if one.labels:
        options = [
            _radio(f"{key}-{number}", "option", str(number), label) for number, label in enumerate(one.labels)
        ]
        said = None if error is None else [str(error)]
        return [el("fieldset", el("legend", "Answer"), options), forms.problem(said, key)]
    form = _form(one)
    faults = {} if error is None else forms.faults_by_field(form, error.faults)
    above = None if form.inner is None else forms.problem(faults.get(form.name), key)
    return [above, forms.shown(form, key, sent, faults)]


def _form(one: Question) -> forms.Field:
    """Return the form of an answer: by the model that validates it, as its fields stand there in order."""
    model = None if one.answer_type is None else known_model(one.answer_type)
    return forms.form_of(one.data["answer_schema"] if model is None else model.model_json_schema())


def _radio(key: str, name: str, value: str, text: str, *, is_chosen: bool = False) -> Html:
    return el(
        "span",
        el("input", type="radio", name=name, value=value, id=key, checked=is_chosen, required=True),
        el("label", text, for_=key),
    )
