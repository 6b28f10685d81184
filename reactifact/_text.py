"""Stored text made safe to show, in a terminal or on a page: without characters that steer either."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 300
"""How many characters of a value are shown to people."""


def plain(text: str) -> str:
    """Return a text in one line and without control characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def plain_lines(text: str) -> str:
    """Return a text without control characters other than the ends of its lines.

    Of JSON it leaves the meaning: there they stand inside strings, as escapes.
    """
    return text if text.isascii() and text.isprintable() else "\n".join(map(plain, text.split("\n")))


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"


def value(data: Any) -> str:
    """Return a JSON value in one line, cut where it is long."""
    text = plain(json.dumps(data, ensure_ascii=False))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"
