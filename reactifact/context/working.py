"""Models over a state: what `Context` shows, and what one execution sees of it.

`Working` turns payload bytes into artifacts and back, joins actions with the ledger, notes what
was read, and journals what was written as operations and events. It commits nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, cast
from weakref import WeakValueDictionary

from pydantic import BaseModel

from ..errors import ArtifactMutated, InvalidName, ReactifactError
from ..store import canonical
from ..store.layout import Edge, Intent, ListingRecord, Meta, ReadRecord
from ..store.ledger import Ledger, LedgerEntry
from ..store.names import encode_name
from ..store.state import Origin, State, StateSavepoint, Stored
from . import staleness
from .artifacts import Artifact
from .codec import decode_payload, encode_payload
from .events import Event, EventType
from .interrupts import DELIVERY_FIELDS, PendingAction
from .operations import Create, Delete, Link, Operation, Unlink, Update
from .relations import Relation
from .resources import RuntimeResources
from .types import TypeNotFoundError, resolve, revision_of, type_id_of, warn_process_local

ACTION_TYPE = type_id_of(PendingAction)


class Encoded(NamedTuple):
    """A model as it will be stored."""

    type_id: str
    payload: bytes
    revision: str
    model: type[BaseModel]


def encode(data: BaseModel) -> Encoded:
    """Return a model as it will be stored. Raises `PayloadError` when it would not come back."""
    if not isinstance(data, BaseModel):
        raise TypeError(
            f"the data of an artifact is a pydantic model, not {type(data).__name__}: "
            f"define a class that derives from pydantic.BaseModel"
        )
    model = type(data)
    if isinstance(data, PendingAction):
        payload = encode_payload(data.intent())
        record: Any = canonical.decode(payload)
        payload = canonical.encode({k: v for k, v in record.items() if k not in DELIVERY_FIELDS})
    else:
        payload = encode_payload(data)
    return Encoded(type_id_of(model), payload, revision_of(model), model)


class ViewSavepoint(NamedTuple):
    """A moment of a private view, to come back to."""

    state: StateSavepoint
    held: dict[str, Artifact[Any]]
    reads: frozenset[str]
    operations: int
    events: int
    direct: int
    delivered: frozenset[str] | None


class Working:
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
        self.state = state
        self.ledger = ledger
        self.resources = resources
        self.durable = durable
        self.branch = branch
        self.change = change  # the snapshot's Change-Id, for listings
        self.operations: list[dict[str, Any]] = []  # direct changes since the last commit
        self.events: list[Event] = []
        self.reads: dict[str, int] = {}
        self.listings: dict[str, ListingRecord] = {}
        self.is_tracking = False  # whether reads are noted
        self.tracks_staleness = False  # whether an update queues STALE events
        self.direct: list[Operation] = []  # of an execution: to be applied when it has succeeded
        self.delivered: set[str] | None = None  # ids to settle at the next commit; None: ask for all
        self._loaded: set[str] = set()
        self._live: WeakValueDictionary[str, Artifact[Any]] = WeakValueDictionary()
        self._held: dict[str, Artifact[Any]] | None = {} if hold else None

    # -- reading -------------------------------------------------------------------------------

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
        self._remember(artifact)
        return artifact

    def _remember(self, artifact: Artifact[Any]) -> None:
        self._live[artifact.id] = artifact
        if self._held is not None:
            self._held[artifact.id] = artifact

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
        artifact.payload = payload
        self._loaded.add(artifact.id)
        return self.model(stored.meta, payload)

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
        if entry is None:
            if intent is not None and intent.simulated_at is not None:
                when = datetime.fromisoformat(intent.simulated_at)
                return action.model_copy(update={"status": "simulated", "dispatched_at": when})
            return action
        if entry.status == "dispatched" and entry.intent != meta.content_hash:
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
        try:
            same = encode(artifact.data).payload == artifact.payload
        except (ReactifactError, ValueError):
            same = False
        stored = self.state.stored(artifact.id)
        if not same and stored is not None and not self._migrated(stored.meta):
            self._point(artifact, stored.meta)
            raise ArtifactMutated(
                f"the data of artifact {artifact.id!r} was changed in place; it has been read anew. "
                f"Change it with effects.update(artifact, field=value) in a produce, or with "
                f"context.update(id, new_data) outside"
            )

    def _migrated(self, meta: Meta) -> bool:
        """Whether the stored bytes are of another shape of the model, so that they may differ."""
        return meta.revision != revision_of(resolve(meta.type_id))

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
        found = (self.state.stored(artifact_id) for artifact_id in artifact_ids)
        return [self.artifact(stored) for stored in found if stored is not None]

    # -- writing (direct changes) --------------------------------------------------------------

    def create(self, data: BaseModel, artifact_id: str | None, origin: Origin) -> Artifact[Any]:
        """Create an artifact, or return the one that has the id."""
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
        stored = self.state.stored(artifact_id)
        if stored is None:
            return None
        live = self.artifact(stored)
        encoded = encode(data)
        if not same_content(encoded, stored.meta):
            self.write(artifact_id, encoded, origin, "update")
            self._note(Update(artifact_id, data))
        return live

    def _note(self, operation: Operation) -> None:
        if self._held is not None:
            self.direct.append(operation)

    def write(self, artifact_id: str, encoded: Encoded, origin: Origin, op_type: str) -> Meta:
        """Write a version, journal it and queue its event. The id must be storable."""
        encode_name(artifact_id)
        if self.durable:
            warn_process_local(encoded.model)
        known = self.state.stored(artifact_id)
        meta = self.state.put(artifact_id, encoded.type_id, encoded.payload, encoded.revision, origin)
        if encoded.type_id == ACTION_TYPE:
            self.expect(meta)
        if known is None:
            self.emit(EventType.ARTIFACT_CREATED, encoded.model, artifact_id, origin.when)
        else:
            self.emit_update(encoded.model, artifact_id, origin.when)
        self.journal(
            {
                "type": op_type,
                "artifact_id": artifact_id,
                "data_type": encoded.type_id,
                "payload": meta.payload,
                "version": meta.version,
                **action_note(encoded),
            }
        )
        self.renew(artifact_id)
        return meta

    def expect(self, meta: Meta) -> None:
        """Wait for the delivery of an action, unless the ledger has it with this payload."""
        entry = self.ledger.entry(meta.id)
        if entry is None or entry.status != "dispatched" or entry.intent != meta.content_hash:
            action: Any = canonical.decode(self.state.payload(meta))
            key = action.get("ordering_key")
            self.state.expect(Intent(meta.id, meta.sequence, meta.content_hash, key))

    def renew(self, artifact_id: str) -> None:
        """Let the live object of an id show what the state holds now."""
        known = self._live.get(artifact_id)
        stored = self.state.stored(artifact_id)
        if known is not None and stored is not None:
            self._point(known, stored.meta)

    def renew_all(self) -> None:
        """Let all live objects show what the state holds now."""
        for artifact_id in list(self._live):
            self.renew(artifact_id)

    def delete(self, artifact_id: str, origin: Origin) -> Meta | None:
        """Remove an artifact; its relations stay. Returns what it was, or `None`."""
        stored = self.state.stored(artifact_id)
        if stored is None:
            return None
        live = self._live.pop(artifact_id, None)
        if live is not None and not live.is_loaded:
            _ = live.data  # a holder can still read it
        if self._held is not None:
            self._held.pop(artifact_id, None)
        meta = self.state.delete(artifact_id)
        self.emit(EventType.ARTIFACT_DELETED, self.type_of(stored.meta), artifact_id, origin.when)
        self.journal({"type": "delete", "artifact_id": artifact_id})
        self._note(Delete(artifact_id))
        return meta

    def type_of(self, meta: Meta) -> type[BaseModel] | str:
        """Return the model class of a version, or its type id where none resolves."""
        try:
            return resolve(meta.type_id)
        except TypeNotFoundError:
            return meta.type_id

    def emit(self, kind: EventType, model: type[BaseModel] | str, artifact_id: str, when: datetime) -> None:
        """Queue an event."""
        self.events.append(Event(kind, model, artifact_id, when))

    def emit_update(self, model: type[BaseModel] | str, artifact_id: str, when: datetime) -> None:
        """Queue an update, and the staleness it brings about where that is kept track of."""
        self.emit(EventType.ARTIFACT_UPDATED, model, artifact_id, when)
        if self.tracks_staleness:
            for meta in staleness.dependents(self, artifact_id):
                self.emit(EventType.ARTIFACT_STALE, self.type_of(meta), meta.id, when)

    def journal(self, operation: dict[str, Any]) -> None:
        """Note an operation for the record of the commit that will hold it."""
        self.operations.append(operation)

    # -- relations -----------------------------------------------------------------------------

    def link(self, source: str, relation: str, target: str) -> Relation:
        """Add a relation; one that exists is left as it is."""
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

    # -- trying again --------------------------------------------------------------------------

    @property
    def is_private(self) -> bool:
        """Whether nobody but one execution works on this view, so that its changes can be taken back."""
        return self._held is not None

    def savepoint(self) -> ViewSavepoint:
        """Return what `rollback` needs to come back to this moment. The view must be private."""
        assert self._held is not None
        return ViewSavepoint(
            state=self.state.savepoint(),
            held=dict(self._held),
            reads=frozenset(self.reads),
            operations=len(self.operations),
            events=len(self.events),
            direct=len(self.direct),
            delivered=None if self.delivered is None else frozenset(self.delivered),
        )

    def rollback(self, to: ViewSavepoint) -> None:
        """Drop the changes since a savepoint. What was read stays read; artifacts are read anew."""
        assert self._held is not None
        touched = set(self.state.changed)
        self.state.restore(to.state)
        del self.operations[to.operations :], self.events[to.events :], self.direct[to.direct :]
        self.delivered = None if to.delivered is None else set(to.delivered)
        for artifact_id in touched & self.reads.keys() - to.reads:
            stored = self.state.stored(artifact_id)  # it was read at a version that is gone now
            self.reads[artifact_id] = -1 if stored is None else self.version_of(stored.meta)
        known = {**self._held, **to.held}
        self._held.clear()
        self._live.clear()
        for artifact_id, artifact in known.items():
            stored = self.state.stored(artifact_id)
            if stored is not None:
                self._remember(artifact)
                self._point(artifact, stored.meta)

    # -- notes for the commit ------------------------------------------------------------------

    def read_records(self) -> tuple[ReadRecord, ...]:
        """Return what was read, the first first."""
        return tuple(ReadRecord(artifact_id, version) for artifact_id, version in self.reads.items())

    def entry(self, artifact_id: str) -> LedgerEntry | None:
        """Return what the ledger knows of an action."""
        return self.ledger.entry(artifact_id)


def same_content(encoded: Encoded, meta: Meta) -> bool:
    """Whether a model is, byte for byte, what a version already holds."""
    return encoded.type_id == meta.type_id and canonical.content_hash(encoded.payload) == meta.content_hash


def action_note(encoded: Encoded) -> dict[str, Any]:
    """Return what the record of an operation says beyond its type, for an action: its key."""
    if encoded.type_id != ACTION_TYPE:
        return {}
    record = cast("dict[str, Any]", canonical.decode(encoded.payload))
    return {"action": record["idempotency_key"]}


def other_payload(action_id: str) -> str:
    """Return the error of an action whose key was delivered with another payload."""
    return (
        f"{action_id} was delivered with another payload before; it is not sent again under the "
        f"same key: plan the new intent under a key of its own"
    )


def is_subtype(type_id: str, model: type[BaseModel]) -> bool:
    """Whether a stored type is a model or derives from it; one that does not resolve is not."""
    try:
        return issubclass(resolve(type_id), model)
    except TypeNotFoundError:
        return False


def check_text(text: str, what: str) -> None:
    """Refuse a text that UTF-8 cannot hold. Raises `InvalidName`, or `TypeError` for no text."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} is a text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(
            f"{what} {text!r} holds a lone surrogate and cannot be stored as UTF-8: remove it"
        ) from error
