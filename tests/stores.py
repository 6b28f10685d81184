"""Every kind of store there is, as tests meet them: what to hand to `SessionStore`, opened anew each time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio import to_thread

from reactifact._store.object_db import Database
from reactifact.checkpoints import InMemoryKVBackend, KVBackend

KINDS = ["memory", "git", "sqlite", "postgres", "own"]
"""`own` is what a user wrote: a `KVBackend` with nothing but its methods."""


class OwnBackend(KVBackend):
    """A user's own backend: JSON texts in a dictionary, reached by way of a worker thread."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.closed = 0

    async def set(self, key: str, value: dict[str, Any]) -> None:
        self.texts[key] = await to_thread.run_sync(json.dumps, value)

    async def get(self, key: str) -> dict[str, Any] | None:
        text = self.texts.get(key)
        return None if text is None else await to_thread.run_sync(json.loads, text)

    async def delete(self, key: str) -> None:
        self.texts.pop(key, None)

    async def keys(self) -> list[str]:
        return sorted(self.texts)

    async def aclose(self) -> None:
        self.closed += 1


def place_of(kind: str, folder: Path, dsn: str | None) -> Any:
    """Return a path, a DSN or a backend for a new store of a kind."""
    places = {
        "memory": InMemoryKVBackend,
        "git": lambda: folder / "state.git",
        "sqlite": lambda: folder / "state.db",
        "postgres": lambda: dsn,
        "own": OwnBackend,
    }
    return places[kind]()


@contextmanager
def counted_reads(database: Database) -> Iterator[list[list[str]]]:
    """Note the ids that each `read_many` of the backend is asked for, as long as the block lasts."""
    backend: Any = database.backend
    read_many, calls = backend.read_many, []

    def counted(oids: Iterable[str]) -> Any:
        calls.append(list(oids))
        return read_many(calls[-1])

    backend.read_many = counted
    try:
        yield calls
    finally:
        del backend.read_many
