"""What a backend is: read objects, list refs, write objects and move refs by compare-and-swap, lend a lock.

Owns the protocol, and what every backend refuses alike: malformed names of refs, objects that are absent or
stand under a wrong id, refs in the way of others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ..errors import DamagedRef, InvalidName, MissingObject, StoreError
from ._backends.locks import LockQueue
from .objects import GitObject, Oid, misnamed, object_id, require_size

# -- the one protocol between reactifact and the place where objects and refs live --


Durability = Literal["full", "strict", "os"]
"""`full`: a write is on stable storage when it returns. `os`: it survives a killed process, no power cut."""


Progress = Callable[[int, int | None], None]
"""Told how much is done, and of how much (`None`: not known). Called often, and in a worker thread."""


class RefUpdate(NamedTuple):
    """One compare-and-swap of a ref.

    `expected` is the id the ref must hold now (`None`: it must not exist); `new` is the id it is
    set to (`None`: it is deleted).
    """

    name: str
    expected: Oid | None
    new: Oid | None


class HeldLock(Protocol):
    """A named lock that is held."""

    def require_held(self) -> None:
        """Ask whether it is still ours. Raises `LockLost` where it went, or may have gone, to another."""
        ...


@runtime_checkable
class ObjectBackend(Protocol):
    """Where objects and refs live. Synchronous: callers bring it to worker threads.

    Every method may be called from several threads at once.
    """

    @property
    def location(self) -> str:
        """A text that names the store in messages (a path, a DSN without password, `memory`)."""
        ...

    @property
    def is_local(self) -> bool:
        """True where a read is so quick that it may be made on the event loop."""
        ...

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for. Raises `MissingObject` for the first that is absent."""
        ...

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, by name.

        A prefix that is a whole ref name, or ends in a slash, costs what lies under it, not what
        the store holds. Raises `DamagedRef` where that ref, or one under that slash, cannot be read.
        """
        ...

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects`, then move the refs in the order given.

        When this returns, everything is on stable storage as far as the backend's durability
        promises. Raises `Contention` when a ref does not hold what was expected, and
        `MissingObject` when a ref would point at an object that is not there. Where the backend
        has transactions all refs move or none; in files, those before the refused one have moved.
        """
        ...

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        ...

    def lock(self, name: str, *, wait: float = 0.0) -> AbstractContextManager[HeldLock]:
        """Hold the named lock for the length of a `with`.

        It is exclusive between threads, contexts and processes, and dies with its holder. Raises
        `SessionBusy`, naming the holder, when it is not free within `wait` seconds. Names are free
        text; the backend makes them safe. The `with` gives the lock, which can be asked whether it is
        still held.
        """
        ...

    def close(self) -> None:
        """Give back files, connections and descriptors. Closing twice is fine."""
        ...


@runtime_checkable
class ReadsLines(Protocol):
    """A backend that knows what is likely to be asked for next, and reads it with what is asked for."""

    def read_line(self, oid: Oid, most: int) -> dict[Oid, GitObject]:
        """Return an object; if it is a commit, with about `most` of those from which it follows.

        They follow by way of first parents. How many they are, and whether there are others among them, is
        left to the backend: what is absent here may be there for `read_many`. Raises `MissingObject`.
        """
        ...


@runtime_checkable
class CachesHistory(Protocol):
    """A backend in which other programs keep indexes of the commit graph."""

    def forget_history(self) -> None:
        """Remove indexes of commits that may be gone by the next time somebody looks."""
        ...


class RefScan(NamedTuple):
    """The refs that can be read, by name, and an error for each that cannot be."""

    refs: dict[str, Oid]
    damaged: tuple[DamagedRef, ...] = ()

    def whole(self, prefix: str) -> dict[str, Oid]:
        """Return the refs. Raises `DamagedRef` for one that is what `prefix` asks for.

        A prefix that does not end in a slash asks for the ref of that name and for what lies in its
        folder, not for its neighbours.
        """
        folder = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
        for error in self.damaged:
            if error.ref == prefix or error.ref.startswith(folder):
                raise error
            if not error.ref.startswith("refs/") and prefix not in self.refs:
                raise error  # what it hides is not known
        return self.refs


@runtime_checkable
class ScansRefs(Protocol):
    """A backend that can list refs although some of them are damaged."""

    def scan_refs(self, prefix: str = "refs/") -> RefScan:
        """Return what `refs` does, and apart from it the refs that cannot be read."""
        ...


