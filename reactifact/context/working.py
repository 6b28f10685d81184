"""Changing a state through models: what `Context` shows, and what one execution sees of it.

`Working` encodes models, writes versions and relations, and journals what was written as operations
and events. It commits nothing.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel

from ..errors import ReactifactError
from ..store import canonical
from ..store.layout import Intent, Meta
from ..store.ledger import Ledger
from ..store.names import encode_name
from ..store.state import Origin, State, StateSavepoint
from . import staleness
from .artifacts import Artifact
from .encoding import ACTION_TYPE, Encoded, action_note, check_text, encode, same_content
from .events import Event, EventType
from .operations import Create, Delete, Link, Operation, Unlink, Update
from .reading import Reading
from .relations import Relation
from .resources import RuntimeResources
from .types import warn_process_local
from .undeclared import over_stored


class ViewSavepoint(NamedTuple):
    """A moment of a private view, to come back to."""

    state: StateSavepoint
    held: dict[str, Artifact[Any]]
    reads: frozenset[str]
    operations: int
    events: int
    direct: int
    delivered: frozenset[str] | None


class Working(Reading):
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
        self._require_open()
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
        self._require_open()
        stored = self.state.stored(artifact_id)
        if stored is None:
            return None
        live = self.artifact(stored)
        encoded = over_stored(encode(data), self.state, artifact_id)
        if not same_content(encoded, stored.meta):
            self.write(artifact_id, encoded, origin, "update")
            self._note(Update(artifact_id, data))
        return live

    def _require_open(self) -> None:
        """Raise `ReactifactError` where a change would go nowhere."""
        if self.closed:
            raise ReactifactError(self.closed)

    def _note(self, operation: Operation) -> None:
        if self.is_private:
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
                "revision": meta.revision,
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

    def delete(self, artifact_id: str, origin: Origin) -> Meta | None:
        """Remove an artifact; its relations stay. Returns what it was, or `None`."""
        self._require_open()
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
            for meta in staleness.dependents(self, artifact_id):
                self.emit(EventType.ARTIFACT_STALE, self.type_of(meta), meta.id, when)

    def journal(self, operation: dict[str, Any]) -> None:
        """Note an operation for the record of the commit that will hold it."""
        self.operations.append(operation)

    # -- relations -----------------------------------------------------------------------------

    def link(self, source: str, relation: str, target: str) -> Relation:
        """Add a relation; one that exists is left as it is."""
        self._require_open()
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
        self._require_open()
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
