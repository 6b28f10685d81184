"""Objects of one backend with their caches, and what is staged on top of them.

Owns `Database` (stored), `Staging` (not written yet), the objects that are kept at hand for a place, those
brought up to date from an older format, and the protection of branches.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from hashlib import sha1
from typing import NamedTuple, Protocol

from ..errors import MissingObject, ProtectedBranch, ReactifactError
from ..logging import get_logger
from ..threads import is_on_loop
from .canonical import commit_of, tree_of
from .objects import (
    BLOB_MODE,
    OVERHEAD,
    TREE_MODE,
    CommitObject,
    GitObject,
    Kind,
    Oid,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
    parse_commit,
    parse_tree,
    tag_target,
    with_folder,
)
from .protocol import FetchesRefs, Maintained, ObjectBackend, ReadsLines, RefUpdate

_log = get_logger(__name__)

# -- stored objects that are kept at hand because somebody asked for them ahead --


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


# -- objects that are made from stored ones, and stored themselves only when a commit comes to need them --


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


# -- branches that must not lose history --


def check_compact_every(writes: int | None) -> None:
    """Raise `ValueError` for what is not a number of saves from 1 on, or `None`."""
    if writes is not None and writes < 1:
        raise ValueError(f"compact_every={writes}: give a number of saves from 1 on, or None for never")


class Protection(NamedTuple):
    """Globs of `session/branch`, such as `*/main` or `orders/release-*`; `*` matches slashes too."""

    patterns: tuple[str, ...] = ()

    @staticmethod
    def of(patterns: Iterable[str]) -> Protection:
        """Return the protection that some globs mean. Raises `TypeError` for a bare string."""
        if isinstance(patterns, str):
            raise TypeError(f"protected= takes a list of globs, such as [{patterns!r}], not one text")
        return Protection(tuple(patterns))

    def pattern_of(self, session: str, branch: str) -> str | None:
        """Return the first glob that names a branch, or `None`."""
        name = f"{session}/{branch}"
        return next((pattern for pattern in self.patterns if fnmatchcase(name, pattern)), None)

    def require_free(self, verb: str, session: str, branch: str) -> None:
        """Refuse what would take history from a protected branch. Raises `ProtectedBranch`."""
        pattern = self.pattern_of(session, branch)
        if pattern is not None:
            raise ProtectedBranch(
                f"cannot {verb} {session}/{branch}: it is protected by {pattern!r}; open the store "
                f"without this pattern in protected= if that is meant"
            )


# -- objects of a backend seen through bounded caches, and objects staged before they are written --


Tree = Mapping[str, TreeEntry]

_CACHED_BYTES = 64 * 1024 * 1024
_CACHED_BYTES_OF_LOCAL = 16 * 1024 * 1024  # of a store where another read is quick
_CACHED_TREES = 8_192  # each is dozens of Python objects, which every full garbage collection visits
_CACHED_OBJECT = 1024 * 1024  # larger objects are read again rather than kept


class Objects(Protocol):
    """What the pure functions over trees and commits ask for."""

    def read(self, oid: Oid) -> GitObject: ...
    def tree(self, oid: Oid) -> Tree: ...
    def commit(self, oid: Oid) -> CommitObject: ...
    def prefetch(self, oids: Iterable[Oid]) -> None: ...
    def prefetch_line(self, commit: Oid, most: int) -> bool: ...
    def derived(self, source: Oid, make: Callable[[Staging], Oid]) -> Oid: ...


class NotAtHand(Exception):
    """What was looked up would have to be read from the backend, or is much."""


class Database:
    """The stored objects of one backend. Safe to use from several threads."""

    def __init__(self, backend: ObjectBackend) -> None:
        self.backend = backend
        self.maintained = backend if isinstance(backend, Maintained) else None
        self.fetches = backend if isinstance(backend, FetchesRefs) else None
        self._lines = backend if isinstance(backend, ReadsLines) else None
        self.protection = Protection()
        self.made = Derived()
        self.has_finished_erasures = False
        """Whether the store was asked for erasures that were killed; see `_sessions/stores`."""
        self.loop_reads = 0
        """How many single objects were read from the backend while an event loop waited."""
        self._maintain_every: int | None = 100
        self._writes = 0  # since the store was tidied last
        self._tidying: threading.Thread | None = None
        self._lock = threading.Lock()
        self._thread = threading.local()  # how many objects one that reads none may look at
        self._raw: OrderedDict[Oid, GitObject] = OrderedDict()
        self._raw_bytes = 0
        self._most_bytes = _CACHED_BYTES_OF_LOCAL if backend.is_local else _CACHED_BYTES
        self._trees: OrderedDict[Oid, Tree] = OrderedDict()

    def maintain_every(self, writes: int | None) -> None:
        """Let the store be tidied after so many writes, or never (`None`). Raises `ValueError` below 1."""
        check_compact_every(writes)
        self._maintain_every = writes

    def tidy(self) -> None:
        """Tidy the backend where that is due after a write: in a thread of its own, nobody waits for it."""
        backend, every = self.maintained, self._maintain_every
        if backend is None or every is None:
            return
        self._writes += 1
        if backend.needs_maintenance or self._writes >= every:
            with self._lock:
                if self._tidying is None or not self._tidying.is_alive():
                    self._writes = 0
                    self._tidying = threading.Thread(
                        target=_maintain, args=(backend,), name="reactifact maintenance", daemon=True
                    )
                    self._tidying.start()

    def read(self, oid: Oid) -> GitObject:
        """Return one object. Raises `MissingObject`."""
        with self._lock:
            known = self._raw.get(oid)
            if known is not None:
                self._raw.move_to_end(oid)
                return known
        if self._lines is None or oid in self.made.objects:
            found = self._fetch([oid])
        else:
            self._require_free_to_read()
            found = self._lines.read_line(oid, 1)
        if is_on_loop():
            with self._lock:
                self.loop_reads += 1
        self._keep(found)
        return found[oid]

    def prefetch(self, oids: Iterable[Oid]) -> None:
        """Bring objects into the cache in one read."""
        asked = dict.fromkeys(oids)  # it may ask for trees of ours on the way
        left = self._left_to_look_at()
        if left is not None:
            if len(asked) > left:
                raise NotAtHand
            self._thread.left = left - len(asked)
        with self._lock:
            wanted = [oid for oid in asked if oid not in self._raw]
        if wanted:
            self._keep(self._fetch(wanted))

    def prefetch_line(self, commit: Oid, most: int) -> bool:
        """Bring a commit and about `most` of its own line into the cache; return whether that took a read.

        A backend that reads one after another is not asked, nor one for a commit that is in the cache.
        """
        if self._lines is None:
            return False
        with self._lock:
            if commit in self._raw:
                return False
        self._require_free_to_read()
        self._keep(self._lines.read_line(commit, most))
        return True

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return objects, what is not at hand in one read. Raises `MissingObject`."""
        found: dict[Oid, GitObject] = {}
        asked = list(oids)
        with self._lock:
            wanted = []
            for oid in asked:
                known = self._raw.get(oid)
                if known is None:
                    wanted.append(oid)
                else:
                    found[oid] = known
        if wanted:
            read = self._fetch(wanted)
            self._keep(read)
            found.update(read)
        return found

    def tree(self, oid: Oid) -> Tree:
        """Return a parsed tree. Raises `MissingObject`."""
        with self._lock:
            found = self._trees.get(oid)
            if found is not None:
                self._trees.move_to_end(oid)
                return found
        tree = tree_of(oid, self.read(oid))
        self._keep_trees({oid: tree})
        return tree

    def commit(self, oid: Oid) -> CommitObject:
        """Return a parsed commit. Raises `MissingObject`."""
        return commit_of(oid, self.read(oid))

    def derived(self, source: Oid, make: Callable[[Staging], Oid]) -> Oid:
        """Return what `make` makes of an object, which is made once and kept."""
        return Staging(self).derived(source, make)

    def write(
        self,
        objects: Mapping[Oid, GitObject],
        updates: Iterable[RefUpdate],
        trees: Mapping[Oid, Tree] | None = None,
    ) -> None:
        """Store objects and move refs, and keep what was written at hand. Raises `Contention`."""
        needed = self.made.needed_by(objects, self.read)
        self.backend.write({**needed, **objects} if needed else objects, list(updates))
        self._keep(objects)
        self._keep_trees(trees or {})

    def forget(self) -> None:
        """Forget all that is kept at hand: some of it may have been removed from the store."""
        with self._lock:
            self._raw.clear()
            self._raw_bytes = 0
            self._trees.clear()
            self.made = Derived()

    @contextmanager
    def at_hand_alone(self, most: int) -> Iterator[None]:
        """Let this thread read nothing from the backend, and look ahead at `most` objects in all.

        What is beyond that raises `NotAtHand`.
        """
        self._thread.left = most
        try:
            yield
        finally:
            self._thread.left = None

    def _left_to_look_at(self) -> int | None:
        found: int | None = getattr(self._thread, "left", None)
        return found

    def _require_free_to_read(self) -> None:
        if self._left_to_look_at() is not None:
            raise NotAtHand

    def _fetch(self, oids: list[Oid]) -> dict[Oid, GitObject]:
        self._require_free_to_read()
        made = self.made.objects
        if not made:
            return self.backend.read_many(oids)
        found = self.backend.read_many([oid for oid in oids if oid not in made])
        return {**found, **{oid: made[oid] for oid in oids if oid in made}}

    def _keep(self, objects: Mapping[Oid, GitObject]) -> None:
        with self._lock:
            raw, size = self._raw, 0
            for oid, found in objects.items():
                if oid not in raw and len(found[1]) <= _CACHED_OBJECT:
                    raw[oid] = found
                    size += len(found[1]) + OVERHEAD
            self._raw_bytes += size
            while self._raw_bytes > self._most_bytes:
                _, dropped = self._raw.popitem(last=False)
                self._raw_bytes -= len(dropped.data) + OVERHEAD

    def _keep_trees(self, trees: Mapping[Oid, Tree]) -> None:
        with self._lock:
            self._trees.update(trees)
            while len(self._trees) > _CACHED_TREES:
                self._trees.popitem(last=False)


