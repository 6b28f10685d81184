"""A line: one branch of a session as this process holds it.

Owns the tip of the branch, the commits made on it that are not published yet, and the moving of
its ref. The newest commit stays open until it is sealed, because the queue it leaves is known only
when the next generation has been planned. A line without a ref is detached: it is published when a
ref is given to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import Contention, LedgerMissing, StaleSession, StoreError
from .commits import CommitRecord, check_state, make_commit, read_roots, require_kind, require_record
from .graph import joined_compactions
from .index import Indexes
from .layout import Roots
from .ledger import Ledger, joined
from .names import branch_ref, long_branch_ref
from .object_db import Database, Staging, Tree
from .objects import GitObject, Hashed, Oid
from .protocol import RefUpdate, recalling
from .state import State, StateSavepoint

if TYPE_CHECKING:
    from ._history.oplog import Operation

MAIN = "main"
_ATTEMPTS = 8


def stored_ref(database: Database, session: str, branch: str) -> str:
    """Return the name of the ref of a branch: the longer one where an earlier version made it under that."""
    ref, longer = branch_ref(session, branch), long_branch_ref(session, branch)
    if longer is None or ref in database.backend.refs(ref):
        return ref
    return longer if longer in database.backend.refs(longer) else ref


def new_change_id() -> str:
    """Return a fresh Change-Id: 128 random bits as hex."""
    return os.urandom(16).hex()


@dataclass(slots=True)
class Draft:
    """The newest commit, not sealed yet."""

    record: CommitRecord
    roots: Roots
    parents: tuple[Oid, ...]


@dataclass(slots=True)
class LineSavepoint:
    """Where a line stood, and what had changed on it, at one moment."""

    tip: Oid | None
    record: CommitRecord | None
    draft: Draft | None
    fork: dict[str, Any] | None
    held: tuple[Oid | None, Oid | None]
    state: StateSavepoint
    staged: int  # how many objects


@dataclass(slots=True)
class Publication:
    """What one write of a line holds, taken on the event loop and written in a thread."""

    objects: dict[Oid, GitObject]
    trees: dict[Oid, Tree]
    update: RefUpdate
    tip: Oid
    operations: tuple[Operation, ...] = ()  # for the log: the ref does not go forward


class Branch:
    """One branch: its published head, its open commits, its state."""

    def __init__(self, database: Database, ledger: Ledger, session: str, branch: str) -> None:
        self.database = database
        self.ledger = ledger
        self.session = session
        self.branch = branch
        self.ref: str | None = None
        self.published: Oid | None = None  # what the ref holds, as far as we know
        self.is_unsure = False  # whether the write that moved the ref there failed afterwards
        self.tip: Oid | None = None  # the newest sealed commit
        self.record: CommitRecord | None = None  # of the newest commit, open or sealed
        self.draft: Draft | None = None
        self.fork: dict[str, Any] | None = None
        self.is_session = False  # opened as a session, not only saved as a branch
        self.is_borrowed = False  # the ref was made with git, on a commit of another session
        self.objects = Staging(database)
        self.is_watched = False  # a runtime with agents has been over it, so that every event counts
        self.next_event = 0  # place of the next event of the queue
        self._left: tuple[Oid | None, Oid | None] = (None, None)  # held results and queue of the tip
        self._made: Oid | None = None  # the commit that was sealed here last
        self._moved_back: Operation | None = None  # noted, and not published yet
        self._by_git: tuple[Operation, ...] = ()  # moves that git made, and the log does not know yet
        self.state = State(self.objects, Roots(), 0, Indexes())

    @classmethod
    def load(cls, database: Database, session: str, branch: str) -> Branch | None:
        """Read a branch from the store, or return `None` when there is none."""
        ref = stored_ref(database, session, branch)
        ledger = Ledger(database, session)
        with recalling(database.backend, ref, ledger.ref):
            refs = database.backend.refs(ref)
            if ref not in refs:
                return None
            ledger.refresh()
        line = cls(database, ledger, session, branch)
        line.ref = ref
        line.published = refs[ref]
        line.move_to(refs[ref])
        line.note_moves_by_git()
        line.is_borrowed = line.record is not None and line.record.session != session
        return line

    @classmethod
    def named(cls, database: Database, session: str, branch: str) -> Branch:
        """Return a line that stands for a branch's name alone; nothing is read."""
        return cls(database, Ledger(database, session), session, branch)

    @classmethod
    def begin(cls, database: Database, session: str, branch: str, *, attached: bool) -> Branch:
        """Return a new branch that has no commit yet; its ledger may exist."""
        ledger = Ledger(database, session)
        ledger.refresh()
        line = cls(database, ledger, session, branch)
        if attached:
            line.ref = branch_ref(session, branch)
        return line

    def move_to(self, commit: Oid) -> None:
        """Stand on a sealed commit, forgetting what was changed and not committed."""
        where = f"{self.ref or self.branch} in {self.database.backend.location}"
        require_kind(self.objects, commit, self.ref or self.branch)
        roots = read_roots(self.objects, commit, where)
        record = require_record(self.objects, commit, self.ref or self.branch)
        self.tip = commit
        self.record = record
        self.is_session = record.is_session
        self.draft = None
        check_state(self.objects, commit, roots, self.ref or self.branch)
        self.is_watched = self.is_watched or record.is_watched
        self.next_event = max(self.next_event, record.next_event)
        self._left = roots.held, roots.queue
        self.state = State(self.objects, roots, record.next_sequence, self.state.indexes)

    def stand_on(self, commit: Oid, published: Oid | None) -> None:
        """Stand on a commit of another history, given what the ref holds now; the rest is dropped."""
        self.move_to(commit)
        self.published = published
        self.drop_unreachable()

    def drop_unreachable(self) -> None:
        """Forget what is staged and was dropped from the history, and indexes that are made of it."""
        tip = self.seal()
        assert tip is not None
        self.objects.retain([tip])
        self.state.indexes = Indexes()

    def savepoint(self) -> LineSavepoint:
        """Return what `restore` needs to come back to this moment, until the next publication."""
        draft = None if self.draft is None else replace(self.draft)
        staged = len(self.objects.objects)
        return LineSavepoint(
            self.tip, self.record, draft, self.fork, self._left, self.state.savepoint(), staged
        )

    def restore(self, to: LineSavepoint) -> None:
        """Drop the commits and changes since a savepoint, and the objects that were made for them."""
        self.tip, self.record, self.fork, self._left = to.tip, to.record, to.fork, to.held
        self.draft = None if to.draft is None else replace(to.draft)
        self.state.restore(to.state)
        self.objects.forget(list(self.objects.objects)[to.staged :])

    # -- where the line stands -----------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of versioned commits."""
        return 0 if self.record is None else self.record.version

    @property
    def head(self) -> str | None:
        """The Change-Id of the last versioned commit, or `None`."""
        return None if self.record is None else self.record.head

    @property
    def baseline(self) -> int:
        """The highest version that a compaction has folded; 0 before any."""
        return 0 if self.record is None else self.record.baseline

    @property
    def change(self) -> str:
        """The Change-Id of the newest commit, versioned or not; empty before the first."""
        return "" if self.record is None else self.record.change

    @property
    def is_published(self) -> bool:
        """Whether the store holds all that was committed here."""
        return self.draft is None and self.tip == self.published and not self.is_unsure

    def snapshot(self) -> State:
        """Return a second state on the present subtrees; it must be clean."""
        if not self.state.is_clean:
            raise StoreError("a snapshot was asked for while direct changes are not committed")
        return self.state.twin()

    def require_current(self) -> None:
        """Raise `StaleSession` when the branch moved in the store since it was loaded."""
        if self.ref is not None:
            held = self.database.backend.refs(self.ref).get(self.ref)
            if held != self.published:
                raise StaleSession(self._moved())

    def _moved(self) -> str:
        return (
            f"session {self.session!r}, branch {self.branch!r}: somebody else wrote it since it was "
            f"loaded, nothing of ours was written; go on with `await session.refresh()`"
        )

    # -- committing ----------------------------------------------------------------------------

    def commit(
        self,
        record: CommitRecord,
        *,
        other_parents: Sequence[Oid] = (),
        operations: list[dict[str, Any]] | None = None,
        writes: list[list[Any]] | None = None,
        details: dict[str, Any] | None = None,
    ) -> CommitRecord:
        """Make a commit of the state as it is, and leave it open.

        Fills in what follows from the commit before: version, head, parent, depth, ledger; and what is known
        by now of operations, writes and details.
        """
        if self.record is None:
            self.begin_session(datetime.fromisoformat(record.timestamp))
        parent = self._seal(leaves_queue=False)
        parents = ((parent,) if parent else ()) + tuple(other_parents)
        last = self.record
        assert last is not None
        versioned, version, head = record.context_version is not None, last.version, last.head
        before = [self._parent(oid) for oid in parents] if other_parents else [last] if parents else []
        missing = self._missing_in(before)
        compactions = [one.compactions for one in before]
        roots = self.state.flush()  # what reads may fail, and the fork is still to be told then
        record = CommitRecord(
            change=record.change,
            kind=record.kind,
            author=record.author,
            timestamp=record.timestamp,
            session=self.session,
            branch=self.branch,
            message=record.message,
            context_version=version + 1 if versioned else None,
            version=version + versioned,
            head=record.change if versioned else head,
            parent_change=head,
            depth=1 + max([one.depth for one in before], default=-1),
            generation=record.generation,
            run_id=record.run_id,
            code=record.code,
            trigger=record.trigger,
            operations=record.operations if operations is None else operations,
            reads=record.reads,
            listings=record.listings,
            writes=record.writes if writes is None else writes,
            next_sequence=self.state.next_sequence,
            next_event=self.next_event,
            is_watched=self.is_watched,
            ledger=self.ledger.tip,
            missing_ledgers=missing,
            fork=self.fork,
            is_session=self.is_session,
            baseline=last.baseline,
            compactions=joined_compactions(compactions) if any(compactions) else [],
            details=record.details if details is None else details,
        )
        self.fork = None
        self.draft = Draft(record, roots, parents)
        self.record = record
        return record

    def begin_session(self, when: datetime) -> None:
        """Make the first commit of a session: the empty state, without a version."""
        root = CommitRecord(
            change=new_change_id(),
            kind="root",
            session=self.session,
            branch=self.branch,
            author="reactifact",
            timestamp=when.isoformat(),
            message=f"Begin session {self.session}",
            is_session=self.is_session,
        )
        self.draft = Draft(root, Roots(), ())
        self.record = root

    def _parent(self, oid: Oid) -> CommitRecord:
        if self.record is not None and oid == self.tip:
            return self.record
        return require_record(self.objects, oid, "a parent")

    def _missing_in(self, parents: Sequence[CommitRecord]) -> list[Oid]:
        found: list[Oid] = []
        for parent in parents:
            found += self._missing(parent)
        return list(dict.fromkeys(found)) if found else found

    def _missing(self, record: CommitRecord) -> list[Oid]:
        if record.session != self.session and not self.is_borrowed:
            return []  # what the ledger of that session knew was taken over
        if record.session != self.session and record.ledger is None:
            # what it waits for may be sent by that session; no ledger of this one holds the commit
            return [oid for oid in (self.tip,) if oid is not None and not self.ledger.contains(oid)]
        if not record.missing_ledgers and record.ledger in (None, self.ledger.tip):
            return []
        named = (*record.missing_ledgers, *([record.ledger] if record.ledger else []))
        return [oid for oid in named if not self.ledger.contains(oid)]

    def read_ledger_ahead(self) -> None:
        """Look for the commits of the ledger that the branch knew; what was found is remembered. Blocks."""
        record = self.record
        if record is not None and self.ledger.tip != record.ledger:
            self.ledger.read_back(record.ledger)
            self._missing(record)

    def missing_ledgers(self) -> list[Oid]:
        """Return the commits of the ledger that the branch knew and the ledger does not contain."""
        return [] if self.record is None else self._missing(self.record)

    def require_ledger(self) -> None:
        """Raise `LedgerMissing` where what was delivered before may be recorded elsewhere."""
        missing = self.missing_ledgers()
        if missing and self.is_borrowed:
            raise LedgerMissing(
                f"branch {self.branch!r} of session {self.session!r} was made with git on a commit of "
                f"another session, which sends what waits there and records it in a ledger of its own: "
                f"nothing is sent from here. Deliver from that session, or, to send it once more, give its "
                f"record up with SessionStore.rebuild_ledger({self.session!r})"
            )
        if missing:
            raise LedgerMissing(
                f"session {self.session!r}, branch {self.branch!r} knew commit {missing[0][:12]} of its "
                f"ledger, which {self.ledger.ref} in {self.database.backend.location} does not contain (a "
                f"clone of one branch, a shallow one, or a ref that was deleted or moved): it is not known "
                f"what was sent before, so nothing is sent. `reactifact sync` brings that ref from where the "
                f"branch is from, as `git fetch` does; where it is lost for good, "
                f"SessionStore.rebuild_ledger({self.session!r}), or `reactifact outbox STORE {self.session} "
                f"--rebuild-ledger`, takes for sent what no branch waits for, and sends the rest again"
            )

    def leaves(self, queue: Oid | None) -> bool:
        """Tell whether the tip, sealed as it is, leaves this queue and what is held now."""
        return self.draft is None and self._left == (self.state.roots.held, queue)

    def set_queue(self, queue: Oid | None) -> bool:
        """Give the open commit its queue and what is held; return whether it needs another commit."""
        roots = self.state.roots
        left = roots.held, queue
        self.state.roots = roots.leaving(*left)
        if self.draft is None:
            return self.record is not None and self._left != left
        self.draft.roots = self.draft.roots.leaving(*left)
        record = self.draft.record
        known = record.ledger, record.is_watched, record.next_event
        if known != (self.ledger.tip, self.is_watched, self.next_event):
            self.draft.record = self.record = replace(
                record, ledger=self.ledger.tip, is_watched=self.is_watched, next_event=self.next_event
            )
        return False

    def seal(self) -> Oid | None:
        """Close the open commit and return the tip."""
        return self._seal()

    def _seal(self, *, leaves_queue: bool = True) -> Oid | None:
        """Close the open commit. One that another follows at once leaves no queue: that one does."""
        if self.draft is not None:
            record, roots = self.draft.record, self.draft.roots
            if not leaves_queue:
                roots = roots._replace(queue=None)
            parents = self.draft.parents
            is_on_ours = bool(parents) and parents[0] == self._made
            self.tip = make_commit(self.objects, record, roots, parents, is_on_ours=is_on_ours)
            self._made = self.tip
            self._left = roots.held, roots.queue
            self.record = record
            self.draft = None
        return self.tip

    # -- publishing ----------------------------------------------------------------------------

    def prepare(self) -> Publication | None:
        """Seal, and return what has to be written; `None` when there is nothing."""
        tip = self.seal()
        if self.ref is None or tip is None or (tip == self.published and not self.is_unsure):
            return None
        update = RefUpdate(self.ref, self.published, tip)
        back = self._moved_back
        is_new = back is not None and back.before.get(self.ref) == self.published
        operations = (*self._by_git, back) if is_new and back is not None else self._by_git
        return Publication(Hashed(self.objects.objects), dict(self.objects.trees), update, tip, operations)

    def note_moves_by_git(self) -> None:
        """Note for the session's log where git moved the ref to what it holds, and not forward. Reads."""
        if self.ref is not None and self.published is not None:
            from ._history.oplog import moves_by_git

            self._by_git = tuple(moves_by_git(self.database, self.session, self.ref, self.published))

    def note_move(self, kind: str, when: datetime, text: str) -> None:
        """Note for the session's log that the line has just left what is published, and not forward."""
        tip = self.seal()
        if self.ref is not None and self.published is not None and tip is not None:
            from ._history.oplog import Operation

            before, after = {self.ref: self.published}, {self.ref: tip}
            self._moved_back = Operation(kind, when.isoformat(), text, before, after)

    def write_moves_by_git(self) -> None:
        """Write what `note_moves_by_git` noted, where nothing else is to be written. Raises `Contention`."""
        from ._history.oplog import logged

        for left in reversed(range(_ATTEMPTS if self._by_git else 0)):
            staged = Staging(self.database)
            log = logged(staged, self.session, *self._by_git)
            try:
                self.database.write(staged.objects, log)
            except Contention:
                if not left:
                    raise
                continue
            self._by_git = ()
            return

    def write(self, publication: Publication | None) -> None:
        """Write the ledger, then what was prepared. Runs in a worker thread.

        Raises `StaleSession` when the branch moved in the store; nothing of it is written then.
        """
        self.ledger.write()
        if publication is None:
            return
        try:
            if not publication.operations:
                self.database.write(publication.objects, [publication.update], publication.trees)
            else:
                self._write_logged(publication)
        except Contention as error:
            raise StaleSession(f"{self._moved()} ({error})") from error

    def _write_logged(self, publication: Publication) -> None:
        """Write a publication, and what it does in the session's log, which other branches move too."""
        from ._history.oplog import logged

        name, expected, _ = publication.update
        for left in reversed(range(_ATTEMPTS)):
            staged = Staging(self.database)
            log = logged(staged, self.session, *publication.operations)
            try:
                # the log first: where files move one after another, an entry of a move that was not made
                # stands for no branch
                objects = {**publication.objects, **staged.objects}
                self.database.write(objects, [*log, publication.update], publication.trees)
                return
            except Contention:
                if not left or self.database.backend.refs(name).get(name) != expected:
                    raise

    def finish(self, publication: Publication | None) -> None:
        """Note that a publication is written."""
        if publication is None:
            return
        self.objects.forget(publication.objects)
        self.published, self.is_unsure = publication.tip, False
        self._moved_back, self._by_git = None, ()

    def publish(self) -> None:
        """Prepare, write and finish in one go."""
        publication = self.prepare()
        self.write(publication)
        self.finish(publication)

    # -- forks ---------------------------------------------------------------------------------

    def fork_off(self, branch: str) -> Branch:
        """Return a detached line on the same commit, with the same ledger and queue."""
        twin = Branch(self.database, self.ledger, self.session, branch)
        twin.tip = self.seal()
        twin.record = self.record
        twin.objects = self.objects.copy()
        twin._left = self._left
        twin.is_watched, twin.next_event = self.is_watched, self.next_event
        twin.is_borrowed = self.is_borrowed
        twin.state = State(
            twin.objects, self.state.roots, self.state.next_sequence, self.state.indexes.copy()
        )
        twin.fork = {"branch": self.branch, "change": self.change, "commit": self.tip}
        return twin

    def attach(self, session: str, branch: str, expected: Oid | None) -> None:
        """Give the line a ref, which holds `expected` now; it moves at the next publication."""
        if session != self.session:
            old, self.session = self.ledger, session
            self.ledger = Ledger(self.database, session)
            self.ledger.refresh()
            self.take_ledger(old)
        self.branch = branch
        self.ref = stored_ref(self.database, session, branch)
        self.published = expected

    def take_ledger(self, other: Ledger) -> list[str]:
        """Bring what another ledger knows into ours; return the ids of actions that changed.

        `dispatched` wins over `failed` over nothing, whichever side is the target.
        """
        changed = {}
        for entry in other.entries():
            known = self.ledger.entry(entry.action_id)
            both = joined(known, entry)
            if both is not None and both != known:
                changed[entry.action_id] = both
        if changed and self.record is not None:
            self.ledger.record(
                changed,
                change=new_change_id(),
                when=datetime.fromisoformat(self.record.timestamp),
                message=f"outbox: take over {len(changed)} deliveries of session {other.session}",
                branch=self.branch,
            )
        self.ledger.join(other)
        return sorted(changed)
