"""Committing: from the changes of a context to commits of its branch, merges included.

Owns the queue of events, the kept results, and every way in which a commit comes about: direct changes, an
edit, an execution's patch, bookkeeping, a merge. `Context` is the public face; the runtime and the session
layer work on this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .._store import canonical
from .._store._backends.kv import MemoryBackend
from .._store.branch import Branch, new_change_id
from .._store.commits import CommitRecord
from .._store.layout import ListingRecord, ReadRecord
from .._store.object_db import Objects
from .._store.objects import Oid
from .._store.state import Origin, State
from .._store.trees import Path
from ..artifacts import Artifact, check_text
from ..commit import Write
from ..errors import StoreError
from ..interrupt import PendingAction
from ..resources import RuntimeResources
from . import delivery
from .apply import HeldMemo, Prepared, SealedResult, apply, decode_held, files_of
from .queue import Queue
from .working_copy import WorkingCopy

if TYPE_CHECKING:
    from .._store._history.merge import MergePlan
    from ..merging import MergePreview, Policy
    from .merge import Merge

# -- committing: from the changes of a context to commits of its line --


APPLICATION = "application"

NAMED = "reactifact: note the name of the branch"
"""The message of a commit that only says whose branch it is."""


class Committer:
    """The line of a context, the view on its live state, its queue and its held results."""

    def __init__(self, line: Branch, resources: RuntimeResources) -> None:
        self.line = line
        self.resources = resources
        self.is_remote = not line.database.backend.is_local
        """Whether each read of the store takes so long that an event loop is not to wait for it."""
        self.queue = Queue(line, line.state.roots.queue)
        self.held: list[SealedResult] = []
        self.memos: list[HeldMemo] = []  # of executions that have not ended; beside the results in the store
        self._unheard: tuple[Oid | None, CommitRecord] | None = None  # deliveries up to one, not queued yet
        durable = not isinstance(line.database.backend, MemoryBackend)
        self.working = WorkingCopy(line.state, line.ledger, resources, durable=durable, branch=line.branch)
        self.working.tracks_staleness = line.record is None
        self._load_queue()

    def _load_queue(self) -> None:
        """Take over the queue and the held results that the line's newest commit says."""
        line = self.line
        self._unheard = None
        if line.record is not None:
            self.queue = Queue(line, line.state.roots.queue)
            if line.ledger.tip != line.record.ledger:
                self._unheard = line.ledger.tip, line.record
            self.held, self.memos = decode_held(line.state.held())

    @property
    def principal(self) -> str:
        """The author of direct changes: `resources.principal`, else `application`."""
        who = self.resources.principal
        if who is None:
            return APPLICATION
        check_text(str(who), "principal")
        return str(who)

    def origin(self) -> Origin:
        """Return what a direct change is recorded under."""
        return Origin(self.principal, self.resources.clock.now())

    def gather(self) -> Queue:
        """Move the events of direct changes into the queue, and return the queue."""
        if self._unheard is not None:
            self._hear(*self._unheard)
        if self.working.events:
            for event in self.working.events:
                self.queue.append(event)
            self.working.events = []
        return self.queue

    def _hear(self, tip: Oid | None, record: CommitRecord) -> None:
        """Queue the deliveries that the loaded commit did not know; opening a branch leaves them unread."""
        found = delivery.missed(self.line, tip, record)
        self._unheard = None  # only now: a read may fail, and is tried again
        revision = self.queue.revision
        for event, owed in found:
            self.queue.append(event, owed)
        self.queue.revision = revision  # nobody changed it: this is what was there to be read

    def folders_to_write(self) -> list[Path]:
        """Return the folders of the queue that noting what waits will write to."""
        return self.queue.folders_to_write(self.working.events)

    def restart_queue(self, root: Oid | None = None) -> None:
        """Let nothing wait, or what a stored tree says."""
        self._unheard = None
        self.queue = Queue(self.line, root)

    # -- commits -------------------------------------------------------------------------------

    def attach(self, session: str, branch: str, expected: Oid | None) -> None:
        """Give the line a ref, which holds `expected` now; it moves at the next publication."""
        self.line.attach(session, branch, expected)
        self.working.branch = self.line.branch
        self.working.ledger = self.line.ledger

    def begin(self) -> None:
        """Make the first, empty commit of the branch, if it has none."""
        if self.line.record is None:
            self.line.begin_session(self.resources.clock.now())

    def commit_direct(self, *, author: str | None = None, message: str = "", run_id: str = "") -> None:
        """Make one commit of the direct changes since the last commit, if there are any.

        `run_id` names the turn whose executions made them.
        """
        main = self.working
        if main.events or self._unheard is not None:
            self.gather()
        if not main.operations:
            return
        main.check_loaded()
        self._commit(
            CommitRecord(
                change=new_change_id(),
                kind="direct",
                author=author or self.principal,
                timestamp=self.resources.clock.now().isoformat(),
                message=message,
                run_id=run_id,
                operations=main.operations,
            )
        )

    def commit_record(self, record: CommitRecord) -> CommitRecord:
        """Make a commit of the state as it is, under a record of the caller's making."""
        return self._commit(record)

    def commit_edit(self, *, author: str, message: str) -> None:
        """Make one versioned commit of the direct changes since the last commit, if any."""
        check_text(author, "author")
        check_text(message, "message")
        message = self.resources.redact(message)
        main = self.working
        self.gather()
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
                author=author,
                timestamp=self.resources.clock.now().isoformat(),
                message=message,
                context_version=0,
                operations=main.operations,
                writes=writes,
            )
        )

    def _commit(
        self, record: CommitRecord, parents: Sequence[str] = (), writes: Sequence[Write] | None = None
    ) -> CommitRecord:
        """Commit under a record; with `writes`, what was journalled is what it did."""
        settled = delivery.settle(self.working)
        delivered = [delivery.key_of(name) for name in settled] if settled else []
        done = self.line.commit(
            record,
            other_parents=parents,
            operations=_readable(
                record.operations if writes is None else self.working.operations, self.line.objects
            ),
            writes=None if writes is None else [[w.artifact_id, w.version, w.op_type] for w in writes],
            details={**record.details, "delivered": delivered} if delivered else None,
        )
        self.working.operations = []
        return done

    def apply_direct(self, prepared: Iterable[Prepared], run_id: str = "") -> None:
        """Apply what an execution changed directly, as a direct commit of its own."""
        apply(prepared, self.working, self.origin())
        self.commit_direct(run_id=run_id)

    def commit_patch(self, prepared: Iterable[Prepared], note: CommitRecord) -> CommitRecord:
        """Apply a prepared patch and commit it under what `note` says of author, reads and cause.

        The direct changes made before must have been committed.
        """
        origin = Origin(
            author=note.author,
            when=datetime.fromisoformat(note.timestamp),
            commit=note.change,
            reads=tuple([ReadRecord(*raw) for raw in note.reads]) if note.reads else (),
            listings=tuple([ListingRecord(*raw) for raw in note.listings]) if note.listings else (),
        )
        writes = apply(prepared, self.working, origin)
        self.gather()
        return self._commit(note, writes=writes)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Make all commits inside the block, or none: where it raises, everything is as it was before.

        Nothing may be awaited inside.
        """
        line, main = self.line, self.working
        before, held, memos = line.savepoint(), self.held, self.memos
        operations, events, delivered = list(main.operations), list(main.events), main.delivered
        try:
            with self.queue.whole():
                yield
        except BaseException:
            line.restore(before)
            self.held, self.memos = held, memos
            main.operations, main.events, main.delivered = operations, events, delivered
            main.renew_all()
            raise

    @property
    def is_written(self) -> bool:
        """Whether the store holds all that there is: `note_queue` then makes nothing to be written."""
        line, main = self.line, self.working
        record, ledger = line.record, line.ledger
        return (
            record is not None
            and line.draft is None
            and line.tip == line.published
            and not (line.is_unsure or main.operations or main.events or self._unheard)
            and ledger.tip == ledger.head
            and self.queue.is_stored
            and line.leaves(self.queue.root)
            and (record.ledger == ledger.tip or ledger.owes_nothing_since(record.ledger))
        )

    def note_queue(self, message: str = "reactifact: note what is left to react to") -> None:
        """Let the newest commit say what the queue holds, and what is held; make a commit where it cannot."""
        self.commit_direct()
        queue = self.gather().store()
        if self.line.set_queue(queue) or delivery.missed(self.line, self.line.ledger.tip, self.line.record):
            self.commit_note(message)
            self.line.set_queue(queue)

    def commit_name(self, earlier: Sequence[Oid] = ()) -> None:
        """Make a commit that says whose branch it is, where neither its ref nor the tip does.

        `earlier` holds one of the same kind that the branch stands on, over what this history contains.
        """
        self.commit_note(NAMED, earlier)

    def commit_note(self, message: str, other_parents: Sequence[Oid] = ()) -> None:
        """Make a commit of bookkeeping alone."""
        self._commit(
            CommitRecord(
                change=new_change_id(),
                kind="queue",
                author="reactifact",
                timestamp=self.resources.clock.now().isoformat(),
                message=message,
            ),
            other_parents,
        )

    def note_simulated(self, actions: Sequence[Artifact[PendingAction]]) -> None:
        """Commit that actions would have been sent; nothing is claimed outside this branch."""
        if not actions:
            return
        self.commit_direct()
        delivery.simulate(self.working, actions, self.resources.clock.now())
        keys = ", ".join(action.data.idempotency_key for action in actions)
        self.commit_note(f"reactifact: simulate {keys}")

    def new_view(self, *, shared: State | None = None) -> WorkingCopy:
        """Return a view of its own over the committed state (or the snapshot `shared`)."""
        line = self.line
        return WorkingCopy(
            line.snapshot() if shared is None else shared.twin(),
            line.ledger,
            self.resources,
            durable=False,
            hold=True,
            branch=line.branch,
            change="" if line.record is None else line.record.change,
        )

    def hold(self, results: Iterable[SealedResult], memos: Iterable[HeldMemo] = ()) -> None:
        """Keep exactly these results and memos beside the queue; the next commit says so."""
        self.held, self.memos = list(results), list(memos)
        self.line.state.hold(files_of(self.held, self.memos))

    def reload(self, line: Branch) -> None:
        """Go on over what the store holds now: its state, its queue, its held results."""
        self.held, self.memos = [], []
        self.replace_line(line)
        self._load_queue()

    def replace_line(self, line: Branch) -> None:
        """Go on over another line (a reload); live artifacts show what it holds."""
        line.is_watched = line.is_watched or self.line.is_watched
        line.next_event = max(line.next_event, self.line.next_event)
        self.line = self.queue.line = line
        self.working.state = line.state
        self.working.ledger = line.ledger
        self.working.operations, self.working.events = [], []
        self.working.delivered = None
        self.working.renew_all()

    def commit_merge(self, merge: Merge, theirs: Branch, message: str, *, emit_events: bool) -> None:
        """Take over what a plan says, as a commit with two parents, or leave everything as it was.

        Where only the order of relations changes, the commit carries no version.
        """
        from .merge import apply_plan

        main, events = self.working, list(self.working.events)
        before = main.state.savepoint()
        record, origin = self._merge_record(theirs, message)
        assert theirs.tip is not None
        try:
            writes = apply_plan(merge.plan, main, theirs.state, origin)
            version = 0 if merge.plan.takes_over else None
            self._commit(replace(record, context_version=version), [theirs.tip], writes)
        except BaseException:
            main.state.restore(before)
            main.operations, main.events = [], events
            main.renew_all()
            raise
        if not emit_events:
            main.events = events
        main.renew_all()

    def commit_revert(self, plan: MergePlan, before: State, message: str, undone: list[str]) -> None:
        """Take back what a plan says, as one versioned commit that wakes nobody, or leave all as it was.

        `before` is the state that is gone back to, `undone` the Change-Ids of what is taken back.
        """
        from .merge import apply_plan

        main, events = self.working, list(self.working.events)
        standing = main.state.savepoint()
        now, change = self.resources.clock.now(), new_change_id()
        note = CommitRecord(
            change=change,
            kind="edit",
            author=self.principal,
            timestamp=now.isoformat(),
            message=message,
            context_version=0,
            details={"reverts": undone},
        )
        try:
            writes = apply_plan(plan, main, before, Origin(self.principal, now, change))
            self._commit(note, writes=writes)
        except BaseException:
            main.state.restore(standing)
            main.operations, main.events = [], events
            main.renew_all()
            raise
        main.events = events
        main.renew_all()

    def commit_meeting(self, theirs: Branch) -> None:
        """Note that both sides were compared and nothing is to be taken over, for the next merge's base."""
        assert theirs.tip is not None
        record, _ = self._merge_record(theirs, f"merge: nothing to take over from {theirs.branch}")
        self._commit(record, [theirs.tip])

    def commit_over(self, left: Oid, message: str) -> None:
        """Note that a history was left behind: its last commit is a parent, and the state stays as it is."""
        who = self.line.branch
        record = CommitRecord(
            change=new_change_id(),
            kind="merge",
            author="merge",
            timestamp=self.resources.clock.now().isoformat(),
            message=message,
            details={"branch": who, "left": left},
        )
        self._commit(record, [left])

    def _merge_record(self, theirs: Branch, message: str) -> tuple[CommitRecord, Origin]:
        now = self.resources.clock.now()
        record = CommitRecord(
            change=new_change_id(),
            kind="merge",
            author="merge",
            timestamp=now.isoformat(),
            message=message,
            details={"branch": theirs.branch, "change": theirs.change},
        )
        return record, Origin("merge", now, record.change)


