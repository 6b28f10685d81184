"""What differs between two states, artifact by artifact and field by field, and the same as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from ..._store import canonical
from ..layout import Meta, Roots, decode_edges
from ..names import plain, value
from ..object_db import Objects
from ..objects import Oid
from ..trees import compare, read_differences

# -- what differs between two states: artifacts by id, their fields by path, relations --


_PLAIN_KEY = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. `path` is like `address.lines[0]`; the whole value has the path ``.

    `old` is `None` for a field that was added, `new` for one that was removed: `kind` tells a JSON
    null from nothing.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class ArtifactState:
    """An artifact that only one of the two states has, with its data there."""

    id: str
    type: str
    version: int
    data: Any


@dataclass(frozen=True, slots=True)
class ArtifactChange:
    """An artifact that both states have, with different data or another type."""

    id: str
    old_type: str
    new_type: str
    old_version: int
    new_version: int
    fields: tuple[FieldChange, ...]


class RelationState(NamedTuple):
    """A relation that only one of the two states has."""

    source: str
    relation: str
    target: str


@dataclass(frozen=True, slots=True)
class StateDiff:
    """The difference between two states, each part sorted by id."""

    added: tuple[ArtifactState, ...]
    removed: tuple[ArtifactState, ...]
    changed: tuple[ArtifactChange, ...]
    relations_added: tuple[RelationState, ...]
    relations_removed: tuple[RelationState, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the states are equal."""
        return not any(getattr(self, name) for name in self.__slots__)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "artifacts": {
                "added": [asdict(found) for found in self.added],
                "removed": [asdict(found) for found in self.removed],
                "changed": [{**asdict(c), "fields": [asdict(f) for f in c.fields]} for c in self.changed],
            },
            "relations": {
                "added": [found._asdict() for found in self.relations_added],
                "removed": [found._asdict() for found in self.relations_removed],
            },
        }


def diff_states(objects: Objects, old: Roots, new: Roots) -> StateDiff:
    """Compare two states. Costs what differs between them. Raises `MissingObject`."""
    added: list[ArtifactState] = []
    removed: list[ArtifactState] = []
    changed: list[ArtifactChange] = []
    read_differences(objects, (old.meta, new.meta), (old.relations, new.relations), files=True)
    pairs = [
        (_meta(objects, left), _meta(objects, right))
        for _, left, right in compare(objects, old.meta, new.meta)
    ]
    pairs = [(a, b) for a, b in pairs if a is None or b is None or _differ(a, b)]
    objects.prefetch({meta.payload for pair in pairs for meta in pair if meta is not None})
    for before, after in pairs:
        if before is None and after is not None:
            added.append(_whole(objects, after))
        elif after is None and before is not None:
            removed.append(_whole(objects, before))
        elif before is not None and after is not None:
            changed.append(_change(objects, before, after))
    came, gone = _relations(objects, old.relations, new.relations)
    return StateDiff(
        added=tuple(sorted(added, key=lambda found: found.id)),
        removed=tuple(sorted(removed, key=lambda found: found.id)),
        changed=tuple(sorted(changed, key=lambda found: found.id)),
        relations_added=came,
        relations_removed=gone,
    )


def diff_values(old: Any, new: Any, path: str = "") -> Iterator[FieldChange]:
    """Yield what differs between two JSON values, in order of the paths.

    Lists of one length are compared item by item. In others, what both begin and end with is left
    out; if that leaves items on both sides, the list is one change as a whole.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _diff_objects(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _diff_lists(old, new, path)
    elif not same_value(old, new):
        yield FieldChange(path, "changed", old, new)


def _diff_objects(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[FieldChange]:
    for key in sorted(old.keys() | new.keys()):
        below = join_path(path, key)
        if key not in old:
            yield FieldChange(below, "added", None, new[key])
        elif key not in new:
            yield FieldChange(below, "removed", old[key], None)
        else:
            yield from diff_values(old[key], new[key], below)


def _diff_lists(old: list[Any], new: list[Any], path: str) -> Iterator[FieldChange]:
    if len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from diff_values(left, right, f"{path}[{index}]")
        return
    start, end = common_ends(old, new)
    if start + end < min(len(old), len(new)):
        yield FieldChange(path, "changed", old, new)
        return
    for index in range(start, len(old) - end):
        yield FieldChange(f"{path}[{index}]", "removed", old[index], None)
    for index in range(start, len(new) - end):
        yield FieldChange(f"{path}[{index}]", "added", None, new[index])


def common_ends(old: list[Any], new: list[Any]) -> tuple[int, int]:
    """Return how many items two lists share at the start, and how many of the others at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and same_value(old[start], new[start]):
        start += 1
    end = 0
    while end < shorter - start and same_value(old[-1 - end], new[-1 - end]):
        end += 1
    return start, end


