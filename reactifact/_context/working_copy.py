"""A state seen through models: artifacts, relations and events, what was looked at, and what was changed.

Owns `WorkingCopy`, the execution that the present code runs in (so that a context can answer with its
view), and which artifacts are stale.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, MutableMapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from pydantic import BaseModel

from .._store._history.listings import is_since
from .._store.layout import Edge, ListingRecord, Meta, file_path
from .._store.ledger import Ledger
from .._store.objects import Oid
from .._store.state import Origin, State, StateSavepoint, Stored
from .._store.trees import lookup
from .._undeclared import over_stored
from ..artifacts import (
    ACTION_TYPE,
    Artifact,
    Encoded,
    action_note,
    check_text,
    dumped_payload,
    encode,
    is_subtype,
    is_unchanged,
    other_payload,
    same_content,
)
from ..errors import ArtifactMutated, ReactifactError, TypeNotFoundError
from ..events import Event, EventType
from ..interrupt import PendingAction
from ..operations import Create, Delete, Link, Operation, Relation, Unlink, Update
from ..resources import RuntimeResources
from ..types.codec import decode_payload
from ..types.ids import type_id_of
from ..types.registry import resolve, revision_of, warn_process_local
from .queue import Queue

# -- which execution the present code runs in, so that a context can answer with its view --


class Scope:
    """One execution: the context it belongs to and its own view of it."""

    def __init__(
        self,
        context: object,
        working: WorkingCopy,
        effects: Any = None,
        memos: Callable[[], Any] | None = None,
    ) -> None:
        self.context = context
        self.working = working
        self.effects = effects
        self._make_memos = memos
        self._memos: Any = None
        self.asker: Any = None  # the agent that runs, as the queue knows it, and its event
        self.questions = 0  # how many `call.ask` has come by
        self.calls: list[dict[str, str]] = []  # what was asked of models, for the record of the commit

    @property
    def memos(self) -> Any:
        """What `call.memo` keeps, `None` where it keeps nothing; made when it is first asked for."""
        if self._memos is None and self._make_memos is not None:
            self._memos = self._make_memos()
        return self._memos


_scope: ContextVar[Scope | None] = ContextVar("reactifact_scope", default=None)


current_scope: Callable[[], Scope | None] = _scope.get
"""Returns the execution that the present code runs in, or `None`."""


def note_call(*, model: str, request: str, response: str) -> None:
    """Note, inside an execution, a model call for the record of its commit: two hashes and a name."""
    scope = _scope.get()
    if scope is not None:
        scope.calls.append({"model": model, "request": request, "response": response})


def too_late(what: str) -> str:
    """Return the message of an error: a task that outlives its execution would lose what it does."""
    return (
        f"{what} after its execution had ended, by a task that outlived it, and would be lost: wait for the "
        f"task in the produce, or start it with an empty contextvars.Context() to change the context itself"
    )


class entered:  # noqa: N801 - reads as the verb of a with statement; a generator costs thrice as much
    """Run a block inside a scope (`None`: outside of any)."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: Scope | None) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._token = _scope.set(self._scope)

    def __exit__(self, *_: object) -> None:
        _scope.reset(self._token)


# -- reading a state as artifacts: models, identity, deliveries, and what was looked at --


_REMEMBERED = 10_000  # artifacts of the last listing
_TOGETHER = 64  # payloads of a listing that are read at once
_SMALL = 64 * 1024  # bytes; after a larger one each is read alone