Path = tuple[str, ...]
_ITSELF: Path = ("",)  # one level: a tree itself


_JOINED = 64 * 1024  # bytes that are hashed in one call, at the price of a copy


class Staging:
    """Objects made but not yet written, over a database or another staging.

    Beside them it may hold what is stored and was asked for ahead.
    """

    def __init__(self, below: Database | Staging) -> None:
        self.below = below
        self.objects: dict[Oid, GitObject] = {}
        self.trees: dict[Oid, Tree] = {}
        self.ahead: Mapping[Oid, GitObject] = {}
        """What was read for the step that is under way, whatever its size; the next one replaces it."""
        self._near: NearObjects | None = None

    @property
    def database(self) -> Database:
        """The database at the bottom."""
        below = self.below
        return below if isinstance(below, Database) else below.database

    @property
    def ground(self) -> Database | Staging:
        """What a staging on top of this one needs to ask: this one, or what is below where it is empty."""
        return self if self.objects or self.ahead or self._near is not None else self.below

    def put(self, kind: Kind, data: bytes) -> Oid:
        """Stage one object and return its id."""
        if len(data) <= _JOINED:  # as `object_id`
            whole = b"%b %d\0%b" % (kind.encode(), len(data), data)
            oid = sha1(whole, usedforsecurity=False).hexdigest()
        else:
            oid = object_id(kind, data)
        self.objects[oid] = tuple.__new__(GitObject, (kind, data))  # its own constructor is Python
        return oid

    def put_tree(self, entries: Tree) -> Oid:
        """Stage a tree and return its id."""
        data = encode_tree(entries)
        oid = sha1(b"tree %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()  # as `object_id`
        self.objects[oid] = tuple.__new__(GitObject, ("tree", data))
        self.trees[oid] = entries
        return oid

    def put_at(self, root: Oid | None, path: Path, entry: TreeEntry | None) -> Oid | None:
        """Stage the trees below a root with an entry at a path (`None`: without it); return the new root.

        `None` is returned where nothing is left.
        """
        trees = [] if root is None else self.trees_to(root, path)
        known = trees[-1].get(path[-1]) if len(trees) == len(path) else None
        if known == entry:
            return root
        objects, made = self.objects, self.trees
        below = self.below
        stored: Mapping[Oid, GitObject] = below._raw if isinstance(below, Database) else below.objects
        for depth in range(len(path) - 1, -1, -1):
            name = path[depth]
            entries = dict(trees[depth]) if depth < len(trees) else {}
            data = None
            if entry is None:
                del entries[name]
                if not entries:
                    continue
            else:
                if len(entries) > 1 and entry[0] == TREE_MODE:  # what stands there says nearly all
                    old = trees[depth - 1][path[depth - 1]][1] if depth else root or ""
                    before = objects.get(old) or stored.get(old)
                    if before is not None:
                        data = with_folder(before[1], len(entries), name, entry[1])
                entries[name] = entry
            if data is None:
                data = encode_tree(entries)
            # from here on as `put_tree`, for a tree a level
            oid = sha1(b"tree %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()
            objects[oid] = tuple.__new__(GitObject, ("tree", data))
            made[oid] = entries
            entry = tuple.__new__(TreeEntry, (TREE_MODE, oid))
        return None if entry is None else entry[1]

    def put_commit(self, commit: CommitObject) -> Oid:
        """Stage a commit and return its id."""
        return self.put("commit", encode_commit(commit))

    def read(self, oid: Oid) -> GitObject:
        """Return one object, staged or stored. Raises `MissingObject`."""
        at: Database | Staging = self
        while isinstance(at, Staging):
            found = at.objects.get(oid)
            if found is None and (at.ahead or at._near is not None):
                found = at._at_hand(oid)
            if found is not None:
                return found
            at = at.below
        return at.read(oid)

    def _at_hand(self, oid: Oid) -> GitObject | None:
        found = self.objects.get(oid)
        if found is None:
            found = self.ahead.get(oid)
            if found is None and self._near is not None:
                found = self._near.get(oid)
        return found

    def hold(self, found: Mapping[Place, Oid], objects: Mapping[Oid, GitObject]) -> None:
        """Keep stored objects at hand, each for the places at which it stands."""
        if self._near is None:
            self._near = NearObjects()
        self._near.hold(found, objects)

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return objects, staged or stored, what is not at hand in one read. Raises `MissingObject`."""
        found: dict[Oid, GitObject] = {}
        wanted = []
        for oid in oids:
            known = self._at_hand(oid)
            if known is None:
                wanted.append(oid)
            else:
                found[oid] = known
        if wanted:
            found.update(self.below.read_many(wanted))
        return found

    def tree(self, oid: Oid) -> Tree:
        """Return a parsed tree, staged or stored. Raises `MissingObject`."""
        return self.trees_to(oid, _ITSELF)[0]

    def trees_to(self, root: Oid, path: Path) -> list[Tree]:
        """Return the trees on the way from a root to a path, the root's own first, as far as there are any.

        Raises `MissingObject`.
        """
        found: list[Tree] = []
        oid = root
        last = len(path) - 1
        for depth, name in enumerate(path):
            tree: Tree | None = None
            at: Database | Staging = self
            while isinstance(at, Staging):
                tree = at.trees.get(oid)
                if tree is not None:
                    break
                raw = at.objects.get(oid)
                if raw is not None:
                    tree = tree_of(oid, raw)
                    break
                if at._near is not None and (near := at._near.tree(oid)) is not None:
                    tree = near
                    break
                at = at.below
            else:
                tree = at._trees.get(oid)  # most are there: a look-up goes through many trees
                if tree is None:
                    tree = at.tree(oid)
            found.append(tree)
            if depth == last:
                break
            entry = tree.get(name)
            if entry is None or entry[0] != TREE_MODE:
                break
            oid = entry[1]
        return found

    def find(self, root: Oid | None, path: Path) -> TreeEntry | None:
        """Return the entry at a path below a root, or `None`. Raises `MissingObject`."""
        if root is None:
            return None
        trees = self.trees_to(root, path)
        return trees[-1].get(path[-1]) if len(trees) == len(path) else None

    def commit(self, oid: Oid) -> CommitObject:
        """Return a parsed commit, staged or stored. Raises `MissingObject`."""
        found = self.read(oid)
        return parse_commit(found.data) if found.kind == "commit" else commit_of(oid, found)

    def prefetch(self, oids: Iterable[Oid]) -> None:
        """Bring stored objects into the cache in one read."""
        self.below.prefetch(oid for oid in oids if self._at_hand(oid) is None)

    def prefetch_line(self, commit: Oid, most: int) -> bool:
        """Bring a stored commit and its own line below it into the cache, as the database does."""
        return self._at_hand(commit) is None and self.below.prefetch_line(commit, most)

    def derived(self, source: Oid, make: Callable[[Staging], Oid]) -> Oid:
        """Return what `make` makes of an object, which is made once and kept in the database."""
        made = self.database.made
        if source not in made.results:
            staging = Staging(self)
            made.note(source, make(staging), staging.objects)
        return made.results[source]

    def copy(self) -> Staging:
        """Return a staging of its own with the same content."""
        twin = Staging(self.below)
        twin.objects = dict(self.objects)
        twin.trees = dict(self.trees)
        return twin

    def absorb(self, other: Staging) -> None:
        """Take over everything that `other` has staged."""
        self.objects.update(other.objects)
        self.trees.update(other.trees)

    def reachable(self, heads: Iterable[Oid]) -> set[Oid]:
        """Return the staged objects that some heads reach through staged objects."""
        seen: set[Oid] = set()
        waiting = list(heads)
        while waiting:
            oid = waiting.pop()
            found = self.objects.get(oid)
            if found is None or oid in seen:
                continue
            seen.add(oid)
            if found.kind == "commit":
                commit = self.commit(oid)
                waiting += [commit.tree, *commit.parents]
            elif found.kind == "tree":
                waiting += [entry.oid for entry in self.tree(oid).values()]
            elif found.kind == "tag":
                waiting.append(tag_target(found.data))
        return seen

    def retain(self, heads: Iterable[Oid]) -> None:
        """Forget what is staged and none of some heads reaches."""
        wanted = self.reachable(heads)
        self.objects = {oid: found for oid, found in self.objects.items() if oid in wanted}
        self.trees = {oid: tree for oid, tree in self.trees.items() if oid in wanted}

    def forget(self, written: Iterable[Oid]) -> None:
        """Forget objects that have been written; what was staged since then stays."""
        for oid in written:
            self.objects.pop(oid, None)
            self.trees.pop(oid, None)

    def clear(self) -> None:
        """Forget all that is staged."""
        self.objects.clear()
        self.trees.clear()


def blob_entry(oid: Oid) -> TreeEntry:
    """Return the tree entry of an ordinary file."""
    return tuple.__new__(TreeEntry, (BLOB_MODE, oid))


def _maintain(backend: Maintained) -> None:
    try:
        backend.maintain()
    except ReactifactError:  # what it is for comes with the next time; what is wrong meets the writers
        _log.warning("tidying a store failed; it is tried again later", exc_info=True)
