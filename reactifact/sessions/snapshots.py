"""A stored commit as a context: to look at, to compare, to fork from; never to write the branch.

Owns what a look at the past may not do. Such a context reads the tree of its commit exactly, with
the deliveries that commit knew; nothing that happened later shows in it.
"""

from __future__ import annotations

from ..context import Context
from ..context.resources import RuntimeResources
from ..errors import StoreError
from ..store.database import Database
from ..store.ledger import Ledger
from ..store.line import Line
from ..store.objects import Oid
from ..store.records import require_record


class _PastLedger(Ledger):
    """A ledger as one commit knew it."""

    def refresh(self) -> None:
        """Refuse: a drain begins with this, and the present is not to be mixed into the past."""
        raise StoreError(
            f"nothing is delivered from a stored commit of session {self.session!r}, which is only "
            f"looked at: deliver from the branch, opened by SessionStore.open or BranchStore.load_branch"
        )

    def write(self) -> None:
        """Refuse, where there is anything to write."""
        if not self.is_published:
            self.refresh()


class _PastLine(Line):
    """A line on one stored commit; it is never given a ref."""

    def fork_off(self, branch: str) -> Line:
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


def line_at(database: Database, commit: Oid, *, ledger: Oid | None = None) -> Line:
    """Return the line below such a context: its state without queue and models. Raises `StoreError`."""
    record = require_record(database, commit, commit)
    if record.kind == "ledger":
        raise StoreError(f"{commit[:12]} is a commit of a ledger, which holds deliveries and no state")
    known = _PastLedger(database, record.session, head=ledger or record.ledger)
    line = _PastLine(database, known, record.session, record.branch)
    line.move_to(commit)
    return line
