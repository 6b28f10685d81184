"""Every kind of store there is, as tests meet them: what to hand to `SessionStore`, opened anew each time."""

from __future__ import annotations

import json
import sys
from collections import Counter
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
    """Note the ids that each read of the backend is asked for, as long as the block lasts."""
    backend: Any = database.backend
    read_many, calls = backend.read_many, []
    read_line = getattr(backend, "read_line", None)

    def counted(oids: Iterable[str]) -> Any:
        calls.append(list(oids))
        return read_many(calls[-1])

    def counted_line(oid: str, most: int) -> Any:
        before = len(calls)
        found = read_line(oid, most)  # type: ignore[misc]
        calls[before:] = [[oid]]  # it may ask for the first by way of `read_many`
        return found

    backend.read_many = counted
    if read_line is not None:
        backend.read_line = counted_line
    try:
        yield calls
    finally:
        del backend.read_many
        if read_line is not None:
            del backend.read_line


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of Python functions in this thread, as `python`, as long as the block lasts."""
    calls: Counter[str] = Counter()

    def count(frame: object, event: str, argument: object) -> None:
        if event == "call":
            calls["python"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
