"""What the SQL stores share: objects as rows, and the plan of a write that moves refs.

Pure functions and small values. How rows are read and written, and what makes a write atomic, is
the business of each store.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ..errors import Contention, MissingObject, StoreError
from . import canonical
from .checks import check_objects, check_oid, check_ref_name, name_in_the_way, parent_names
from .names import encode_name
from .objects import GitObject, Kind, Oid, object_id, references
from .protocol import RefUpdate

T = TypeVar("T")

SCHEMA_VERSION = 2
"""The tables this version writes; a store with a greater one is refused, a lesser one brought up to it."""

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
class RefQuestions:
    """What has to be read, inside its transaction, before a write may move refs; each in order."""

    names: list[str]  # of the refs that move
    created: list[str]  # those that are expected not to be there
    parents: list[str]  # names that are folders of those created
    targets: list[Oid]  # what refs are to point at and the write does not bring


@dataclass(frozen=True)
class RefView:
    """The answers: the refs of a store inside the transaction that is to move them."""

    location: str
    current: Mapping[str, Oid]  # of `names`, those that are there
    known: Set[Oid]  # of `targets`, those that are stored
    around: Set[str]  # stored refs: of `parents`, and some in the folders of `created`


def ref_questions(objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> RefQuestions:
    """Return what has to be read for a write."""
    first: dict[str, Oid | None] = {}
    for update in updates:
        first.setdefault(update.name, update.expected)
    created = sorted(name for name, expected in first.items() if expected is None)
    return RefQuestions(
        names=sorted(first),
        created=created,
        parents=sorted({parent for name in created for parent in parent_names(name)}),
        targets=sorted({update.new for update in updates if update.new is not None} - objects.keys()),
    )


def plan_refs(
    view: RefView, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]
) -> dict[str, Oid | None]:
    """Compare every expectation with what is stored; return what changes, in order of name.

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
    for update in updates:
        if update.new is not None and update.new not in objects and update.new not in view.known:
            raise MissingObject(update.new, view.location)
    changes = {name: new for name, new in sorted(changes.items()) if new != view.current.get(name)}
    for name, new in changes.items():
        if new is not None and name not in view.current:
            _refuse_name_in_the_way(view, name, changes)
    return changes


def _refuse_name_in_the_way(view: RefView, name: str, changes: Mapping[str, Oid | None]) -> None:
    parents = set(parent_names(name))
    others = (o for o in (*view.around, *changes) if o in parents or o.startswith(name + "/"))
    for other in others:
        if changes.get(other, other) is not None:  # it is there, and this write does not remove it
            raise name_in_the_way(name, other, view.location)


def require_known(objects: Mapping[Oid, GitObject], known: Set[Oid], location: str) -> None:
    """Refuse objects that refer to what a prune has taken since it was read. Raises `Contention`."""
    for oid in referred_beyond(objects):
        if oid not in known:
            raise Contention(
                f"object {oid} was pruned from {location} after it had been read: no branch reached it any "
                f"more, and this write rests on it; load what you work on again and retry"
            )


def referred_beyond(objects: Mapping[Oid, GitObject]) -> list[Oid]:
    """Return the ids that some objects refer to and that are not among them, in order."""
    return sorted({oid for item in objects.values() for oid, _ in references(item)} - objects.keys())


def value_row(key: str, value: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return name and bytes of one value. Raises `InvalidName`, `ValueError`, `TypeError`."""
    return encode_name(key), canonical.encode({"key": key, "value": value})


def value_of(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the key and the value in the bytes of a row."""
    record: Any = canonical.decode(data)
    return record["key"], record["value"]
