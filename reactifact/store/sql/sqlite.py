"""`SQLiteKVBackend`: objects, refs and values in the tables of one SQLite file.

It owns the tables and the order of a write: one transaction holds the objects and all refs, so a
reader sees all of it or nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ...errors import StoreError
from ..files import os_errors
from ..lock_queue import LockQueue
from ..locks import FileLock, LockFolder
from ..objects import MAX_OBJECT, GitObject, Oid
from ..protocol import Durability, Pruned, RefUpdate
from ..ref_moves import RefView, check_write, plan_refs, ref_questions
from .backend import SQLBackend
from .pruning import HeldTables, ObjectsOf, Oids
from .rows import SCHEMA_VERSION, batches, object_row, ref_oid, referred_beyond, require_known
from .sqlite_file import FileKind, SQLiteFile

_PRUNING = (
    "CREATE TABLE prunes (number INTEGER NOT NULL)",
    "INSERT INTO prunes VALUES (0)",
    "CREATE TABLE unreachable (oid BLOB NOT NULL PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID",
)
_STORE = FileKind(
    application_id=0x72656163,  # "reac"
    version=SCHEMA_VERSION,
    what="a store",
    tables=(
        "CREATE TABLE objects (oid BLOB NOT NULL PRIMARY KEY, kind INTEGER NOT NULL, size INTEGER NOT NULL,"
        " data BLOB NOT NULL)",
        "CREATE TABLE refs (name TEXT NOT NULL PRIMARY KEY, oid BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE kv (name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)",
        *_PRUNING,
    ),
    upgrades=(_PRUNING,),
)
_ASKED_AT_ONCE = (1, 8, 64, 1000)  # few texts of statements, so that SQLite's parsed ones are used again


class SQLiteKVBackend(SQLBackend):
    """A store in the SQLite file at `path`, which is made if there is none; its folder must exist.

    With `durability="full"` a write is on stable storage when it returns (write-ahead log,
    `synchronous=FULL`); with `"os"` it survives the death of the process, not a power cut. Any number
    of processes of one machine may use the file at once. Locks are files in `<path>-locks`. Equal
    objects are one row and the log is folded into the file by SQLite, so a store that only grows needs no
    care; `prune` removes what no ref reaches any more.

    An object of more than `max_object` bytes is neither written nor read (`ObjectTooLarge`): what a row
    says that it decompresses to is believed only up to there.

    `fault`, if set, is called with the name of each step of a write that has just been done, so
    that tests can kill, pause or fail there; set on the class, it is called for the making of the
    tables too.

    Raises `NotAStore` for a missing folder, a file that is something else, and a missing file with
    `create=False`; `FormatTooNew`; `StoreError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        create: bool = True,
        read_only: bool = False,
        max_object: int = MAX_OBJECT,
    ) -> None:
        super().__init__(durability, max_object)
        self._file = SQLiteFile(
            path, _STORE, sync=durability == "full", create=create, read_only=read_only, step=self._step
        )
        self._locks = LockFolder(f"{self._file.path}-locks", self._file.location)
        self._prunes = 0  # how many there had been when this store was opened
        if not read_only:
            with self._file.reading() as connection:
                self._prunes = _prunes(connection, self.location)

    @property
    def location(self) -> str:
        """The path as it was given."""
        return self._file.location

    @property
    def is_local(self) -> bool:
        """Always true."""
        return True

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs, all or none, in one transaction.

        When this returns everything is as durable as promised. Raises `Contention`,
        `MissingObject`, `InvalidName` or `StoreError`; nothing is changed then.
        """
        self._file.require_writable()
        check_write(objects, updates, self._max_object)
        if not objects and not updates:
            return
        rows = [object_row(oid, item) for oid, item in objects.items()]
        with self._file.writing() as connection:
            self._step("begun")
            connection.executemany(
                "INSERT INTO objects (oid, kind, size, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
            )
            self._step("objects stored")
            if _prunes(connection, self.location) != self._prunes:
                require_known(objects, _known(connection, referred_beyond(objects)), self.location)
            if updates:
                self._move(connection, objects, updates)
                self._step("refs moved")
        self._step("committed")

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self._locks.queue(name)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[FileLock]:
        """Hold the named lock for the length of a `with`, against threads and processes.

        Raises `SessionBusy`, naming the holder, when it is not had within `wait` seconds.
        """
        self._file.require_writable()
        with os_errors(self.location, "locking"):
            lock = self._locks.take(name, wait)
        try:
            yield lock
        finally:
            lock.release(unlink=True)

    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens them again."""
        self._file.close()

    # -- rows ----------------------------------------------------------------------------------

    def _object_rows(self, oids: list[Oid]) -> list[tuple[Any, ...]]:
        with self._file.reading() as connection:
            return list(_select(connection, _OBJECTS, oids))

    def _ref_rows(self, first: str, last: str) -> list[tuple[str, bytes]]:
        with self._file.reading() as connection:
            return connection.execute(
                "SELECT name, oid FROM refs WHERE name >= ? AND name <= ? ORDER BY name", (first, last)
            ).fetchall()

    def _set(self, name: str, data: bytes | None) -> None:
        with self._file.writing() as connection:
            if data is None:
                connection.execute("DELETE FROM kv WHERE name = ?", (name,))
            else:
                connection.execute(
                    "INSERT INTO kv (name, value) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (name, data),
                )

    def _get(self, name: str) -> bytes | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT value FROM kv WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _values(self) -> list[bytes]:
        with self._file.reading() as connection:
            return [row[0] for row in connection.execute("SELECT value FROM kv")]

    def _move(
        self,
        connection: sqlite3.Connection,
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
    ) -> None:
        asked = ref_questions(objects, updates)
        around = {row[0] for row in _select(connection, _REFS, asked.parents)}
        for name in asked.created:
            around.update(
                row[0] for row in connection.execute(_BENEATH, (f"{name}/", f"{name}0", len(updates) + 1))
            )
        view = RefView(
            location=self.location,
            current={
                name: ref_oid(name, held, self.location)
                for name, held in _select(connection, _REFS, asked.names)
            },
            known=_known(connection, asked.targets),
            around=around,
        )
        for name, new in plan_refs(view, objects, updates).items():
            if new is None:
                connection.execute("DELETE FROM refs WHERE name = ?", (name,))
            else:
                connection.execute(
                    "INSERT INTO refs (name, oid) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET oid = excluded.oid",
                    (name, bytes.fromhex(new)),
                )

    # -- pruning -------------------------------------------------------------------------------

    def _stored(self) -> Oids:
        with self._file.reading() as connection:
            return _stored(connection)

    def _holding_tables(self, work: Callable[[HeldTables], Pruned]) -> Pruned:
        with self._file.writing("pruning") as connection:
            return work(_HeldTables(connection, self._objects_of))

    def _tidy(self, *, rewrite: bool) -> None:
        if rewrite:
            self._file.rewrite()


class _HeldTables(HeldTables):
    """The tables inside `BEGIN IMMEDIATE`, which keeps writers out."""

    def __init__(self, connection: sqlite3.Connection, objects_of: ObjectsOf) -> None:
        super().__init__(objects_of)
        self._connection = connection

    def tips(self) -> list[Oid]:
        return [row[0].hex() for row in self._connection.execute("SELECT oid FROM refs")]

    def stored(self) -> set[Oid]:
        return _stored(self._connection)

    def rows(self, oids: list[Oid]) -> Iterator[Sequence[Any]]:
        return _select(self._connection, _OBJECTS, oids)

    def noted(self) -> dict[Oid, float]:
        return {
            oid.hex(): since for oid, since in self._connection.execute("SELECT oid, since FROM unreachable")
        }

    def note(self, fresh: Iterable[Oid], since: float, stale: Iterable[Oid]) -> None:
        self._connection.executemany(
            "INSERT INTO unreachable VALUES (?, ?)", [(bytes.fromhex(oid), since) for oid in fresh]
        )
        self._connection.executemany("DELETE FROM unreachable WHERE oid = ?", _binary(stale))

    def remove(self, oids: set[Oid]) -> int:
        size = sum(int(row[0]) for row in _select(self._connection, _SIZES, oids))
        self._connection.executemany("DELETE FROM objects WHERE oid = ?", _binary(oids))
        self._connection.execute("UPDATE prunes SET number = number + 1")
        return size


_OBJECTS = "SELECT oid, kind, size, data FROM objects WHERE oid"
_KNOWN = "SELECT oid FROM objects WHERE oid"
_SIZES = "SELECT length(data) FROM objects WHERE oid"
_REFS = "SELECT name, oid FROM refs WHERE name"
_BENEATH = "SELECT name FROM refs WHERE name >= ? AND name < ? LIMIT ?"


def _select(connection: sqlite3.Connection, query: str, wanted: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `query` for each id or name that is wanted."""
    for batch in batches(wanted, _ASKED_AT_ONCE[-1]):
        values: list[Any] = batch if query is _REFS else [bytes.fromhex(oid) for oid in batch]
        room = next(size for size in _ASKED_AT_ONCE if size >= len(values))
        values += values[-1:] * (room - len(values))
        yield from connection.execute(_among(query, room), values)


@lru_cache(maxsize=16)
def _among(query: str, count: int) -> str:
    return f"{query} IN ({', '.join('?' * count)})"


def _known(connection: sqlite3.Connection, oids: Iterable[Oid]) -> set[Oid]:
    return {row[0].hex() for row in _select(connection, _KNOWN, oids)}


def _stored(connection: sqlite3.Connection) -> set[Oid]:
    rows = connection.execute("SELECT oid FROM objects WHERE typeof(oid) = 'blob'")  # only these can be read
    return {row[0].hex() for row in rows}


def _prunes(connection: sqlite3.Connection, location: str) -> int:
    row = connection.execute("SELECT number FROM prunes").fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreError(
            f"the table prunes in {location} does not hold the number of prunes: it was changed by hand or "
            f"is damaged; while nobody uses the store, do `DELETE FROM prunes; INSERT INTO prunes VALUES (1)`"
        )
    return row[0]


def _binary(oids: Iterable[Oid]) -> list[tuple[bytes]]:
    return [(bytes.fromhex(oid),) for oid in oids]
