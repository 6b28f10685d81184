"""A session as one document: its shape, and a backend that keeps it in a user's own `KVBackend`."""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from anyio import from_thread, to_thread

from ...errors import DamagedRef, NotAStore, StoreError
from ...threads import is_on_loop
from ..migrations import current_document
from ..names import decode_name, is_cut
from ..object_db import Database, Objects
from ..objects import GitObject, Kind, Oid, TreeEntry, encode_tree, object_id, parse_tree, references
from ..protocol import RefUpdate, taken
from .kv import KVBackend, RefView, check_write, plan_refs
from .locks import LockQueue, ThreadLock, ThreadLocks

# -- objects and refs as one dictionary of plain JSON types, and back --


FORMAT_VERSION = 1

Document = dict[str, Any]

_BINARY = ":base64"
_OID = re.compile(r"[0-9a-f]{40}")
_LINE = re.compile(r"([0-7]+) ([0-9a-f]{40}) (.+)")


def new_document(session: str, refs: Mapping[str, Oid], objects: Mapping[Oid, str]) -> Document:
    """Return a document that shares nothing that can change with its arguments."""
    return {
        "format_version": FORMAT_VERSION,
        "session": session,
        "refs": dict(refs),
        "objects": dict(objects),
    }


def checked_document(document: Mapping[str, Any], where: str) -> Document:
    """Return a document in today's format.

    Raises `NotAStore` for what is not a document of ours, `FormatTooNew`, and `StoreError` for an older
    format that no step leads on from.
    """
    version = document.get("format_version")
    found = current_document(document, version, FORMAT_VERSION, where) if type(version) is int else {}
    if not isinstance(found.get("objects"), dict) or not isinstance(found.get("refs"), dict):
        raise NotAStore(
            f"{where} is not a document of this version; if an earlier one wrote it, bring it over with "
            f"`reactifact import`"
        )
    return found


def checked_refs(refs: Mapping[str, Any], where: str) -> dict[str, Oid]:
    """Return the refs of a document. Raises `DamagedRef` for one without an object id."""
    for name, oid in refs.items():
        if not isinstance(oid, str) or not _OID.fullmatch(oid):
            raise DamagedRef(
                name,
                where,
                f"holds {repr(oid)[:60]}, which is not an object id",
                "restore the document from a copy or a backup",
            )
    return dict(refs)


def encode_object(item: GitObject) -> str:
    """Return one object as text."""
    text = _tree_text(item.data) if item.kind == "tree" else _text(item.data)
    if text is None:
        return f"{item.kind}{_BINARY} {base64.b64encode(item.data).decode()}"
    return f"{item.kind} {text}"


def decode_object(oid: Oid, text: str, where: str) -> GitObject:
    """Return the object of a text, checked against its id. Raises `StoreError` for a damaged one."""
    try:
        head, _, body = text.partition(" ")
        kind = cast(Kind, head.removesuffix(_BINARY))
        if head.endswith(_BINARY):
            data = base64.b64decode(body, validate=True)
        else:
            data = _tree_data(body) if kind == "tree" else body.encode()
        damaged = object_id(kind, data) != oid
    except (AttributeError, ValueError, binascii.Error):
        damaged = True
    if damaged:
        raise StoreError(f"object {oid} in {where} is damaged; restore it from a copy or a backup")
    return GitObject(kind, data)


def reach(
    objects: Objects,
    tips: Iterable[Oid],
    known: Collection[Oid] = (),
    walked: Callable[[int], None] = lambda count: None,
) -> dict[Oid, GitObject]:
    """Return every object that `tips` reach, without those `known` and what only they reach.

    Read level by level, so that a remote store is asked few times; `walked` is told how many were found so
    far. Raises `MissingObject`.
    """
    found: dict[Oid, GitObject] = {}
    level = [oid for oid in dict.fromkeys(tips) if oid not in known]
    while level:
        objects.prefetch(level)
        below: dict[Oid, None] = {}
        for oid in level:
            found[oid] = item = objects.read(oid)
            below.update((under, None) for under, _ in references(item))
        walked(len(found))
        level = [oid for oid in below if oid not in found and oid not in known]
    return found


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _tree_text(data: bytes) -> str | None:
    try:
        text = "\n".join(f"{entry.mode:06o} {entry.oid} {name}" for name, entry in parse_tree(data).items())
        return text if _tree_data(text) == data else None
    except (ValueError, UnicodeEncodeError):
        return None


def _tree_data(text: str) -> bytes:
    entries: dict[str, TreeEntry] = {}
    for line in text.split("\n") if text else ():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is not a line of a tree")
        entries[match[3]] = TreeEntry(int(match[1], 8), match[2])
    return encode_tree(entries)


# -- `DocumentBackend`: a store over a user's own `KVBackend`, one document a session --


T = TypeVar("T")

_PREFIX = "session-"


@dataclass
class _Session:
    """What the document of one session held when it was last read or written."""

    refs: dict[str, Oid] = field(default_factory=dict)
    objects: dict[Oid, str] = field(default_factory=dict)


