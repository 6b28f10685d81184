"""Which rows of a SQL store a prune removes: those that no ref has reached for some time.

Owns the walk and the decision; the rows themselves are read and removed by each store. What makes it safe
beside writers is one invariant: **whatever a stored object refers to is stored too.** A prune keeps it,
since what it leaves is closed: all that the refs reach, all that came while it walked, all that is not
unreachable for long enough, and whatever those refer to. A writer keeps it, since what it leaves out of a
write was reached by a ref when it was read, and stays unless a prune took it; after a prune, which each
writer sees by its number, every write is checked for what it leaves out. Both hold the tables while they
decide: a write is before a prune as a whole, which then sees its refs, or after it as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from ..objects import GitObject, Oid, references
from ..protocol import Pruned
from .rows import batches

Oids = set[Oid]
ObjectsOf = Callable[[list[Oid], Iterable[Sequence[Any]]], Mapping[Oid, GitObject]]
Read = Callable[[list[Oid]], Mapping[Oid, GitObject]]

_READ_AT_ONCE = 1000


class HeldTables(ABC):
    """The tables inside a transaction that keeps every writer out."""

    def __init__(self, objects_of: ObjectsOf) -> None:
        self._objects_of = objects_of

    def read(self, oids: list[Oid]) -> Mapping[Oid, GitObject]:
        """Return objects. Raises `MissingObject`, `StoreError` for a damaged one."""
        return self._objects_of(oids, self.rows(oids))

    @abstractmethod
    def tips(self) -> Iterable[Oid]:
        """Return what the refs point at."""

    @abstractmethod
    def stored(self) -> set[Oid]:
        """Return the ids of all objects."""

    @abstractmethod
    def rows(self, oids: list[Oid]) -> Iterable[Sequence[Any]]:
        """Return (oid, kind, size, data) of some objects, in any order."""

    @abstractmethod
    def noted(self) -> dict[Oid, float]:
        """Return the objects found unreachable before, and when (seconds since the epoch)."""

    @abstractmethod
    def note(self, fresh: Iterable[Oid], since: float, stale: Iterable[Oid]) -> None:
        """Note objects as unreachable since then, and forget the notes on others."""

    @abstractmethod
    def remove(self, oids: set[Oid]) -> int:
        """Remove objects, and count this prune; return the bytes of their rows."""


def reach(read: Read, starts: Iterable[Oid], known: set[Oid]) -> None:
    """Add all that some objects reach, and they themselves, to what is known; blobs are not read.

    What is known is taken to be there with all it reaches. Read level by level. Raises as `read` does.
    """
    level = set(starts) - known
    while level:
        known |= level
        below: set[Oid] = set()
        for batch in batches(level, _READ_AT_ONCE):
            for item in read(batch).values():
                for oid, is_blob in references(item):
                    if oid not in known:
                        (known if is_blob else below).add(oid)
        level = below - known


def prune(tables: HeldTables, listed: Set[Oid], reached: Set[Oid], grace: float, now: float) -> Pruned:
    """Remove the objects that no ref reaches and that were noted so `grace` seconds ago; note the others.

    `listed` are the objects of a moment before, `reached` those that the refs reached after it. Raises
    `MissingObject` or `StoreError`, with nothing changed, where the store is damaged.
    """
    kept = set(reached)
    stored = tables.stored()
    reach(tables.read, tables.tips(), kept)
    reach(tables.read, stored - listed, kept)
    unreachable = stored - kept
    noted = tables.noted()
    reach(tables.read, [oid for oid in unreachable if noted.get(oid, now) > now - grace], kept)
    doomed = unreachable - kept
    waiting = unreachable - doomed
    tables.note(waiting - noted.keys(), now, noted.keys() - waiting)
    size = tables.remove(doomed) if doomed else 0
    return Pruned(len(doomed), size, len(waiting))