def same_value(old: Any, new: Any) -> bool:
    """Compare as stored: `1`, `1.0` and `true` are three values in JSON, but equal in Python."""
    if isinstance(old, dict | list) or isinstance(new, dict | list):
        return type(old) is type(new) and canonical.encode(old) == canonical.encode(new)
    return type(old) is type(new) and bool(old == new)


def join_path(path: str, key: str) -> str:
    """Return the path of a member of a JSON object."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def _meta(objects: Objects, oid: Oid | None) -> Meta | None:
    return None if oid is None else Meta.decode(objects.read(oid).data)


def _differ(before: Meta, after: Meta) -> bool:
    return before.payload != after.payload or before.type_id != after.type_id


def _data(objects: Objects, meta: Meta) -> Any:
    return canonical.decode(objects.read(meta.payload).data)


def _whole(objects: Objects, meta: Meta) -> ArtifactState:
    return ArtifactState(meta.id, meta.type_id, meta.version, _data(objects, meta))


def _change(objects: Objects, before: Meta, after: Meta) -> ArtifactChange:
    fields = tuple(diff_values(_data(objects, before), _data(objects, after)))
    return ArtifactChange(before.id, before.type_id, after.type_id, before.version, after.version, fields)


def _relations(
    objects: Objects, old: Oid | None, new: Oid | None
) -> tuple[tuple[RelationState, ...], tuple[RelationState, ...]]:
    before: set[RelationState] = set()
    after: set[RelationState] = set()
    for _, left, right in compare(objects, old, new):
        for oid, into in ((left, before), (right, after)):
            if oid is not None:
                source, edges = decode_edges(objects.read(oid).data)
                into |= {RelationState(source, edge.relation, edge.target) for edge in edges}
    return tuple(sorted(after - before)), tuple(sorted(before - after))


# -- A difference between two states as lines for people --


class DiffLine(NamedTuple):
    """One line, and what it speaks of. A line about a field that differs has the kind `field`."""

    kind: Literal["added", "removed", "changed", "field"]
    text: str
    field: FieldChange | None = None


def lines(found: StateDiff) -> Iterator[DiffLine]:
    """Yield what differs: artifacts removed, added, changed with their fields, then relations."""
    for gone in found.removed:
        yield from _difftext_whole("removed", "-", gone)
    for came in found.added:
        yield from _difftext_whole("added", "+", came)
    for changed in found.changed:
        kind = changed.new_type
        if changed.old_type != kind:
            kind = f"{changed.old_type} -> {kind}"
        versions = f"v{changed.old_version} -> v{changed.new_version}"
        yield DiffLine("changed", f"~ {plain(changed.id)}  {plain(kind)}  {versions}")
        for field in changed.fields:
            yield field_line(field)
    for relation in found.relations_removed:
        yield DiffLine("removed", f"- {_relation(relation)}")
    for relation in found.relations_added:
        yield DiffLine("added", f"+ {_relation(relation)}")


def _difftext_whole(kind: Literal["added", "removed"], sign: str, found: ArtifactState) -> Iterator[DiffLine]:
    yield DiffLine(kind, f"{sign} {plain(found.id)}  {plain(found.type)}  v{found.version}")
    if isinstance(found.data, dict):
        for name, data in found.data.items():
            yield DiffLine("field", f"    {plain(name)}: {value(data)}")
    else:
        yield DiffLine("field", f"    {value(found.data)}")


def field_line(field: FieldChange) -> DiffLine:
    """Return what became of a field in one line."""
    path = plain(field.path) or "(whole)"
    if field.kind == "added":
        return DiffLine("added", f"    + {path}: {value(field.new)}", field)
    if field.kind == "removed":
        return DiffLine("removed", f"    - {path}: {value(field.old)}", field)
    return DiffLine("field", f"    {path}: {value(field.old)} -> {value(field.new)}", field)


def _relation(found: RelationState) -> str:
    return plain(f"{found.source} -[{found.relation}]-> {found.target}")