class DocumentBackend:
    """The sessions that a `KVBackend` holds, each under the key `session-<encoded id>`.

    A save writes the whole document of its session, so it costs what the session holds: the other
    stores append. The backend's methods run on the event loop that they were made for; the methods
    here are called in worker threads.

    A `KVBackend` has no compare-and-swap: what another process wrote is seen and refused as a lost
    race, but not in the moment between the check and the write. Let one process at a time write a
    session. Locks hold within this process.
    """

    def __init__(self, backend: KVBackend) -> None:
        self.backend = backend
        self._writing = threading.Lock()
        self._objects: dict[Oid, GitObject] = {}
        self._sessions: dict[str, _Session] = {}  # by their part of a ref's name
        self._locks = ThreadLocks(self.location)

    @property
    def location(self) -> str:
        """The class of the backend."""
        return type(self.backend).__name__

    @property
    def is_local(self) -> bool:
        """Always false: only a worker thread can wait for the backend."""
        return False

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for, of the sessions that were read. Raises `MissingObject`."""
        return taken(self._objects, oids, self.location)

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, in order of name.

        On the event loop, where nothing can be waited for, as they were when last read.
        """
        one = _session_of_prefix(prefix)
        if not is_on_loop():
            names = self._stored() if one is None else [one]
            for name in names:
                self._read(name)
            if one is None:
                for gone in self._sessions.keys() - set(names):
                    self._sessions[gone] = _Session()
        elif one is None or one not in self._sessions:
            raise StoreError(
                f"refs {prefix!r} of {self.location} were asked for on the event loop before they were "
                f"read in a worker thread; this store can only be waited for there"
            )
        sessions = list(self._sessions.values()) if one is None else [self._sessions[one]]
        found = {name: oid for session in sessions for name, oid in session.refs.items()}
        return {name: found[name] for name in sorted(found) if name.startswith(prefix)}

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs: all of one session or none.

        Raises `Contention`, `MissingObject`, `InvalidName` or `StoreError`, and what the user's
        backend raises.
        """
        check_write(objects, updates)
        with self._writing:
            names = list(dict.fromkeys(_session_of(update.name) for update in updates))
            for name in names:
                self._read(name)
            before = {ref: oid for name in names for ref, oid in self._sessions[name].refs.items()}
            changes = plan_refs(self._view(before), objects, updates)
            self._objects.update(objects)
            for name in names:
                own = {ref: new for ref, new in changes.items() if _session_of(ref) == name}
                if own:
                    self._save(name, own)

    def require_collectable(self) -> None:
        """Do nothing: all of a session stands in its document."""

    def collect(self) -> None:
        """Write every document anew with what its refs reach, and nothing else."""
        with self._writing:
            kept: set[Oid] = set()
            for name in self._stored():
                self._read(name)
                self._save(name, {}, anew=True)
                kept |= self._sessions[name].objects.keys()
            self._objects = {oid: item for oid, item in self._objects.items() if oid in kept}

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self._locks.queue(name)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[ThreadLock]:
        """Hold the named lock for the length of a `with`, against the threads of this process.

        Raises `SessionBusy`, naming the holder, when it is not free within `wait` seconds.
        """
        with self._locks.hold(name, wait) as lock:
            yield lock

    def close(self) -> None:
        """Close the backend. Closing twice is as fine as it is for the backend."""
        self._call(self.backend.aclose)

    # -- documents -----------------------------------------------------------------------------

    def _stored(self) -> list[str]:
        keys = self._call(self.backend.keys)
        return [key.removeprefix(_PREFIX) for key in keys if key.startswith(_PREFIX)]

    def _read(self, name: str) -> None:
        where = f"key {_PREFIX}{name} of {self.location}"
        document = self._call(self.backend.get, _PREFIX + name)
        session = _Session()
        if document is not None:
            document = checked_document(document, where)
            session = _Session(checked_refs(document["refs"], where), dict(document["objects"]))
        for oid, text in session.objects.items():
            if oid not in self._objects:
                self._objects[oid] = decode_object(oid, text, where)
        self._sessions[name] = session

    def _save(self, name: str, changes: Mapping[str, Oid | None], *, anew: bool = False) -> None:
        old = self._sessions[name]
        moved = {ref: changes.get(ref, old.refs.get(ref)) for ref in {**old.refs, **changes}}
        refs = {ref: oid for ref, oid in moved.items() if oid is not None}
        is_smaller = anew or refs.keys() < old.refs.keys()
        known = {} if is_smaller else old.objects  # what a deleted branch alone held goes with it
        more = reach(Database(self), refs.values() if is_smaller else _new(changes), known)
        texts = {oid: old.objects.get(oid) or encode_object(item) for oid, item in more.items()}
        session = _Session(refs, {**known, **texts})
        key = _PREFIX + name
        if refs:
            title = name if is_cut(name) else decode_name(name) or name
            self._call(self.backend.set, key, new_document(title, session.refs, session.objects))
        else:
            self._call(self.backend.delete, key)
        self._sessions[name] = session

    def _view(self, current: Mapping[str, Oid]) -> RefView:
        return RefView(
            location=self.location,
            current=current,
            known=self._objects.keys(),
            around=current.keys(),
        )

    def _call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async method on the event loop, from a worker thread.

        The thread lends its place among the worker threads meanwhile: a backend that needs one
        would else wait for the threads that wait for it.
        """

        async def call() -> T:
            limiter = to_thread.current_default_thread_limiter()
            limiter.total_tokens += 1
            try:
                return await function(*args)
            finally:
                limiter.total_tokens -= 1

        return from_thread.run(call)


def _new(changes: Mapping[str, Oid | None]) -> list[Oid]:
    return [oid for oid in changes.values() if oid is not None]


def _session_of(ref: str) -> str:
    """Return the part of a ref's name that tells its session: all refs of one stand in one document."""
    parts = ref.split("/")
    if parts[1] == "reactifact" and len(parts) > 3:
        return parts[3]
    return parts[2] if len(parts) > 2 else parts[1]


def _session_of_prefix(prefix: str) -> str | None:
    """Return the one session that all refs of a prefix belong to, `None` where there may be several."""
    parts = prefix.split("/")
    whole = 5 if parts[1:2] == ["reactifact"] else 4
    return _session_of(prefix) if len(parts) >= whole and parts[0] == "refs" else None