def _readable(operations: list[dict[str, Any]], objects: Objects) -> list[dict[str, Any]]:
    """Let operations carry the data that a later one of the same commit deletes again.

    No tree holds that payload, so it would go with the next `git gc`, and no clone has it.
    """
    for operation in operations:
        if operation["type"] == "delete":
            break
    else:
        return operations
    gone: set[str] = set()
    found = []
    for operation in reversed(operations):
        if operation["type"] == "delete":
            gone.add(operation["artifact_id"])
        elif operation.get("payload") is not None and operation["artifact_id"] in gone:
            data = canonical.decode(objects.read(operation["payload"]).data)
            operation = {**operation, "payload": None, "data": data}
        found.append(operation)
    return found[::-1]


# -- the merges of a context: three-way with conflicts and policies, and the two-way union --


def merge(
    ours: Committer,
    theirs: Committer,
    *,
    message: str,
    policy: Policy | None,
    dry_run: bool,
    emit_events: bool,
) -> MergePreview | None:
    """Merge another branch into ours, or only say what that would do."""
    from ..merging import check_policy, conflict, preview
    from . import merge as merging

    check_text(message, "merge message")
    check_policy(policy)
    before = _standing(ours.line), _standing(theirs.line)
    planned = merging.prepare(ours.line, theirs.line, policy)
    if before != (_standing(ours.line), _standing(theirs.line)):
        raise StoreError(
            "a policy or a merge function changed one of the contexts that are being merged: it may "
            "only look at what it is given; nothing was merged"
        )
    shown = preview(planned.objects, planned.plan)
    if dry_run:
        return shown
    if shown.details:
        raise conflict(list(shown.details), f"branch {theirs.line.branch!r}")
    merging.check_plan(planned, ours.working, ours.resources, ours.principal)
    _apply(ours, theirs, planned, message, emit_events=emit_events)
    return None


def merge_from(ours: Committer, theirs: Committer) -> None:
    """Take what ours has not or has in a lower version, and unite the relations."""
    from . import merge as merging

    planned = merging.prepare(ours.line, theirs.line, None, three_way=False)
    merging.check_plan(planned, ours.working, ours.resources, ours.principal)
    _apply(ours, theirs, planned, f"Merge from {theirs.line.branch}", emit_events=False)


def _standing(line: Branch) -> tuple[object, ...]:
    state = line.state
    return line.change, state.roots, state.next_sequence, dict(state.changed), dict(state.edges)


def _apply(ours: Committer, theirs: Committer, planned: Merge, message: str, *, emit_events: bool) -> None:
    for side in (ours, theirs):
        side.begin()
        side.note_queue()
        side.line.seal()
    from .merge import join_ledgers

    changed = join_ledgers(ours.line, theirs.line)
    if not planned.plan.is_empty:
        planned.stage(ours.line, theirs.line)
        ours.commit_merge(planned, theirs.line, message, emit_events=emit_events)
    elif planned.is_news:
        planned.stage(ours.line, theirs.line)
        ours.commit_meeting(theirs.line)
    for action_id in changed:
        ours.working.renew(action_id)
