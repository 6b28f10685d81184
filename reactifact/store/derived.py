"""Objects that are made from stored ones, and stored themselves only when a commit comes to need them.

Owns them and the question which of them a write has to take along. What is made of what, and why, is
the caller's: so far the trees of an older format in today's (`migrations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import MissingObject
from .objects import GitObject, Oid, parse_commit, parse_tree

Reader = Callable[[Oid], GitObject]


class Derived:
    """What was made, by its own id and by the id of what it was made from. It is never forgotten."""

    def __init__(self) -> None:
        self.objects: dict[Oid, GitObject] = {}
        self.results: dict[Oid, Oid] = {}

    def note(self, source: Oid, result: Oid, objects: Mapping[Oid, GitObject]) -> None:
        """Keep the object made from `source`, and those that it needs."""
        self.objects.update(objects)
        self.results[source] = result

    def needed_by(self, objects: Mapping[Oid, GitObject], read: Reader) -> dict[Oid, GitObject]:
        """Return the made objects that commits among `objects` reach and their parents' trees do not."""
        found: dict[Oid, GitObject] = {}
        if not self.objects:
            return found
        for item in objects.values():
            if item.kind == "commit":
                commit = parse_commit(item.data)
                parents = [self._tree_of(parent, objects, read) for parent in commit.parents]
                self._gather(commit.tree, [oid for oid in parents if oid], objects, read, found)
        return found

    def _tree_of(self, commit: Oid, objects: Mapping[Oid, GitObject], read: Reader) -> Oid | None:
        try:
            return parse_commit((objects.get(commit) or read(commit)).data).tree
        except MissingObject:
            return None  # of a shallow clone: nothing is known to be there

    def _gather(
        self,
        oid: Oid,
        beside: Sequence[Oid],
        objects: Mapping[Oid, GitObject],
        read: Reader,
        found: dict[Oid, GitObject],
    ) -> None:
        """Note `oid` and what it reaches, but for what stands at the same place below a parent."""
        item = objects.get(oid) or self.objects.get(oid)
        if item is None or oid in beside or oid in found:
            return  # a stored object reaches stored ones alone
        if oid not in objects:
            found[oid] = item
        if item.kind != "tree":
            return
        before = [parse_tree((objects.get(one) or read(one)).data) for one in beside]
        for name, entry in parse_tree(item.data).items():
            known = [old[name].oid for old in before if name in old and old[name].mode == entry.mode]
            self._gather(entry.oid, known, objects, read, found)
