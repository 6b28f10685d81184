"""The tree of a commit that somebody made, against the states below it: artifacts, relations, intents, sides.

Owns the rule that the tree decides. Payloads and relations are what people write; versions, order, queue
and outbox follow from them, from the parents and from the ledger. It knows no models: whoever calls says
how a payload is read, and `as_written` reads one without its class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ....errors import CommitRefused, InvalidName, Problem, ReactifactError, StoreError
from ... import canonical
from ...commits import CommitRecord, own_record, read_roots
from ...graph import depth_of
from ...index import Indexes
from ...layout import BOOKKEEPING, Edge, Meta, Roots, artifact_path, decode_edges, file_path
from ...ledger import Ledger
from ...names import encode_name, is_cut
from ...object_db import Objects, Staging
from ...objects import TREE_MODE, Oid, TreeEntry
from ...state import Origin, State, Stored
from ...trees import Path, compare, lookup, subtree
from ..listings import settle_listings
from .standing import (
    Along,
    Change,
    Encoded,
    Payload,
    ReadPayload,
    Standing,
    Written,
    as_written,
    came_along,
    is_by_hand,
    joined_queue,
    last_good,
    origin_of,
    ours_at,
    person,
)
from .text import Refused, end_of_link, id_in_name, line_of, read_json

_TOP = {".gitattributes", BOOKKEEPING, "artifacts", "relations", "outbox"}
_FILE_MODES = (0o100644, 0o100755, 0o100664)
_NOWHERE = "0" * 40


def stand_on(
    objects: Staging,
    commit: Oid,
    ref: str,
    *,
    read: ReadPayload = as_written,
    ledger: Ledger | None = None,
    action_type: str = "",
    change: str | None = None,
    distrusted: Collection[Oid] = (),
) -> Standing:
    """Return the state that a commit of somebody else stands for.

    `distrusted` are commits of ours that count as somebody else's: their bookkeeping is damaged. `change` is
    the Change-Id of the commit that will say so. Without `ledger` the outbox is left as it was. Raises
    `CommitRefused`, naming every file that cannot be taken, and `StoreError` for a commit that holds no
    state of ours.
    """
    return _Reader(objects, ref, read, ledger, action_type, change, distrusted).stand_on(commit)


def roots_at(objects: Objects, commit: Oid, what: str = "") -> Roots:
    """Return the subtrees of a commit, whoever made it. Raises `CommitRefused`, and as `read_roots` does."""
    if not is_by_hand(objects, commit):
        return read_roots(objects, commit, what)

    def make(staging: Staging) -> Oid:
        roots = stand_on(staging, commit, what or f"commit {commit[:12]}").roots
        entries = {name: TreeEntry(TREE_MODE, oid) for name, oid in roots._asdict().items() if oid}
        return staging.put_tree(entries)

    tree = objects.derived(commit, make)
    return Roots(**{name: entry.oid for name, entry in objects.tree(tree).items()})


class _Reader:
    """One reading of a history; the sides of a merge are read by the same rules."""

    def __init__(
        self,
        objects: Staging,
        ref: str,
        read: ReadPayload,
        ledger: Ledger | None,
        action_type: str,
        change: str | None,
        distrusted: Collection[Oid],
    ) -> None:
        self.objects = objects
        self.ref = ref
        self.read = read
        self.ledger = ledger
        self.action_type = action_type
        self.change = change
        self.distrusted = distrusted
        self.known: dict[Oid, Standing] = {}
        self.tip: Oid = ""

    def stand_on(self, commit: Oid) -> Standing:
        self.tip = self.tip or commit
        found = self.known.get(commit)
        if found is None:
            found = self.known[commit] = self._stand_on(commit)
        return found

    def _stand_on(self, commit: Oid) -> Standing:
        objects = self.objects
        chain: list[Oid] = []
        following: Oid | None = commit
        while following is not None:
            ours = None if following in self.distrusted else ours_at(objects, following)
            if ours is not None:
                chain += [following] if ours != following else []
                return self._above(self._ours(ours), [], chain, commit)
            chain.append(following)
            parents = objects.commit(following).parents
            if len(parents) > 1:
                sides = [side for side in map(self.stand_on, parents) if side.record is not None]
                if sides:
                    return self._above(sides[0], sides[1:], chain, commit)
            following = parents[0] if parents else None
        nothing = Standing(State(Staging(objects), Roots(), 0, Indexes()), None, None)
        return self._above(nothing, [], chain, commit)

    def _ours(self, commit: Oid) -> Standing:
        record = own_record(self.objects, commit)
        assert record is not None
        if record.kind == "ledger":
            raise StoreError(
                f"{self.ref} has {commit[:12]} in its history, a commit of a ledger: a ledger is not merged "
                f"into a branch; move the branch back with `git update-ref`"
            )
        roots = read_roots(self.objects, commit, self.ref)
        return Standing(State(Staging(self.objects), roots, record.next_sequence, Indexes()), record, commit)

    def _above(self, base: Standing, others: list[Standing], chain: list[Oid], commit: Oid) -> Standing:
        if not chain:
            return base
        return _Above(self, base, others, chain, commit).stand()


class _Above:
    """The tree of one commit against the states that stand below it."""

    def __init__(
        self, reader: _Reader, base: Standing, others: list[Standing], chain: list[Oid], commit: Oid
    ) -> None:
        self.reader = reader
        self.objects = reader.objects
        self.base = base
        self.others = others
        self.chain = chain
        self.commit = commit
        self.made = self.objects.commit(commit)
        self.tree = self.made.tree
        self.below = base.roots
        self.state = State(
            self.objects,
            self.below,
            max([base.state.next_sequence, *(other.state.next_sequence for other in others)]),
            Indexes(),
        )
        self.objects.absorb(base.state.objects)
        for other in others:
            other.roots  # noqa: B018 - its trees are staged by that
            self.objects.absorb(other.state.objects)
        self.along: list[Along] = []  # events of what git made anew
        self.problems: list[Problem] = []
        self.changes: list[Change] = []
        self.read_by_ours: set[str] = set()
        self.replayed: set[str] = set()
        self.taken: list[tuple[Standing, str]] = []  # artifacts that are of another side
        self.authors = self._authors()

    def stand(self) -> Standing:
        self._check_top()
        artifacts = subtree(self.objects, self.tree, ("artifacts",))
        relations = subtree(self.objects, self.tree, ("relations",))
        self._artifacts(artifacts)
        self._relations(relations)
        if self.problems:
            raise self._refusal()
        for other in self.others:
            taken = {artifact_id for side, artifact_id in self.taken if side is other}
            settle_listings(self.state, other.state, taken)
        self._settle_wakes()
        queue = joined_queue(self.objects, self.base, self.others, self.below.queue, self.along)
        self.state.flush()
        self.state.roots = self.state.roots._replace(queue=queue)
        return Standing(
            self.state,
            self._record(),
            self.base.base,
            [*self.base.changes, *(c for other in self.others for c in other.changes), *self.changes],
            [*self.chain, *(c for side in (self.base, *self.others) for c in side.commits)],
        )

    def _refusal(self) -> CommitRefused:
        good = last_good(Staging(self.objects), self.reader.tip)
        return CommitRefused(self.reader.ref, self.reader.tip, tuple(self.problems), good)

    def _refuse(self, name: str, reason: str, where: str = "", line: int | None = None) -> None:
        commit = self.authors.get(name, self.commit)
        self.problems.append(Problem(commit, name, line, where, reason))

    def _refuse_text(self, name: str, blob: Oid, error: Refused) -> None:
        line = error.line
        if line is None and error.where:
            line = line_of(self.objects.read(blob).data, error.where)
        self._refuse(name, error.reason, error.where, line)

    # -- who changed what --------------------------------------------------------------------

    def _authors(self) -> dict[str, Oid]:
        """Return, by path, the newest commit of the chain that changed a file."""
        if len(self.chain) == 1:
            return {}
        found: dict[str, Oid] = {}
        for oid in self.chain:
            made = self.objects.commit(oid)
            before = self.objects.commit(made.parents[0]).tree if made.parents else None
            for top in ("artifacts", "relations"):
                old = subtree(self.objects, before, (top,))
                for path, _, _ in compare(self.objects, old, subtree(self.objects, made.tree, (top,))):
                    found.setdefault("/".join((top, *path)), oid)
        return found

    def _origin(self, name: str, meta: Meta | None = None) -> Origin:
        """Return who wrote a file: of a commit of ours that was made anew, whoever wrote it then."""
        change = self.reader.change
        if meta is not None:
            return origin_of(meta, change)
        made = self.objects.commit(self.authors.get(name, self.commit))
        return Origin(person(made), datetime.fromtimestamp(made.author.time, UTC), change)

    # -- artifacts ---------------------------------------------------------------------------

    def _check_top(self) -> None:
        for name, entry in self.objects.tree(self.tree).items():
            if name not in _TOP:
                self._refuse(
                    name,
                    "it is not part of a state, and the next commit would drop it; keep it on a branch "
                    "that is not a session's",
                )
            elif name in ("artifacts", "relations") and entry.mode != TREE_MODE:
                self._refuse(name, "it is a file where a folder belongs")

    def _artifacts(self, artifacts: Oid | None) -> None:
        there: dict[str, list[tuple[str, Path, Oid]]] = {}
        touched: set[str] = set()
        for path, old, new in compare(self.objects, self.below.artifacts, artifacts):
            name = "/".join(("artifacts", *path))
            if old is not None:
                touched.add(self._id_of_ours(path))
            if new is None:
                continue
            try:
                type_id, artifact_id = self._named(artifacts, path)
            except Refused as error:
                self._refuse(name, error.reason)
                continue
            touched.add(artifact_id)
            there.setdefault(artifact_id, []).append((type_id, path, new))
        for other in self.others:
            for path, _, _ in compare(self.objects, self.below.artifacts, other.roots.artifacts):
                touched.add(self._id_of_ours(path, other))
        for artifact_id in sorted(touched):
            self._artifact(artifact_id, there.get(artifact_id, []), artifacts)

    def _id_of_ours(self, path: Path, *more: Standing) -> str:
        for side in (self.base, *more):
            entry = lookup(self.objects, side.roots.meta, path[1:])
            if entry is not None:
                return Meta.decode(self.objects.read(entry.oid).data).id
        raise StoreError(f"the payload {'/'.join(path)} of a commit of ours has no bookkeeping")

    def _named(self, artifacts: Oid | None, path: Path) -> tuple[str, str]:
        """Return type and id of a payload by its path: folders between the two do not count."""
        entry = lookup(self.objects, artifacts, path)
        assert entry is not None
        if entry.mode not in _FILE_MODES:
            raise Refused("it is a link or a submodule where a file belongs")
        if len(path) < 2:
            raise Refused("it stands in no folder of a type: artifacts/<type>/<id>.json")
        if not path[-1].endswith(".json"):
            raise Refused("the file of an artifact is called <id>.json")
        return id_in_name(path[0]), self._id_in(path[-1], path[1:])

    def _id_in(self, name: str, path: Path) -> str:
        if is_cut(name):
            for roots in (self.below, *(other.roots for other in self.others)):
                entry = lookup(self.objects, roots.meta, path)
                if entry is not None:
                    return Meta.decode(self.objects.read(entry.oid).data).id
            meta = self._own_meta(path)
            if meta is not None:
                return meta.id
            raise Refused("its name is the cut one of a long id, and no artifact of that name is known")
        return id_in_name(name, ".json")

    def _own_meta(self, path: Path) -> Meta | None:
        """Return what the bookkeeping in the commit says of a path; `None` where that is no record."""
        entry = lookup(self.objects, self.tree, (BOOKKEEPING, "meta", *path))
        if entry is None or entry.mode == TREE_MODE:
            return None
        try:
            return Meta.decode(self.objects.read(entry.oid).data)
        except ReactifactError:
            return None  # two that git has joined line by line

    def _artifact(self, artifact_id: str, there: list[tuple[str, Path, Oid]], artifacts: Oid | None) -> None:
        stored = self.state.stored(artifact_id)
        sides = [(other, other.state.stored(artifact_id)) for other in self.others]
        if stored is not None:
            path = artifact_path(stored.meta.type_id, artifact_id)
            entry = lookup(self.objects, artifacts, path)
            if entry is not None and all(path != other for _, other, _ in there):
                there = [*there, (stored.meta.type_id, path, entry.oid)]
        if len(there) > 1:
            names = sorted("/".join(("artifacts", *path)) for _, path, _ in there)
            self._refuse(
                names[0], f"artifact {artifact_id!r} stands in {len(names)} files: {', '.join(names)}"
            )
            return
        if not there:
            if stored is not None:
                self._deleted(artifact_id, stored)
            return
        ((type_id, path, blob),) = there
        name = "/".join(("artifacts", *path))
        if _is(stored, type_id, blob):
            self._outdo(artifact_id, stored, sides)
            return
        for other, theirs in sides:
            if theirs is not None and _is(theirs, type_id, blob):
                self._take(other, theirs, stored)
                return
        self._written(artifact_id, type_id, name, blob, stored, sides)

    def _deleted(self, artifact_id: str, stored: Stored) -> None:
        name = "/".join(("artifacts", *artifact_path(stored.meta.type_id, artifact_id)))
        origin = self._origin(name)
        self.state.delete(artifact_id)
        self.changes.append(Change("delete", artifact_id, origin.author, origin.when, stored.meta))

    def _outdo(
        self, artifact_id: str, stored: Stored | None, sides: list[tuple[Standing, Stored | None]]
    ) -> None:
        """Let what was kept against a later version of the other side count as later than that."""
        assert stored is not None
        highest = _highest(sides)
        if highest is None or highest[1].meta.version <= stored.meta.version:
            return
        if _is(highest[1], stored.meta.type_id, stored.meta.payload):
            self._take(*highest, stored)
            return
        meta = stored.meta
        origin = origin_of(meta, self.reader.change)
        self._put(artifact_id, meta.type_id, self.state.payload(meta), meta.revision, origin, highest)

    def _take(self, other: Standing, theirs: Stored, stored: Stored | None) -> None:
        """Take over the version of the other side, or its content where ours is later."""
        meta = theirs.meta
        self.taken.append((other, meta.id))
        when = datetime.fromisoformat(meta.updated_at)
        if stored is not None and stored.meta.version >= meta.version:
            origin = origin_of(meta, self.reader.change)
            self._put(
                meta.id, meta.type_id, self.state.payload(meta), meta.revision, origin, None, wakes=False
            )
            return
        self.state.adopt(theirs, self.reader.change)
        self.state.take_versions(meta.id, other.state)
        if (intent := other.state.intent(meta.id)) is not None:
            self.state.expect(intent)
        kind = "create" if stored is None else "update"
        self.changes.append(Change(kind, meta.id, meta.author, when, meta, wakes=False))

    def _written(
        self,
        artifact_id: str,
        type_id: str,
        name: str,
        blob: Oid,
        stored: Stored | None,
        sides: list[tuple[Standing, Stored | None]],
    ) -> None:
        meta = self._own_meta(file_path(artifact_id))
        is_replayed = meta is not None and (meta.id, meta.type_id, meta.payload) == (
            artifact_id,
            type_id,
            blob,
        )
        known = stored or next((theirs for _, theirs in sides if theirs is not None), None)
        before = None
        if known is not None:
            before = Encoded(known.meta.type_id, self.state.payload(known.meta), known.meta.revision)
        text = self.objects.read(blob).data
        try:
            encode_name(artifact_id)
            value = read_json(text)
            revision = meta.revision if is_replayed and meta is not None else None
            is_stored = lookup(self.objects, self.below.artifacts, (encode_name(type_id),)) is not None
            payload = self.reader.read(Written(artifact_id, type_id, value, before, revision, is_stored))
            self._check_action(artifact_id, type_id, payload)
        except Refused as error:
            self._refuse_text(name, blob, error)
            return
        except InvalidName as error:
            self._refuse(name, str(error))
            return
        if meta is not None and is_replayed:
            self.replayed.add(artifact_id)
            if stored is None and self.base.record is None and self._reaches(meta):
                self.state.adopt(Stored(self.state.objects.put("blob", meta.encode()), meta), None)
                self.changes.append(
                    Change("create", artifact_id, meta.author, datetime.fromisoformat(meta.updated_at), meta)
                )
                self._expect(meta, payload.data)
                return
        if meta is not None and meta.id == artifact_id:
            self.read_by_ours.update(record.artifact_id for record in meta.reads)
        same = (
            stored is not None
            and stored.meta.type_id == type_id
            and stored.meta.content_hash == (canonical.content_hash(payload.data))
        )
        highest = _highest(sides)
        if (
            same
            and stored is not None
            and (highest is None or highest[1].meta.version <= stored.meta.version)
        ):
            return  # written otherwise, and saying the same
        origin = self._origin(name, meta if is_replayed else None)
        self._put(artifact_id, type_id, payload.data, payload.revision, origin, highest)

    def _put(
        self,
        artifact_id: str,
        type_id: str,
        payload: bytes,
        revision: str,
        origin: Origin,
        highest: tuple[Standing, Stored] | None,
        *,
        wakes: bool = True,
    ) -> None:
        """Write a version above those of all sides."""
        stored = self.state.stored(artifact_id)
        if highest is not None and (stored is None or highest[1].meta.version > stored.meta.version):
            self.state.adopt(highest[1], None)
            self.state.take_versions(artifact_id, highest[0].state)
        existed = self.state.stored(artifact_id) is not None
        meta = self.state.put(artifact_id, type_id, payload, revision, origin)
        self._expect(meta, payload)
        kind = "update" if existed else "create"
        self.changes.append(Change(kind, artifact_id, origin.author, origin.when, meta, wakes=wakes))

    def _reaches(self, meta: Meta) -> bool:
        """Whether the version before one is at hand, so that it can be taken over with its number."""
        try:
            if meta.previous is not None:
                self.objects.read(meta.previous)
        except StoreError:
            return False
        return True

    # -- intents -----------------------------------------------------------------------------

    def _check_action(self, artifact_id: str, type_id: str, payload: Payload) -> None:
        if type_id != self.reader.action_type or not type_id:
            return
        data: Any = canonical.decode(payload.data)
        key = data.get("idempotency_key") if isinstance(data, dict) else None
        if artifact_id != f"action:{key}":
            raise Refused(
                f"the id of an action is `action:` and its key, here 'action:{key}'", "idempotency_key"
            )
        ledger = self.reader.ledger
        entry = None if ledger is None else ledger.entry(artifact_id)
        if entry is None or entry.intent == canonical.content_hash(payload.data):
            return
        if entry.status == "dispatched" or entry.attempts:
            done = "delivered" if entry.status == "dispatched" else f"tried {entry.attempts} times"
            raise Refused(
                f"this action was {done} with another payload under its key; plan a new one under a key of "
                f"its own",
                "idempotency_key",
            )

    def _expect(self, meta: Meta, payload: bytes) -> None:
        ledger = self.reader.ledger
        if ledger is None or meta.type_id != self.reader.action_type:
            return
        entry = ledger.entry(meta.id)
        if entry is not None and entry.status == "dispatched" and entry.intent == meta.content_hash:
            return
        is_alone = self.base.record is None and meta.id in self.replayed
        if is_alone and lookup(self.objects, self.tree, ("outbox", *file_path(meta.id))) is None:
            return  # nothing else tells that it was sent: what is sent leaves the outbox
        self.state.wait_for(meta, payload)

    # -- relations ---------------------------------------------------------------------------

    def _relations(self, relations: Oid | None) -> None:
        found: dict[str, dict[tuple[str, str], None]] = {}
        touched: set[str] = set()
        for path, old, new in compare(self.objects, self.below.relations, relations):
            if old is not None:
                touched.add(decode_edges(self.objects.read(old).data)[0])
            if new is None:
                continue
            name = "/".join(("relations", *path))
            try:
                source, ends = self._links(relations, path, new)
            except Refused as error:
                self._refuse_text(name, new, error)
                continue
            touched.add(source)
            found.setdefault(source, {}).update(dict.fromkeys(ends))
        for source in sorted(touched):
            self._related(source, found.get(source))

    def _links(self, relations: Oid | None, path: Path, blob: Oid) -> tuple[str, list[tuple[str, str]]]:
        entry = lookup(self.objects, relations, path)
        if entry is None or entry.mode not in _FILE_MODES:
            raise Refused("it is a link or a submodule where a file belongs")
        value = read_json(self.objects.read(blob).data)
        links = value.get("links") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(links, list):
            raise Refused('relations are {"source": <id>, "links": [{"relation": ..., "target": ...}]}')
        named = None if is_cut(path[-1]) else id_in_name(path[-1], ".json")
        source = value.get("source", named)
        if not isinstance(source, str) or (named is not None and source != named):
            raise Refused(f"it says the source {source!r}, and its name says {named!r}", "source")
        ends = []
        for index, link in enumerate(links):
            ends.append((end_of_link(link, "relation", index), end_of_link(link, "target", index)))
        return source, ends

    def _related(self, source: str, ends: Iterable[tuple[str, str]] | None) -> None:
        name = "/".join(("relations", *file_path(source)))
        origin = self._origin(name)
        before = self.state.outgoing(source)
        known = {(edge.relation, edge.target): edge for edge in before}
        after: list[Edge] = []
        for relation, target in ends or ():
            edge = known.get((relation, target))
            if edge is None:
                edge = Edge(relation, target, self.state.next_sequence)
                self.state.next_sequence += 1
                self.changes.append(
                    Change("link", source, origin.author, origin.when, relation=relation, target=target)
                )
            after.append(edge)
        for gone in before:
            if gone not in after:
                self.changes.append(
                    Change(
                        "unlink",
                        source,
                        origin.author,
                        origin.when,
                        relation=gone.relation,
                        target=gone.target,
                    )
                )
        if tuple(after) != before:
            self.state.edges[source] = tuple(sorted(after, key=lambda edge: edge.sequence))

    # -- what is left to react to ------------------------------------------------------------

    def _settle_wakes(self) -> None:
        """Tell agents of all that is new to them.

        What commits of ours wrote and git made anew elsewhere was reacted to there, where something that
        came along was written after reading it; the queue that came along says what was not.
        """
        self.along = came_along(self.objects, self.tree, self.below.queue, self.others, self.replayed)
        told = {waiting.event.get("artifact_id") for _, waiting, _ in self.along}
        settled = []
        for change in self.changes:
            is_known = change.artifact_id in self.replayed and change.kind in ("create", "update")
            if is_known and (change.artifact_id in self.read_by_ours or change.artifact_id in told):
                change = change._replace(wakes=False)
            settled.append(change)
        self.changes = settled

    # -- what the next commit builds on ------------------------------------------------------

    def _record(self) -> CommitRecord:
        records = [side.record for side in (self.base, *self.others) if side.record is not None]
        depth = depth_of(self.objects, self.commit)
        sequence = self.state.next_sequence
        if not records:
            when = datetime.fromtimestamp(self.made.author.time, UTC).isoformat()
            waits = (
                self.reader.ledger is not None
                and self.reader.ledger.tip is None
                and (bool(self.state.intents))
            )
            return CommitRecord(
                change=self.commit,
                kind="root",
                author=person(self.made),
                timestamp=when,
                depth=depth,
                next_sequence=sequence,
                missing_ledgers=[_NOWHERE] if waits else [],
                is_session=True,
                is_watched=True,
            )
        first, *rest = records
        missing = [
            oid
            for record in rest
            for oid in (*record.missing_ledgers, *([record.ledger] if record.ledger else []))
            if record.session == first.session
        ]
        return replace(
            first,
            depth=depth,
            next_sequence=sequence,
            next_event=max(
                [record.next_event for record in records] + [one.order + 1 for _, one, _ in self.along]
            ),
            is_watched=any(record.is_watched for record in records),
            missing_ledgers=list(dict.fromkeys([*first.missing_ledgers, *missing])),
        )


def _is(stored: Stored | None, type_id: str, blob: Oid) -> bool:
    return stored is not None and stored.meta.type_id == type_id and stored.meta.payload == blob


def _highest(sides: list[tuple[Standing, Stored | None]]) -> tuple[Standing, Stored] | None:
    found = [(other, stored) for other, stored in sides if stored is not None]
    return max(found, key=lambda one: one[1].meta.version) if found else None