class Reading:
    """A state seen as artifacts and relations."""

    def __init__(self, state: State, ledger: Ledger, *, hold: bool, change: str) -> None:
        self.state = state
        self.ledger = ledger
        self.change = change  # the snapshot's Change-Id, for listings
        self.reads: dict[str, int] = {}
        self.listings: dict[str, ListingRecord] = {}
        self.is_tracking = False  # whether reads are noted
        self._loaded: set[str] = set()
        self._listed: list[Stored] = []  # what was listed last
        self._upcoming: dict[str, int] = {}  # those of it whose payloads were not read ahead, by place
        self._live: MutableMapping[str, Artifact[Any]] = {} if hold else WeakValueDictionary()
        self.closed = ""  # why a change would go nowhere; empty while one is taken
        self.closed_error: type[ReactifactError] = ReactifactError
        self.is_private = hold  # of one execution: nobody else works on it, it can be taken back

    def get(self, artifact_id: str) -> Artifact[Any] | None:
        """Return a live artifact, or `None`; the look-up counts as a read."""
        stored = self.state.stored(artifact_id)
        self.note_read(artifact_id, stored)
        return None if stored is None else self.artifact(stored)

    def note_read(self, artifact_id: str, stored: Stored | None) -> None:
        """Note, where reads are noted, that a version was read (`None`: that there was none)."""
        if self.is_tracking:
            version = -1 if stored is None else self.version_of(stored.meta)
            self.reads.setdefault(artifact_id, version)

    def artifact(self, stored: Stored) -> Artifact[Any]:
        """Return the artifact of a live version: always the same object while someone holds it."""
        meta = stored.meta
        known = self._live.get(meta.id)
        if known is not None:
            self.check(known)
            if known.data_type == meta.type_id:
                if known.payload is None or known.is_loaded is False:
                    self._point(known, meta)
                return known
        artifact = Artifact.stored(meta.id, self)
        self._point(artifact, meta)
        self._live[artifact.id] = artifact
        return artifact

    def version_of(self, meta: Meta) -> int:
        """Return the version of an artifact as users see it: an action's deliveries count too."""
        if meta.type_id != ACTION_TYPE:
            return meta.version
        entry = self.ledger.entry(meta.id)
        return meta.version + (entry.changes if entry is not None else 0)

    def _point(self, artifact: Artifact[Any], meta: Meta) -> None:
        """Let an artifact stand for a version; data and history are read when asked for."""
        artifact.data_type = meta.type_id
        artifact.version = self.version_of(meta)
        artifact.created_at = datetime.fromisoformat(meta.created_at)
        artifact.updated_at = datetime.fromisoformat(meta.updated_at)
        artifact.created_by_commit = meta.created_by
        artifact._data = None
        artifact._earlier = None
        artifact._source = self
        artifact.payload = None

    def load(self, artifact: Artifact[Any]) -> BaseModel:
        """Build the model of an artifact (called by the artifact when its data is asked for)."""
        stored = self.state.stored(artifact.id)
        if stored is None:
            raise ReactifactError(
                f"artifact {artifact.id!r} was deleted before its data was read; "
                f"read it while it is live, or from an earlier version"
            )
        payload = self.state.payload(stored.meta)
        if artifact.id in self._upcoming and len(payload) <= _SMALL:
            self._read_on(self._upcoming[artifact.id])
        artifact.payload = payload
        self._loaded.add(artifact.id)
        return self.model(stored.meta, payload)

    def _read_on(self, place: int) -> None:
        """Read the payloads that follow one in the last listing, several at once: they are looked at next."""
        following = self._listed[place + 1 : place + _TOGETHER]
        self.state.objects.prefetch(stored.meta.payload for stored in following)
        for stored in self._listed[place : place + _TOGETHER]:
            self._upcoming.pop(stored.meta.id, None)
        if not self._upcoming:
            self._listed = []

    def load_history(self, artifact: Artifact[Any]) -> list[BaseModel]:
        """Build the earlier versions of an artifact, oldest first."""
        versions = list(self.state.versions(artifact.id))
        earlier = [self._decode(v.meta, self.state.payload(v.meta)) for v in versions[1:]]
        earlier.reverse()
        stored = versions[0].meta if versions else None
        if stored is not None and self.version_of(stored) > stored.version:
            earlier.append(self._decode(stored, self.state.payload(stored)))
        return earlier

    def _decode(self, meta: Meta, payload: bytes) -> BaseModel:
        try:
            model = resolve(meta.type_id)
        except TypeNotFoundError as error:
            raise TypeNotFoundError(f"artifact {meta.id!r}: {error}") from error
        return decode_payload(model, payload, type_id=meta.type_id, revision=meta.revision)

    def model(self, meta: Meta, payload: bytes) -> BaseModel:
        """Return the model of a version, an action joined with its delivery."""
        data = self._decode(meta, payload)
        if isinstance(data, PendingAction):
            return self._delivered(meta, data)
        return data

    def _delivered(self, meta: Meta, action: PendingAction) -> PendingAction:
        entry = self.ledger.entry(meta.id)
        intent = self.state.intent(meta.id)
        if action.cancelled_at is not None and (entry is None or entry.status != "dispatched"):
            attempts = 0 if entry is None else entry.attempts
            return action.model_copy(update={"status": "cancelled", "attempts": attempts})
        if entry is None:
            if intent is not None and intent.simulated_at is not None:
                when = datetime.fromisoformat(intent.simulated_at)
                return action.model_copy(update={"status": "simulated", "dispatched_at": when})
            return action
        is_other = entry.intent != meta.content_hash and action.cancelled_at is None  # else: cancelled late
        if entry.status == "dispatched" and is_other:
            return action.model_copy(update={"status": "failed", "error": other_payload(meta.id)})
        moment = entry.dispatched_at
        return action.model_copy(
            update={
                "status": entry.status,
                "attempts": entry.attempts,
                "error": entry.error,
                "dispatched_at": datetime.fromisoformat(moment) if moment else None,
            }
        )

    def check(self, artifact: Artifact[Any]) -> None:
        """Refuse an artifact whose data was changed in place. Raises `ArtifactMutated`."""
        if artifact.payload is None or not artifact.is_loaded:
            return
        if is_unchanged(artifact.data, artifact.payload):
            return
        stored = self.state.stored(artifact.id)
        if stored is not None and not self._is_as_read(artifact, stored.meta):
            self._point(artifact, stored.meta)
            raise ArtifactMutated(
                f"the data of artifact {artifact.id!r} was changed in place; it has been read anew. "
                f"Change it with effects.update(artifact, field=value) in a produce, or with "
                f"context.update(id, new_data) outside"
            )

    def _is_as_read(self, artifact: Artifact[Any], meta: Meta) -> bool:
        """Whether data whose stored bytes are of another shape of the model is as it was read from them."""
        if meta.revision == revision_of(resolve(meta.type_id)) or artifact.payload is None:
            return False
        return is_unchanged(artifact.data, dumped_payload(self._decode(meta, artifact.payload)))

    def check_loaded(self) -> None:
        """Refuse in-place changes of what was read since the last check. Raises `ArtifactMutated`."""
        loaded, self._loaded = self._loaded, set()
        for artifact_id in sorted(loaded):
            artifact = self._live.get(artifact_id)
            if artifact is not None:
                self.check(artifact)

    def ids(self, model: type[BaseModel] | None = None) -> list[str]:
        """Return the ids of the live artifacts of a type and its subclasses, in order."""
        return self.state.ids_of(self.note_listing(model))

    def note_listing(self, model: type[BaseModel] | None = None) -> list[str]:
        """Note, where reads are noted, that a type was listed; return the type ids that are stored."""
        type_ids = [t for t in self.state.type_ids() if model is None or is_subtype(t, model)]
        if self.is_tracking:
            for type_id in type_ids or ([type_id_of(model)] if model is not None else []):
                record = ListingRecord(type_id, self.change, self.state.next_sequence)
                self.listings.setdefault(type_id, record)
        return type_ids

    def artifacts(self, model: type[BaseModel] | None = None) -> list[Artifact[Any]]:
        """Return the live artifacts of a type and its subclasses, in order of creation."""
        return self.at(self.ids(model))

    def at(self, artifact_ids: Iterable[str]) -> list[Artifact[Any]]:
        """Return live artifacts by id, without noting reads."""
        listed = [one for one in self.state.stored_many(list(artifact_ids)) if one is not None]
        if 1 < len(listed) <= _REMEMBERED:
            self._listed = listed
            self._upcoming = {stored.meta.id: place for place, stored in enumerate(listed)}
        return [self.artifact(stored) for stored in listed]

    def type_of(self, meta: Meta) -> type[BaseModel] | str:
        """Return the model class of a version, or its type id where none resolves."""
        try:
            return resolve(meta.type_id)
        except TypeNotFoundError:
            return meta.type_id

    def renew(self, artifact_id: str) -> Artifact[Any] | None:
        """Let the live object of an id show what the state holds now; return it, where both are there."""
        known = self._live.get(artifact_id)
        if known is not None:
            stored = self.state.stored(artifact_id)
            if stored is not None:
                self._point(known, stored.meta)
                return known
        return None

    def release_missing(self, meta: Oid | None) -> None:
        """Let go of the live objects that bookkeeping `meta` lacks; whoever holds one can still read it."""
        for artifact_id, artifact in list(self._live.items()):
            if lookup(self.state.objects, meta, file_path(artifact_id)) is None:
                if not artifact.is_loaded and self.state.stored(artifact_id) is not None:
                    _ = artifact.data
                self._live.pop(artifact_id, None)
                self._loaded.discard(artifact_id)

    def let_go(self) -> None:
        """Let an execution end: hold no artifact any longer, and note no read of a task that outlives it.

        A view and its artifacts would else wait for the cycle collector.
        """
        self._listed, self._upcoming = [], {}
        self.closed = too_late("the context was changed")
        self.is_tracking = False
        self._live.clear()

    def version_data(self, meta: Meta, payload: bytes | None = None) -> BaseModel:
        """Return the model of any version, as it was written; `payload` where that stands elsewhere."""
        return self._decode(meta, self.state.payload(meta) if payload is None else payload)

    def renew_all(self) -> None:
        """Let all live objects show what the state holds now."""
        for artifact_id in list(self._live):
            self.renew(artifact_id)

    # -- relations -----------------------------------------------------------------------------

    def relations(
        self, source: str | None = None, relation: str | None = None, target: str | None = None
    ) -> list[Relation]:
        """Return the relations that match (`None`: any), in order of their making."""
        if source is not None:
            sources = [source]
        elif target is not None:
            sources = self.state.incoming_sources(target)
        else:
            sources = self.state.sources()
        found: list[tuple[Edge, str]] = [
            (edge, origin)
            for origin in sources
            for edge in self.state.outgoing(origin)
            if relation in (None, edge.relation) and target in (None, edge.target)
        ]
        found.sort(key=lambda pair: (pair[0].sequence, pair[1]))
        return [Relation(origin, edge.relation, edge.target) for edge, origin in found]