def scan_refs(backend: ObjectBackend, prefix: str = "refs/") -> RefScan:
    """Return the readable and the damaged refs of a backend; from one that cannot scan, all or an error."""
    return backend.scan_refs(prefix) if isinstance(backend, ScansRefs) else RefScan(backend.refs(prefix))


@runtime_checkable
class RecallsRefs(Protocol):
    """A backend far away, which need not be asked twice for what it said a moment ago."""

    def recalling(self, *prefixes: str) -> AbstractContextManager[None]:
        """Let this thread see the refs, for the length of a `with`, as they were when it asked first.

        Those below `prefixes` are read with what it asks first, be it other refs or a lock. A write of this
        thread is seen.
        """
        ...


def recalling(backend: ObjectBackend, *prefixes: str) -> AbstractContextManager[None]:
    """Return the `with` of a backend that recalls refs; from another one each look is a new one."""
    if backend.is_local or not isinstance(backend, RecallsRefs):
        return nullcontext()
    return backend.recalling(*prefixes)


@runtime_checkable
class ReleasesTogether(Protocol):
    """A backend far away, which gives several locks back in one go."""

    def releasing(self) -> AbstractContextManager[None]:
        """Let the locks that this thread gives back inside of the `with` go together at its end."""
        ...


def releasing(backend: ObjectBackend) -> AbstractContextManager[None]:
    """Return the `with` of a backend that gives locks back together; from another one each goes at once."""
    return backend.releasing() if isinstance(backend, ReleasesTogether) else nullcontext()


class RefWatch(Protocol):
    """Tells which refs moved. It is asked by one thread at a time."""

    def moved(self) -> set[str] | None:
        """Return the refs that moved since it was made, or asked last; `None` where that is not known."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable once a ref has moved; -1: there is none, ask now and then."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


@runtime_checkable
class WatchesRefs(Protocol):
    """A backend that can say, for next to nothing, that no ref moved."""

    def watch_refs(self) -> RefWatch:
        """Return a watch of all refs."""
        ...


@runtime_checkable
class FetchesRefs(Protocol):
    """A backend into which git fetches the refs of other stores."""

    def fetched_refs(self) -> dict[str, Oid]:
        """Return those refs, as far as they can be read, by their full names below `refs/remotes/`."""
        ...

    def identity(self, *, create: bool = True) -> str:
        """Return what no other store is called, a copy or a clone of this one included; empty without one."""
        ...


class RefMove(NamedTuple):
    """A move of a ref from one id to another; forty zeros stand for none."""

    old: Oid
    new: Oid
    when: datetime


@runtime_checkable
class LogsMoves(Protocol):
    """A backend in which git moves refs too, and notes that it did."""

    def moves_by_git(self, name: str) -> list[RefMove]:
        """Return the last moves of a ref that git made, the oldest first, as far as they are known."""
        ...

    def forget_moves(self, before: datetime) -> int:
        """Let go of what git moved before a moment, which holds what it names; return how many moves."""
        ...


@runtime_checkable
class ChecksIndexes(Protocol):
    """A backend that finds objects by indexes which reading alone does not check."""

    def check_indexes(self) -> None:
        """Raise `StoreError` for an index that is damaged."""
        ...


@runtime_checkable
class CountsObjects(Protocol):
    """A backend that can say, without reading them, how many objects it holds."""

    def object_count(self) -> int:
        """Return how many objects are stored, those that no ref reaches included; about right is enough."""
        ...


def object_count(backend: ObjectBackend) -> int | None:
    """Return about how many objects a backend holds; `None` where it cannot say."""
    return backend.object_count() if isinstance(backend, CountsObjects) else None


@runtime_checkable
class Maintained(Protocol):
    """A backend that wants its files tidied from time to time."""

    @property
    def needs_maintenance(self) -> bool:
        """Whether enough has gathered that a call is worth it."""
        ...

    def maintain(self) -> bool:
        """Tidy up in a bounded step, safe beside readers and writers; return whether it did."""
        ...


class Pruned(NamedTuple):
    """What a prune did: rows that are gone, the bytes they held, rows that wait for their grace.

    `operations` counts the moves of branches that can no longer be undone, because what they dropped is
    held no more: in a bare repository the next `git gc` removes it.
    """

    objects: int
    size: int
    waiting: int
    operations: int = 0


@runtime_checkable
class Prunable(Protocol):
    """A backend in which what no ref reaches stays until somebody asks for its removal."""

    def prune(
        self, *, grace: float = 3600.0, rewrite: bool = False, progress: Progress | None = None
    ) -> Pruned:
        """Remove what no ref has reached for `grace` seconds; `rewrite` also writes the tables anew.

        `progress` is told how many of the objects it has looked at.
        """
        ...


@runtime_checkable
class Collectable(Protocol):
    """A backend that can remove what no ref reaches so that no byte of it is left in its files."""

    def require_collectable(self) -> None:
        """Raise `StoreError` where bytes would stay in a place that this store does not own."""
        ...

    def collect(self) -> None:
        """Remove every object that no ref reaches, at once and for good. Raises `StoreError`.

        What rests on such an object and is not saved yet is lost, as with a prune without grace.
        """
        ...


@runtime_checkable
class Sized(Protocol):
    """A backend that can say how much room it takes."""

    def size(self) -> int:
        """Return the bytes that the store takes where it lies; a bare repository, its objects. Blocks."""
        ...


# -- what every backend refuses alike --


_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{")
_OID = re.compile(r"[0-9a-f]{40}")

MAX_PART = 250
"""Bytes of one part of a ref name: a file name of 255 less git's `.lock`."""
MAX_NAME = 1023
"""Bytes of a whole ref name that git still reads."""


