"""A bounded memory of the objects just written, so that reading them back costs no look at packs.

It owns that memory alone: a miss in libgit2 lists the pack folder again, which would be paid once
for each commit. Objects never change, so nothing here can be out of date.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from ..objects import GitObject, Oid

LIMIT = 16 * 1024 * 1024
"""Bytes of memory that the objects may take."""


class RecentObjects:
    """The last objects written, up to `limit` bytes of memory; the oldest go first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._mutex = threading.Lock()
        self._size = 0
        self._objects: OrderedDict[Oid, GitObject] = OrderedDict()

    def get(self, oid: Oid) -> GitObject | None:
        """Return the object, if it is still remembered."""
        return self._objects.get(oid)

    def add(self, objects: Mapping[Oid, GitObject]) -> None:
        """Remember `objects`, except those over a quarter of the limit."""
        with self._mutex:
            for oid, item in objects.items():
                if oid in self._objects:
                    self._objects.move_to_end(oid)
                elif item.in_memory <= self._limit // 4:
                    self._objects[oid] = item
                    self._size += item.in_memory
            while self._size > self._limit:
                _, gone = self._objects.popitem(last=False)
                self._size -= gone.in_memory

    def clear(self) -> None:
        """Forget everything."""
        with self._mutex:
            self._objects.clear()
            self._size = 0
