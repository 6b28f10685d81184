"""Which store a path, a DSN or a backend means."""

from __future__ import annotations

import os
from typing import Any

from ..errors import NotAStore
from ..store.bare import GitBackend
from ..store.database import Database
from ..store.document_backend import DocumentBackend
from ..store.files import checked_path
from ..store.kv import KVBackend
from ..store.protocol import Durability as Durability  # callers take it from here
from ..store.protocol import ObjectBackend
from ..store.sql.postgres import PostgreSQLKVBackend
from ..store.sql.sqlite import SQLiteKVBackend

StoreLike = Any
"""A path, a DSN, or a backend.

A path that ends in `.db`, `.sqlite` or `.sqlite3` is a SQLite file, any other a bare repository; each
is made when absent. A text that begins with `postgresql://` is the DSN of a PostgreSQL database. A
`KVBackend` that has only the methods of that class keeps one document a session.
"""

_SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_DSN_PREFIXES = ("postgresql://", "postgres://")


def open_database(
    store: StoreLike,
    *,
    durability: Durability = "full",
    create: bool = True,
    read_only: bool = False,
) -> Database:
    """Return the database of a path, a DSN or a backend.

    What is opened `read_only` by its path or DSN is neither made nor changed, and every write to it
    raises; a backend object is taken as it is.

    Raises `NotAStore` for a path or DSN where there is no store and for any other address, `ImportError`
    for a DSN without the driver, `TypeError` for anything else.
    """
    if isinstance(store, Database):
        return store
    if isinstance(store, ObjectBackend):
        return Database(store)
    if isinstance(store, KVBackend):
        return Database(DocumentBackend(store))
    if not isinstance(store, str | os.PathLike):
        hint = "; give its `database`" if isinstance(getattr(store, "database", None), Database) else ""
        given = type(store).__name__
        raise TypeError(f"a store is a path, a DSN or a backend such as GitBackend(path), not {given}{hint}")
    path = os.fspath(store) if is_dsn(store) else checked_path(store)
    if not path:
        raise NotAStore("an empty text does not name a store: give a path or a DSN")
    kind: type[GitBackend] | type[SQLiteKVBackend] | type[PostgreSQLKVBackend] = GitBackend
    if is_dsn(store):
        kind = PostgreSQLKVBackend
    elif os.fsdecode(path).endswith(_SQLITE_SUFFIXES):
        kind = SQLiteKVBackend
    return Database(kind(path, durability=durability, create=create, read_only=read_only))


def is_dsn(store: StoreLike) -> bool:
    """Tell whether a text is the DSN of a PostgreSQL database."""
    return isinstance(store, str) and store.startswith(_DSN_PREFIXES)
