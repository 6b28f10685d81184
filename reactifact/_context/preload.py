"""Reading ahead in a worker thread, so that what comes next on the event loop asks the store nothing.

Owns which objects a look-up, a plan, a commit or a delivery needs, and the order in which they can be known:
level by level, one read of the store a level. `preload` is asked for by the application; `read_ahead` is what
the steps of a turn call before they go on, for a store that is not local. Keeping objects at hand is
`_store/object_db`'s; nothing is decoded to a model here, and no read of an execution is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from .._store.branch import Branch
from .._store.canonical import tree_of
from .._store.layout import (
    Edge,
    Intent,
    Meta,
    Roots,
    Waiting,
    artifact_path,
    decode_edges,
    file_path,
    versions_path,
)
from .._store.object_db import Database, NotAtHand, Place, Staging, Tree
from .._store.objects import TREE_MODE, GitObject, Oid
from .._store.state import State, Stored
from .._store.trees import Path, read_ahead, read_trees
from ..artifacts import ACTION_TYPE, check_text, is_subtype
from ..threads import in_thread, short_call
from .commit import Committer
from .working_copy import WorkingCopy

T = TypeVar("T")

Levels = Generator[Mapping[Place, Oid], None, None]
"""Yields, level by level, what is to be read next; it goes on when that is there."""


async def preload(working: WorkingCopy, wanted: Iterable[str | type[BaseModel]]) -> None:
    """Read artifacts by id, and all of some types, ahead. See `LiveContext.preload`."""
    ids: list[str] = []
    models: list[type[BaseModel]] = []
    for one in wanted:
        if isinstance(one, type) and issubclass(one, BaseModel):
            models.append(one)
        elif isinstance(one, str):
            check_text(one, "artifact id")
            ids.append(one)
        else:
            raise TypeError(f"preload takes artifact ids and model classes, not {one!r}")
    if not ids and not models:
        return
    request = _Request.of(working, ids, models)
    state, ledger = await in_thread(request.read)
    working.state.objects.hold(state.places, state.objects)
    working.ledger.staged.hold(ledger.places, ledger.objects)


class _Fetch:
    """What was read so far, by id and by place."""

    def __init__(self, source: Staging) -> None:
        self._source = source
        self._trees: dict[Oid, Tree] = {}
        self.objects: dict[Oid, GitObject] = {}
        self.places: dict[Place, Oid] = {}

    def run(self, *steps: Levels) -> None:
        """Read for several steps side by side: one read for a level of them all."""
        active = list(steps)
        while active:
            level: dict[Place, Oid] = {}
            going = []
            for step in active:
                asked = next(step, None)
                if asked is not None:
                    level.update(asked)
                    going.append(step)
            missing = {oid for oid in level.values() if oid not in self.objects}
            if missing:
                self.objects.update(self._source.read_many(missing))
            self.places.update(level)
            active = going

    def tree(self, oid: Oid) -> Tree:
        """Return a tree that was read, parsed."""
        if oid not in self._trees:
            self._trees[oid] = tree_of(oid, self.objects[oid])
        return self._trees[oid]

    def below(self, base: Place, root: Oid | None, is_wanted: Callable[[Place], bool]) -> Levels:
        """Read a subtree that stands at `base`, and of what is below it what is wanted."""
        trees = {} if root is None else {base: root}
        files: dict[Place, Oid] = {}
        while trees or files:
            yield {**trees, **files}
            found = [
                ((*place, name), entry)
                for place, oid in trees.items()
                for name, entry in self.tree(oid).items()
                if is_wanted((*place, name))
            ]
            trees = {place: entry.oid for place, entry in found if entry.mode == TREE_MODE}
            files = {place: entry.oid for place, entry in found if entry.mode != TREE_MODE}

    def at(self, base: Place, root: Oid | None, paths: Iterable[Place]) -> Levels:
        """Read what stands at some paths below a subtree, and the trees on the way."""
        wanted = {(*base, *path[:depth]) for path in paths for depth in range(1, len(path) + 1)}
        return self.below(base, root if wanted else None, wanted.__contains__)

    def just(self, places: Mapping[Place, Oid]) -> Levels:
        """Read objects whose ids are known."""
        yield places


class _Request(NamedTuple):
    """What to read, and the state as it stood when that was asked for."""

    working: WorkingCopy
    state: State
    roots: Roots
    changed: dict[str, Stored | None]  # not in the subtrees yet
    delivered: Oid | None  # the ledger's commit
    ids: list[str]
    models: list[type[BaseModel]]

    @staticmethod
    def of(working: WorkingCopy, ids: list[str], models: list[type[BaseModel]]) -> _Request:
        """Look at a state on the event loop; it may go on changing while a thread reads."""
        state = working.state
        return _Request(working, state, state.roots, dict(state.changed), working.ledger.tip, ids, models)

    def read(self) -> tuple[_Fetch, _Fetch]:
        """Read it all (in a worker thread); return what the state and what the ledger is to hold."""
        fetch, ledger = _Fetch(self.state.objects), _Fetch(self.working.ledger.staged)
        paths = {file_path(artifact_id) for artifact_id in self.ids if artifact_id not in self.changed}
        paths |= self._read_types(fetch)
        fetch.run(fetch.at(("meta",), self.roots.meta, paths))
        metas = [
            Meta.decode(fetch.objects[oid].data)
            for path in paths
            if (oid := fetch.places.get(("meta", *path))) is not None
        ]
        metas += [stored.meta for stored in self._changed() if stored is not None]
        fetch.run(
            fetch.just({("artifacts", *artifact_path(m.type_id, m.id)): m.payload for m in metas}),
            fetch.at(("outbox",), self.roots.outbox, _action_paths(metas)),
        )
        self._read_deliveries(ledger, _action_paths(metas))
        return fetch, ledger

    def _changed(self) -> Iterable[Stored | None]:
        for artifact_id, stored in self.changed.items():
            if artifact_id in self.ids or (stored is not None and self._is_wanted(stored.meta.type_id)):
                yield stored

    def _is_wanted(self, type_id: str) -> bool:
        return any(is_subtype(type_id, model) for model in self.models)

    def _read_types(self, fetch: _Fetch) -> set[Place]:
        """Read all payloads of the types that are wanted; return the paths of their bookkeeping."""
        if not self.models or self.roots.artifacts is None:
            return set()
        fetch.run(fetch.just({("artifacts",): self.roots.artifacts}))
        objects = self.state.objects
        stored = self.state.indexes.type_ids(objects, self.roots)
        folders = {artifact_path(type_id, "x")[0] for type_id in stored if self._is_wanted(type_id)}
        fetch.run(fetch.below(("artifacts",), self.roots.artifacts, lambda place: place[1] in folders))
        return {
            place[2:]
            for place, oid in fetch.places.items()
            if len(place) > 2 and fetch.objects[oid].kind == "blob"
        }

    def _read_deliveries(self, ledger: _Fetch, paths: set[Place]) -> None:
        """Read what the ledger knows of some actions."""
        if self.delivered is None or not paths:
            return
        staged = self.working.ledger.staged
        ledger.run(ledger.just({("commit",): self.delivered}))
        tree = staged.commit(self.delivered).tree
        wanted = {("ledger", *path) for path in paths}
        ledger.run(ledger.at(("tree",), tree, wanted))


def _action_paths(metas: Iterable[Meta]) -> set[Place]:
    return {file_path(meta.id) for meta in metas if meta.type_id == ACTION_TYPE}


# -- what the steps of a turn need, of a store that is not local --


_LOOKED_AT_ON_THE_LOOP = 256  # objects; a hop to a thread and back costs about as much
_UPPER_TREES = 64  # a level of trees with more is left: one look-up then reads two trees and one file


def open_ahead(line: Branch) -> None:
    """Read what the first changes of a branch look up: the trees of a small state, the upper ones of any.

    Blocks; to be called where the branch was read.
    """
    if not line.database.backend.is_local:
        roots = line.state.roots
        read_trees(line.objects, (roots.meta, roots.relations, roots.outbox), _UPPER_TREES)


async def look_ahead(
    commits: Committer,
    ids: Iterable[str] = (),
    *,
    placed: Iterable[tuple[str, str]] = (),
    queue: bool = False,
    outbox: bool = False,
    stale: bool = False,
) -> None:
    """Read all that the next step on the event loop looks up. A local store needs none.

    What is not at hand is read in a worker thread.

    That is: what committing the present changes needs, what is known of the artifacts `ids` and where they
    stand, and the places (type id, id) where a version is to be `placed`; with `queue` the events that wait
    and what they are about, with `outbox` the intents that wait and what they rest on,
    with `stale` who has read what.
    """
    if commits.is_remote:
        database = commits.line.database
        ahead = Ahead.of(commits, ids, placed, queue=queue, outbox=outbox)
        commits.line.objects.ahead = await _at_hand_or_read(database, ahead.read)
        if stale:
            await in_thread(commits.line.state.twin().all_readers)


async def look_at(database: Database, look: Callable[[], T]) -> T:
    """Return what a function finds that reads objects and may be called twice; raises what it raises."""
    if database.backend.is_local:
        return await short_call(True, look)
    return await _at_hand_or_read(database, look)


async def _at_hand_or_read(database: Database, look: Callable[[], T]) -> T:
    """Call a function in a worker thread, unless the objects that it reads are few and at hand."""
    try:
        with database.at_hand_alone(_LOOKED_AT_ON_THE_LOOP):
            return look()
    except NotAtHand:
        return await in_thread(look)


class Ahead(NamedTuple):
    """What to read, as it stood on the event loop, which may go on changing the context meanwhile."""

    line: Branch
    roots: Roots
    ids: set[str]
    placed: set[tuple[str, str]]  # (type id, id)
    folders: list[Path]  # of the queue
    whole_queue: bool = False
    whole_outbox: bool = False
    rests_on: bool = False

    @staticmethod
    def of(
        commits: Committer,
        ids: Iterable[str],
        placed: Iterable[tuple[str, str]],
        *,
        queue: bool,
        outbox: bool,
    ) -> Ahead:
        """Look at a context."""
        state, settled = commits.line.state, commits.working.delivered
        changed = [stored.meta for stored in state.changed.values() if stored is not None]
        return Ahead(
            commits.line,
            state.roots,
            {*ids, *state.changed, *state.edges, *state.intents, *(settled or ())},
            {*placed, *((meta.type_id, meta.id) for meta in changed)},
            commits.folders_to_write(),
            whole_queue=queue and not commits.queue.is_read,
            whole_outbox=outbox or settled is None,
            rests_on=outbox,
        )

    def read(self) -> dict[Oid, GitObject]:
        """Read it all, and return the payloads that are looked at, which may be too large for a cache."""
        objects, roots = self.line.objects, self.roots
        self.line.read_ledger_ahead()
        events, intents, _ = read_ahead(
            objects,
            (roots.queue, [()] if self.whole_queue else []),
            (roots.outbox, [()] if self.whole_outbox else []),
            (roots.queue, [(*folder, "") for folder in self.folders]),
        )
        about = {Waiting.decode(objects.read(oid).data).event["artifact_id"] for oid in events}
        waiting = {Intent.decode(objects.read(oid).data).action_id for oid in intents}
        metas, links = self._read(self.ids | about | waiting)
        if self.rests_on:
            linked = {edge.target for source, edges in links if source in waiting for edge in edges}
            noted = {read.artifact_id for meta in metas if meta.id in waiting for read in meta.reads}
            metas += self._read(linked | noted)[0]
        places = [artifact_path(*place) for place in {*self.placed, *((m.type_id, m.id) for m in metas)}]
        read_ahead(objects, (roots.artifacts, [("",), *((*path[:-1], "") for path in places)]))
        self.line.ledger.read_ahead(self.ids | waiting)
        return objects.read_many({meta.payload for meta in metas})

    def _read(self, ids: set[str]) -> tuple[list[Meta], list[tuple[str, tuple[Edge, ...]]]]:
        """Read what the state has of some artifacts; return their bookkeeping and their relations."""
        objects, paths = self.line.objects, [file_path(artifact_id) for artifact_id in ids]
        metas, links, _, _ = read_ahead(
            objects,
            (self.roots.meta, paths),
            (self.roots.relations, paths),
            (self.roots.outbox, paths),
            (self.roots.versions, [(*versions_path(artifact_id), "trimmed.json") for artifact_id in ids]),
        )
        return (
            [Meta.decode(objects.read(oid).data) for oid in metas],
            [decode_edges(objects.read(oid).data) for oid in links],
        )
