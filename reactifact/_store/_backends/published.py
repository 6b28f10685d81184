"""What reactifact 0.15 wrote: where it stands and how it is told from everything else.

Owns the recognition of its files (a folder of JSON files, SQLite tables, a single checkpoint) and
the reading of their documents; those of a PostgreSQL database are handed in. What the documents mean
is decided elsewhere; nothing is written.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import NotAStore, StoreError
from .files import os_errors

Document = dict[str, Any]

_SQLITE_HEADER = b"SQLite format 3\0"
_TABLES = {"kv_entries": ("key", "data"), "checkpoint": ("id", "data")}


@dataclass(slots=True)
class Published:
    """The documents at a place: of sessions and branches by key, a checkpoint, other values."""

    location: str
    documents: dict[str, Document] = field(default_factory=dict)
    checkpoint: Document | None = None
    values: dict[str, Document] = field(default_factory=dict)


def published_at(path: str) -> Published | None:
    """Return what reactifact 0.15 wrote at a path, `None` where it is something else.

    Raises `NotAStore` for a document that is damaged, `StoreError` when it cannot be read.
    """
    if os.path.isdir(path):
        return _folder(path)
    if not os.path.isfile(path):
        return None
    with os_errors(path, "reading"), open(path, "rb") as file:
        head = file.read(len(_SQLITE_HEADER))
    if head == _SQLITE_HEADER:
        return _database(path)
    return _single(path) if head.lstrip().startswith(b"{") else None


def published_in_rows(location: str, rows: Iterable[tuple[str, str]]) -> Published:
    """Return the documents of a table of keys and texts. Raises `NotAStore` for a damaged one."""
    found = Published(location)
    for key, text in rows:
        where = f"{location}, row {key!r}"
        _add(found, key, _json(where, text), where)
    return found


def is_state(document: object) -> bool:
    """Tell whether a document is the state of a session or a branch."""
    return isinstance(document, dict) and {"artifacts", "relations", "commits", "events"} <= document.keys()


def _folder(path: str) -> Published | None:
    with os_errors(path, "reading"):
        names = sorted(name for name in os.listdir(path) if name.endswith(".json"))
    if not names or os.path.exists(os.path.join(path, "objects")):
        return None
    found = Published(path)
    for name in names:
        place = os.path.join(path, name)
        entry = _json(place, _text(place))
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str) or "data" not in entry:
            raise NotAStore(f"{place} is not an entry of a FileKVBackend; move it away if it is not meant")
        _add(found, entry["key"], entry["data"], place)
    return found


def _single(path: str) -> Published | None:
    document = _json(path, _text(path))
    return Published(path, checkpoint=document) if is_state(document) else None


def _database(path: str) -> Published | None:
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            kind = next((name for name in _TABLES if _columns(connection, name) == _TABLES[name]), None)
            if kind is None:
                return None
            rows = connection.execute(f"SELECT {', '.join(_TABLES[kind])} FROM {kind} ORDER BY 1").fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"reading {path} failed: {error}; see whether it is whole, and try again") from error
    if kind == "kv_entries":
        return published_in_rows(path, rows)
    found = Published(path)
    for key, text in rows:
        where = f"{path}, row {key!r}"
        found.checkpoint = _json(where, text)
        if not is_state(found.checkpoint):
            raise NotAStore(f"{where} is not a checkpoint; restore it from a copy")
    return found


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))


def _add(found: Published, key: str, document: Any, where: str) -> None:
    if not isinstance(document, dict):
        raise NotAStore(f"{where} holds no object; restore it from a copy")
    (found.documents if is_state(document) else found.values)[key] = document


def _text(path: str) -> str:
    try:
        with os_errors(path, "reading"), open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise NotAStore(f"{path} is not a text in UTF-8 ({error}); restore it from a copy") from error


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise NotAStore(f"{where} is no JSON ({error}); restore it from a copy") from error