# -- which artifacts are stale: written by a commit that read something at an older version --


def dependents(working: WorkingCopy, artifact_id: str) -> list[Meta]:
    """Return what is stale because of one artifact, in order of creation."""
    stored = working.state.stored(artifact_id)
    if stored is None:
        return []
    found = {
        meta.id: meta
        for meta in working.state.readers(stored.meta)
        if meta.id != artifact_id and _read_older(working, meta, stored.meta)
    }
    return sorted(found.values(), key=lambda meta: (meta.sequence, meta.id))


def _read_older(working: WorkingCopy, reader: Meta, read: Meta) -> bool:
    """Whether `reader`'s last commit saw an older version of `read` than there is now."""
    now = working.version_of(read)
    seen = [r.version for r in reader.reads if r.artifact_id == read.id]
    if seen:  # says it exactly, also where a listing of another branch cannot
        return any(0 <= version < now for version in seen)
    return any(listing.type_id == read.type_id and is_since(read, listing) for listing in reader.listings)


def stale_artifacts(working: WorkingCopy) -> list[Artifact[Any]]:
    """Return every stale artifact, in order of creation."""
    types: dict[str, _WrittenOfType] = {}
    stale = [meta for meta in working.state.all_readers() if _is_stale(working, meta, types)]
    stale.sort(key=lambda meta: (meta.sequence, meta.id))
    return working.at(meta.id for meta in stale)


