"""A view: some artifacts of a context, and their text for a prompt or a person.

Owns the choice of artifacts by type, condition and number, and how they are written. It changes
nothing and notes no more reads than a listing of the same types does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from pydantic import BaseModel

from .._html import Child, Html, facts, inline, join, table
from .._store import canonical
from .._store.branch import Branch
from .._store.trees import walk
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

    def _repr_html_(self) -> Html:
        """Return a row for each artifact, for a notebook."""
        rows: list[list[Child]] = [
            [artifact.id, artifact.data_type, artifact.version, inline(dump(artifact.data))]
            for artifact in self.artifacts
        ]
        return table(_HEAD, rows)


def _line(artifact: Artifact[Any]) -> str:
    fields = json.dumps(dump(artifact.data), ensure_ascii=False, separators=(", ", ": "))
    # an id may hold anything: it is quoted where it would not stand as one word
    is_word = artifact.id.isprintable() and " " not in artifact.id
    name = artifact.id if is_word else json.dumps(artifact.id)
    return f"[{type(artifact.data).__name__}] {name} {fields}".translate(_LINE_ENDS)


# -- a whole context in a notebook --


_HEAD = ("Artifact", "Type", "Version", "Data")
_SHOWN = 20
_COUNTED = 1000
"""Artifacts up to which a context is counted, and its newest are shown, when it is only looked at."""


def as_tables(line: Branch, working: WorkingCopy) -> Html:
    """Return where a context stands, and its newest artifacts. Notes no read, and needs no class."""
    state = working.state
    known = facts(
        [
            ("session", line.session),
            ("branch", line.branch),
            ("version", line.version),
            ("waiting actions", len(state.waiting())),
        ]
    )
    stored = sum(1 for _ in islice(walk(state.objects, state.roots.artifacts), _COUNTED + 1))
    if stored > _COUNTED:
        types = [[type_id] for type_id in state.type_ids()]
        return join([known, table(["Type"], types, caption=f"more than {_COUNTED} artifacts")])
    ids = state.ids_of(state.type_ids())
    rows: list[list[Child]] = []
    for artifact_id in ids[-_SHOWN:]:
        found = state.stored(artifact_id)
        assert found is not None
        data = canonical.decode(state.payload(found.meta))
        rows.append([artifact_id, found.meta.type_id, working.version_of(found.meta), inline(data)])
    caption = f"the newest {len(rows)} of {len(ids)} artifacts" if len(ids) > len(rows) else None
    return join([known, table(_HEAD, rows, caption=caption)])


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
