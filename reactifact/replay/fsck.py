"""`fsck`: every session of a store checked, and bookkeeping made anew from the payloads where it is damaged.

A session is checked as `verify_history` does: objects, records, bookkeeping against payloads, outbox and
ledger. A repair rewrites nothing: a commit on top derives what stands below `.reactifact/` and `outbox/` from
the payloads, the last commit that is whole, and the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .._context.push import run_lock
from .._context.rebase import PayloadReader, adopt
from .._store._history.revset import readable_heads
from .._store.branch import Branch, stored_ref
from .._store.commits import down_from
from .._store.object_db import Database
from .._store.objects import Oid
from .._store.protocol import Progress
from ..errors import StoreError, UnknownRevision
from ..resources import RuntimeResources
from ..threads import in_thread
from .history import HistoryReport, verify_history


@dataclass(frozen=True, slots=True)
class Repaired:
    """A branch whose bookkeeping was made anew: where it stood, where it stands, and on what it was built."""

    session: str
    branch: str
    before: Oid
    after: Oid
    onto: Oid | None


def check_store(
    database: Database, sessions: Iterable[str] | None = None, *, progress: Progress | None = None
) -> list[HistoryReport]:
    """Check sessions, by default all, in order of their ids; a ref that cannot be read is a fault too.

    `progress` is called with how many commits were checked, and of how many where one session is checked.
    """
    heads, broken = readable_heads(database)
    chosen = sorted({head.session for head in heads}) if sessions is None else list(sessions)
    reports: list[HistoryReport] = []
    for session in chosen:
        before = sum(report.commits for report in reports)
        told = _offset(progress, before) if len(chosen) > 1 else progress
        reports.append(verify_history(database, session, progress=told))
    unread = [one for one in broken if sessions is None or one.session in chosen]
    return reports + [HistoryReport(one.session or one.ref, 0, 0, fault=one.error) for one in unread]


def _offset(progress: Progress | None, before: int) -> Progress | None:
    """Return a progress that counts on from what was done before, with a total that is not known."""
    return None if progress is None else lambda done, _: progress(before + done, None)


async def repair(
    database: Database, session: str, branch: str, resources: RuntimeResources | None = None
) -> Repaired:
    """Make the bookkeeping of a branch anew from its payloads, where `verify_history` finds a fault in it.

    Raises `UnknownRevision` for a branch that is not there, `StoreError` where the session is whole or where
    the fault is not one of bookkeeping, `CommitRefused` where payloads are damaged too, `SessionBusy`.
    """
    wanted = resources or RuntimeResources()
    async with run_lock(Branch.named(database, session, branch), wanted.clock):
        return await in_thread(_repair, database, session, branch, wanted)


def _repair(database: Database, session: str, branch: str, resources: RuntimeResources) -> Repaired:
    ref = stored_ref(database, session, branch)
    tip = database.backend.refs(ref).get(ref)
    if tip is None:
        raise UnknownRevision(f"session {session!r} has no branch {branch!r} in {database.backend.location}")
    report = verify_history(database, session)
    if report.ok or report.commit is None:
        raise StoreError(f"nothing is repaired: {report}")
    above = _down_to(database, tip, report.commit)
    if above is None:
        raise StoreError(
            f"nothing is repaired on branch {branch!r}, which does not hold the commit: {report}"
        )
    line = Branch.named(database, session, branch)
    adopted = adopt(line, ref, tip, resources, PayloadReader(is_strict=False), distrusted=above)
    adopted.publish()
    after = verify_history(database, session)
    if not after.ok and after.commit == report.commit:
        raise StoreError(f"the bookkeeping was made anew, and a fault is left that it does not mend: {after}")
    assert adopted.tip is not None
    record = adopted.record
    return Repaired(session, branch, tip, adopted.tip, None if record is None else record.details.get("onto"))


def _down_to(database: Database, tip: Oid, wanted: Oid) -> set[Oid] | None:
    """Return the first parents from a tip down to a commit, both included; `None` where it is not there."""
    found: set[Oid] = set()
    for oid in down_from(database, tip):
        found.add(oid)
        if oid == wanted:
            return found
    return None
