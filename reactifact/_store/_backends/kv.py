"""Keys and values on a store, the store in memory, and how refs move in one.

Owns `KVBackend` and its faces, `MemoryBackend`, and the planning of moves of refs for stores that swap them
all or none.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from ..._store import canonical
from ...errors import Contention, MissingObject
from ...threads import in_thread
from ..canonical import refusing_damage
from ..names import encode_name
from ..objects import GitObject, Oid, object_id, reach
from ..protocol import (
    ObjectBackend,
    RefUpdate,
    check_objects,
    check_oid,
    check_ref_name,
    name_in_the_way,
    parent_names,
    taken,
)
from .locks import LockQueue, ThreadLock, ThreadLocks

# -- the plan of a write that moves refs, for stores that move all of them or none --


def check_write(
    objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate], max_object: int | None = None
) -> None:
    """Refuse what no store accepts. Raises `StoreError` or `InvalidName`."""
    check_objects(objects, max_object)
    for update in updates:
        check_ref_name(update.name)
        if update.new is not None:
            check_oid(update.new)


class RefQuestions(NamedTuple):
    """What has to be read, inside its transaction, before a write may move refs; each in order."""

    names: list[str]  # of the refs that move
    created: list[str]  # those that are expected not to be there
    parents: list[str]  # names that are folders of those created
    targets: list[Oid]  # what refs are to point at and the write does not bring


class RefView(NamedTuple):
    """The answers: the refs of a store inside the transaction that is to move them."""

    location: str
    current: Mapping[str, Oid]  # of `names`, those that are there
    known: Set[Oid]  # of `targets`, those that are stored
    around: Set[str]  # stored refs: of `parents`, and some in the folders of `created`


def ref_questions(objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]) -> RefQuestions:
    """Return what has to be read for a write."""
    first: dict[str, Oid | None] = {}
    for update in updates:
        first.setdefault(update.name, update.expected)
    created = sorted(name for name, expected in first.items() if expected is None)
    return RefQuestions(
        names=sorted(first),
        created=created,
        parents=sorted({parent for name in created for parent in parent_names(name)}),
        targets=sorted({update.new for update in updates if update.new is not None} - objects.keys()),
    )


def plan_refs(
    view: RefView, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]
) -> dict[str, Oid | None]:
    """Compare every expectation with what is stored; return what changes, in order of name.

    Raises `Contention`, `MissingObject`, or `StoreError` for a name that would be the folder of
    another.
    """
    changes = dict[str, Oid | None]()
    for name, expected, new in updates:
        current = changes[name] if name in changes else view.current.get(name)
        if current != expected:
            raise Contention(
                f"ref {name} in {view.location} holds {current or 'nothing'}, not "
                f"{expected or 'nothing'}: somebody moved it; load it again and retry"
            )
        changes[name] = new
    for update in updates:
        if update.new is not None and update.new not in objects and update.new not in view.known:
            raise MissingObject(update.new, view.location)
    changes = {name: new for name, new in sorted(changes.items()) if new != view.current.get(name)}
    for name, new in changes.items():
        if new is not None and name not in view.current:
            _refuse_name_in_the_way(view, name, changes)
    return changes


def _refuse_name_in_the_way(view: RefView, name: str, changes: Mapping[str, Oid | None]) -> None:
    parents = set(parent_names(name))
    others = (o for o in (*view.around, *changes) if o in parents or o.startswith(name + "/"))
    for other in others:
        if changes.get(other, other) is not None:  # it is there, and this write does not remove it
            raise name_in_the_way(name, other, view.location)


# -- `MemoryBackend` --


class MemoryBackend:
    """An `ObjectBackend` over dictionaries; all refs of a write move or none."""

    is_local = True

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

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for. Raises `MissingObject` for the first that is absent."""
        return taken(self._objects, oids, self.location)

    def object_count(self) -> int:
        """Return how many objects are stored."""
        return len(self._objects)

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

    def size(self) -> int:
        """Return the bytes of all objects."""
        return sum(len(item.data) for item in list(self._objects.values()))

    def require_collectable(self) -> None:
        """Do nothing: all that the store holds stands in its dictionaries."""

    def collect(self) -> None:
        """Remove every object that no ref reaches."""
        with self._mutex:
            kept: set[Oid] = set()
            reach(self.read_many, self._refs.values(), kept)
            self._objects = {oid: item for oid, item in self._objects.items() if oid in kept}

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self._locks.queue(name)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[ThreadLock]:
        """Hold the named lock for the length of a `with`.

        Raises `SessionBusy`, naming the holder, when it is not free within `wait` seconds.
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"


# -- key and value storage under its published names --


_PREFIX = "refs/kv/"
_ATTEMPTS = 64


class KVBackend(ABC):
    """Dictionaries of plain JSON types under text keys."""

    @abstractmethod
    async def set(self, key: str, value: dict[str, Any]) -> None:
        """Store a value under a key."""

    @abstractmethod
    async def get(self, key: str) -> dict[str, Any] | None:
        """Return the value under a key, or `None`."""

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Remove a key; one that is absent is fine."""

    @abstractmethod
    async def keys(self) -> list[str]:
        """Return all keys, sorted."""

    async def aclose(self) -> None:  # noqa: B027 - nothing to close is the common case
        """Give back what the backend holds."""


