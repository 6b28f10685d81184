"""Objects and values as rows of a table, and what rows refer to beyond themselves.

Pure functions and small values. How rows are read and written, and what makes a write atomic, is the
business of each store.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ...errors import Contention, DamagedRef, StoreError
from .. import canonical
from ..names import encode_name
from ..objects import GitObject, Kind, Oid, inflate, object_id, references, require_size

T = TypeVar("T")

SCHEMA_VERSION = 2
"""The tables this version writes; a store with a greater one is refused, a lesser one brought up to it."""

_NUMBERS: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}  # as git's packs number them
_KINDS: dict[int, Kind] = {number: kind for kind, number in _NUMBERS.items()}
_COMPRESSED_FROM = 256  # bytes; below it zlib saves less than a row costs
_LEVEL = 1
_OID_BYTES = 20
_SHOWN = 60
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


def object_of(row: Sequence[Any], location: str, max_object: int) -> tuple[Oid, GitObject]:
    """Return the object of a row, checked against its id.

    Raises `StoreError` for a damaged one, `ObjectTooLarge` for one of more than `max_object` bytes.
    """
    oid = bytes(row[0]).hex()
    try:
        require_size(f"object {oid} in {location}", row[2], max_object)
        data = bytes(row[3]) if len(row[3]) == row[2] else inflate(row[3], row[2])
        kind = _KINDS[row[1]]
        damaged = object_id(kind, data) != oid
    except (
        ValueError,
        OverflowError,
        KeyError,
        TypeError,
    ):  # SQLite keeps a text in a column of bytes, if told to
        damaged = True
    if damaged:
        raise StoreError(
            f"object {oid} in {location} is damaged: its row does not hold what its id says; "
            f"restore it from a copy or a backup of the store"
        )
    return oid, GitObject(kind, data)


def ref_oid(name: Any, held: Any, location: str) -> Oid:
    """Return the id in a row of a ref. Raises `DamagedRef`."""
    if isinstance(held, bytes) and len(held) == _OID_BYTES:
        return held.hex()
    raise DamagedRef(
        f"{name}",
        f"its row in {location}",
        f"holds {repr(held)[:_SHOWN]}, which is not an object id",
        "restore the store from a copy or a backup, or delete that row of the table refs and make the branch "
        "anew from a commit",
    )


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
    """Return the key and the value in the bytes of a row. Raises `StoreError` for a damaged one."""
    try:
        record: Any = canonical.decode(data)
        return record["key"], record["value"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(
            f"a value in the table kv is damaged ({type(error).__name__}: {error}): set its key again, or "
            f"restore it from a copy or a backup of the store"
        ) from error
