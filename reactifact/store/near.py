"""Stored objects that are kept at hand because somebody asked for them ahead.

Owns how long: until another object comes to the same place, or the holder ends. The caches of
`Database` forget what is large or was not used for long, and what is kept here they need not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .damage import tree_of
from .objects import GitObject, Oid, TreeEntry

Place = tuple[str, ...]
"""Where an object stood: the name of a subtree of the state, and the path below it."""


class NearObjects:
    """Objects by id, each held for the places at which it stood."""

    def __init__(self) -> None:
        self._objects: dict[Oid, GitObject] = {}
        self._trees: dict[Oid, Mapping[str, TreeEntry]] = {}
        self._places: dict[Place, Oid] = {}
        self._uses: Counter[Oid] = Counter()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, oid: Oid) -> GitObject | None:
        """Return an object that is held, or `None`."""
        return self._objects.get(oid)

    def tree(self, oid: Oid) -> Mapping[str, TreeEntry] | None:
        """Return a tree that is held, parsed, or `None`."""
        found = self._trees.get(oid)
        if found is None and (raw := self._objects.get(oid)) is not None:
            found = self._trees[oid] = tree_of(oid, raw)
        return found

    def hold(self, found: Mapping[Place, Oid], objects: Mapping[Oid, GitObject]) -> None:
        """Hold the objects of some places; what stood at these places before is let go."""
        for place, oid in found.items():
            before = self._places.get(place)
            if before == oid:
                continue
            self._places[place] = oid
            self._objects[oid] = objects[oid]
            self._uses[oid] += 1
            if before is not None:
                self._release(before)

    def _release(self, oid: Oid) -> None:
        self._uses[oid] -= 1
        if not self._uses[oid]:
            del self._uses[oid], self._objects[oid]
            self._trees.pop(oid, None)
