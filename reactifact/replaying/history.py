"""Checking a whole session: every commit, tree and payload against the hashes that name them.

Owns the walk over all refs of a session and the order in which faults are told: the oldest commit
first. Each commit is compared with its first parent, so what two commits share is read once and the
cost is linear in what there is. What must hold inside one commit is `integrity`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ReactifactError, UnknownRevision, text_of
from ..store.database import Database
from ..store.line import MAIN
from ..store.names import branch_ref, is_ledger_ref, tag_ref
from ..store.objects import Oid, tag_target
from ..store.revisions import find_head
from .checked import CheckedBackend
from .integrity import Fault, check_commit, check_ledger_commit


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """What a check of a session read, and the first thing that does not match (`None`: all does)."""

    session: str
    commits: int
    objects: int
    commit: Oid | None = None
    subject: str = ""
    fault: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything matches."""
        return self.fault is None

    def __str__(self) -> str:
        if self.fault is None:
            return (
                f"session {self.session}: {self.commits} commits and {self.objects} objects checked, every "
                f"State and every payload hash matches"
            )
        subject = f" ({self.subject})" if self.subject else ""
        where = "" if self.commit is None else f"commit {self.commit[:12]}{subject}: "
        return f"session {self.session}: {where}{self.fault}"


def session_refs(database: Database, session: str) -> dict[str, Oid]:
    """Return all refs of a session: branches, ledger, tags."""
    found = {}
    for own in (branch_ref(session, MAIN), tag_ref(session, MAIN)):
        found.update(database.backend.refs(own.rpartition("/")[0] + "/"))
    return found


def verify_history(database: Database, session: str) -> HistoryReport:
    """Check every commit of a session: branches, ledger and tags, back to the first.

    Each object is hashed again; each `State` is computed anew; each payload is held against the
    blake3 and the id in its meta, the path it stands at, and the operation that wrote it. Raises
    `UnknownRevision` for a session that the store does not hold; damage is reported, not raised.
    """
    backend = CheckedBackend(database.backend)
    checked = Database(backend)
    commit: Oid | None = None
    count = 0
    try:
        refs = session_refs(checked, session)
        if not refs:
            find_head(checked, session)  # raises, naming the sessions there are
        ledgers = {oid for name, oid in refs.items() if is_ledger_ref(name)}
        for commit in _oldest_first(checked, [_target(checked, oid) for oid in ledgers]):
            check_ledger_commit(checked, commit)
            count += 1
        others = [_target(checked, oid) for oid in refs.values() if oid not in ledgers]
        for commit in _oldest_first(checked, others):
            check_commit(checked, commit)
            count += 1
    except Fault as fault:
        return HistoryReport(session, count, backend.objects, fault.commit, fault.subject, str(fault))
    except UnknownRevision:
        raise
    except (ReactifactError, LookupError, ValueError, TypeError, AttributeError) as error:
        # beside damage: objects whose ids fit and whose content is none that reactifact writes
        return HistoryReport(session, count, backend.objects, commit, "", _damage(error))
    return HistoryReport(session, count, backend.objects)


def _damage(error: Exception) -> str:
    text = text_of(error) or type(error).__name__
    return text if isinstance(error, ReactifactError) else f"it cannot be read ({text})"


def _target(database: Database, oid: Oid) -> Oid:
    """Return the commit behind a ref: the tags of others are objects of their own."""
    found = database.read(oid)
    while found.kind == "tag":
        oid = tag_target(found.data)
        found = database.read(oid)
    return oid


def _oldest_first(database: Database, heads: list[Oid]) -> list[Oid]:
    """Return all commits that some heads reach, each after its parents."""
    order: list[Oid] = []
    seen: set[Oid] = set()
    for head in sorted(heads):
        stack = [(head, False)]
        while stack:
            oid, is_done = stack.pop()
            if is_done:
                order.append(oid)
            elif oid not in seen:
                seen.add(oid)
                stack.append((oid, True))
                stack += [(parent, False) for parent in database.commit(oid).parents if parent not in seen]
    return order
