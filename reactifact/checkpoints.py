"""One saved dictionary in one place: `CheckpointBackend`, and the two kinds we bring.

Owns the JSON file and the one row. What the dictionary means is decided by who saves it.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from typing import Any, cast

from ._store import canonical
from ._store._backends.files import checked_path, make_folders, os_errors, remove, sync_folder, write_new
from ._store._backends.git.backend import FileKVBackend, GitBackend
from ._store._backends.kv import AppendBackend, InMemoryKVBackend, KVBackend
from ._store._backends.sql.postgres import PostgreSQLKVBackend
from ._store._backends.sql.sqlite import FileKind, SQLiteFile, SQLiteKVBackend
from .errors import NoCheckpoint, NotAStore
from .threads import in_thread

__all__ = [
    "AppendBackend",
    "CheckpointBackend",
    "FileBackend",
    "FileKVBackend",
    "GitBackend",
    "InMemoryKVBackend",
    "KVBackend",
    "PostgreSQLKVBackend",
    "SQLiteBackend",
    "SQLiteKVBackend",
]


_CHECKPOINT = FileKind(
    application_id=0x72656370,  # "recp"
    version=1,
    what="a checkpoint",
    tables=("CREATE TABLE checkpoint (id INTEGER PRIMARY KEY CHECK (id = 1), value TEXT NOT NULL)",),
)


class CheckpointBackend(ABC):
    """A place that keeps one dictionary of plain JSON types."""

    @abstractmethod
    async def save(self, data: dict[str, Any]) -> None:
        """Keep a dictionary in place of the one before."""

    @abstractmethod
    async def load(self) -> dict[str, Any]:
        """Return what was saved last. Raises `ValueError` when nothing was."""

    async def aclose(self) -> None:  # noqa: B027 - nothing to close is the common case
        """Give back what the backend holds."""


class FileBackend(CheckpointBackend):
    """One JSON file at exactly `path`; missing folders are made, and it is replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._location = os.fsdecode(checked_path(path))
        self._path = os.path.realpath(self._location)

    async def save(self, data: dict[str, Any]) -> None:
        """Write the file and sync it. Raises `StoreError`, `ValueError` for what is not plain JSON."""
        await in_thread(self._save, data)

    async def load(self) -> dict[str, Any]:
        """Return what was saved last.

        Raises `NoCheckpoint` (a `FileNotFoundError` and `ValueError`), `NotAStore`, `StoreError`.
        """
        return await in_thread(self._load)

    def _save(self, data: dict[str, Any]) -> None:
        encoded = canonical.encode(data)
        folder, name = os.path.split(self._path)
        beside = f"{folder}/.{name[:200]}.{secrets.token_hex(8)}.new"
        with os_errors(self._location, "saving to"):
            make_folders(folder, sync=True)
            try:
                write_new(beside, [encoded], sync=True)
                os.replace(beside, self._path)
            finally:
                remove(beside)
            sync_folder(folder)

    def _load(self) -> dict[str, Any]:
        data = self._content()
        if data is None:
            raise _nothing_saved(self._location)
        return _dictionary(data, self._location)

    def _content(self) -> bytes | None:
        with os_errors(self._location, "loading"):
            try:
                with open(self._path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def __repr__(self) -> str:
        return f"FileBackend({self._location!r})"


class SQLiteBackend(CheckpointBackend):
    """One row in the SQLite file at `path`, which is made if there is none; its folder must exist.

    Raises `NotAStore` for a file that is something else, `FormatTooNew`, `StoreError`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = SQLiteFile(path, _CHECKPOINT)

    async def save(self, data: dict[str, Any]) -> None:
        """Replace the row. Raises `StoreError`, `ValueError` for what is not plain JSON."""
        await in_thread(self._save, data)

    async def load(self) -> dict[str, Any]:
        """Return what was saved last. Raises `NoCheckpoint` (a `ValueError`), `StoreError`."""
        return await in_thread(self._load)

    async def aclose(self) -> None:
        """Close the file; a later use opens it again."""
        await in_thread(self._file.close)

    def _save(self, data: dict[str, Any]) -> None:
        text = canonical.encode(data).decode()
        with self._file.writing("saving to") as connection:
            connection.execute("INSERT OR REPLACE INTO checkpoint (id, value) VALUES (1, ?)", (text,))

    def _load(self) -> dict[str, Any]:
        with self._file.reading("loading") as connection:
            row = connection.execute("SELECT value FROM checkpoint").fetchone()
        if row is None:
            raise _nothing_saved(self._file.location)
        return _dictionary(row[0], self._file.location)

    def __repr__(self) -> str:
        return f"SQLiteBackend({self._file.location!r})"


def _nothing_saved(location: str) -> NoCheckpoint:
    return NoCheckpoint(f"nothing was saved at {location} yet; save a checkpoint there, or correct the path")


def _dictionary(data: Any, location: str) -> dict[str, Any]:
    try:
        value: Any = canonical.decode(data if isinstance(data, bytes) else str(data).encode())
        if not isinstance(value, dict):
            raise ValueError(f"it holds a {type(value).__name__}, not an object")
    except ValueError as error:
        raise NotAStore(
            f"{location} holds no checkpoint: {error}; it was cut short, or another program wrote it"
        ) from error
    return cast("dict[str, Any]", value)
