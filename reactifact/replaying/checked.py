"""A backend whose every object is hashed again when it is read, whatever the store itself checks.

The indexes by which the store finds objects are checked before the first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from ..errors import StoreError
from ..store.lock_queue import LockQueue
from ..store.objects import GitObject, Oid, object_id
from ..store.protocol import ChecksIndexes, HeldLock, ObjectBackend, RefUpdate


class CheckedBackend:
    """Reads another backend and refuses objects that are not what their id says. Never writes.

    `objects` counts what was read and hashed.
    """

    def __init__(self, inner: ObjectBackend) -> None:
        self._inner = inner
        self.objects = 0
        self._checked_indexes = False

    @property
    def location(self) -> str:
        """The location of the backend behind it."""
        return self._inner.location

    @property
    def is_local(self) -> bool:
        """As the backend behind it."""
        return self._inner.is_local

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for. Raises `StoreError` for one that was changed or is absent."""
        if not self._checked_indexes:
            if isinstance(self._inner, ChecksIndexes):
                self._inner.check_indexes()
            self._checked_indexes = True
        found = self._inner.read_many(oids)
        for oid, (kind, data) in found.items():
            actual = object_id(kind, data)
            if actual != oid:
                raise StoreError(
                    f"object {oid} in {self.location} was changed: its content is that of {kind} {actual}; "
                    f"fetch the object from a clone or a backup"
                )
        self.objects += len(found)
        return found

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs under a prefix."""
        return self._inner.refs(prefix)

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Refuse. Raises `StoreError`."""
        raise StoreError(f"{self.location} is only checked here, and not written")

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self._inner.queue(name)

    def lock(self, name: str, *, wait: float = 0.0) -> AbstractContextManager[HeldLock]:
        """Take the lock of the backend behind it."""
        return self._inner.lock(name, wait=wait)

    def close(self) -> None:
        """Close the backend behind it."""
        self._inner.close()
