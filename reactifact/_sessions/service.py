"""What waits anywhere in a store, a lost ledger rebuilt, and a stored commit as a context.

Owns finding and delivering what waits in all sessions (`drain_store`), `rebuild_ledger`, and read-only
contexts of the past.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from .._context import delivery, rebase
from .._context.context import Context
from .._context.push import drain_lock, publish, publish_ledger, run_lock
from .._runtime import drain
from .._runtime.questions import holds_questions
from .._runtime.tasks import Function, run_all
from .._store import canonical
from .._store._history.fetched import join_fetched
from .._store._history.revset import (
    DAMAGE,
    DamagedHead,
    damage,
    damaged_ref,
    damaged_refs,
    head_at,
    scan_heads,
)
from .._store.branch import MAIN, Branch, new_change_id, stored_ref
from .._store.commits import require_kind, require_record
from .._store.layout import BOOKKEEPING
from .._store.ledger import Ledger, LedgerEntry
from .._store.migrations import current_tree
from .._store.names import is_ledger_ref, parse_ref
from .._store.object_db import Database
from .._store.objects import Oid
from .._store.protocol import scan_refs
from .._store.state import Stored
from .._store.trees import subtree
from ..artifacts import ACTION_TYPE
from ..clock import SYSTEM_CLOCK
from ..errors import NotAdopted, ReactifactError, SessionBusy, StoreError, UnknownRevision, text_of
from ..resources import RuntimeResources
from ..threads import in_thread
from ..types.importer import importing_nothing

# -- finding and delivering what waits anywhere in a store --


BranchName = tuple[str, str]
"""The ids of a session and of a branch of it."""

_TURN_SECONDS = 10.0
"""How long a turn that holds a branch is waited for."""

_AT_ONCE = 500
"""Branches that are read together: what they need stays in the cache until it was looked at."""


@dataclass
class DrainReport:
    """What a drain of a whole store did. `failed` holds (session, branch, error text).

    `skipped` holds (session, branch) of what another drain was delivering at that time. A branch that
    cannot be read is among the failed, by its ref where its names are not known.
    """

    tried: int = 0
    delivered: int = 0
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    skipped: list[BranchName] = field(default_factory=list)


def waiting_branches(database: Database) -> tuple[list[BranchName], list[DamagedHead]]:
    """Return the branches that hold intents not known to be delivered, and the refs that cannot be read."""
    listed, damaged = scan_refs(database.backend, "refs/heads/")
    found, broken = waiting_among(database, listed)
    return sorted(found.values()), damaged_refs(damaged) + broken


def waiting_among(
    database: Database, refs: Mapping[str, Oid], *, with_questions: bool = False
) -> tuple[dict[str, BranchName], list[DamagedHead]]:
    """Return those of some refs whose branch holds intents (or questions), and those that cannot be read."""
    branches = {ref: oid for ref, oid in refs.items() if not is_ledger_ref(ref)}
    found: dict[str, BranchName] = {}
    broken: list[DamagedHead] = []
    for chunk in _chunks(list(branches.items())):
        try:
            _prefetch(database, [oid for _, oid in chunk])
        except DAMAGE:  # told below, of the branch that has it
            scan_refs(database.backend, chunk[0][0])  # unless it is the store that cannot be read
        for ref, oid in chunk:
            try:
                if parse_ref(ref) is None:
                    continue
                require_kind(database, oid, ref)
                has_intents = subtree(database, current_tree(database, oid), ("outbox",)) is not None
                if not has_intents and not (with_questions and holds_questions(database, oid)):
                    continue
                head = head_at(database, ref, oid)
                if head is not None:
                    found[ref] = (head.session, head.branch)
            except DAMAGE as error:
                broken.append(damaged_ref(ref, error))
    return found, broken


def sendable_branches(
    database: Database, *, failed: bool = False
) -> tuple[list[BranchName], list[DamagedHead]]:
    """Return the branches with actions to send (with `failed`: or re-arm), and what cannot be read.

    A branch that stands on a commit made with git counts: whether it has any shows when it is opened.
    """
    found = []
    waiting, broken = waiting_branches(database)
    for session, branch in waiting:
        try:
            with importing_nothing():  # to look is not to run what a store names
                has_something = _has_something(database, session, branch, failed)
        except NotAdopted:
            has_something = True
        except DAMAGE as error:
            broken.append(DamagedHead(stored_ref(database, session, branch), session, branch, damage(error)))
            continue
        found += [(session, branch)] if has_something else []
    return found, broken


def _has_something(database: Database, session: str, branch: str, failed: bool) -> bool:
    line = Branch.load(database, session, branch)
    if line is None:
        return False  # deleted meanwhile
    working = Context.over(line).working
    ready = delivery.outlook(working, SYSTEM_CLOCK.now()).ready
    return bool(ready or (failed and delivery.failed(working)))


def pending_sessions(database: Database) -> list[str]:
    """Return the ids of the sessions with something to send, and of those that cannot be read, sorted."""
    found, broken = sendable_branches(database)
    return sorted({session for session, _ in found} | {one.session or one.ref for one in broken})


def _chunks(refs: list[tuple[str, Oid]]) -> Iterator[list[tuple[str, Oid]]]:
    return (refs[start : start + _AT_ONCE] for start in range(0, len(refs), _AT_ONCE))


def _prefetch(database: Database, commits: list[Oid]) -> None:
    """Bring what the scan looks at into the cache: three reads for all of them."""
    database.prefetch(commits)
    trees = [database.commit(oid).tree for oid in commits]
    database.prefetch(trees)
    database.prefetch(entry.oid for tree in trees if (entry := database.tree(tree).get(BOOKKEEPING)))


async def drain_store(
    database: Database,
    dispatcher: drain.Dispatcher,
    options: drain.Options,
    *,
    resources: RuntimeResources | None = None,
    sessions_at_once: int = 1,
) -> DrainReport:
    """Deliver what waits in every branch of a store; failures are recorded, not raised.

    The branches of a session are drained one after another, and so many sessions side by side.
    """
    found, broken = await in_thread(partial(sendable_branches, failed=options.retry_failed), database)
    report = DrainReport()
    report.failed += [(one.session or one.ref, one.branch or "", one.error) for one in broken]
    upcoming = iter([list(branches) for _, branches in groupby(found, key=itemgetter(0))])

    async def drain_session(branches: list[BranchName]) -> None:
        for session, branch in branches:
            await _drained(database, session, branch, dispatcher, options, report, resources)

    def next_session() -> Function | None:
        branches = next(upcoming, None)
        return None if branches is None else partial(drain_session, branches)

    await run_all(next_session, sessions_at_once)
    report.failed.sort(key=itemgetter(0, 1))
    report.skipped.sort()
    return report


async def _drained(
    database: Database,
    session: str,
    branch: str,
    dispatcher: drain.Dispatcher,
    options: drain.Options,
    report: DrainReport,
    resources: RuntimeResources | None,
) -> None:
    """Drain one branch, and add what came of it to a report."""
    drained = drain.Drained()
    try:
        await _drain_branch(database, session, branch, dispatcher, options, drained, resources)
    except SessionBusy:
        report.skipped.append((session, branch))
    except (ReactifactError, OSError) as error:  # a damaged session does not stop the others
        report.failed.append((session, branch, text_of(error)))
    report.tried += drained.tried
    report.delivered += drained.delivered
    report.failed += [(session, branch, text_of(error)) for _, error in drained.errors]


async def _drain_branch(
    database: Database,
    session: str,
    branch: str,
    dispatcher: drain.Dispatcher,
    options: drain.Options,
    drained: drain.Drained,
    resources: RuntimeResources | None,
) -> None:
    context = await in_thread(rebase.opened, database, session, branch, resources)
    if context is not None:  # else it was deleted meanwhile
        await drain.drain(context, dispatcher, options, drained)


async def rearm(
    database: Database,
    session: str,
    branches: Iterable[str],
    wanted: Collection[str],
    statuses: Collection[str],
) -> list[str]:
    """Let actions of a session be sent again: those named by id or key, and all of some statuses.

    Only such as failed or are parked; returns the ids of those that were re-armed.
    """
    armed: dict[str, None] = {}
    for branch in branches:
        context = await in_thread(rebase.opened, database, session, branch, None)
        if context is None:
            continue
        working = context.working
        for action in (*delivery.failed(working), *delivery.parked(working)):
            is_wanted = bool({action.id, action.id.removeprefix("action:")} & set(wanted))
            if action.id not in armed and (is_wanted or action.data.status in statuses):
                context.retry_action(action.id)
                armed[action.id] = None
        await publish_ledger(context)
    return list(armed)


async def rearm_events(database: Database, session: str, branches: Iterable[str]) -> dict[str, int]:
    """Let parked events of a session be tried again; return how many, by branch.

    Raises `SessionBusy` where a turn holds a branch for longer than a while.
    """
    found = {}
    for branch in branches:
        line = Branch.named(database, session, branch)
        async with run_lock(line, SYSTEM_CLOCK, wait=_TURN_SECONDS):
            context = await in_thread(rebase.opened, database, session, branch, None)
            if context is not None and (count := context.retry_event()):
                context.commits.begin()
                await publish(context)
                found[branch] = count
    return found


# -- a ledger that is lost --


@dataclass(frozen=True, slots=True)
class RebuiltLedger:
    """What a rebuild did: `lost` commits that the ledger stands for now, `delivered` actions that are taken
    for sent, and the ids of those that `wait` and are sent by the next drain."""

    lost: int
    delivered: int
    wait: tuple[str, ...]


async def rebuild_ledger(
    database: Database, session: str, resources: RuntimeResources | None = None
) -> RebuiltLedger:
    """Let the ledger of a session stand for one that is lost, by what the branches say.

    Raises `UnknownRevision` for a session without branches, `SessionBusy` while a drain is at work.
    """
    clock = (resources or RuntimeResources()).clock
    async with drain_lock(Branch.named(database, session, MAIN), clock, 0.0):
        return await in_thread(_rebuild, database, session, clock.now())


def _rebuild(database: Database, session: str, when: datetime) -> RebuiltLedger:
    scanned = scan_heads(database, session)
    names = [head.branch for head in scanned.heads if not head.is_ledger]
    names += [name for _, name in filter(None, (parse_ref(stray.ref) for stray in scanned.strays)) if name]
    loaded = [Branch.load(database, session, name) for name in names]
    branches = [branch for branch in loaded if branch is not None]
    if not branches:
        raise UnknownRevision(f"there is no session {session!r} in {database.backend.location}")
    if join_fetched(database, session):
        for branch in branches:
            branch.ledger.refresh()
    ledger = Ledger(database, session)
    ledger.refresh()
    lost = sorted({oid for branch in branches for oid in branch.missing_ledgers()})
    wait = {intent.action_id for branch in branches for intent in branch.state.waiting()}
    settled: dict[str, LedgerEntry] = {}
    for branch in branches if lost else ():
        for action_id in branch.state.ids_of([ACTION_TYPE]):
            stored = branch.state.stored(action_id)
            if stored is None or action_id in wait or ledger.entry(action_id) is not None:
                continue
            if not _is_cancelled(branch, stored):
                moment = when.isoformat()
                settled[action_id] = LedgerEntry(
                    action_id,
                    "dispatched",
                    stored.meta.content_hash,
                    branch.branch,
                    dispatched_at=moment,
                    updated_at=moment,
                )
    if lost:
        ledger.record(
            settled,
            change=new_change_id(),
            when=when,
            message=f"outbox: rebuild the ledger, {len(lost)} known commits of which are lost",
            branch=MAIN,
            owed=[],
            replaces=lost,
        )
        ledger.write()
    left = (action_id for action_id in wait if _is_unsent(ledger.entry(action_id)))
    return RebuiltLedger(len(lost), len(settled), tuple(sorted(left)))


def _is_cancelled(branch: Branch, stored: Stored) -> bool:
    action: Any = canonical.decode(branch.state.payload(stored.meta))
    return action.get("cancelled_at") is not None


def _is_unsent(entry: LedgerEntry | None) -> bool:
    return entry is None or entry.status == "pending"


# -- A stored commit as a context --


class _PastLedger(Ledger):
    """A ledger as one commit knew it."""

    def _refresh(self) -> None:
        """Refuse: a drain begins with this, and the present is not to be mixed into the past."""
        raise StoreError(
            f"nothing is delivered from a stored commit of session {self.session!r}, which is only "
            f"looked at: deliver from the branch, opened by SessionStore.open or BranchStore.load_branch"
        )

    def write(self) -> None:
        """Refuse, where there is anything to write."""
        if not self.is_published:
            self.refresh()


class _PastLine(Branch):
    """A line on one stored commit; it is never given a ref."""

    def fork_off(self, branch: str) -> Branch:
        """Return a detached line on the same commit, with the session's ledger as it is now."""
        twin = super().fork_off(branch)
        twin.ledger = Ledger(self.database, self.session)
        twin.ledger.refresh()
        return twin

    def attach(self, session: str, branch: str, expected: Oid | None) -> None:
        """Refuse."""
        raise StoreError(
            f"this context is commit {(self.tip or '')[:12]} of session {self.session!r}, to be looked at, "
            f"and is not saved as branch {branch!r}: fork the commit with BranchStore.fork(), or save "
            f"context.branch() under a name of its own"
        )


def context_at(
    database: Database,
    commit: Oid,
    resources: RuntimeResources | None = None,
    *,
    ledger: Oid | None = None,
) -> Context:
    """Return a context over one stored commit, detached from its branch.

    Its actions show the deliveries up to a commit of the ledger: `ledger`, else the one the commit
    knew. It cannot be published; `Context.branch` of it makes a fork that can. Raises `StoreError` for a
    commit that reactifact did not make, or of a ledger.
    """
    return Context.over(line_at(database, commit, ledger=ledger), resources)


def line_at(database: Database, commit: Oid, *, ledger: Oid | None = None) -> Branch:
    """Return the line below such a context: its state without queue and models. Raises `StoreError`."""
    record = require_record(database, commit, commit)
    if record.kind == "ledger":
        raise StoreError(f"{commit[:12]} is a commit of a ledger, which holds deliveries and no state")
    known = _PastLedger(database, record.session, head=ledger or record.ledger)
    line = _PastLine(database, known, record.session, record.branch)
    line.move_to(commit)
    return line
