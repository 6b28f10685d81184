"""Moving stores: everything a store holds, to or from another store or a bundle, ids unchanged.

Owns what is taken along (all refs, and the values of the key and value face), the refusal to
overwrite, and the order of writes. What a published version of reactifact wrote is `importing`'s.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ._sessions import importing
from ._sessions.stores import StoreLike, is_dsn, open_database
from ._store._backends.bundle import BundleBackend, is_bundle, write_bundle
from ._store._backends.document import DocumentBackend, reach
from ._store._backends.kv import KVBackend, MemoryBackend, ObjectKVBackend
from ._store._backends.published import Published, published_at
from ._store._backends.sql.postgres import PostgreSQLKVBackend, published_in
from ._store.branch import MAIN
from ._store.names import is_ledger_ref
from ._store.object_db import Database
from ._store.objects import GitObject, Oid
from ._store.protocol import ObjectBackend, Progress, RefUpdate, object_count
from .errors import NameTaken, NotAStore, StoreError
from .threads import in_thread

_VALUES = "refs/kv/"
_BATCH_OBJECTS = 5_000
_BATCH_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Moved:
    """What was brought over: refs and values that were not there yet, objects written for them."""

    refs: int
    values: int
    objects: int


async def export_store(source: StoreLike, place: StoreLike, *, progress: Progress | None = None) -> Moved:
    """Bring all that a store holds to `place`, which is made when absent; every id stays.

    A place that ends in `.bundle` becomes a git bundle, any other what `SessionStore` makes of it.
    `progress` is called in a worker thread with how many objects were copied, and about how many there are.
    Raises `NameTaken`, and writes nothing, where a ref at the place stands on another commit;
    `NotAStore` for a source or a place that is something else, `StoreError` when the disk refuses.
    """
    return await _opened(source, place, progress)


async def import_store(
    place: StoreLike,
    target: StoreLike,
    *,
    session: str | None = None,
    progress: Progress | None = None,
) -> Moved:
    """Bring all that a store, a bundle or the data of a published reactifact holds to `target`.

    `session` is the name for a checkpoint of the published package, which has none (default: the
    name of its file). `progress` is called as by `export_store`. Raises as `export_store` does; data of
    the published package that is damaged raises `NotAStore`, naming the key.
    """
    found = await in_thread(_published, place)
    if found is None:
        if session is not None:
            raise StoreError(f"{place} holds sessions under names of their own; leave out the session")
        return await _opened(place, target, progress)
    staged = Database(MemoryBackend())
    await in_thread(importing.write_sessions, staged, found, session)
    face = _face(staged.backend)
    assert face is not None
    for key, value in found.values.items():
        await face.set(key, value)
    if not is_dsn(target):
        return await _to_place(staged, target, progress)
    backend = await in_thread(partial(PostgreSQLKVBackend, target, beside_published=True))
    try:
        return await _to_place(staged, backend, progress)
    finally:
        await in_thread(backend.close)


async def copy_store(source: Database, target: Database, progress: Progress | None = None) -> Moved:
    """Bring all refs and values of one database into another. Raises `NameTaken`, `StoreError`."""
    refs = await in_thread(_missing_refs, source.backend, target.backend)
    values = await _missing_values(source.backend, target.backend)
    objects = await in_thread(_copy, source, target, refs, progress)
    face = _face(target.backend)
    for key, value in values.items():
        assert face is not None
        await face.set(key, value)
    return Moved(len(refs), len(values), objects)


async def _opened(source: StoreLike, place: StoreLike, progress: Progress | None) -> Moved:
    path = _path(source)
    if path is not None and is_bundle(path):
        database = Database(await in_thread(BundleBackend, path))
    else:
        database = await in_thread(partial(open_database, source, read_only=True))
    try:
        return await _to_place(database, place, progress)
    finally:
        if database is not source and database.backend is not source:
            await in_thread(database.backend.close)


async def _to_place(source: Database, place: StoreLike, progress: Progress | None) -> Moved:
    path = _path(place)
    if path is not None and (path.endswith(".bundle") or is_bundle(path)):
        return await _to_bundle(source, path, progress)
    target = await in_thread(open_database, place)
    try:
        return await copy_store(source, target, progress)
    finally:
        if target is not place and target.backend is not place:
            await in_thread(target.backend.close)


async def _to_bundle(source: Database, path: str, progress: Progress | None) -> Moved:
    staged = Database(MemoryBackend())
    moved = await copy_store(source, staged, progress)
    refs = staged.backend.refs()
    if not refs:
        raise StoreError(f"{source.backend.location} holds nothing that could be exported")
    if os.path.lexists(path):
        if not is_bundle(path):
            raise NotAStore(f"{path} is there and is not a bundle; choose another name")
        known = (await in_thread(BundleBackend, path)).refs()
        _refuse({name: oid for name, oid in known.items() if refs.get(name) != oid}, path)
        if known == refs:
            return Moved(0, 0, 0)
    lines = [n for n in refs if n.startswith("refs/heads/") and not is_ledger_ref(n)]
    head = min(lines, key=lambda name: (not name.endswith(f"/{MAIN}"), name), default=None)
    listed = refs if head is None else {**refs, "HEAD": refs[head]}
    objects = await in_thread(reach, staged, refs.values())
    await in_thread(write_bundle, path, listed, objects)
    return moved


# -- refs ------------------------------------------------------------------------------------------


def _missing_refs(source: ObjectBackend, target: ObjectBackend) -> dict[str, Oid]:
    """Return the refs that the target lacks. Raises `NameTaken` for those that stand elsewhere."""
    refs = {name: oid for name, oid in source.refs().items() if not name.startswith(_VALUES)}
    known = target.refs() if refs else {}
    _refuse([name for name, oid in refs.items() if known.get(name, oid) != oid], target.location)
    return {name: oid for name, oid in refs.items() if name not in known}


def _refuse(taken: Collection[str], location: str) -> None:
    if taken:
        names = sorted(taken)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise NameTaken(
            f"{location} holds something else under {', '.join(names[:3])}{more}; nothing was written: "
            f"delete those there, or bring it to a place of its own and merge"
        )


def _copy(source: Database, target: Database, refs: Mapping[str, Oid], progress: Progress | None) -> int:
    """Write refs with what they reach, whole sessions at a time; return the number of objects."""
    total = None if progress is None else object_count(source.backend)
    written: set[Oid] = set()
    objects: dict[Oid, GitObject] = {}
    updates: list[RefUpdate] = []
    size = 0

    def walked(count: int) -> None:
        if progress is not None:
            progress(len(written) + count, total)

    for group in _by_session(refs):
        found = reach(source, group.values(), written, walked)
        written |= found.keys()
        objects |= found
        size += sum(len(item.data) for item in found.values())
        updates += [RefUpdate(name, None, oid) for name, oid in group.items()]
        if len(objects) >= _BATCH_OBJECTS or size >= _BATCH_BYTES:
            target.backend.write(objects, updates)
            objects, updates, size = {}, [], 0
    if updates:
        target.backend.write(objects, updates)
    return len(written)


def _by_session(refs: Mapping[str, Oid]) -> Iterator[dict[str, Oid]]:
    """Yield the refs of each session, its ledger before its branches."""
    groups: dict[str, dict[str, Oid]] = {}
    for name in sorted(refs, key=lambda name: (not is_ledger_ref(name), name)):
        parts = name.split("/")
        place = 3 if parts[1] == "reactifact" else 2
        groups.setdefault(parts[place] if len(parts) > place else "", {})[name] = refs[name]
    yield from groups.values()


# -- values ----------------------------------------------------------------------------------------


class _Face(ObjectKVBackend):
    """The values among the refs of an object backend that has no such methods itself."""

    def __init__(self, backend: ObjectBackend) -> None:
        self._backend = backend

    def _as_objects(self) -> ObjectBackend:
        return self._backend


def _face(backend: ObjectBackend) -> KVBackend | None:
    if isinstance(backend, KVBackend):
        return backend
    # A user's own backend holds documents of sessions; values beside them are the user's.
    return None if isinstance(backend, DocumentBackend) else _Face(backend)


async def _missing_values(source: ObjectBackend, target: ObjectBackend) -> dict[str, dict[str, Any]]:
    """Return the values that the target lacks. Raises `NameTaken` for keys that hold another one."""
    ours, theirs = _face(source), _face(target)
    keys = [] if ours is None else await ours.keys()
    if not keys or ours is None:
        return {}
    if theirs is None:
        raise StoreError(
            f"{source.location} holds values under keys (the first: {keys[0]!r}), and {target.location} "
            f"keeps sessions only; choose another kind of store"
        )
    found: dict[str, dict[str, Any]] = {}
    taken = []
    for key in keys:
        value, known = await ours.get(key), await theirs.get(key)
        if known is not None and known != value:
            taken.append(f"the key {key!r}")
        elif known is None and value is not None:
            found[key] = value
    _refuse(taken, target.location)
    return found


def _published(place: StoreLike) -> Published | None:
    if is_dsn(place):
        return published_in(place)
    path = _path(place)
    return None if path is None else published_at(path)


def _path(place: StoreLike) -> str | None:
    """Return the path that a place means, `None` for a DSN or a backend."""
    if not isinstance(place, str | os.PathLike):
        return None
    path = os.fsdecode(os.fspath(place))
    return None if "://" in path else path
