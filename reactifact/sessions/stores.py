"""Which store a path or a backend means."""

from __future__ import annotations

import os
from typing import Any, Literal

from ..errors import NotAStore
from ..store.bare import GitBackend
from ..store.database import Database
from ..store.protocol import ObjectBackend

Durability = Literal["full", "os"]
StoreLike = Any
"""A path (a bare repository, made when absent), or a backend."""

_SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


def open_database(
    store: StoreLike,
    *,
    durability: Durability = "full",
    create: bool = True,
    read_only: bool = False,
) -> Database:
    """Return the database of a path or a backend.

    A path that is opened `read_only` is neither made nor changed, and every write to it raises.

    Raises `NotAStore` for a path that is no store, `TypeError` for anything else.
    """
    if isinstance(store, Database):
        return store
    if isinstance(store, ObjectBackend):
        return Database(store)
    if not isinstance(store, str | os.PathLike):
        raise TypeError(
            f"a store is a path or a backend such as GitBackend(path), not {type(store).__name__}"
        )
    path = os.fspath(store)
    if str(path).endswith(_SQLITE_SUFFIXES):
        raise NotAStore(
            f"{path} names a SQLite file, and this version stores in bare git repositories: "
            f"choose a path such as state.git"
        )
    return Database(GitBackend(path, durability=durability, create=create, read_only=read_only))
