"""A difference between two states as lines for people.

Owns the wording and the order. Colours and the terminal are the command line's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from .diff import ArtifactState, FieldChange, RelationState, StateDiff
from .printable import plain, value


class DiffLine(NamedTuple):
    """One line, and what it speaks of. A line about a field that differs has the kind `field`."""

    kind: Literal["added", "removed", "changed", "field"]
    text: str


def lines(found: StateDiff) -> Iterator[DiffLine]:
    """Yield what differs: artifacts removed, added, changed with their fields, then relations."""
    for gone in found.removed:
        yield from _whole("removed", "-", gone)
    for came in found.added:
        yield from _whole("added", "+", came)
    for changed in found.changed:
        kind = changed.new_type
        if changed.old_type != kind:
            kind = f"{changed.old_type} -> {kind}"
        versions = f"v{changed.old_version} -> v{changed.new_version}"
        yield DiffLine("changed", f"~ {plain(changed.id)}  {plain(kind)}  {versions}")
        for field in changed.fields:
            yield _field(field)
    for relation in found.relations_removed:
        yield DiffLine("removed", f"- {_relation(relation)}")
    for relation in found.relations_added:
        yield DiffLine("added", f"+ {_relation(relation)}")


def _whole(kind: Literal["added", "removed"], sign: str, found: ArtifactState) -> Iterator[DiffLine]:
    yield DiffLine(kind, f"{sign} {plain(found.id)}  {plain(found.type)}  v{found.version}")
    if isinstance(found.data, dict):
        for name, data in found.data.items():
            yield DiffLine("field", f"    {plain(name)}: {value(data)}")
    else:
        yield DiffLine("field", f"    {value(found.data)}")


def _field(field: FieldChange) -> DiffLine:
    path = plain(field.path) or "(whole)"
    if field.kind == "added":
        return DiffLine("added", f"    + {path}: {value(field.new)}")
    if field.kind == "removed":
        return DiffLine("removed", f"    - {path}: {value(field.old)}")
    return DiffLine("field", f"    {path}: {value(field.old)} -> {value(field.new)}")


def _relation(found: RelationState) -> str:
    return plain(f"{found.source} -[{found.relation}]-> {found.target}")