class AppendBackend(KVBackend):
    """The base of the stores that hold sessions as objects, beside values under keys.

    The first save of a session writes all of it, a later one appends the commits that are new and
    the queue they leave. All our stores do so.
    """


class ObjectKVBackend(AppendBackend):
    """The key and value face of an object backend that has no table for values."""

    async def set(self, key: str, value: dict[str, Any]) -> None:
        """Store a value under a key. Raises `InvalidName`, `ValueError` for what is not plain JSON."""
        encode_name(key)
        data = canonical.encode({"key": key, "value": value})
        await in_thread(partial(_set, self._as_objects(), key, data))

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return the value under a key, or `None`."""
        found: Any = await in_thread(_get, self._as_objects(), _ref(key))
        return None if found is None else found["value"]

    async def delete(self, key: str) -> None:
        """Remove a key; one that is absent is fine."""
        await in_thread(partial(_set, self._as_objects(), key, None))

    async def keys(self) -> list[str]:
        """Return all keys, sorted."""
        return await in_thread(_keys, self._as_objects())

    async def aclose(self) -> None:
        """Close the store."""
        await in_thread(self._as_objects().close)

    def _as_objects(self) -> ObjectBackend:
        assert isinstance(self, ObjectBackend)
        return self


class InMemoryKVBackend(MemoryBackend, ObjectKVBackend):
    """A store in the memory of this process."""


def _ref(key: str) -> str:
    return _PREFIX + encode_name(key)


def _set(backend: ObjectBackend, key: str, data: bytes | None) -> None:
    ref = _ref(key)
    new = None if data is None else object_id("blob", data)
    objects = {} if data is None or new is None else {new: GitObject("blob", data)}
    for attempt in range(_ATTEMPTS):
        old = backend.refs(ref).get(ref)
        if old == new:
            return
        try:
            backend.write(objects, [RefUpdate(ref, old, new)])
            return
        except Contention:
            if attempt == _ATTEMPTS - 1:
                raise


def _get(backend: ObjectBackend, ref: str) -> Any:
    oid = backend.refs(ref).get(ref)
    return None if oid is None else _record(backend.read_many([oid])[oid].data)


def _keys(backend: ObjectBackend) -> list[str]:
    oids = backend.refs(_PREFIX).values()
    return sorted(_record(found.data)["key"] for found in backend.read_many(oids).values())


@refusing_damage("the value under a key")
def _record(data: bytes) -> dict[str, Any]:
    record: Any = canonical.decode(data)
    if not isinstance(record["key"], str):
        raise TypeError(f"its key is {record['key']!r}")
    return {"key": record["key"], "value": record["value"]}
