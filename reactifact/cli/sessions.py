"""`reactifact sessions`: what a store holds."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import click

from ..context.outbox_status import waiting_actions
from ..store.database import Database
from ..store.line import MAIN
from ..store.revisions import DAMAGE, DamagedHead, Head, damaged, readable_heads
from ..store.timeline import entry
from .common import (
    Cell,
    fail_for,
    json_option,
    line,
    load_line,
    moment,
    opened,
    plain,
    print_json,
    store_argument,
    table,
)


@click.command(short_help="List the sessions of a store.")
@store_argument
@json_option
def sessions(store: str, as_json: bool) -> None:
    """List the sessions of a store: branches, version, last commit, waiting and failed actions.

    The version is that of the session's own line (main), else of its branch written last. Pending
    and failed actions count once each, on however many branches they wait. A branch that cannot be
    read is left out and named on stderr; the exit code is 2 then.

    \b
    --json: {sessions: [{session, version, last_commit, pending, failed,
      branches: [{branch, commit, version, last_commit, pending, failed}]}],
      damaged: [{ref, session, branch, error}]}
    """
    with opened(store) as database:
        heads, broken = readable_heads(database)
        found = [
            session
            for name, group in groupby(heads, key=lambda head: head.session)
            if (session := _session(database, name, list(group), broken)) is not None
        ]
    if as_json:
        print_json({"sessions": found, "damaged": [one._asdict() for one in broken]})
    elif found:
        _print(found)
    elif not broken:
        line("no sessions")
    fail_for(broken)


def _session(
    database: Database, session: str, found: list[Head], broken: list[DamagedHead]
) -> dict[str, Any] | None:
    """Describe a session by what can be read of it, `None` where nothing can; add the rest to `broken`."""
    pending: set[str] = set()
    failed: set[str] = set()
    branches = []
    times = []
    for head in found:
        try:
            if not head.is_ledger:
                branches.append(_branch(database, head, pending, failed))
            times.append(entry(database, head.commit).time)
        except DAMAGE as error:
            broken.append(damaged(head, error))
    if not times:
        return None
    own = [branch for branch in branches if branch["branch"] == MAIN]
    leading = own or sorted(branches, key=lambda branch: branch["last_commit"])[-1:]
    return {
        "session": session,
        "version": leading[0]["version"] if leading else 0,
        "last_commit": max(times).isoformat(),
        "pending": len(pending),
        "failed": len(failed),
        "branches": branches,
    }


def _branch(database: Database, head: Head, pending: set[str], failed: set[str]) -> dict[str, Any]:
    """Describe a branch, and add the ids of its waiting and failed actions to those of the session."""
    branch = load_line(database, head)
    waiting, refused, _ = waiting_actions(branch.state, branch.ledger, datetime.now(UTC))
    pending.update(action.id for action in waiting)
    failed.update(action.id for action in refused)
    return {
        "branch": head.branch,
        "commit": head.commit,
        "version": branch.version,
        "last_commit": entry(database, head.commit).time.isoformat(),
        "pending": len(waiting),
        "failed": len(refused),
    }


def _print(found: list[dict[str, Any]]) -> None:
    rows: list[list[Cell | str]] = [["SESSION", "VERSION", "LAST COMMIT", "PENDING", "FAILED", "BRANCHES"]]
    for session in found:
        rows.append(
            [
                Cell(plain(session["session"]), "cyan"),
                Cell(f"v{session['version']}", "green"),
                moment(session["last_commit"]),
                Cell(str(session["pending"]), "yellow" if session["pending"] else None),
                Cell(str(session["failed"]), "red" if session["failed"] else None),
                " ".join(plain(branch["branch"]) for branch in session["branches"]),
            ]
        )
    table(rows)