@lru_cache(maxsize=4096)
def check_ref_name(name: str) -> None:
    """Refuse what `git check-ref-format` refuses, and what a file system could not hold.

    Raises `InvalidName`.
    """
    parts = name.split("/")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise InvalidName(f"ref name {name!r} cannot be written as UTF-8; encode it first") from None
    if len(parts) < 2 or parts[0] != "refs":
        reason = "it does not start with refs/"
    elif not all(parts):
        reason = "it has an empty part"
    elif any(part.startswith(".") or part.endswith((".lock", ".")) for part in parts):
        reason = "a part starts with a dot, or ends in a dot or in .lock"
    elif _FORBIDDEN.search(name) or name == "@":
        reason = "it holds a character or sequence that git forbids"
    elif max(sizes) > MAX_PART or sum(sizes) + len(parts) - 1 > MAX_NAME:
        reason = f"a part is over {MAX_PART} bytes, or the whole over {MAX_NAME}"
    else:
        return
    raise InvalidName(f"{name!r} cannot name a ref: {reason}; percent-encode its parts")


def check_durability(durability: Durability) -> Durability:
    """Return what was handed in. Raises `ValueError` for what is neither `full`, `strict` nor `os`."""
    if durability not in ("full", "strict", "os"):
        raise ValueError(f"durability is 'full', 'strict' or 'os', not {durability!r}")
    return durability


def check_oid(oid: Oid) -> None:
    """Refuse what is not forty lower-case hex digits. Raises `StoreError`."""
    if not _OID.fullmatch(oid):
        raise StoreError(f"{oid!r} is not an object id: forty lower-case hex digits are expected")


def check_objects(objects: Mapping[Oid, GitObject], max_object: int | None = None) -> None:
    """Refuse objects under another id than their own, and those that are too large. Raises `StoreError`."""
    for oid, (kind, data) in objects.items():
        if max_object is not None and len(data) > max_object:
            require_size(f"the {kind} {oid}, which was not written,", len(data), max_object)
    for oid in misnamed(objects):
        kind, data = objects[oid]
        raise StoreError(
            f"the {kind} handed in as {oid} is {object_id(kind, data)}: nothing was written; "
            f"take ids from object_id()"
        )


def taken(objects: Mapping[Oid, GitObject], oids: Iterable[Oid], location: str) -> dict[Oid, GitObject]:
    """Return the objects of some ids. Raises `MissingObject` for the first that is absent."""
    found: dict[Oid, GitObject] = {}
    for oid in oids:
        item = objects.get(oid)
        if item is None:
            raise MissingObject(oid, location)
        found[oid] = item
    return found


def parent_names(name: str) -> Iterator[str]:
    """Yield the names that a ref may not have while `name` exists: its own leading parts."""
    end = name.rfind("/")
    while end > len("refs"):
        yield name[:end]
        end = name.rfind("/", 0, end)


def name_in_the_way(name: str, other: str, location: str) -> StoreError:
    """Return the error for two refs of which one would be the folder of the other."""
    return StoreError(
        f"ref {name} cannot be created in {location}: ref {other} exists and one would be the "
        f"folder of the other; delete or rename {other}"
    )


class ReadOnlyBackend:
    """Another backend that is read and never written; whoever derives from it says how objects are read."""

    def __init__(self, inner: ObjectBackend) -> None:
        self._inner = inner

    @property
    def location(self) -> str:
        """The location of the backend behind it."""
        return self._inner.location

    @property
    def is_local(self) -> bool:
        """As the backend behind it."""
        return self._inner.is_local

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
