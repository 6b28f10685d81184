"""Key and value storage under its published names.

Owns `KVBackend` (what users may implement themselves) and the stores that are both an
`ObjectBackend` and a `KVBackend`: a value is a blob under a ref below `refs/kv/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from ..errors import Contention
from ..threads import in_thread
from . import canonical
from .bare import GitBackend
from .damage import refusing_damage
from .memory import MemoryBackend
from .names import encode_name
from .objects import GitObject, object_id
from .protocol import ObjectBackend, RefUpdate

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


class FileKVBackend(GitBackend, ObjectKVBackend):
    """A bare git repository under its published name; `directory` is made on demand."""


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