def _is_stale(working: WorkingCopy, meta: Meta, types: dict[str, _WrittenOfType]) -> bool:
    for read in meta.reads:
        stored = working.state.stored(read.artifact_id)
        if stored is not None and read.artifact_id != meta.id and _read_older(working, meta, stored.meta):
            return True
    for listing in meta.listings:
        if listing.type_id not in types:
            types[listing.type_id] = _WrittenOfType(working, listing.type_id)
        if types[listing.type_id].is_newer(listing.sequence, besides=meta.id):
            return not meta.reads or _is_older_than_any(working, meta, listing.type_id)
    return False


def _is_older_than_any(working: WorkingCopy, meta: Meta, type_id: str) -> bool:
    others = (working.state.stored(artifact_id) for artifact_id in working.state.ids_of([type_id]))
    return any(
        stored is not None and stored.meta.id != meta.id and _read_older(working, meta, stored.meta)
        for stored in others
    )


class _WrittenOfType:
    """When the artifacts of a type were written last: one look a listing, not one an artifact."""

    def __init__(self, working: WorkingCopy, type_id: str) -> None:
        self._sequences: list[int] = []
        self._latest: list[tuple[tuple[int, str], tuple[int, str]]] = []  # the two last, up to each
        first = second = (-1, "")
        for artifact_id in working.state.ids_of([type_id]):
            stored = working.state.stored(artifact_id)
            if stored is not None:
                first, second, _ = sorted([first, second, (stored.meta.written, artifact_id)], reverse=True)
                self._sequences.append(stored.meta.sequence)
                self._latest.append((first, second))

    def is_newer(self, sequence: int, *, besides: str) -> bool:
        """Tell whether one that was listed at a place in the order was written since, itself left out."""
        listed = bisect_left(self._sequences, sequence)
        if not listed:
            return False
        return any(
            written >= sequence and artifact_id != besides
            for written, artifact_id in self._latest[listed - 1]
        )


