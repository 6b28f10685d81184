"""HTML, for the inspector, audit reports and notebooks: elements with escaped texts, and the one style.

An element is a value, and every text in it is escaped where it is put in, so that none can be forgotten. A
text is shown as it is stored: what HTML would take for markup is escaped, and a character that steers a
terminal or turns the direction of a line stands there as `\\u202e`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

from .._text import plain, plain_lines


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | Iterable[Child] | None"
"""What an element may hold: HTML, texts, numbers, nothing, and lists of them."""

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


def el(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """Return an element. `class_` stands for the attribute `class`, `aria_label` for `aria-label`.

    An attribute that is `True` stands without a value, one that is `None` or `False` is left out.
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_attribute(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Return children one after another."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, str | int):
        return Html(escape(plain(str(children)), quote=False))
    return Html("".join(join(child) for child in children))


def lines(text: str) -> Html:
    """Return a text that keeps the ends of its lines, for a `pre`."""
    return Html(escape(plain_lines(text), quote=False))


def _attribute(value: str | int) -> str:
    return escape(plain(str(value)), quote=True)


# -- tables and values, as every page shows them --


def table(
    head: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    caption: Child = None,
    class_: str | None = None,
) -> Html:
    """Return a table with a header for each column."""
    return el(
        "table",
        None if caption is None else el("caption", caption),
        el("thead", el("tr", [el("th", cell, scope="col") for cell in head])),
        el("tbody", [el("tr", map(_cell, head, row)) for row in rows]),
        class_=class_,
    )


def _cell(name: Child, cell: Child) -> Html:
    """Return a cell that knows its column, for a width at which the head is not shown."""
    return el("td", cell, data_label=name if isinstance(name, str) else None)


def facts(rows: Iterable[tuple[Child, Child]], *, class_: str | None = None) -> Html:
    """Return a table of two columns whose rows have a header each."""
    body = [el("tr", el("th", name, scope="row"), el("td", value)) for name, value in rows]
    return el("table", el("tbody", body), class_=class_)


def moment(when: datetime | str | None) -> Html | None:
    """Return a time in UTC, to the second."""
    if when is None:
        return None
    at = (datetime.fromisoformat(when) if isinstance(when, str) else when).astimezone(UTC)
    return el("time", f"{at:%Y-%m-%d %H:%M:%S}", datetime=at.isoformat(timespec="seconds"))


def data(value: Any) -> Html:
    """Return a JSON value as indented text."""
    return el("pre", lines(json.dumps(value, ensure_ascii=False, indent=2)))


_LONG = 20_000


def inline(value: Any) -> Html:
    """Return a JSON value in one line; a long text keeps its lines."""
    if isinstance(value, str) and ("\n" in value or len(value) > 200):
        more = "" if len(value) <= _LONG else f"\n... ({len(value)} characters)"
        return el("pre", lines(value[:_LONG] + more), class_="prose")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"
    return el("code", shown, class_="text" if isinstance(value, str) else "json")


# -- a whole page: the head with its policy, and the style, linked or inside the page --


STYLE = "style.css"


@cache
def style() -> str:
    """Return the style sheet that every page has."""
    return files(__package__).joinpath(STYLE).read_text(encoding="utf-8")


def document(title: str, *body: Child, head: Child = None, class_: str | None = None) -> Html:
    """Return a page that `head` completes with its style."""
    page = el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            head,
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", title),
        ),
        el("body", *body, class_=class_),
        lang="en",
    )
    return Html(f"<!DOCTYPE html>\n{page}\n")


def self_contained(title: str, *body: Child, class_: str | None = None) -> Html:
    """Return a page with its style inside, and a policy that lets it load and run nothing at all."""
    text = style()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = [
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("style", Html(text)),
    ]
    return document(title, *body, head=head, class_=class_)
