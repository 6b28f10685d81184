"""`MemoryBackend`: objects and refs in dictionaries, for tests, notebooks and storeless contexts.

It owns the same promises as the other backends, within one process. Nothing survives the process;
`close` gives nothing back, so that several contexts may share one instance and close it each.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..errors import Contention, MissingObject
from .checks import check_objects, check_oid, check_ref_name, name_in_the_way, parent_names
from .objects import GitObject, Oid
from .protocol import RefUpdate
from .thread_locks import ThreadLocks


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
        found: dict[Oid, GitObject] = {}
        for oid in oids:
            item = self._objects.get(oid)
            if item is None:
                raise MissingObject(oid, self.location)
            found[oid] = item
        return found

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
        check_objects(objects)
        for update in updates:
            check_ref_name(update.name)
        with self._mutex:
            planned = dict[str, Oid | None]()
            for update in updates:
                self._plan(update, objects, planned)
            self._objects.update(objects)
            for name, oid in planned.items():
                self._set(name, oid)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the named lock for the length of a `with`.

        Raises `SessionBusy`, naming the holder, when it is not had within `wait` seconds.
        """
        with self._locks.hold(name, wait):
            yield

    def close(self) -> None:
        """Do nothing: the objects live as long as the backend does."""

    def _plan(
        self, update: RefUpdate, objects: Mapping[Oid, GitObject], planned: dict[str, Oid | None]
    ) -> None:
        name, expected, new = update
        current = planned[name] if name in planned else self._refs.get(name)
        if current != expected:
            raise Contention(
                f"ref {name} in {self.location} holds {current or 'nothing'}, not "
                f"{expected or 'nothing'}: somebody moved it; load it again and retry"
            )
        if new is not None:
            check_oid(new)
            if new not in objects and new not in self._objects:
                raise MissingObject(new, self.location)
            if current is None:
                self._refuse_name_in_the_way(name, planned)
        planned[name] = new

    def _refuse_name_in_the_way(self, name: str, planned: Mapping[str, Oid | None]) -> None:
        def exists(other: str) -> bool:
            return (planned[other] if other in planned else self._refs.get(other)) is not None

        below = name + "/"
        stored = self._names[bisect_left(self._names, below) : bisect_left(self._names, name + "0")]
        beneath = [*stored, *(other for other in planned if other.startswith(below))]
        for other in (*parent_names(name), *beneath):
            if exists(other):
                raise name_in_the_way(name, other, self.location)

    def _set(self, name: str, oid: Oid | None) -> None:
        known = name in self._refs
        if oid is not None:
            self._refs[name] = oid
            if not known:
                insort(self._names, name)
        elif known:
            del self._refs[name]
            del self._names[bisect_left(self._names, name)]
