"""Reverting: one generation taken back as a commit of its own on top, whatever came after it.

Owns which commits make up a generation. What is compared, and what becomes of a conflict, is a merge's
(`_context/merge`). The ledger is not rewound: what was delivered stays delivered.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._context.commit import Committer
from .._context.context import Context
from .._context.merge import check_plan, prepare_revert
from .._context.push import publish, run_lock
from .._store._history.log import Entry, entry, find_point
from .._store.commits import CommitRecord, read_roots
from .._store.graph import first_parents
from .._store.index import Indexes
from .._store.layout import Roots
from .._store.names import plain
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.state import State
from ..errors import StoreError, UnknownRevision
from ..merging import Policy, check_policy, conflict, preview
from ..resources import RuntimeResources
from ..threads import in_thread
from . import verbs

Commits = Sequence[tuple[Oid, CommitRecord | None]]


async def revert(
    database: Database,
    branch: str,
    revision: str,
    *,
    session: str | None = None,
    policy: Policy | None = None,
    message: str | None = None,
    resources: RuntimeResources | None = None,
) -> Entry | None:
    """Take back, on a branch, the generation (or edit, merge, direct change) that a revision belongs to.

    Returns the commit that does, `None` where nothing of it is left to take back. Raises `MergeConflict`
    where what it wrote was changed since, `UnknownRevision`, `StoreError`, `SessionBusy`, `StaleSession`;
    nothing is written then.
    """
    check_policy(policy)
    head = await in_thread(verbs.named_branch, database, branch, session)
    context = await verbs.loaded(database, head, resources)
    async with run_lock(context.line, context.resources.clock):
        context = await verbs.loaded(database, head, resources)
        commits, before = await in_thread(_generation, context, revision, head.session, head.branch)
        change = context.line.change
        _apply(context.commits, commits, before, policy, message)
        if context.line.change == change:
            return None
        await publish(context)
    assert context.line.tip is not None
    return await in_thread(entry, database, context.line.tip)


def _apply(
    commits: Committer, undone: Commits, before: Oid | None, policy: Policy | None, message: str | None
) -> None:
    line = commits.line
    roots = read_roots(line.objects, before) if before is not None else Roots()
    planned = prepare_revert(line, undone[-1][0], roots, policy)
    shown = preview(planned.objects, planned.plan)
    if shown.details:
        raise conflict(list(shown.details), f"the revert of {undone[-1][0][:12]}")
    if planned.plan.is_empty:
        return
    check_plan(planned, commits.working, commits.resources, commits.principal)
    planned.stage_combined(line)
    then = State(Staging(line.objects), roots, 0, Indexes())
    changes = [record.change for _, record in undone if record is not None]
    commits.commit_revert(planned.plan, then, message or _phrase(undone), changes)


def _phrase(undone: Commits) -> str:
    oid, record = undone[-1]
    if record is not None and record.generation:
        return f"Revert generation {record.generation} of run {record.run_id[:12]}"
    return f"Revert {record.kind if record is not None else 'commit'} {oid[:12]}"


def _generation(context: Context, revision: str, session: str, branch: str) -> tuple[Commits, Oid | None]:
    """Return the commits of the generation that a revision belongs to, oldest first, and what is before."""
    line = context.line
    point = find_point(line.database, revision, session=session, branch=branch)
    oid, record = point.entry.commit, point.entry.record
    own = list(first_parents(line.objects, line.tip))[::-1]
    places = [place for place, (one, _) in enumerate(own) if one == oid]
    if not places:
        raise UnknownRevision(
            f"commit {oid[:12]} ({plain(revision)}) is not on the line of branch {branch!r} of session "
            f"{session!r}: revert the merge that brought it in, or the commit on its own branch"
        )
    if record is None or record.kind == "root" or (0 < record.version <= line.baseline):
        what = "was folded by a compaction" if record is not None and record.version else "begins the branch"
        raise StoreError(f"commit {oid[:12]} ({plain(revision)}) {what} and cannot be reverted")
    first = last = places[0]
    if record.generation:
        while last + 1 < len(own) and _belongs(own[last + 1 :], record):
            last += 1
        while first > 0 and _is_of(own[first - 1][1], record):
            first -= 1
    return own[first : last + 1], own[first - 1][0] if first else None


def _belongs(rest: Commits, record: CommitRecord) -> bool:
    """Tell whether the next commit, or one after direct changes of the run, is of the same generation."""
    for _, found in rest:
        if found is None or found.run_id != record.run_id:
            return False
        if found.generation:
            return found.generation == record.generation
    return False


def _is_of(found: CommitRecord | None, record: CommitRecord) -> bool:
    """Tell whether a commit is of a generation, or holds what its executions changed directly."""
    return (
        found is not None
        and found.run_id == record.run_id
        and (found.generation == record.generation or (found.kind == "direct" and not found.generation))
    )
