"""Questions to a human: those that are open, with a form that answers where this is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..._html.elements import Html, data, el
from ..._store import canonical
from ..._store.index import meta_at
from ..._store.layout import Meta
from ..._store.names import encode_name
from ..._store.object_db import Objects
from ..._store.state import State
from ..._store.trees import subtree
from ...interrupt import PendingQuestion
from ...types.ids import type_id_of
from ..asked import Asked
from ..frame import Page, chip, counted, empty, moment, pager
from ..paging import files

LOOKED_AT = 100
"""Questions that one page reads, answered ones included: nothing but reading them tells the two apart."""

QUESTION_TYPE = type_id_of(PendingQuestion)


@dataclass(frozen=True)
class Question:
    """A question that nobody has answered."""

    id: str
    meta: Meta
    data: dict[str, Any]


class Questions(NamedTuple):
    """The open ones among those that were looked at, the oldest first, and where the next page goes on."""

    items: list[Question]
    after: str | None


def open_questions(objects: Objects, state: State, after: str | None = None) -> Questions:
    """Return the open questions of a state, `LOOKED_AT` at a time in the order of their paths."""
    root = subtree(objects, state.roots.artifacts, (encode_name(QUESTION_TYPE),))
    page = files(objects, root, after, LOOKED_AT)
    objects.prefetch(blob for _, _, blob in page.items if blob is not None)
    found = []
    for path, _, blob in page.items:
        assert blob is not None
        question: Any = canonical.decode(objects.read(blob).data)
        if not question.get("answered"):
            meta = meta_at(objects, state.roots, path)
            found.append(Question(meta.id, meta, question))
    return Questions(sorted(found, key=lambda one: (one.meta.sequence, one.id)), page.after)


def questions_page(asked: Asked) -> Page:
    """Return the questions of a branch that are open."""
    found = open_questions(asked.database, asked.state(), asked.text("after"))
    older = None if found.after is None else asked.url("/questions", after=found.after)
    note = None
    if older is not None or asked.text("after"):
        note = (
            f"{LOOKED_AT} questions are looked at for one page; the answered ones among them are not shown."
        )
    body = [
        el(
            "div",
            el("h1", "Open questions"),
            el(
                "p",
                counted(len(found.items), "question"),
                " on branch ",
                chip(asked.head.branch, "branch"),
                class_="muted",
            ),
            class_="head",
        ),
        el("p", note, class_="muted") if note else None,
        el("ol", [_question(asked, one) for one in found.items], class_="stack") if found.items else None,
        None if found.items else empty("Nobody waits for an answer here."),
        pager(asked, older, "Look at more", asked.url("/questions") if asked.text("after") else None),
    ]
    return Page("Open questions", body, tab="/questions", is_live=asked.text("after") is None)


def _question(asked: Asked, one: Question) -> Html:
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
            class_="muted small",
        ),
        el("details", el("summary", "Notes"), data(notes)) if notes else None,
        _answer(asked, one),
        class_="card",
    )


def _answer(asked: Asked, one: Question) -> Html | None:
    if asked.secret is None:
        return None
    key = f"a-{one.meta.sequence}"
    return el(
        "form",
        el("input", type="hidden", name="secret", value=asked.secret),
        el("label", "Answer", for_=key),
        el("textarea", "", name="answer", id=key, rows=2, required=True),
        el(
            "fieldset",
            el("legend", "Is sent as"),
            _kind(key, "text", "a text", is_chosen=True),
            _kind(key, "json", "JSON"),
        ),
        el("button", "Answer", type="submit", class_="primary"),
        method="post",
        action=asked.url("/answer", b=asked.head.branch, id=one.id),
        class_="answer",
    )


def _kind(key: str, value: str, text: str, *, is_chosen: bool = False) -> Html:
    name = f"{key}-{value}"
    return el(
        "span",
        el("input", type="radio", name="kind", value=value, id=name, checked=is_chosen),
        el("label", text, for_=name),
    )
