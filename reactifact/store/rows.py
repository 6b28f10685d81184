"""What the SQL stores share: objects as rows, and the plan of a write that moves refs.

Pure functions and small values. How rows are read and written, and what makes a write atomic, is
the business of each store.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ..errors import Contention, MissingObject, StoreError
from . import canonical
from .checks import check_objects, check_oid, check_ref_name, name_in_the_way, parent_names
from .names import encode_name
from .objects import GitObject, Kind, Oid, object_id
from .protocol import RefUpdate

T = TypeVar("T")

SCHEMA_VERSION = 1
"""The tables this version writes; a store with a greater one is refused."""

_NUMBERS: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}  # as git's packs number them
_KINDS: dict[int, Kind] = {number: kind for kind, number in _NUMBERS.items()}
_COMPRESSED_FROM = 256  # bytes; below it zlib saves less than a row costs
_LEVEL = 1
_AFTER_ALL = "\U0010ffff" * 4


class ObjectRow(NamedTuple):
    """One object as it is stored: `data` is compressed where it is shorter than `size`."""

    oid: bytes
    kind: int
    size: int
    data: bytes


def object_row(oid: Oid, item: GitObject) -> ObjectRow:
    """Return the row of one object."""
    data = item.data
    if len(data) >= _COMPRESSED_FROM:
        packed = zlib.compress(data, _LEVEL)
        data = packed if len(packed) < len(data) else data
    return ObjectRow(bytes.fromhex(oid), _NUMBERS[item.kind], len(item.data), data)


def object_of(row: Sequence[Any], location: str) -> tuple[Oid, GitObject]:
    """Return the object of a row, checked against its id. Raises `StoreError` for a damaged one."""
    oid = bytes(row[0]).hex()
    try:
        data = bytes(row[3]) if len(row[3]) == row[2] else zlib.decompress(row[3])
        kind = _KINDS[row[1]]
        damaged = object_id(kind, data) != oid
    except (zlib.error, KeyError):
        damaged = True
    if damaged:
        raise StoreError(
            f"object {oid} in {location} is damaged: its row does not hold what its id says; "
            f"restore it from a copy or a backup of the store"
        )
    return oid, GitObject(kind, data)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield `items` in lists of at most `size`."""
    waiting = iter(items)
    while batch := list(islice(waiting, size)):
        yield batch


def name_range(prefix: str) -> tuple[str, str] | None:
    """Return the first and the last name that can start with `prefix`; `None` where none can."""
    try:
        prefix.encode()
    except UnicodeEncodeError:
        return None
    return None if "\0" in prefix else (prefix, prefix + _AFTER_ALL)


def check_write(objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> None:
    """Refuse what no store accepts. Raises `StoreError` or `InvalidName`."""
    check_objects(objects)
    for update in updates:
        check_ref_name(update.name)
        if update.new is not None:
            check_oid(update.new)


@dataclass(frozen=True)
class RefView:
    """The refs of a store inside the transaction that is to move them."""

    location: str
    current: Mapping[str, Oid]  # of the names in question
    known: Callable[[list[Oid]], set[Oid]]  # those of some ids that are stored
    beneath: Callable[[str, int], list[str]]  # stored refs in the folder of that name, so many at most
    stored: Callable[[list[str]], set[str]]  # those of some names that are stored


@dataclass
class RefPlan:
    """What a write does to each ref, in order of name."""

    changes: dict[str, Oid | None] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)


def plan_refs(view: RefView, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> RefPlan:
    """Compare every expectation with what is stored, all before any moves.

    Raises `Contention`, `MissingObject`, or `StoreError` for a name that would be the folder of
    another.
    """
    changes = dict[str, Oid | None]()
    for name, expected, new in updates:
        current = changes[name] if name in changes else view.current.get(name)
        if current != expected:
            raise Contention(
                f"ref {name} in {view.location} holds {current or 'nothing'}, not "
                f"{expected or 'nothing'}: somebody moved it; load it again and retry"
            )
        changes[name] = new
    targets = sorted({update.new for update in updates if update.new is not None} - objects.keys())
    if targets:
        known = view.known(targets)
        for target in targets:
            if target not in known:
                raise MissingObject(target, view.location)
    changes = {name: new for name, new in sorted(changes.items()) if new != view.current.get(name)}
    created = [name for name, new in changes.items() if new is not None and name not in view.current]
    for name in created:
        _refuse_name_in_the_way(view, name, changes)
    return RefPlan(changes, created)


def _refuse_name_in_the_way(view: RefView, name: str, changes: Mapping[str, Oid | None]) -> None:
    parents = list(parent_names(name))
    stored = [*view.stored(parents), *view.beneath(name, len(changes) + 1)]
    planned = [other for other in changes if other in parents or other.startswith(name + "/")]
    for other in (*stored, *planned):
        if changes.get(other, other) is not None:  # it is there, and this write does not remove it
            raise name_in_the_way(name, other, view.location)


def value_row(key: str, value: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return name and bytes of one value. Raises `InvalidName`, `ValueError`, `TypeError`."""
    return encode_name(key), canonical.encode({"key": key, "value": value})


def value_of(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the key and the value in the bytes of a row."""
    record: Any = canonical.decode(data)
    return record["key"], record["value"]
