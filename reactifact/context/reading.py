"""Reading a state as artifacts: models, identity, deliveries, and what was looked at.

Owns the objects that stand for live artifacts (one an id while somebody holds it), the join of
actions with the ledger, the check for in-place changes, and the note of reads and listings.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel

from ..errors import ArtifactMutated, ReactifactError
from ..store.layout import Edge, ListingRecord, Meta, file_path
from ..store.ledger import Ledger
from ..store.objects import Oid
from ..store.state import State, Stored
from ..store.trees import lookup
from .artifacts import Artifact
from .codec import decode_payload
from .encoding import ACTION_TYPE, dumped_payload, is_subtype, is_unchanged, other_payload
from .interrupts import PendingAction
from .relations import Relation
from .scope import too_late
from .types import TypeNotFoundError, resolve, revision_of, type_id_of


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
        self._live: MutableMapping[str, Artifact[Any]] = {} if hold else WeakValueDictionary()
        self.closed = ""  # why a change would go nowhere; empty while one is taken
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
        found = (self.state.stored(artifact_id) for artifact_id in artifact_ids)
        return [self.artifact(stored) for stored in found if stored is not None]

    def type_of(self, meta: Meta) -> type[BaseModel] | str:
        """Return the model class of a version, or its type id where none resolves."""
        try:
            return resolve(meta.type_id)
        except TypeNotFoundError:
            return meta.type_id

    def renew(self, artifact_id: str) -> None:
        """Let the live object of an id show what the state holds now."""
        known = self._live.get(artifact_id)
        stored = self.state.stored(artifact_id)
        if known is not None and stored is not None:
            self._point(known, stored.meta)

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
        self.closed = too_late("the context was changed")
        self.is_tracking = False
        self._live.clear()

    def version_data(self, meta: Meta) -> BaseModel:
        """Return the model of any version, as it was written."""
        return self._decode(meta, self.state.payload(meta))

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
