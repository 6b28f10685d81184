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
from typing import Any, Literal

from ..errors import MissingObject
from ..threads import in_thread
from .checks import check_oid
from .files import os_errors
from .kv import AppendBackend
from .locks import LockFolder
from .names import encode_name
from .objects import GitObject, Oid
from .protocol import RefUpdate
from .rows import (
    SCHEMA_VERSION,
    RefView,
    batches,
    check_write,
    name_range,
    object_of,
    object_row,
    plan_refs,
    value_of,
    value_row,
)
from .sqlite_file import FileKind, SQLiteFile

Durability = Literal["full", "os"]

_STORE = FileKind(
    application_id=0x72656163,  # "reac"
    version=SCHEMA_VERSION,
    what="a store",
    tables=(
        "CREATE TABLE objects (oid BLOB NOT NULL PRIMARY KEY, kind INTEGER NOT NULL, size INTEGER NOT NULL,"
        " data BLOB NOT NULL)",
        "CREATE TABLE refs (name TEXT NOT NULL PRIMARY KEY, oid BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE kv (name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)",
    ),
)
_ASKED_AT_ONCE = (1, 8, 64, 1000)  # few texts of statements, so that SQLite's parsed ones are used again


class SQLiteKVBackend(AppendBackend):
    """A store in the SQLite file at `path`, which is made if there is none; its folder must exist.

    With `durability="full"` a write is on stable storage when it returns (write-ahead log,
    `synchronous=FULL`); with `"os"` it survives the death of the process, not a power cut. Any number
    of processes of one machine may use the file at once. Locks are files in `<path>-locks`. Equal
    objects are one row and the log is folded into the file by SQLite, so there is nothing to compact.

    `fault`, if set, is called with the name of each step of a write that has just been done, so
    that tests can kill, pause or fail there.

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
    ) -> None:
        if durability not in ("full", "os"):
            raise ValueError(f"durability is 'full' or 'os', not {durability!r}")
        self.fault: Callable[[str], None] | None = None
        self._durability = durability
        self._file = SQLiteFile(path, _STORE, sync=durability == "full", create=create, read_only=read_only)
        self._locks = LockFolder(f"{self._file.path}-locks", self._file.location)

    @property
    def location(self) -> str:
        """The path as it was given."""
        return self._file.location

    @property
    def is_local(self) -> bool:
        """Always true."""
        return True

    @property
    def durability(self) -> Durability:
        """`full` or `os`."""
        return self._durability

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for.

        Raises `MissingObject` for the first that is absent, `StoreError` for one that is damaged.
        """
        wanted = list(dict.fromkeys(oids))
        for oid in wanted:
            check_oid(oid)
        found: dict[Oid, GitObject] = {}
        with self._file.reading() as connection:
            for batch in batches(wanted, _ASKED_AT_ONCE[-1]):
                found.update(object_of(row, self.location) for row in _select(connection, _OBJECTS, batch))
        for oid in wanted:
            if oid not in found:
                raise MissingObject(oid, self.location)
        return found

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, in order of name."""
        names = name_range(prefix)
        if names is None:
            return {}
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT name, oid FROM refs WHERE name >= ? AND name <= ? ORDER BY name", names
            ).fetchall()
        return {name: oid.hex() for name, oid in rows}

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs, all or none, in one transaction.

        When this returns everything is as durable as promised. Raises `Contention`,
        `MissingObject`, `InvalidName` or `StoreError`; nothing is changed then.
        """
        self._file.require_writable()
        check_write(objects, updates)
        if not objects and not updates:
            return
        rows = [object_row(oid, item) for oid, item in objects.items()]
        with self._file.writing() as connection:
            self._step("begun")
            connection.executemany(
                "INSERT INTO objects (oid, kind, size, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
            )
            self._step("objects stored")
            if updates:
                self._move(connection, objects, updates)
                self._step("refs moved")
        self._step("committed")

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the named lock for the length of a `with`, against threads and processes.

        Raises `SessionBusy`, naming the holder, when it is not had within `wait` seconds.
        """
        self._file.require_writable()
        with os_errors(self.location, "locking"):
            lock = self._locks.take(name, wait)
        try:
            yield
        finally:
            lock.release(unlink=True)

    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens them again."""
        self._file.close()

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
        return await in_thread(self._keys)

    async def aclose(self) -> None:
        """Close the store."""
        await in_thread(self.close)

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
        return None if row is None else bytes(row[0])

    def _keys(self) -> list[str]:
        with self._file.reading() as connection:
            rows = connection.execute("SELECT value FROM kv").fetchall()
        return sorted(value_of(row[0])[0] for row in rows)

    # -- refs ----------------------------------------------------------------------------------

    def _move(
        self,
        connection: sqlite3.Connection,
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
    ) -> None:
        def beneath(name: str, limit: int) -> list[str]:
            rows = connection.execute(
                "SELECT name FROM refs WHERE name >= ? AND name < ? LIMIT ?", (f"{name}/", f"{name}0", limit)
            )
            return [row[0] for row in rows]

        names = {update.name for update in updates}
        view = RefView(
            location=self.location,
            current={name: oid.hex() for name, oid in _select(connection, _REFS, names)},
            known=lambda oids: {row[0].hex() for row in _select(connection, _KNOWN, oids)},
            beneath=beneath,
            stored=lambda names: {row[0] for row in _select(connection, _REFS, names)},
        )
        for name, new in plan_refs(view, objects, updates).changes.items():
            if new is None:
                connection.execute("DELETE FROM refs WHERE name = ?", (name,))
            else:
                connection.execute(
                    "INSERT INTO refs (name, oid) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET oid = excluded.oid",
                    (name, bytes.fromhex(new)),
                )

    def _step(self, name: str) -> None:
        if self.fault is not None:
            self.fault(name)


_OBJECTS = "SELECT oid, kind, size, data FROM objects WHERE oid"
_KNOWN = "SELECT oid FROM objects WHERE oid"
_REFS = "SELECT name, oid FROM refs WHERE name"


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
