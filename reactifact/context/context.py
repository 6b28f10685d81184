"""`Context`: the working state of one branch, as applications and produces use it.

Owns the public methods and the queue of events. Models and reads are `working`'s, commits and refs
are the store's `Line`; this module ties them together and decides when direct changes become a
commit. Inside an execution every method works on that execution's own view (`scope`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel

from ..errors import StoreError
from ..store.database import Database
from ..store.layout import ListingRecord, ReadRecord
from ..store.ledger import Ledger
from ..store.line import MAIN, Line, new_change_id
from ..store.memory import MemoryBackend
from ..store.merge import MergePlan
from ..store.records import CommitRecord
from ..store.state import Origin, State
from . import delivery, log, merging, staleness, views
from .applying import Prepared, apply
from .artifacts import Artifact
from .codec import dump
from .commits import Commit, Write
from .events import Event, EventType, QueueEntry
from .held import HeldKey, HeldResult, file_name
from .interrupts import PendingAction, PendingQuestion
from .relations import Relation
from .resources import RuntimeResources
from .scope import current_scope
from .streaming import EventHub, EventQueue, ProgressEvent
from .working import Working, check_text

M = TypeVar("M", bound=BaseModel)

APPLICATION = "application"


class Context:
    """The working state of one branch.

    `Context()` stands alone, over a store in memory; `SessionStore.open` and
    `BranchStore.load_branch` give contexts over a durable store. `create`, `update`, `delete`,
    `link` and `unlink` are direct changes: they show at once, and become one commit at the next
    save, generation, branch or merge.
    """

    def __init__(self, resources: RuntimeResources | None = None) -> None:
        database = Database(MemoryBackend())
        self._open(Line(database, Ledger(database, "context"), "context", MAIN), resources)

    @classmethod
    def over(cls, line: Line, resources: RuntimeResources | None = None) -> Context:
        """Return the context of a line of a store."""
        context = cls.__new__(cls)
        context._open(line, resources)
        return context

    def _open(self, line: Line, resources: RuntimeResources | None) -> None:
        self.resources = resources if resources is not None else RuntimeResources()
        self._line = line
        self.publish_lock = anyio.Lock()
        self._queue: list[QueueEntry] = []
        self._hub: EventHub | None = None
        self.held: dict[HeldKey, HeldResult] = {}  # for the runtime; change it with `hold`
        self._main = self._new_working()
        self._main.tracks_staleness = line.record is None
        if line.record is not None:
            self._queue = [QueueEntry.from_dict(entry) for entry in line.record.queue]
            self._queue += delivery.missed(line)
            self.held = {found.key: found for found in map(HeldResult.decode, line.state.held())}

    def _new_working(self) -> Working:
        durable = not isinstance(self._line.database.backend, MemoryBackend)
        return Working(
            self._line.state,
            self._line.ledger,
            self.resources,
            durable=durable,
            branch=self._line.branch,
        )

    def _view(self) -> Working:
        scope = current_scope()
        if scope is not None and scope.context is self:
            return scope.working
        return self._main

    def _direct(self) -> Origin:
        return Origin(self.principal, self.resources.clock.now())

    @property
    def principal(self) -> str:
        """The author of direct changes: `resources.principal`, else `application`."""
        who = self.resources.principal
        if who is None:
            return APPLICATION
        check_text(str(who), "principal")
        return str(who)

    @property
    def line(self) -> Line:
        """The branch of the store that this context works on (for the layers above)."""
        return self._line

    @property
    def working(self) -> Working:
        """The view that the present code works on (for the layers above)."""
        return self._view()

    # -- artifacts -----------------------------------------------------------------------------

    def create(self, data: M, id: str | None = None) -> Artifact[M]:
        """Create an artifact; where the id is taken, return the one that has it.

        Raises `PayloadError` when the data would not come back equal from the store, `InvalidName`
        for an id that cannot be stored.
        """
        return self._view().create(data, id, self._direct())

    def get(self, id: str) -> Artifact[Any] | None:
        """Return a live artifact, or `None`. Raises `ArtifactMutated` after an in-place change."""
        return self._view().get(id)

    def update(self, id: str, new_data: BaseModel) -> Artifact[Any] | None:
        """Replace the data of an artifact; equal data changes nothing; `None` when absent."""
        return self._view().update(id, new_data, self._direct())

    def delete(self, id: str) -> bool:
        """Remove an artifact; its relations stay, dangling. Returns whether it was there."""
        return self._view().delete(id, self._direct()) is not None

    def list_artifacts(self, type: type[BaseModel] | None = None) -> list[Artifact[Any]]:
        """Return the live artifacts of a type and its subclasses, in order of creation."""
        return self._view().artifacts(type)

    def latest(self, type: type[M]) -> Artifact[M] | None:
        """Return the artifact of a type that was created last, or `None`."""
        view = self._view()
        ids = view.ids(type)
        return view.at(ids[-1:])[0] if ids else None

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return `{id: dumped data}` of everything live, committed or not."""
        return {artifact.id: dump(artifact.data) for artifact in self._view().artifacts()}

    def view(
        self,
        type: views.Types | None = None,
        *,
        condition: Callable[[Artifact[Any]], bool] | None = None,
        limit: int | None = None,
    ) -> views.View:
        """Return the first `limit` artifacts of one type or several that match, to render as text."""
        return views.select(self._view(), type, condition, limit)

    # -- relations -----------------------------------------------------------------------------

    def link(self, source: str, relation: str, target: str) -> Relation:
        """Add a relation; repeating it changes nothing; the ends need not exist."""
        return self._view().link(source, relation, target)

    def unlink(self, source: str, relation: str | None = None, target_id: str | None = None) -> int:
        """Remove the relations that match (`None`: any) and return how many went."""
        return self._view().unlink(source, relation, target_id)

    def relations(
        self,
        source_id: str | None = None,
        relation: str | None = None,
        target_id: str | None = None,
    ) -> list[Relation]:
        """Return the relations that match (`None`: any), in the order they were made."""
        return self._view().relations(source_id, relation, target_id)

    def incoming(self, target: str, relation: str | None = None) -> list[Relation]:
        """Return the relations that lead to an artifact."""
        return self._view().relations(None, relation, target)

    def related(self, source: str, relation: str | None = None) -> list[Artifact[Any]]:
        """Return the artifacts that `source` leads to, each once, missing ones skipped."""
        view = self._view()
        targets = dict.fromkeys(found.target_id for found in view.relations(source, relation))
        found = (view.get(target) for target in targets)
        return [artifact for artifact in found if artifact is not None]

    def dangling_relations(self) -> list[Relation]:
        """Return the relations with a missing end."""
        state = self._view().state
        return [
            relation
            for relation in self._view().relations()
            if state.stored(relation.source_id) is None or state.stored(relation.target_id) is None
        ]

    # -- actions and questions -----------------------------------------------------------------

    def pending_actions(self) -> list[Artifact[PendingAction]]:
        """Return the actions that wait to be delivered, in the order they were planned."""
        return delivery.pending(self._view())

    def has_actions(self) -> bool:
        """Tell, at no cost, whether the branch waits for any delivery at all."""
        state = self._line.state
        return state.roots.outbox is not None or bool(state.intents)

    def mark_dispatched(self, id: str) -> Artifact[PendingAction] | None:
        """Record that an action was delivered; `None` for an id that is no action."""
        return delivery.mark(self._main, id, "dispatched", None, self.resources.clock.now())

    def mark_failed(self, id: str, error: str | None = None) -> Artifact[PendingAction] | None:
        """Record that a delivery failed; `None` for an id that is no action."""
        return delivery.mark(self._main, id, "failed", error, self.resources.clock.now())

    def retry_action(self, id: str) -> Artifact[PendingAction] | None:
        """Let a failed action be delivered again; `None` for an id that is no action.

        Raises `ValueError` for one that was dispatched: a resend is a new key.
        """
        return delivery.rearm(self._main, id, self.resources.clock.now())

    def interrupt(
        self, question: str, *, kind: str = "general", notes: dict[str, Any] | None = None
    ) -> Artifact[PendingQuestion]:
        """Ask a human: create a `PendingQuestion`."""
        return self.create(PendingQuestion(question=question, kind=kind, notes=notes or {}))

    def pending_questions(self) -> list[Artifact[PendingQuestion]]:
        """Return the questions that are not answered."""
        asked = self.list_artifacts(PendingQuestion)
        return [question for question in asked if not question.data.answered]

    def has_pending_question(self) -> bool:
        """Tell whether a question is open."""
        return bool(self.pending_questions())

    def latest_pending_question(self) -> Artifact[PendingQuestion] | None:
        """Return the question that was asked last and is not answered, or `None`."""
        asked = self.pending_questions()
        return asked[-1] if asked else None

    def resume(self, id: str, answer: Any) -> Artifact[PendingQuestion] | None:
        """Answer a question; `None` for an id that is no question."""
        found = self.get(id)
        if found is None or not isinstance(found.data, PendingQuestion):
            return None
        now = self.resources.clock.now()
        answered = {"answered": True, "resolution": answer, "resolved_at": now}
        return self.update(id, found.data.model_copy(update=answered))

    # -- events --------------------------------------------------------------------------------

    def _gather(self) -> list[QueueEntry]:
        """Move the events of direct changes into the queue, and return the queue."""
        if self._main.events:
            self._queue += [QueueEntry(event) for event in self._main.events]
            self._main.events = []
        return self._queue

    @property
    def queue(self) -> list[QueueEntry]:
        """The events and the agents still owed (for the runtime)."""
        return self._gather()

    def track_staleness(self) -> None:
        """Queue STALE events from now on, and those of the updates that still wait.

        A context that began empty does so from the start; one that was loaded begins when somebody
        asks, because it has to read the bookkeeping of everything once.
        """
        if not self._main.tracks_staleness:
            self._main.tracks_staleness = True
            staleness.add_events(self._main, self._gather())

    def stale_artifacts(self) -> list[Artifact[Any]]:
        """Return what was written by a commit that read something at an older version."""
        return staleness.stale_artifacts(self._view())

    def has_stale(self) -> bool:
        """Tell whether anything is stale."""
        return bool(self.stale_artifacts())

    def pending_events(self) -> list[Event]:
        """Return the queued events; the queue is untouched."""
        if any(entry.event.type == EventType.ARTIFACT_UPDATED for entry in self._gather()):
            self.track_staleness()
        return [entry.event for entry in self._gather()]

    def drain_events(self) -> list[Event]:
        """Return the queued events and empty the queue."""
        events = self.pending_events()
        self._queue.clear()
        return events

    def consume_events(self, batch: Sequence[Event]) -> None:
        """Remove exactly these event objects from the queue."""
        gone = {id(event) for event in batch}
        self._queue[:] = [entry for entry in self._gather() if id(entry.event) not in gone]

    # -- announcements -------------------------------------------------------------------------

    def announce(self, message: str, *, kind: str = "status", **data: Any) -> None:
        """Tell subscribers, at once, what is going on; nothing is stored, nobody need listen."""
        if self._hub is not None and self._hub.has_subscribers:
            self._hub.publish(ProgressEvent(kind, message, data, self.resources.clock.now()))

    def subscribe(self) -> EventQueue:
        """Return a bounded queue of the announcements made from now on."""
        if self._hub is None:
            self._hub = EventHub()
        return self._hub.subscribe()

    def unsubscribe(self, queue: EventQueue) -> None:
        """Let a queue get no more announcements."""
        if self._hub is not None:
            self._hub.unsubscribe(queue)

    # -- history -------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of applied commits; direct changes do not count."""
        return self._line.version

    @property
    def head_id(self) -> str | None:
        """The id of the last applied commit, or `None`."""
        return self._line.head

    def history(self) -> list[Commit]:
        """Return the applied commits, the oldest first."""
        return log.commits(self._line)

    commit_log = history

    def diff(self, a: int, b: int) -> dict[str, Any]:
        """Compare the committed state of two versions: `{"added", "removed", "changed"}`.

        Raises `ValueError` unless `0 <= a <= b <= version`.
        """
        return log.diff(self._line, a, b)

    # -- committing (for the runtime and the session layer) -------------------------------------

    def begin(self) -> None:
        """Make the first, empty commit of the branch, if it has none."""
        if self._line.record is None:
            self._line.begin_session(self.resources.clock.now())

    def commit_direct(self, *, author: str | None = None, message: str = "") -> None:
        """Make one commit of the direct changes since the last commit, if there are any."""
        self._gather()
        main = self._main
        if not main.operations:
            return
        main.check_loaded()
        self._commit(
            CommitRecord(
                change=new_change_id(),
                kind="direct",
                session="",
                branch="",
                author=author or self.principal,
                timestamp=self.resources.clock.now().isoformat(),
                message=message,
                operations=main.operations,
            )
        )

    def commit_edit(self, *, author: str, message: str) -> None:
        """Make one versioned commit of the direct changes since the last commit, if any."""
        check_text(author, "author")
        check_text(message, "message")
        main = self._main
        self._gather()
        if not main.operations and main.state.is_clean:
            return
        main.check_loaded()
        writes = [
            [op["artifact_id"], op.get("version", 0), op["type"]]
            for op in main.operations
            if op["type"] in ("create", "update", "delete")
        ]
        change = new_change_id()
        main.state.claim(Origin(author, self.resources.clock.now(), change))
        self._commit(
            CommitRecord(
                change=change,
                kind="edit",
                session="",
                branch="",
                author=author,
                timestamp=self.resources.clock.now().isoformat(),
                message=message,
                context_version=0,
                operations=main.operations,
                writes=writes,
            )
        )

    def _commit(self, record: CommitRecord, parents: Sequence[str] = ()) -> CommitRecord:
        delivery.settle(self._main)
        done = self._line.commit(record, other_parents=parents)
        self._main.operations = []
        return done

    def apply_direct(self, prepared: Iterable[Prepared]) -> None:
        """Apply what an execution changed directly, as a direct commit of its own."""
        apply(prepared, self._main, self._direct())
        self.commit_direct()

    def commit_patch(self, prepared: Iterable[Prepared], note: CommitRecord) -> CommitRecord:
        """Apply a prepared patch and commit it under what `note` says of author, reads and cause.

        The direct changes made before must have been committed.
        """
        origin = Origin(
            author=note.author,
            when=datetime.fromisoformat(note.timestamp),
            commit=note.change,
            reads=tuple(ReadRecord(*raw) for raw in note.reads),
            listings=tuple(ListingRecord(*raw) for raw in note.listings),
        )
        writes = apply(prepared, self._main, origin)
        self._gather()
        record = _completed(note, self._main.operations, writes)
        return self._commit(record)

    def note_queue(self) -> None:
        """Let the newest commit say what the queue holds; make a commit where it cannot."""
        self.commit_direct()
        queue = [entry.to_dict() for entry in self._gather() if entry.owed is None or entry.owed]
        if self._line.set_queue(queue):
            self.commit_note("reactifact: note what is left to react to")
            self._line.set_queue(queue)

    def commit_name(self) -> None:
        """Make a commit that holds the line's session and branch whole, where its ref cuts them."""
        self.commit_note("reactifact: note the whole name of the branch")

    def commit_note(self, message: str) -> None:
        """Make a commit of bookkeeping alone."""
        self._commit(
            CommitRecord(
                change=new_change_id(),
                kind="queue",
                session="",
                branch="",
                author="reactifact",
                timestamp=self.resources.clock.now().isoformat(),
                message=message,
            )
        )

    def note_simulated(self, actions: Sequence[Artifact[PendingAction]]) -> None:
        """Commit that actions would have been sent; nothing is claimed outside this branch."""
        if not actions:
            return
        self.commit_direct()
        delivery.simulate(self._main, actions, self.resources.clock.now())
        keys = ", ".join(action.data.idempotency_key for action in actions)
        self.commit_note(f"reactifact: simulate {keys}")

    def new_view(self, *, shared: State | None = None) -> Working:
        """Return a view of its own over the committed state (or the snapshot `shared`)."""
        state = self._line.snapshot() if shared is None else shared.twin()
        return Working(
            state,
            self._line.ledger,
            self.resources,
            durable=False,
            hold=True,
            branch=self._line.branch,
            change=self._line.change,
        )

    def hold(self, results: Iterable[HeldResult]) -> None:
        """Keep exactly these results beside the queue; the next commit says so."""
        self.held = {found.key: found for found in results}
        files = {file_name(key): found.encode() for key, found in self.held.items()}
        self._line.state.hold(files)

    def discard_held(self) -> int:
        """Drop the results that a failed or cut generation left behind; return how many went.

        Their executions run again.
        """
        count = len(self.held)
        self.hold([])
        return count

    def replace_line(self, line: Line) -> None:
        """Go on over another line (a reload); live artifacts show what it holds."""
        self._line = line
        self._main.state = line.state
        self._main.ledger = line.ledger
        self._main.operations, self._main.events = [], []
        self._main.delivered = None
        self._main.renew_all()

    # -- branches ------------------------------------------------------------------------------

    def branch(self, *, name: str = "") -> Context:
        """Return an independent copy that shares `resources` and the session's ledger.

        It costs one commit at most, whatever the state holds, and takes the queue along. It is
        written to the store when `BranchStore.save_branch` gives it a name, when a runtime has to
        record an intent on it, or when it is merged.
        """
        self._refuse_inside_an_execution("branch")
        self.begin()
        self.note_queue()
        twin = Context.over(self._line.fork_off(name or "fork"), self.resources)
        twin._queue = [
            QueueEntry(entry.event, None if entry.owed is None else list(entry.owed)) for entry in self._queue
        ]
        return twin

    def merge(self, other: Context, *, message: str = "Merged branch") -> None:
        """Merge another context into this one: three-way, by artifact, all or nothing.

        Raises `MergeConflict`, with nothing applied, when both sides changed an artifact
        differently. Nothing is ever delivered by a merge.
        """
        self._refuse_inside_an_execution("merge")
        check_text(message, "merge message")
        for side in (self, other):
            side.begin()
            side.note_queue()
            side._line.seal()
        plan = merging.plan(self._line, other._line)
        if plan.clashes:
            name = f"branch {other._line.branch!r}"
            raise merging.conflict(merging.Union(self._line.objects, other._line.objects), plan.clashes, name)
        changed = merging.join_ledgers(self._line, other._line)
        if not plan.is_empty:
            self._apply_merge(plan, other, message)
        for action_id in changed:
            self._main.renew(action_id)

    def _apply_merge(self, plan: MergePlan, other: Context, message: str) -> None:
        now = self.resources.clock.now()
        record = CommitRecord(
            change=new_change_id(),
            kind="merge",
            session="",
            branch="",
            author="merge",
            timestamp=now.isoformat(),
            message=message,
            context_version=0,
            details={"branch": other._line.branch, "change": other._line.change},
        )
        origin = Origin("merge", now, record.change)
        writes = merging.apply_plan(plan, self._main, other._line.state, origin)
        assert other._line.tip is not None
        record = _completed(record, self._main.operations, writes)
        self._commit(record, [other._line.tip])
        self._main.events = []
        self._main.renew_all()

    def _refuse_inside_an_execution(self, verb: str) -> None:
        scope = current_scope()
        if scope is not None and scope.context is self:
            raise StoreError(
                f"context.{verb}() was called inside a produce of the same context: an execution "
                f"sees one snapshot; {verb} outside of the run, or plan effects instead"
            )


def _completed(note: CommitRecord, operations: list[dict[str, Any]], writes: list[Write]) -> CommitRecord:
    return replace(
        note,
        operations=operations,
        writes=[[write.artifact_id, write.version, write.op_type] for write in writes],
    )
