"""A view: some artifacts of a context, and their text for a prompt or a person.

Owns the choice of artifacts by type, condition and number, and how they are written. It changes
nothing and notes no more reads than a listing of the same types does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from ..artifacts import Artifact
from ..types.codec import dump
from .working_copy import WorkingCopy

Types = type[BaseModel] | tuple[type[BaseModel], ...]

CHARACTERS_PER_TOKEN = 4

# Line ends that JSON leaves as they are: one artifact stays one line for every reader.
_LINE_ENDS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"})


class View:
    """Artifacts in the order they were given, with a compact text form."""

    def __init__(self, artifacts: Iterable[Artifact[Any]]) -> None:
        self.artifacts: list[Artifact[Any]] = list(artifacts)

    def __len__(self) -> int:
        return len(self.artifacts)

    def __iter__(self) -> Iterator[Artifact[Any]]:
        return iter(self.artifacts)

    def render(self, *, max_chars: int | None = None) -> str:
        """Return one line an artifact, `[Type] id {its fields as JSON}`.

        A text longer than `max_chars` characters is cut to exactly that many. Raises `ValueError`
        below 0.
        """
        if max_chars is not None and max_chars < 0:
            raise ValueError(f"cannot cut a view to {max_chars} characters: pass 0 or more")
        return "\n".join(_line(artifact) for artifact in self.artifacts)[:max_chars]

    @property
    def tokens_estimate(self) -> int:
        """About how many tokens the whole text takes: a quarter of its characters, at least 1."""
        return max(1, len(self.render()) // CHARACTERS_PER_TOKEN)

    def __repr__(self) -> str:
        return f"View({len(self.artifacts)} artifacts)"


def _line(artifact: Artifact[Any]) -> str:
    fields = json.dumps(dump(artifact.data), ensure_ascii=False, separators=(", ", ": "))
    # an id may hold anything: it is quoted where it would not stand as one word
    is_word = artifact.id.isprintable() and " " not in artifact.id
    name = artifact.id if is_word else json.dumps(artifact.id)
    return f"[{type(artifact.data).__name__}] {name} {fields}".translate(_LINE_ENDS)


def select(
    working: WorkingCopy,
    types: Types | None,
    condition: Callable[[Artifact[Any]], bool] | None,
    limit: int | None,
) -> View:
    """Return the first `limit` live artifacts of some types (subclasses included) that match."""
    if limit is not None and limit < 0:
        raise ValueError(f"cannot limit a view to {limit} artifacts: pass 0 or more")
    ids = _ids(working, types)
    if condition is None:
        return View(working.at(ids[:limit]))
    chosen: list[Artifact[Any]] = []
    for artifact_id in ids:
        if limit is not None and len(chosen) >= limit:
            break
        chosen += [artifact for artifact in working.at([artifact_id]) if condition(artifact)]
    return View(chosen)


def _ids(working: WorkingCopy, types: Types | None) -> Sequence[str]:
    """Return the ids of the artifacts of some types, each once, in order of creation."""
    if not isinstance(types, tuple):
        return working.ids(types)
    found = dict.fromkeys(artifact_id for kind in types for artifact_id in working.ids(kind))
    places: list[tuple[int, str]] = []
    for artifact_id in found:
        stored = working.state.stored(artifact_id)
        assert stored is not None
        places.append((stored.meta.sequence, artifact_id))
    return [artifact_id for _, artifact_id in sorted(places)]
