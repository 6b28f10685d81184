"""How differences look: field by field, long texts word by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..._html import Child, Html, el, inline, lines
from ..._store._history.diff import FieldChange, diff_values

_LONG_TEXT = 40
_TOO_LONG = 20_000
"""Characters of a text up to which its words are compared; beyond, both are shown whole."""

SHOWN = 200
"""Fields of one artifact that a page shows."""

_WORDS = re.compile(r"\s+|[^\s\w]|\w+")


def field_table(changes: Iterable[FieldChange]) -> Html:
    """Return a table of fields that differ."""
    rows = []
    more = 0
    for number, change in enumerate(changes):
        if number >= SHOWN:
            more += 1
            continue
        rows.append(
            el(
                "tr",
                el("th", el("code", change.path or "(whole)"), scope="row"),
                el("td", None if change.kind == "added" else _old(change), class_="old"),
                el("td", None if change.kind == "removed" else _new(change), class_="new"),
                class_=change.kind,
            )
        )
    if not rows:
        return el("p", "Nothing differs.", class_="empty")
    return el(
        "div",
        el(
            "table",
            el("thead", el("tr", *(el("th", name, scope="col") for name in ("Field", "Before", "After")))),
            el("tbody", rows),
            class_="fields",
        ),
        el("p", f"and {more} more fields", class_="muted") if more else None,
    )


def data_difference(old: Any, new: Any) -> Html:
    """Return what differs between two JSON values."""
    return field_table(diff_values(old, new))


def _is_prose(change: FieldChange) -> bool:
    both = (change.old, change.new)
    return (
        change.kind == "changed"
        and all(isinstance(side, str) and len(side) <= _TOO_LONG for side in both)
        and max(map(len, both)) > _LONG_TEXT
    )


def _old(change: FieldChange) -> Html:
    return (
        el("pre", _words(change.old, change.new, "delete", "del"), class_="prose")
        if _is_prose(change)
        else inline(change.old)
    )


def _new(change: FieldChange) -> Html:
    return (
        el("pre", _words(change.old, change.new, "insert", "ins"), class_="prose")
        if _is_prose(change)
        else inline(change.new)
    )


def _words(old: str, new: str, kind: str, mark: str) -> Iterator[Child]:
    """Yield one side of two texts, with what the other lacks marked."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=len(before) + len(after) > 2000)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        text = "".join(before[i1:i2] if kind == "delete" else after[j1:j2])
        if tag == "equal":
            yield lines(text)
        elif text:
            yield el(mark, lines(text))
