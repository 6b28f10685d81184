"""`Context`: the working state of one branch, with its history and its branches.

Owns the public methods: the present state, what looks back (history, diff, checkout, compaction,
versions), what branches and merges. The work is done by the modules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import anyio
from pydantic import BaseModel

from .._store._backends.kv import KVBackend, MemoryBackend
from .._store.branch import MAIN, Branch
from .._store.ledger import Ledger
from .._store.object_db import Database
from .._store.protocol import Progress
from ..artifacts import Artifact
from ..commit import Commit
from ..errors import ReadOnlyContext, SessionBusy, StoreError, WrongType
from ..events import Event, EventType
from ..interrupt import PendingAction, PendingQuestion, TypedQuestion, build_models
from ..operations import Relation
from ..resources import RuntimeResources
from ..threads import asyncio_loop
from ..types.codec import dump
from . import commit, delivery, working_copy
from . import preload as reading_ahead
from .commit import Committer
from .queue import Queue
from .working_copy import WorkingCopy, current_scope

if TYPE_CHECKING:
    from ..merging import MergePreview, Policy
    from ..streaming import EventHub, EventQueue
    from . import history as past
    from . import view as views
    from .document import CheckpointLike

M = TypeVar("M", bound=BaseModel)


class ParkedEvent(NamedTuple):
    """An event on which `agent` failed `failures` times, the last time with `error`."""

    event: Event
    agent: str
    failures: int
    error: str


class Context:
    """The working state of one branch.

    `Context()` stands alone, over a store in memory; `SessionStore.open` and
    `BranchStore.load_branch` give contexts over a durable store. `create`, `update`, `delete`,
    `link` and `unlink` are direct changes: they show at once, and become one commit at the next
    save, generation, branch or merge.
    """

    def __init__(self, resources: RuntimeResources | None = None) -> None:
        database = Database(MemoryBackend())
        self._open(Branch(database, Ledger(database, "context"), "context", MAIN), resources)

    @classmethod
    def over(cls, line: Branch, resources: RuntimeResources | None = None) -> Context:
        """Return the context of a line of a store."""
        context = cls.__new__(cls)
        context._open(line, resources)
        return context

    def _open(self, line: Branch, resources: RuntimeResources | None) -> None:
        build_models()
        self.resources = resources if resources is not None else RuntimeResources()
        self._publish_lock: anyio.Lock | None = None
        self._loop: object = None  # asyncio's, that the lock was made on
        self.runner: str | None = None  # the run in progress on this context
        self.is_exclusive = False  # whether its session holds the branch's run lock for it
        self.commits = Committer(line, self.resources)
        self._hub: EventHub | None = None

    @property
    def is_publishing(self) -> bool:
        """Whether the context is being written, or loaded again."""
        return self._publish_lock is not None and self._publish_lock.locked()

    @property
    def publish_lock(self) -> anyio.Lock:
        """The lock for writing the context, or loading it again; to be entered at once.

        An event loop makes its own: a context may be used on one after another.
        """
        loop = asyncio_loop()
        if self._publish_lock is None or not (self._publish_lock.locked() or (loop and loop is self._loop)):
            self._publish_lock, self._loop = anyio.Lock(), loop
        return self._publish_lock

    def _view(self) -> WorkingCopy:
        scope = current_scope()
        if scope is not None and scope.context is self:
            return scope.working
        return self.commits.working

    @property
    def line(self) -> Branch:
        """The branch of the store that this context works on (for the layers above)."""
        return self.commits.line

    @property
    def working(self) -> WorkingCopy:
        """The view that the present code works on (for the layers above)."""
        return self._view()

    def freeze(self, why: str) -> None:
        """Let the context only be looked at from now on: what would change it raises `ReadOnlyContext`."""
        self.commits.working.closed, self.commits.working.closed_error = why, ReadOnlyContext

    def require_open(self) -> None:
        """Raise `ReadOnlyContext` where the context is only looked at."""
        self.commits.working.require_open()

    # -- artifacts -----------------------------------------------------------------------------

    def create(self, data: M, id: str | None = None) -> Artifact[M]:
        """Create an artifact; where the id is taken, return the one that has it.

        Raises `PayloadError` when the data would not come back equal from the store, `InvalidName`
        for an id that cannot be stored.
        """
        return self._view().create(self._guarded("create", id, data), id, self.commits.origin())

    @overload
    def get(self, id: str) -> Artifact[Any] | None: ...
    @overload
    def get(self, id: str, type: type[M]) -> Artifact[M] | None: ...
    def get(self, id: str, type: type[BaseModel] | None = None) -> Artifact[Any] | None:
        """Return a live artifact, or `None`. With `type` it is known to be one of that type.

        Raises `WrongType` where the artifact is neither of `type` nor of a subclass, `ArtifactMutated` after
        an in-place change.
        """
        found = self._view().get(id)
        if type is not None and found is not None and not isinstance(found.data, type):
            raise WrongType(
                f"artifact {id!r} is of type {found.data_type}, not {type.__name__}: ask for that type, or "
                f"for none, as in context.get({id!r})"
            )
        return found

    async def preload(self, *wanted: str | type[BaseModel]) -> None:
        """Read artifacts ahead: by id, and all of a model type and its subclasses.

        It reads in a worker thread, one read of the store a level of its trees. From then on `get` of
        these ids, and `data` of what it returns, read nothing, and an id that is absent is known to
        be; the same for `list_artifacts` of these types the first time they are listed. It is held in
        memory as stored, whatever its size, for as long as this context lives and is not refreshed,
        and what was changed since is read anew with the next preload. Inside a produce it reads the
        snapshot of the execution, holds it for that execution, and notes no read: what the produce
        then gets is noted as ever. Raises `TypeError` for anything else, `InvalidName`,
        `MissingObject`.
        """
        await reading_ahead.preload(self.working, wanted)

    def update(self, id: str, new_data: BaseModel) -> Artifact[Any] | None:
        """Replace the data of an artifact; equal data changes nothing; `None` when absent."""
        view, scope = self._view(), current_scope()
        if scope is not None and scope.working is view and scope.effects is not None:
            scope.effects.follow(id, view, new_data)
        if view.state.stored(id) is not None:
            new_data = self._guarded("update", id, new_data)
        return view.update(id, new_data, self.commits.origin())

    def delete(self, id: str) -> bool:
        """Remove an artifact; its relations stay, dangling. Returns whether it was there."""
        self._guarded("delete", id)
        return self._view().delete(id, self.commits.origin()) is not None

    def _guarded(self, verb: str, id: str | None, data: M | None = None) -> M:
        """Ask the guard rails about a direct change, and return its data redacted.

        Raises `NotAuthorized`, `GuardrailViolation`. What an execution changes is asked about when it has
        ended, as its agent's.
        """
        resources = self.resources
        if data is not None:
            data = resources.redact(data)
        scope = current_scope()
        if resources.guards_access and (scope is None or scope.context is not self or scope.asker is None):
            view = self._view()
            stored = None if id is None else view.state.stored(id)
            current = None if stored is None else view.artifact(stored).data
            resources.check(verb, id or "", data, current, self.commits.principal)
        return data  # type: ignore[return-value]  # `None` only where nobody looks at it

    @overload
    def list_artifacts(self, type: None = None) -> list[Artifact[Any]]: ...
    @overload
    def list_artifacts(self, type: type[M]) -> list[Artifact[M]]: ...
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
        from . import view as views

        return views.select(self._view(), type, condition, limit)

    # -- relations -----------------------------------------------------------------------------

    def link(self, source: str, relation: str, target: str) -> Relation:
        """Add a relation; repeating it changes nothing; the ends need not exist."""
        self._guarded("link", source)
        return self._view().link(source, relation, target)

    def unlink(self, source: str, relation: str | None = None, target_id: str | None = None) -> int:
        """Remove the relations that match (`None`: any) and return how many went."""
        self._guarded("unlink", source)
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
        state = self.commits.line.state
        return state.roots.outbox is not None or bool(state.intents)

    def mark_dispatched(self, id: str) -> Artifact[PendingAction] | None:
        """Record that an action was delivered; `None` for an id that is not an action."""
        self.require_open()
        return delivery.mark(self.commits.working, id, "dispatched", None, self.resources.clock.now())

    def mark_failed(self, id: str, error: str | None = None) -> Artifact[PendingAction] | None:
        """Record that a delivery failed; `None` for an id that is not an action."""
        self.require_open()
        said = None if error is None else self.resources.redact(error)
        return delivery.mark(self.commits.working, id, "failed", said, self.resources.clock.now())

    def retry_action(self, id: str) -> Artifact[PendingAction] | None:
        """Let a failed or parked action be delivered again; `None` for an id that is not an action.

        Raises `ValueError` for one that was dispatched: a resend is a new key.
        """
        self.require_open()
        return delivery.rearm(self.commits.working, id, self.resources.clock.now())

    def interrupt(
        self, question: str, *, kind: str = "general", notes: dict[str, Any] | None = None
    ) -> Artifact[PendingQuestion]:
        """Ask a human: create a `PendingQuestion`."""
        return self.create(PendingQuestion(question=question, kind=kind, notes=notes or {}))

    def pending_questions(self) -> list[Artifact[PendingQuestion]]:
        """Return the questions that wait for an answer: not answered, and not expired."""
        asked = self.list_artifacts(PendingQuestion)
        now = self.resources.clock.now()
        return [
            question
            for question in asked
            if not question.data.answered
            and not (isinstance(question.data, TypedQuestion) and question.data.is_over(now))
        ]

    def has_pending_question(self) -> bool:
        """Tell whether a question is open."""
        return bool(self.pending_questions())

    def latest_pending_question(self) -> Artifact[PendingQuestion] | None:
        """Return the question that was asked last and is not answered, or `None`."""
        asked = self.pending_questions()
        return asked[-1] if asked else None

    def resume(self, id: str, answer: Any, *, change: bool = False) -> Artifact[PendingQuestion] | None:
        """Answer a question; `None` for an id that is not a question.

        The same answer again changes nothing. Raises `AnswerConflict` for another one, unless `change`
        asks for it: agents then react to the question once more. A `TypedQuestion` takes its model, or data
        that validates as one: raises `AnswerInvalid`, and `QuestionExpired` once its deadline has passed.
        """
        found = self.get(id)
        if found is None or not isinstance(found.data, PendingQuestion):
            return None
        answered = found.data.answered_with(id, answer, self.resources.clock.now(), change=change)
        return found if answered is None else self.update(id, answered)

    # -- events --------------------------------------------------------------------------------

    @property
    def queue(self) -> Queue:
        """The events and the agents still owed (for the runtime)."""
        return self.commits.gather()

    def track_staleness(self) -> None:
        """Queue STALE events from now on, and those of the updates that still wait.

        A context that began empty does so from the start; one that was loaded begins when somebody
        asks, because it has to read the bookkeeping of everything once.
        """
        if not self.commits.working.tracks_staleness:
            self.commits.working.tracks_staleness = True
            working_copy.add_events(self.commits.working, self.commits.gather())

    def stale_artifacts(self) -> list[Artifact[Any]]:
        """Return what was written by a commit that read something at an older version."""
        return working_copy.stale_artifacts(self._view())

    def has_stale(self) -> bool:
        """Tell whether anything is stale."""
        return bool(self.stale_artifacts())

    def pending_events(self) -> list[Event]:
        """Return the queued events; the queue is untouched."""
        if any(entry.event.type == EventType.ARTIFACT_UPDATED for entry in self.commits.gather()):
            self.track_staleness()
        return [entry.event for entry in self.commits.gather()]

    def drain_events(self) -> list[Event]:
        """Return the queued events and empty the queue."""
        self.require_open()
        events = self.pending_events()
        self.commits.restart_queue()
        return events

    def consume_events(self, batch: Sequence[Event]) -> None:
        """Remove exactly these event objects from the queue."""
        self.require_open()
        self.commits.gather().remove(batch)

    def parked_events(self) -> list[ParkedEvent]:
        """Return the events on which an agent failed too often (`Runtime(max_failures=)`), in order."""
        return [
            ParkedEvent(entry.event, name, found.times, found.error)
            for entry in self.commits.gather()
            for name, found in entry.parked.items()
        ]

    def retry_event(self, artifact_id: str | None = None, *, agent: str | None = None) -> int:
        """Let parked events be tried again, with their failures counted anew; return how many.

        Only those of one artifact, or on which `agent` failed, where these are given. It is saved as any
        direct change is.
        """
        queue, count = self.commits.gather(), 0
        for entry in list(queue):
            if artifact_id not in (None, entry.event.artifact_id):
                continue
            for name in entry.parked:
                if agent in (None, name):
                    queue.rearm(entry, name)
                    count += 1
        return count

    # -- announcements -------------------------------------------------------------------------

    def announce(self, message: str, *, kind: str = "status", **data: Any) -> None:
        """Tell subscribers, at once, what is going on; nothing is stored, nobody need listen."""
        if self._hub is not None and self._hub.has_subscribers:
            from ..streaming import ProgressEvent

            self._hub.publish(ProgressEvent(kind, message, data, self.resources.clock.now()))

    def subscribe(self) -> EventQueue:
        """Return a bounded queue of the announcements made from now on."""
        if self._hub is None:
            from ..streaming import EventHub

            self._hub = EventHub()
        return self._hub.subscribe()

    def unsubscribe(self, queue: EventQueue) -> None:
        """Let a queue get no more announcements."""
        if self._hub is not None:
            self._hub.unsubscribe(queue)

    def discard_held(self) -> int:
        """Drop the results that a failed or cut generation left behind; return how many went.

        Their executions run again, and what `call.memo` has kept is forgotten.
        """
        self.require_open()
        count = len(self.commits.held)
        self.commits.hold([])
        return count

    # -- history -------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of applied commits; direct changes do not count."""
        return self.commits.line.version

    @property
    def head_id(self) -> str | None:
        """The id of the last applied commit, or `None`."""
        return self.commits.line.head

    def history(self) -> past.History:
        """Return the applied commits, the oldest first."""
        from . import history as past

        return past.commits(self.commits.line)

    commit_log = history

    def diff(self, a: int, b: int) -> past.VersionDiff:
        """Compare the committed state of two versions: `{"added", "removed", "changed"}`.

        Raises `ValueError` unless `0 <= a <= b <= version`.
        """
        from . import history as past

        return past.diff(self.commits.line, a, b)

    @property
    def compacted_at(self) -> int:
        """The highest version that a compaction has folded into the baseline; 0 before any."""
        return self.commits.line.baseline

    def checkout(self, version: int) -> None:
        """Go back to a version and drop the later commits; there is no way forward.

        What they never wrote stays, direct changes included; the event queue is emptied. The store
        follows at the next save. Nothing that was delivered is taken back or sent again. Raises
        `ValueError` for a version out of range, `ProtectedBranch`, `SessionBusy` while a turn runs.
        """
        self._refuse_to_move("checkout")
        if self.runner is not None:
            raise SessionBusy(
                f"context.checkout() was called while run {self.runner} is in progress, whose executions "
                f"still read what it would drop: await the run first"
            )
        from . import reset

        reset.checkout(self.commits, version)

    def compact(
        self,
        *,
        keep_commits: int,
        keep_versions: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Fold all but the last commits of each branch of the session into a baseline, in the store too.

        Returns how many versions of this branch were folded. `keep_versions` trims the history of
        each artifact to that many earlier versions; numbers stay. `progress` is called with how many
        commits were made anew, and of how many. Raises `ValueError` for a negative number,
        `ProtectedBranch`, `StaleSession`.
        """
        self._refuse_to_move("compact")
        from . import reset

        return reset.compact(self.commits, keep_commits, keep_versions, progress)

    def log_commit(self, commit: Commit) -> None:
        """Append a commit whose changes were applied already; fills in its parent and its version."""
        self._refuse_to_move("log_commit")
        from . import reset

        reset.log_commit(self.commits, commit)

    def artifact_version(self, id: str, version: int) -> past.ArtifactVersion | None:
        """Return one version of a live artifact, or `None`. Raises `ValueError` for one it has not."""
        from . import history as past

        return past.artifact_version(self._view(), id, version)

    def version_history(self, id: str) -> list[past.ArtifactVersion]:
        """Return the kept versions of a live artifact, the present one last."""
        from . import history as past

        return past.version_history(self._view(), id)

    def find_versions(
        self, type: type[BaseModel] | None = None, content_hash: str | None = None
    ) -> list[past.ArtifactVersion]:
        """Return the kept versions of all live artifacts of a type, or with some content."""
        from . import history as past

        return past.find_versions(self._view(), type, content_hash)

    def _repr_html_(self) -> str:
        """Return the context as tables, for a notebook: where it stands, and its newest artifacts."""
        from . import view as views

        return views.as_tables(self.commits.line, self._view())

    # -- branches ------------------------------------------------------------------------------

    def branch(self, *, name: str = "") -> Context:
        """Return an independent copy that shares `resources` and the session's ledger.

        It costs one commit at most, whatever the state holds, and takes the queue along. It is
        written to the store when `BranchStore.save_branch` gives it a name, when a runtime has to
        record an intent on it, or when it is merged.
        """
        self._refuse_inside_an_execution("branch")
        self.commits.begin()
        self.commits.note_queue()
        return Context.over(self.commits.line.fork_off(name or "fork"), self.resources)

    def merge(
        self,
        other: Context,
        *,
        message: str = "Merged branch",
        policy: Policy | None = None,
        dry_run: bool = False,
        emit_events: bool = False,
    ) -> MergePreview | None:
        """Merge another context into this one: three-way, by artifact, all or nothing.

        `policy` settles conflicts: `"ours"`, `"theirs"`, or a function of a `ConflictDetail`. A
        `dry_run` returns what the merge would do and changes nothing; else `None` is returned.
        `emit_events` queues the events of what was taken over. Raises `MergeConflict`, with nothing
        applied, when both sides changed an artifact differently. Nothing is ever delivered by a merge.
        """
        self.require_open()
        self._refuse_inside_an_execution("merge")
        return commit.merge(
            self.commits,
            other.commits,
            message=message,
            policy=policy,
            dry_run=dry_run,
            emit_events=emit_events,
        )

    def merge_from(self, other: Context) -> None:
        """Take over what is absent here or has a higher version there, and unite the relations.

        Two-way and without conflicts: ids stay, nothing is deleted, one commit. `merge` compares
        against a common base instead.
        """
        self._refuse_inside_an_execution("merge_from")
        self.require_open()
        commit.merge_from(self.commits, other.commits)

    def clone(self) -> Context:
        """Return a detached copy with resources of its own and no pending events.

        What is delivered from either is recorded in the one ledger of the session.
        """
        self._refuse_inside_an_execution("clone")
        self.commits.begin()
        self.commits.note_queue()
        twin = Context.over(self.commits.line.fork_off(self.commits.line.branch))
        twin.commits.restart_queue()
        twin.commits.hold([])
        return twin

    def _refuse_to_move(self, verb: str) -> None:
        self._refuse_inside_an_execution(verb)
        self.require_open()
        if self.is_publishing:
            raise StoreError(f"context.{verb}() was called while the context is being saved; await that")

    # -- one document --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the whole context as plain JSON types: history, queue, ledger, fork base and name.

        Direct changes become a commit first, as with a save.
        """
        self._refuse_inside_an_execution("to_dict")
        from . import document

        return document.to_dict(self.commits)

    @classmethod
    def from_dict(cls, data: dict[str, Any], resources: RuntimeResources | None = None) -> Context:
        """Return the context that `to_dict` described, over a store in memory.

        Raises `NotAStore` for another dictionary, `FormatTooNew`, `StoreError` for a damaged one.
        """
        from . import document

        return cls.over(document.line_of(data), resources)

    async def save_checkpoint(self, place: CheckpointLike) -> None:
        """Save `to_dict` at a path (one JSON file) or in a `CheckpointBackend`."""
        from . import document

        await document.checkpoint(place).save(self.to_dict())

    @classmethod
    async def load_checkpoint(
        cls, place: CheckpointLike, resources: RuntimeResources | None = None
    ) -> Context:
        """Return the context saved at a path or in a `CheckpointBackend`.

        Raises `NoCheckpoint` (a `ValueError`) when nothing was, and what `from_dict` raises.
        """
        from . import document

        return cls.from_dict(await document.checkpoint(place).load(), resources)

    async def to_kv(self, backend: KVBackend, key: str) -> None:
        """Save `to_dict` under a key."""
        await backend.set(key, self.to_dict())

    @classmethod
    async def from_kv(
        cls, backend: KVBackend, key: str, resources: RuntimeResources | None = None
    ) -> Context | None:
        """Return the context saved under a key, or `None`. Raises what `from_dict` raises."""
        data = await backend.get(key)
        return None if data is None else cls.from_dict(data, resources)

    def _refuse_inside_an_execution(self, verb: str) -> None:
        scope = current_scope()
        if scope is not None and scope.context is self:
            raise StoreError(
                f"context.{verb}() was called inside a produce of the same context: an execution "
                f"sees one snapshot; {verb} outside of the run, or plan effects instead"
            )

    def __repr__(self) -> str:
        line = self.commits.line
        return f"Context({f'{line.session}/{line.branch}'!r}, version={self.version})"