def add_events(working: WorkingCopy, queue: Queue) -> None:
    """Put the STALE events behind the UPDATED events that are not matched yet.

    For a context that was loaded and did not keep track until now.
    """
    known = {entry.event.artifact_id for entry in queue if entry.event.type == EventType.ARTIFACT_STALE}
    for entry in queue:
        if entry.owed is not None or entry.event.type != EventType.ARTIFACT_UPDATED:
            continue
        stale = [meta for meta in dependents(working, entry.event.artifact_id) if meta.id not in known]
        known.update(meta.id for meta in stale)
        when = entry.event.timestamp
        queue.insert_behind(
            entry,
            [Event(EventType.ARTIFACT_STALE, working.type_of(meta), meta.id, when) for meta in stale],
        )


# -- changing a state through models: what `Context` shows, and what one execution sees of it --


class ViewSavepoint(NamedTuple):
    """A moment of a private view, to come back to."""

    state: StateSavepoint
    held: dict[str, Artifact[Any]]
    reads: frozenset[str]
    operations: int
    events: int
    direct: int
    delivered: frozenset[str] | None


class WorkingCopy(Reading):
    """A state seen as artifacts, relations and events.

    One belongs to the context for as long as it lives; each execution has another one over a
    snapshot, whose changes are gathered and applied when it has succeeded.
    """

    def __init__(
        self,
        state: State,
        ledger: Ledger,
        resources: RuntimeResources,
        *,
        durable: bool,
        hold: bool = False,
        branch: str = "",
        change: str = "",
    ) -> None:
        super().__init__(state, ledger, hold=hold, change=change)
        self.resources = resources
        self.durable = durable
        self.branch = branch
        self.operations: list[dict[str, Any]] = []  # direct changes since the last commit
        self.events: list[Event] = []
        self.tracks_staleness = False  # whether an update queues STALE events
        self.direct: list[Operation] = []  # of an execution: to be applied when it has succeeded
        self.delivered: set[str] | None = None  # ids to settle at the next commit; None: ask for all

    # -- writing (direct changes) --------------------------------------------------------------

    def create(self, data: BaseModel, artifact_id: str | None, origin: Origin) -> Artifact[Any]:
        """Create an artifact, or return the one that has the id."""
        self.require_open()
        if artifact_id is not None:
            existing = self.get(artifact_id)
            if existing is not None:
                return existing
        else:
            artifact_id = self.fresh_id(type(data))
        self.write(artifact_id, encode(data), origin, "create")
        self._note(Create(data, id=artifact_id))
        stored = self.state.stored(artifact_id)
        assert stored is not None
        return self.artifact(stored)

    def fresh_id(self, model: type[BaseModel]) -> str:
        """Return a new id: from the resources' factory, else random. Raises `ValueError`."""
        factory = self.resources.id_factory
        made = factory(model.__name__) if factory is not None else str(uuid.uuid4())
        if self.state.stored(made) is not None:
            raise ValueError(
                f"the id {made!r} that was made for a new {model.__name__} is taken: "
                f"let id_factory return ids that are new"
            )
        return made

    def update(self, artifact_id: str, data: BaseModel, origin: Origin) -> Artifact[Any] | None:
        """Replace the data of an artifact; equal data changes nothing; `None` when absent."""
        self.require_open()
        stored = self.state.stored(artifact_id)
        if stored is None:
            return None
        live = self.artifact(stored)
        encoded = over_stored(encode(data), self.state, artifact_id)
        if not same_content(encoded, stored.meta):
            self.write(artifact_id, encoded, origin, "update")
            self._note(Update(artifact_id, data))
        return live

    def require_open(self) -> None:
        """Raise `ReactifactError`, or what stands for it here, where a change would go nowhere."""
        if self.closed:
            raise self.closed_error(self.closed)

    def _note(self, operation: Operation) -> None:
        if self.is_private:
            self.direct.append(operation)

    def write(self, artifact_id: str, encoded: Encoded, origin: Origin, op_type: str) -> Meta:
        """Write a version, journal it and queue its event. The id must be storable."""
        file_path(artifact_id)
        if self.durable:
            warn_process_local(encoded.model)
        known = self.state.stored(artifact_id)
        type_id, payload, revision, _ = encoded
        meta = self.state.put_after(known, artifact_id, type_id, payload, revision, origin)
        if encoded.type_id == ACTION_TYPE:
            self.expect(meta)
        if known is None:
            self.events.append(
                Event(EventType.ARTIFACT_CREATED, encoded.model, artifact_id, origin.when)
            )  # as `emit`
        else:
            self.emit_update(encoded.model, artifact_id, origin.when)
        operation = {
            "type": op_type,
            "artifact_id": artifact_id,
            "data_type": type_id,
            "payload": meta.payload,
            "revision": meta.revision,
            "version": meta.version,
        }
        if type_id == ACTION_TYPE:
            operation |= action_note(encoded)
        self.operations.append(operation)
        self.renew(artifact_id)
        return meta

    def expect(self, meta: Meta) -> None:
        """Wait for the delivery of an action, unless the ledger has it with this payload."""
        entry = self.ledger.entry(meta.id)
        if entry is None or entry.status != "dispatched" or entry.intent != meta.content_hash:
            self.state.wait_for(meta, self.state.payload(meta))

    def delete(self, artifact_id: str, origin: Origin) -> Meta | None:
        """Remove an artifact; its relations stay. Returns what it was, or `None`."""
        self.require_open()
        stored = self.state.stored(artifact_id)
        if stored is None:
            return None
        live = self._live.pop(artifact_id, None)
        if live is not None and not live.is_loaded:
            _ = live.data  # a holder can still read it
        meta = self.state.delete(artifact_id)
        self.emit(EventType.ARTIFACT_DELETED, self.type_of(stored.meta), artifact_id, origin.when)
        self.journal({"type": "delete", "artifact_id": artifact_id})
        self._note(Delete(artifact_id))
        return meta

    def emit(self, kind: EventType, model: type[BaseModel] | str, artifact_id: str, when: datetime) -> None:
        """Queue an event."""
        self.events.append(Event(kind, model, artifact_id, when))

    def emit_update(self, model: type[BaseModel] | str, artifact_id: str, when: datetime) -> None:
        """Queue an update, and the staleness it brings about where that is kept track of."""
        self.emit(EventType.ARTIFACT_UPDATED, model, artifact_id, when)
        if self.tracks_staleness:
            for meta in dependents(self, artifact_id):
                self.emit(EventType.ARTIFACT_STALE, self.type_of(meta), meta.id, when)

    def journal(self, operation: dict[str, Any]) -> None:
        """Note an operation for the record of the commit that will hold it."""
        self.operations.append(operation)

    # -- relations -----------------------------------------------------------------------------

    def link(self, source: str, relation: str, target: str) -> Relation:
        """Add a relation; one that exists is left as it is."""
        self.require_open()
        for part, what in ((source, "source id"), (relation, "relation"), (target, "target id")):
            check_text(part, what)
        if self.state.link(source, relation, target):
            self._note(Link(source, relation, target))
            self.journal(
                {
                    "type": "link",
                    "artifact_id": source,
                    "relation": relation,
                    "target_id": target,
                }
            )
        return Relation(source, relation, target)

    def unlink(self, source: str, relation: str | None, target: str | None) -> int:
        """Remove the relations that match; return how many went."""
        self.require_open()
        gone = self.state.unlink(source, relation, target)
        if gone:
            self._note(Unlink(source, relation, target))
            self.journal(
                {
                    "type": "unlink",
                    "artifact_id": source,
                    "relation": relation,
                    "target_id": target,
                }
            )
        return len(gone)

    # -- trying again --------------------------------------------------------------------------

    def savepoint(self) -> ViewSavepoint:
        """Return what `rollback` needs to come back to this moment. The view must be private."""
        assert self.is_private
        return ViewSavepoint(
            state=self.state.savepoint(),
            held=dict(self._live),
            reads=frozenset(self.reads),
            operations=len(self.operations),
            events=len(self.events),
            direct=len(self.direct),
            delivered=None if self.delivered is None else frozenset(self.delivered),
        )

    def rollback(self, to: ViewSavepoint) -> None:
        """Drop the changes since a savepoint. What was read stays read; artifacts are read anew."""
        assert self.is_private
        touched = set(self.state.changed)
        self.state.restore(to.state)
        del self.operations[to.operations :], self.events[to.events :], self.direct[to.direct :]
        self.delivered = None if to.delivered is None else set(to.delivered)
        for artifact_id in touched & self.reads.keys() - to.reads:
            stored = self.state.stored(artifact_id)  # it was read at a version that is gone now
            self.reads[artifact_id] = -1 if stored is None else self.version_of(stored.meta)
        known = {**self._live, **to.held}
        self._live.clear()
        for artifact_id, artifact in known.items():
            stored = self.state.stored(artifact_id)
            if stored is not None:
                self._live[artifact_id] = artifact
                self._point(artifact, stored.meta)
