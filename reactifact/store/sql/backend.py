"""`SQLBackend`: what the stores in tables of a database have in common.

Owns the frame of reading, of values under keys, and of a prune. How a statement runs, and what makes a
write atomic and durable, is the business of each store; what rows mean is `rows`'.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...errors import DamagedRef
from ...threads import in_thread
from ..checks import check_durability, check_oid, taken
from ..kv import AppendBackend
from ..lock_queue import LockQueue
from ..names import encode_name
from ..objects import GitObject, Oid
from ..protocol import Durability, HeldLock, Pruned, RefScan
from .pruning import HeldTables, Oids, prune, reach
from .rows import name_range, object_of, ref_oid, value_of, value_row

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

    def prune(self, *, grace: float = 3600.0, rewrite: bool = False) -> Pruned:
        """Remove the objects that no ref has reached for `grace` seconds; call it in a worker thread.

        What no ref reaches is what deleted branches and sessions, compactions, undone and checked-out
        versions left. It is noted the first time it is found so, and removed by a prune at least `grace`
        seconds later, so that work that rests on it and is not saved yet has that long; `grace=0`
        removes it at once. A compaction whose old commits are gone cannot be undone any more.

        Readers go on meanwhile. Writers wait only while it decides and removes, not while it walks; they
        lose nothing. Killed, it has removed nothing. With `rewrite` the tables are written anew
        afterwards: the space goes back to the file system, and no byte of a removed row is left in them;
        that keeps others out for as long as it takes to copy the store.

        Raises `ValueError` for a negative `grace`, `SessionBusy` while another prune is at it, `StoreError`
        when the store is damaged: then nothing is removed.
        """
        if not grace >= 0:
            raise ValueError(f"grace={grace}: give 0 seconds or more")
        with self.lock(_PRUNE_LOCK):
            listed = self._stored()
            reached: Oids = set()
            reach(self.read_many, self.refs("").values(), reached)
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
