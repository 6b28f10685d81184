"""What stores in the tables of a database share: reading rows, the key and value face, pruning."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ...._store import canonical
from ....errors import Contention, DamagedRef, StoreError
from ....threads import in_thread
from ...names import encode_name
from ...objects import GitObject, Kind, Oid, deflate, inflate, object_id, reach, references, require_size
from ...protocol import (
    Durability,
    HeldLock,
    Progress,
    Pruned,
    RefScan,
    check_durability,
    check_oid,
    taken,
)
from ..kv import AppendBackend
from ..locks import LockQueue

# -- objects and values as rows of a table, and what rows refer to beyond themselves --


T = TypeVar("T")

SCHEMA_VERSION = 2
"""The tables this version writes; a store with a greater one is refused, a lesser one brought up to it."""

_NUMBERS: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}  # as git's packs number them
_KINDS: dict[int, Kind] = {number: kind for kind, number in _NUMBERS.items()}
_COMPRESSED_FROM = 256  # bytes; below it zlib saves less than a row costs
_TREE_COMPRESSED_FROM = 1024  # most of a tree are ids, so that a small one keeps nine tenths of its bytes
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


def object_rows(objects: Iterable[tuple[Oid, GitObject]]) -> list[ObjectRow]:
    """Return the rows of some objects, in their order."""
    rows = []
    for oid, (kind, data) in objects:
        size, stored = len(data), data
        if size >= (_TREE_COMPRESSED_FROM if kind == "tree" else _COMPRESSED_FROM):
            packed = deflate(data, _LEVEL)
            stored = packed if len(packed) < size else data
        row = bytes.fromhex(oid), _NUMBERS[kind], size, stored
        rows.append(tuple.__new__(ObjectRow, row))  # its own constructor is Python
    return rows


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


# -- which rows of a SQL store a prune removes: those that no ref has reached for some time --


Oids = set[Oid]
ObjectsOf = Callable[[list[Oid], Iterable[Sequence[Any]]], Mapping[Oid, GitObject]]


class HeldTables(ABC):
    """The tables inside a transaction that keeps every writer out."""

    def __init__(self, objects_of: ObjectsOf) -> None:
        self._objects_of = objects_of

    def read(self, oids: list[Oid]) -> Mapping[Oid, GitObject]:
        """Return objects. Raises `MissingObject`, `StoreError` for a damaged one."""
        return self._objects_of(oids, self.rows(oids))

    @abstractmethod
    def tips(self) -> Iterable[Oid]:
        """Return what the refs point at."""

    @abstractmethod
    def stored(self) -> set[Oid]:
        """Return the ids of all objects."""

    @abstractmethod
    def rows(self, oids: list[Oid]) -> Iterable[Sequence[Any]]:
        """Return (oid, kind, size, data) of some objects, in any order."""

    @abstractmethod
    def noted(self) -> dict[Oid, float]:
        """Return the objects found unreachable before, and when (seconds since the epoch)."""

    @abstractmethod
    def note(self, fresh: Iterable[Oid], since: float, stale: Iterable[Oid]) -> None:
        """Note objects as unreachable since then, and forget the notes on others."""

    @abstractmethod
    def remove(self, oids: set[Oid]) -> int:
        """Remove objects, and count this prune; return the bytes of their rows."""


def prune(tables: HeldTables, listed: Set[Oid], reached: Set[Oid], grace: float, now: float) -> Pruned:
    """Remove the objects that no ref reaches and that were noted so `grace` seconds ago; note the others.

    `listed` are the objects of a moment before, `reached` those that the refs reached after it. Raises
    `MissingObject` or `StoreError`, with nothing changed, where the store is damaged.
    """
    kept = set(reached)
    stored = tables.stored()
    reach(tables.read, tables.tips(), kept)
    reach(tables.read, stored - listed, kept)
    unreachable = stored - kept
    noted = tables.noted()
    reach(tables.read, [oid for oid in unreachable if noted.get(oid, now) > now - grace], kept)
    doomed = unreachable - kept
    waiting = unreachable - doomed
    tables.note(waiting - noted.keys(), now, noted.keys() - waiting)
    size = tables.remove(doomed) if doomed else 0
    return Pruned(len(doomed), size, len(waiting))


# -- `SQLBackend`: what the stores in tables of a database have in common --


_PRUNE_LOCK = "prune"


class SQLBackend(AppendBackend):
    """The base of `SQLiteKVBackend` and `PostgreSQLKVBackend`."""

    fault: Callable[[str], None] | None = None

    def __init__(self, durability: Durability, max_object: int) -> None:
        self._durability = check_durability(durability)
        self._max_object = max_object

    @property
    @abstractmethod
    def location(self) -> str:
        """A text that names the store in messages."""

    @property
    def durability(self) -> Durability:
        """`full` or `os`."""
        return self._durability

    # -- objects and refs ----------------------------------------------------------------------

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for.

        Raises `MissingObject` for the first that is absent, `StoreError` for one that is damaged.
        """
        wanted = list(dict.fromkeys(oids))
        for oid in wanted:
            check_oid(oid)
        return self._objects_of(wanted, self._object_rows(wanted))

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, in order of name. Raises `DamagedRef`."""
        return self.scan_refs(prefix).whole(prefix)

    def scan_refs(self, prefix: str = "refs/") -> RefScan:
        """Return what `refs` does, and apart from it the refs that cannot be read."""
        names = name_range(prefix)
        found: dict[str, Oid] = {}
        damaged: list[DamagedRef] = []
        for name, held in () if names is None else self._ref_rows(*names):
            try:
                found[name] = ref_oid(name, held, self.location)
            except DamagedRef as error:
                damaged.append(error)
        return RefScan(found, tuple(damaged))

    @abstractmethod
    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""

    @abstractmethod
    def lock(self, name: str, *, wait: float = 0.0) -> AbstractContextManager[HeldLock]:
        """Hold the named lock for the length of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens them again."""

    # -- values --------------------------------------------------------------------------------

    async def set(self, key: str, value: dict[str, Any]) -> None:
        """Store a value under a key. Raises `ValueError` for what is not plain JSON."""
        await in_thread(self._set, *value_row(key, value))

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return the value under a key, or `None`."""
        data = await in_thread(self._get, encode_name(key))
        return None if data is None else value_of(data)[1]

    async def delete(self, key: str) -> None:
        """Remove a key; one that is absent is fine."""
        await in_thread(self._set, encode_name(key), None)

    async def keys(self) -> list[str]:
        """Return all keys, sorted."""
        return sorted(value_of(data)[0] for data in await in_thread(self._values))

    async def aclose(self) -> None:
        """Close the store."""
        await in_thread(self.close)

    # -- pruning -------------------------------------------------------------------------------

    def object_count(self) -> int:
        """Return how many objects are stored."""
        return len(self._stored())

    def prune(
        self, *, grace: float = 3600.0, rewrite: bool = False, progress: Progress | None = None
    ) -> Pruned:
        """Remove the objects that no ref has reached for `grace` seconds; call it in a worker thread.

        What no ref reaches is what deleted branches and sessions, compactions, undone and checked-out
        versions left. It is noted the first time it is found so, and removed by a prune at least `grace`
        seconds later, so that work that rests on it and is not saved yet has that long; `grace=0`
        removes it at once. A compaction whose old commits are gone cannot be undone any more.

        Readers go on meanwhile. Writers wait only while it decides and removes, not while it walks; they
        lose nothing. Killed, it has removed nothing. With `rewrite` the tables are written anew
        afterwards: the space goes back to the file system, and no byte of a removed row is left in them;
        that keeps others out for as long as it takes to copy the store. `progress` is told how many of the
        objects were found to be reached, of all there are.

        Raises `ValueError` for a negative `grace`, `SessionBusy` while another prune is at it, `StoreError`
        when the store is damaged: then nothing is removed.
        """
        if not grace >= 0:
            raise ValueError(f"grace={grace}: give 0 seconds or more")
        with self.lock(_PRUNE_LOCK):
            listed = self._stored()
            reached: Oids = set()

            def walked() -> None:
                if progress is not None:
                    progress(min(len(reached), len(listed)), len(listed))

            reach(self.read_many, self.refs("").values(), reached, walked)
            self._step("walked")

            def decide(tables: HeldTables) -> Pruned:
                done = prune(tables, listed, reached, grace, time.time())
                self._step("rows removed")
                return done

            done = self._holding_tables(decide)
            self._step("pruned")
            if done.objects or rewrite:
                self._tidy(rewrite=rewrite)
        return done

    def require_collectable(self) -> None:
        """Do nothing: all that a store of tables holds stands in them."""

    def collect(self) -> None:
        """Remove every object that no ref reaches, for good: the tables are written anew without them.

        Raises as `prune` does; done again, it goes on.
        """
        self.prune(grace=0, rewrite=True)
        self._step("collected")

    # -- of each store -------------------------------------------------------------------------

    @abstractmethod
    def _object_rows(self, oids: list[Oid]) -> Iterable[Sequence[Any]]:
        """Return (oid, kind, size, data) of some objects, in any order."""

    @abstractmethod
    def _ref_rows(self, first: str, last: str) -> Iterable[tuple[str, bytes]]:
        """Return the refs from one name to another, in order of name."""

    @abstractmethod
    def _set(self, name: str, data: bytes | None) -> None:
        """Store the bytes of a value, or remove it."""

    @abstractmethod
    def _get(self, name: str) -> bytes | None:
        """Return the bytes of a value."""

    @abstractmethod
    def _values(self) -> Iterable[bytes]:
        """Return the bytes of all values."""

    @abstractmethod
    def _stored(self) -> Oids:
        """Return the ids of all objects."""

    @abstractmethod
    def _holding_tables(self, work: Callable[[HeldTables], Pruned]) -> Pruned:
        """Call `work` in one transaction that keeps writers out; it may be called again."""

    @abstractmethod
    def _tidy(self, *, rewrite: bool) -> None:
        """Tidy up after a prune; with `rewrite`, leave no byte of removed rows in the tables."""

    def _objects_of(self, wanted: list[Oid], rows: Iterable[Sequence[Any]]) -> dict[Oid, GitObject]:
        return taken(
            dict(object_of(row, self.location, self._max_object) for row in rows), wanted, self.location
        )

    def _step(self, name: str) -> None:
        if self.fault is not None:
            self.fault(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"
