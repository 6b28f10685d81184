"""`MemoryBackend`: objects and refs in dictionaries, for tests, notebooks and storeless contexts.

It owns the same promises as the other backends, within one process. Nothing survives the process;
`close` gives nothing back, so that several contexts may share one instance and close it each.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from .checks import taken
from .lock_queue import LockQueue
from .objects import GitObject, Oid
from .protocol import RefUpdate
from .ref_moves import RefView, check_write, plan_refs, ref_questions
from .thread_locks import ThreadLock, ThreadLocks


class MemoryBackend:
    """An `ObjectBackend` over dictionaries; all refs of a write move or none."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._objects: dict[Oid, GitObject] = {}
        self._refs: dict[str, Oid] = {}
        self._names: list[str] = []  # sorted, so that a prefix costs what lies under it
        self._locks = ThreadLocks(self.location)

    @property
    def location(self) -> str:
        """The word `memory`."""
        return "memory"

    @property
    def is_local(self) -> bool:
        """Always true."""
        return True

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for. Raises `MissingObject` for the first that is absent."""
        return taken(self._objects, oids, self.location)

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, in order of name."""
        with self._mutex:
            found: dict[str, Oid] = {}
            for position in range(bisect_left(self._names, prefix), len(self._names)):
                name = self._names[position]
                if not name.startswith(prefix):
                    break
                found[name] = self._refs[name]
            return found

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs, all or none.

        Raises `Contention`, `MissingObject`, `InvalidName` or `StoreError`; nothing is changed then.
        """
        check_write(objects, updates)
        with self._mutex:
            view = RefView(self.location, self._refs, self._objects.keys(), self._around(objects, updates))
            changes = plan_refs(view, objects, updates)
            self._objects.update(objects)
            for name, oid in changes.items():
                self._set(name, oid)

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self._locks.queue(name)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[ThreadLock]:
        """Hold the named lock for the length of a `with`.

        Raises `SessionBusy`, naming the holder, when it is not had within `wait` seconds.
        """
        with self._locks.hold(name, wait) as lock:
            yield lock

    def close(self) -> None:
        """Do nothing: the objects live as long as the backend does."""

    def _around(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> set[str]:
        """Return the refs that may be in the way of those that a write creates."""
        asked = ref_questions(objects, updates)
        found = {name for name in asked.parents if name in self._refs}
        for name in asked.created:
            first, last = bisect_left(self._names, f"{name}/"), bisect_left(self._names, f"{name}0")
            found.update(self._names[first:last])
        return found

    def _set(self, name: str, oid: Oid | None) -> None:
        known = name in self._refs
        if oid is not None:
            self._refs[name] = oid
            if not known:
                insort(self._names, name)
        elif known:
            del self._refs[name]
            del self._names[bisect_left(self._names, name)]
