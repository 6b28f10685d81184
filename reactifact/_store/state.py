"""The state of one branch: subtree ids and the changes on top, written out as trees when it is committed.

Owns look-ups by id, type and relation, versions of artifacts, and the edits that a commit writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from .canonical import content_hash
from .index import Indexes
from .layout import (
    Edge,
    Intent,
    ListingRecord,
    Meta,
    ReadRecord,
    Roots,
    Waiting,
    artifact_path,
    decode_edges,
    encode_edges,
    file_path,
    versions_path,
    waiting_path,
)
from .object_db import Staging, blob_entry
from .objects import TREE_MODE, Oid, TreeEntry, object_id
from .trees import Edits, Path, find_files, subtree, update, walk
from .versions import oldest_kept, oldest_kept_in

# -- the bookkeeping of a new version --


def first(
    artifact_id: str,
    type_id: str,
    payload: tuple[Oid, bytes],
    revision: str,
    number: int,
    origin: Origin,
) -> Meta:
    """Return version 0 of an artifact; `number` is its place in the order of writes."""
    when = origin.when.isoformat()
    oid, data = payload
    return Meta(
        id=artifact_id,
        type_id=type_id,
        version=0,
        sequence=number,
        written=number,
        created_at=when,
        updated_at=when,
        payload=oid,
        content_hash=content_hash(data),
        revision=revision,
        author=origin.author,
        commit=origin.commit,
        created_by=origin.commit,
        writer=origin.commit,
        writer_author=origin.author if origin.commit else None,
        reads=origin.reads if origin.commit else (),
        listings=origin.listings if origin.commit else (),
    )


def following(before: Stored, fresh: Meta, origin: Origin) -> Meta:
    """Return `fresh` as the version after `before`; a direct change keeps the last writer."""
    old = before.meta
    meta = replace(
        fresh,
        version=old.version + 1,
        sequence=old.sequence,
        created_at=old.created_at,
        created_by=old.created_by,
        previous=before.oid,
    )
    if origin.commit is not None:
        return meta
    return replace(
        meta,
        writer=old.writer,
        writer_author=old.writer_author,
        reads=old.reads,
        listings=old.listings,
    )


def written_by(meta: Meta, origin: Origin) -> Meta:
    """Return a version whose last writer, and what it read, is `origin`."""
    return replace(
        meta,
        writer=origin.commit,
        writer_author=origin.author,
        reads=origin.reads,
        listings=origin.listings,
    )


def claimed_by(meta: Meta, origin: Origin, *, is_new: bool) -> Meta:
    """Return a direct change as if the versioned commit of `origin` had made it."""
    return replace(
        written_by(meta, origin),
        commit=origin.commit,
        author=origin.author,
        created_by=meta.created_by or (origin.commit if is_new else None),
    )


# -- the changes of a state as edits of its subtrees --


def of_artifacts(state: State, forgotten: set[str]) -> tuple[Edits, Edits, Edits]:
    """Return the edits of `artifacts/`, `meta/` and `versions/`."""
    artifacts: dict[Path, TreeEntry | None] = {}
    meta: dict[Path, TreeEntry | None] = {}
    versions: dict[Path, TreeEntry | None] = {}
    for artifact_id, stored in state.changed.items():
        before = state.committed(artifact_id)
        old = None if before is None else before.meta
        if old is not None and (stored is None or old.type_id != stored.meta.type_id):
            artifacts[artifact_path(old.type_id, artifact_id)] = None
        if stored is not None:
            path = artifact_path(stored.meta.type_id, artifact_id)
            artifacts[path] = blob_entry(stored.meta.payload)
        meta[file_path(artifact_id)] = None if stored is None else blob_entry(stored.oid)
    for artifact_id in forgotten:
        if subtree(state.objects, state.roots.versions, versions_path(artifact_id)):
            versions[versions_path(artifact_id)] = None
    for artifact_id, folder in state.taken.items():
        versions[versions_path(artifact_id)] = None if folder is None else TreeEntry(TREE_MODE, folder)
    for (artifact_id, version), kept in state.kept.items() if state._kept else ():
        tree = {
            "meta.json": blob_entry(kept.oid),
            "payload.json": blob_entry(kept.meta.payload),
        }
        path = (*versions_path(artifact_id), str(version))
        versions[path] = TreeEntry(TREE_MODE, state.objects.put_tree(tree))
    return artifacts, meta, versions


def of_relations(state: State) -> Edits:
    """Return the edits of `relations/`."""
    found: dict[Path, TreeEntry | None] = {}
    for source, edges in state.edges.items():
        blob = state.objects.put("blob", encode_edges(source, edges)) if edges else None
        found[file_path(source)] = None if blob is None else blob_entry(blob)
    return found


def of_intents(state: State) -> Edits:
    """Return the edits of `outbox/`."""
    found: dict[Path, TreeEntry | None] = {}
    for action_id, intent in state.intents.items():
        blob = None if intent is None else state.objects.put("blob", intent.encode())
        found[file_path(action_id)] = None if blob is None else blob_entry(blob)
    return found


def of_waiting(objects: Staging, waiting: Iterable[Waiting]) -> dict[Path, TreeEntry | None]:
    """Return the edits of `queue/` that put events there."""
    found: dict[Path, TreeEntry | None] = {}
    for one in waiting:
        data = one.encode()
        found[waiting_path(one, data)] = blob_entry(objects.put("blob", data))
    return found


# -- the state of one branch at one moment, over the subtrees of a commit --


class Origin(NamedTuple):
    """Who writes, and on what grounds. `commit` is `None` for a direct change."""

    author: str
    when: datetime
    commit: str | None = None
    reads: tuple[ReadRecord, ...] = ()
    listings: tuple[ListingRecord, ...] = ()


class Stored(NamedTuple):
    """A version of an artifact and the id of its meta blob."""

    oid: Oid
    meta: Meta


class _Seen(NamedTuple):
    """Versions that were looked up in one subtree of bookkeeping; all snapshots of it share them."""

    meta: Oid | None
    versions: dict[str, Stored | None]  # `None`: there is none


class _Expected(NamedTuple):
    """The intents of one subtree of the outbox, all of them."""

    outbox: Oid | None
    intents: dict[str, Intent]


_NONE_EXPECTED = _Expected(None, {})
_PLANNED = attrgetter("sequence", "action_id")
_SEEN = 4_096  # how many are kept
_UNSEEN: Any = object()


class _Linked(NamedTuple):
    """Relations of one source, and what tells two of them apart."""

    edges: tuple[Edge, ...]
    ends: set[tuple[str, str]]


class StateSavepoint(NamedTuple):
    """The changes on top of some subtrees at one moment."""

    roots: Roots
    next_sequence: int
    changed: dict[str, Stored | None]
    edges: dict[str, tuple[Edge, ...]]
    intents: dict[str, Intent | None]
    kept: dict[str, dict[int, Stored]]
    taken: dict[str, Oid | None]
    forgotten: frozenset[str]


class State:
    """Artifacts, relations and intents of one branch: subtrees plus the changes on top."""

    def __init__(
        self,
        objects: Staging,
        roots: Roots,
        next_sequence: int,
        indexes: Indexes,
        seen: _Seen | None = None,
        expected: _Expected | None = None,
    ) -> None:
        self.objects = objects
        self.roots = roots
        self.next_sequence = next_sequence
        self.indexes = indexes
        self.changed: dict[str, Stored | None] = {}
        self.edges: dict[str, tuple[Edge, ...]] = {}
        self.intents: dict[str, Intent | None] = {}
        self._kept: dict[str, dict[int, Stored]] = {}  # id -> version -> what no commit holds yet
        self.taken: dict[str, Oid | None] = {}  # folders of kept versions, from another branch
        self._forgotten: set[str] = set()
        self._reading: set[str] = set()  # of what has changed, all that may have read something
        self._seen = seen or _Seen(roots.meta, {})
        self._linked: _Linked | None = None
        self._expected = expected or _NONE_EXPECTED

    def twin(self) -> State:
        """Return another state on the same subtrees, with objects of its own on top."""
        below = self.objects.ground  # fewer levels to ask
        seen = self._seen if self._seen.meta == self.roots.meta else None
        return State(Staging(below), self.roots, self.next_sequence, self.indexes, seen, self._expected)

    # -- artifacts ---------------------------------------------------------------------------

    def stored(self, artifact_id: str) -> Stored | None:
        """Return the live version of an artifact, or `None`."""
        if artifact_id in self.changed:
            return self.changed[artifact_id]
        if self._seen.meta == self.roots.meta:  # most are looked up again and again
            found: Stored | None = self._seen.versions.get(artifact_id, _UNSEEN)
            if found is not _UNSEEN:
                return found
        return self.committed(artifact_id)

    def committed(self, artifact_id: str) -> Stored | None:
        """Return the version that the subtrees hold, or `None`."""
        if self._seen.meta != self.roots.meta:
            self._seen = _Seen(self.roots.meta, {})
        seen = self._seen.versions
        found: Stored | None = seen.get(artifact_id, _UNSEEN)
        if found is _UNSEEN:
            entry = self.objects.find(self.roots.meta, file_path(artifact_id))
            if len(seen) >= _SEEN:
                seen.clear()
            found = seen[artifact_id] = None if entry is None else self.stored_at(entry.oid)
        return found

    def stored_many(self, ids: Sequence[str]) -> list[Stored | None]:
        """Return the live versions of some artifacts, each tree on the way looked at once."""
        if self._seen.meta != self.roots.meta:
            self._seen = _Seen(self.roots.meta, {})
        seen = self._seen.versions
        unknown = [i for i in ids if i not in self.changed and i not in seen]
        fresh: dict[str, Stored | None] = {}
        if len(unknown) > 1:
            known = self.indexes.looked_up(self.roots)
            away = [i for i in unknown if i not in known]
            found = find_files(self.objects, self.roots.meta, [file_path(i) for i in away])
            self.objects.prefetch(found.values())
            for artifact_id in unknown:
                oid = known.get(artifact_id) or found.get(file_path(artifact_id))
                fresh[artifact_id] = None if oid is None else self.stored_at(oid)
            if len(seen) + len(fresh) <= _SEEN:
                seen.update(fresh)
        return [fresh[i] if i in fresh else self.stored(i) for i in ids]

    def stored_at(self, oid: Oid) -> Stored:
        """Return the version that a meta blob describes."""
        return Stored(oid, Meta.decode(self.objects.read(oid).data))

    def payload(self, meta: Meta) -> bytes:
        """Return the payload bytes of a version."""
        return self.objects.read(meta.payload).data

    def put(self, artifact_id: str, type_id: str, payload: bytes, revision: str, origin: Origin) -> Meta:
        """Write a new version of an artifact, or create it."""
        return self.put_after(self.stored(artifact_id), artifact_id, type_id, payload, revision, origin)

    def put_after(
        self,
        before: Stored | None,
        artifact_id: str,
        type_id: str,
        payload: bytes,
        revision: str,
        origin: Origin,
    ) -> Meta:
        """Write a version of an artifact after the live one, which `before` is."""
        oid = self.objects.put("blob", payload)
        meta = first(artifact_id, type_id, (oid, payload), revision, self.next_sequence, origin)
        self.next_sequence += 1
        if before is not None:
            if artifact_is_new(self.changed, before):
                self._kept.setdefault(artifact_id, {})[before.meta.version] = before
            meta = following(before, meta, origin)
        self._set(meta)
        return meta

    def touch(self, artifact_id: str, origin: Origin) -> Meta:
        """Record that a commit wrote equal data: the version stays, writer and reads move."""
        before = self.stored(artifact_id)
        if before is None:
            raise KeyError(artifact_id)
        meta = written_by(before.meta, origin)
        self._set(meta)
        return meta

    def claim(self, origin: Origin, ids: Iterable[str] | None = None) -> None:
        """Let direct changes since the last flush, or to `ids`, count as written by a versioned commit.

        It is for the live state alone: the bookkeeping that it replaces, which no commit holds, is
        forgotten, and no savepoint from before it can be restored.
        """
        for artifact_id in list(self.changed if ids is None else ids):
            stored = self.stored(artifact_id)
            if stored is None or stored.meta.commit is not None:
                continue
            meta = claimed_by(stored.meta, origin, is_new=self._is_new(stored))
            if artifact_is_new(self.changed, stored):
                self.objects.objects.pop(stored.oid, None)
            self._set(meta)

    def _is_new(self, stored: Stored) -> bool:
        return self.objects.find(self.roots.meta, file_path(stored.meta.id)) is None

    def adopt(self, stored: Stored, commit: str | None) -> None:
        """Take a version over as it is, from a branch whose objects are at hand.

        One that was a direct change there counts here as made by `commit`, so that diffs show it.
        """
        if stored.meta.commit is None and commit is not None:
            meta = replace(stored.meta, commit=commit)
            stored = Stored(self.objects.put("blob", meta.encode()), meta)
        self._change(stored)
        self.next_sequence = max(self.next_sequence, stored.meta.written + 1)

    def delete(self, artifact_id: str) -> Meta | None:
        """Remove an artifact and return what it was; relations stay."""
        before = self.stored(artifact_id)
        if before is None:
            return None
        self.changed[artifact_id] = None
        self._forgotten.add(artifact_id)
        self._kept.pop(artifact_id, None)
        self.taken.pop(artifact_id, None)
        if self.intent(artifact_id) is not None:
            self.intents[artifact_id] = None
        return before.meta

    def _set(self, meta: Meta) -> None:
        oid = self.objects.put("blob", meta.encode())
        self.changed[meta.id] = tuple.__new__(Stored, (oid, meta))  # its own constructor is Python
        if meta.reads or meta.listings:
            self._reading.add(meta.id)

    def _change(self, stored: Stored) -> None:
        self.changed[stored.meta.id] = stored
        if _has_read(stored):
            self._reading.add(stored.meta.id)

    def type_ids(self) -> list[str]:
        """Return the type ids of all live artifacts, sorted."""
        found = set(self.indexes.type_ids(self.objects, self.roots))
        found |= {stored.meta.type_id for stored in self.changed.values() if stored}
        return sorted(found)

    def ids_of(self, type_ids: Iterable[str]) -> list[str]:
        """Return the ids of the live artifacts of some types, in order of creation."""
        wanted = set(type_ids)
        keys = [
            key
            for type_id in wanted
            for key in self.indexes.order(self.objects, self.roots, type_id)
            if key[1] not in self.changed
        ]
        keys += [
            (stored.meta.sequence, stored.meta.id)
            for stored in self.changed.values()
            if stored is not None and stored.meta.type_id in wanted
        ]
        keys.sort()
        return [artifact_id for _, artifact_id in keys]

    def versions(self, artifact_id: str) -> Iterator[Stored]:
        """Yield the versions of a live artifact that are still kept, the newest first."""
        stored = self.stored(artifact_id)
        oldest = self.oldest_version(artifact_id)
        while stored is not None:
            yield stored
            previous = stored.meta.previous
            ends = previous is None or stored.meta.version <= oldest
            stored = None if ends or previous is None else self.stored_at(previous)

    def oldest_version(self, artifact_id: str) -> int:
        """Return the first version of an artifact that is kept: those before it were trimmed."""
        if artifact_id in self.taken:
            return oldest_kept_in(self.objects, self.taken[artifact_id])
        if artifact_id in self._forgotten:
            return 0
        return oldest_kept(self.objects, self.roots.versions, artifact_id)

    def take_versions(self, artifact_id: str, other: State) -> None:
        """Keep beside an artifact the earlier versions that another state keeps beside it."""
        self.taken[artifact_id] = subtree(other.objects, other.roots.versions, versions_path(artifact_id))

    def readers(self, meta: Meta) -> list[Meta]:
        """Return the live artifacts whose last commit read an artifact or listed its type."""
        stored = self.indexes.readers(self.objects, self.roots, meta.id, meta.type_id)
        return [*self._unchanged(stored), *self._changed_readers()]

    def all_readers(self) -> list[Meta]:
        """Return the live artifacts whose last commit read something."""
        stored = self.indexes.all_readers(self.objects, self.roots)
        return [*self._unchanged(stored), *self._changed_readers()]

    def _unchanged(self, metas: Iterable[Meta]) -> list[Meta]:
        return [meta for meta in metas if meta.id not in self.changed] if self.changed else list(metas)

    def _changed_readers(self) -> list[Meta]:
        if not self._reading:
            return []
        found = (self.changed.get(artifact_id) for artifact_id in self._reading)
        return [stored.meta for stored in found if stored is not None and _has_read(stored)]

    # -- relations ---------------------------------------------------------------------------

    def outgoing(self, source: str) -> tuple[Edge, ...]:
        """Return the relations of one source, in order."""
        if source in self.edges:
            return self.edges[source]
        entry = self.objects.find(self.roots.relations, file_path(source))
        return () if entry is None else decode_edges(self.objects.read(entry.oid).data)[1]

    def sources(self) -> list[str]:
        """Return every id that has outgoing relations."""
        stored = self.indexes.sources(self.objects, self.roots)
        return sorted((set(stored) - self.edges.keys()) | {s for s, e in self.edges.items() if e})

    def incoming_sources(self, target: str) -> list[str]:
        """Return every id that has a relation to `target`."""
        stored = set(self.indexes.incoming(self.objects, self.roots, target)) - self.edges.keys()
        fresh = {s for s, es in self.edges.items() if any(e.target == target for e in es)}
        return sorted(stored | fresh)

    def link(self, source: str, relation: str, target: str) -> bool:
        """Add a relation; return whether it was new."""
        edges = self.outgoing(source)
        known = self._linked
        if (
            known is None or known.edges is not edges
        ):  # looked through once for all links of one source in a row
            known = _Linked(edges, {(edge.relation, edge.target) for edge in edges})
        if (relation, target) in known.ends:
            return False
        self.edges[source] = edges = (*edges, Edge(relation, target, self.next_sequence))
        known.ends.add((relation, target))
        self._linked = _Linked(edges, known.ends)
        self.next_sequence += 1
        return True

    def unlink(self, source: str, relation: str | None, target: str | None) -> list[Edge]:
        """Remove the relations of `source` that match (`None`: any); return those that went."""
        gone = [
            edge
            for edge in self.outgoing(source)
            if relation in (None, edge.relation) and target in (None, edge.target)
        ]
        if gone:
            dropped = set(gone)
            self.edges[source] = tuple(e for e in self.outgoing(source) if e not in dropped)
        return gone

    # -- intents -----------------------------------------------------------------------------

    def intent(self, action_id: str) -> Intent | None:
        """Return what the branch waits for under an action's id, or `None`."""
        if action_id in self.intents:
            return self.intents[action_id]
        if self._expected.outbox == self.roots.outbox:
            return self._expected.intents.get(action_id)
        entry = self.objects.find(self.roots.outbox, file_path(action_id))
        return None if entry is None else Intent.decode(self.objects.read(entry.oid).data)

    def waiting(self) -> list[Intent]:
        """Return all intents this branch waits for, in the order they were planned."""
        if self._expected.outbox != self.roots.outbox:
            stored = {}
            for _, oid in walk(self.objects, self.roots.outbox):
                intent = Intent.decode(self.objects.read(oid).data)
                stored[intent.action_id] = intent
            self._expected = _Expected(self.roots.outbox, stored)
        known: Mapping[str, Intent | None] = self._expected.intents
        if self.intents:
            known = {**known, **self.intents}
        return (
            sorted([intent for intent in known.values() if intent is not None], key=_PLANNED) if known else []
        )

    def expect(self, intent: Intent) -> None:
        """Wait for a delivery."""
        self.intents[intent.action_id] = intent

    def wait_for(self, meta: Meta, payload: bytes) -> None:
        """Wait for the delivery of the version of an action, unless it is cancelled."""
        intent = Intent.of(meta, payload)
        if intent is None:
            self.settle(meta.id)
        else:
            self.expect(intent)

    def settle(self, action_id: str) -> None:
        """Wait for a delivery no longer."""
        if self.intent(action_id) is not None:
            self.intents[action_id] = None

    # -- held results ------------------------------------------------------------------------

    def held(self) -> list[bytes]:
        """Return the files of held results."""
        return [self.objects.read(oid).data for _, oid in walk(self.objects, self.roots.held)]

    def hold(self, files: Mapping[str, bytes]) -> None:
        """Keep exactly these files of held results, by name."""
        if not files:
            self.roots = self.roots._replace(held=None)
            return
        before = {} if self.roots.held is None else self.objects.tree(self.roots.held)
        entries = {}
        for name, data in files.items():
            known = before.get(name)
            is_known = known is not None and known.oid == object_id("blob", data)
            entries[name] = known if known and is_known else blob_entry(self.objects.put("blob", data))
        self.roots = self.roots._replace(held=self.objects.put_tree(entries))

    # -- coming back -------------------------------------------------------------------------

    def savepoint(self) -> StateSavepoint:
        """Return what `restore` needs to come back to this moment; it costs what has changed."""
        return StateSavepoint(
            self.roots,
            self.next_sequence,
            dict(self.changed),
            dict(self.edges),
            dict(self.intents),
            _copied(self._kept) if self._kept else {},
            dict(self.taken),
            frozenset(self._forgotten),
        )

    def restore(self, to: StateSavepoint) -> None:
        """Drop the changes since a savepoint."""
        self.roots, self.next_sequence = to.roots, to.next_sequence
        self.changed, self.edges, self.intents = dict(to.changed), dict(to.edges), dict(to.intents)
        self._kept, self.taken = _copied(to.kept), dict(to.taken)
        self._forgotten = set(to.forgotten)
        self._reading = {i for i, stored in self.changed.items() if stored and _has_read(stored)}

    def take_out(self, ids: Collection[str]) -> StateSavepoint:
        """Take the changes of some ids, and the relations they lead to, out of what `flush` writes."""
        whole = self.savepoint()
        self.changed = {i: v for i, v in whole.changed.items() if i not in ids}
        self.edges = {i: v for i, v in whole.edges.items() if i not in ids}
        self.intents = {i: v for i, v in whole.intents.items() if i not in ids}
        self._kept = {i: v for i, v in whole.kept.items() if i not in ids}
        self.taken = {i: v for i, v in whole.taken.items() if i not in ids}
        self._forgotten = {i for i in whole.forgotten if i not in ids}
        return whole

    def put_back(self, whole: StateSavepoint, ids: Collection[str]) -> None:
        """Put back what `take_out` took."""
        self.changed |= {i: v for i, v in whole.changed.items() if i in ids}
        self.edges |= {i: v for i, v in whole.edges.items() if i in ids}
        self.intents |= {i: v for i, v in whole.intents.items() if i in ids}
        self._kept |= {i: v for i, v in whole.kept.items() if i in ids}
        self.taken |= {i: v for i, v in whole.taken.items() if i in ids}
        self._forgotten |= {i for i in whole.forgotten if i in ids}
        self._reading |= {i for i in ids if (stored := self.changed.get(i)) and _has_read(stored)}

    # -- writing -----------------------------------------------------------------------------

    @property
    def kept(self) -> dict[tuple[str, int], Stored]:
        """The versions between the last flush and the present one, which no commit holds otherwise."""
        return {(i, number): one for i, versions in self._kept.items() for number, one in versions.items()}

    @property
    def is_clean(self) -> bool:
        """True while nothing has changed since the subtrees were written."""
        return not (self.changed or self.edges or self.intents)

    def flush(self) -> Roots:
        """Turn the changes into new subtrees and go on from them."""
        if self.is_clean:
            return self.roots
        roots = self.roots
        artifacts, meta, versions = of_artifacts(self, self._forgotten)
        objects = self.objects
        self.roots = Roots(
            artifacts=update(objects, roots.artifacts, artifacts) if artifacts else roots.artifacts,
            relations=update(objects, roots.relations, of_relations(self)) if self.edges else roots.relations,
            outbox=update(objects, roots.outbox, of_intents(self)) if self.intents else roots.outbox,
            meta=update(objects, roots.meta, meta) if meta else roots.meta,
            versions=update(objects, roots.versions, versions) if versions else roots.versions,
            held=roots.held,
            queue=roots.queue,
            thread=roots.thread,
        )
        if 0 < len(self.changed) <= _SEEN:  # what was written is what a look at the new subtree would find
            self._seen = _Seen(self.roots.meta, self.changed)
        metas = {i: None if stored is None else stored.meta for i, stored in self.changed.items()}
        self.indexes.follow(roots.meta, self.roots.meta, metas)
        if self.intents and self._expected.outbox == roots.outbox:
            waiting = {**self._expected.intents, **self.intents}
            known = {action_id: intent for action_id, intent in waiting.items() if intent is not None}
            self._expected = _Expected(self.roots.outbox, known)
        self.changed, self.edges, self.intents = {}, {}, {}
        self._kept, self.taken, self._forgotten, self._reading = {}, {}, set(), set()
        return self.roots


def _has_read(stored: Stored) -> bool:
    return bool(stored.meta.reads or stored.meta.listings)


def _copied(kept: Mapping[str, dict[int, Stored]]) -> dict[str, dict[int, Stored]]:
    return {artifact_id: dict(versions) for artifact_id, versions in kept.items()}


def artifact_is_new(changed: dict[str, Stored | None], before: Stored) -> bool:
    """Tell whether a version was made since the last flush, so that no commit holds it."""
    return changed.get(before.meta.id) is before
