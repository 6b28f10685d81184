"""Artifacts as text for the memory recipes: what a message says, and what stands in for a model.

Pure functions; the defaults of the recipes' options.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ..context.artifacts import Artifact
from ..context.codec import dump

OFFLINE = "(offline memory)"
"""What a text begins with that no model has written."""

_LONGEST_LINE = 200
_TEXT_FIELDS = ("text", "content", "summary")


def created_at(artifact: Artifact[Any]) -> datetime:
    """Return when an artifact was created: the default order of messages."""
    return artifact.created_at


def text_of(artifact: Artifact[Any]) -> str:
    """Return what an artifact says: its `text`, `content` or `summary`, else its fields as JSON."""
    for name in _TEXT_FIELDS:
        found = getattr(artifact.data, name, None)
        if isinstance(found, str):
            return found
    return json.dumps(dump(artifact.data), ensure_ascii=False, sort_keys=True)


def render_lines(artifacts: Iterable[Artifact[Any]]) -> str:
    """Return one line an artifact, headed by its `role`, `author` or `sender` where it has one."""
    return "\n".join(_line(artifact) for artifact in artifacts)


def _line(artifact: Artifact[Any]) -> str:
    said = " ".join(text_of(artifact).split())
    for name in ("role", "author", "sender"):
        who = getattr(artifact.data, name, None)
        if isinstance(who, str) and who:
            return f"{who}: {said}"
    return said


def offline_summary(text: str) -> str:
    """Return a summary that needs no model: the lines of the text, each cut to a bounded length."""
    return f"{OFFLINE} " + " | ".join(_cut(line) for line in text.splitlines() if line.strip())


def offline_digest(previous: str, stale: Iterable[Artifact[Any]]) -> str:
    """Return the digest so far with an offline part appended."""
    part = offline_summary(render_lines(stale))
    return f"{previous}\n{part}" if previous else part


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."
