"""`reactifact sessions` and `outbox`: what a store holds, and what waits to be delivered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import anyio
import click

from .._sessions.service import rebuild_ledger
from .._sessions.stores import open_database
from .._store._history.log import entry
from .._store._history.revset import (
    DAMAGE,
    DamagedHead,
    Head,
    damaged,
    parse_head,
    readable_heads,
    scan_heads,
)
from .._store.branch import MAIN
from .._store.commits import read_queue
from .._store.names import plain
from .._store.object_db import Database, Objects
from .._store.objects import Oid
from ..errors import UnknownRevision
from ..outbox import ActionStatus, OutboxStatus, status_of, waiting_actions
from ._shared.naming import complete_rev
from .common import (
    Cell,
    chosen_head,
    counted,
    duration,
    fail_for,
    json_option,
    line,
    load_line,
    moment,
    one_line,
    opened,
    print_json,
    store_argument,
    table,
    to_stderr,
)

# -- `reactifact sessions`: what a store holds --


@click.command(short_help="List the sessions of a store.")
@store_argument
@json_option
def sessions(store: str, as_json: bool) -> None:
    """List the sessions of a store: branches, version, last commit, waiting and failed actions.

    The version is that of the session's own line (main), else of its branch written last. Pending and
    failed actions, the parked among them, count once each, on however many branches they wait. A branch
    that cannot be read is left out and named on stderr; the exit code is 2 then. A branch of git's own,
    which is not one of a session, is named there too, and is no error. Where events wait for
    agents, the agents are named with the number of events: one that was renamed is never asked (see
    aliases=). Events that an agent failed on too often are named with it; `retry --events` re-arms them.

    \b
    --json: {what, sessions: [{session, version, last_commit, pending, failed,
      branches: [{branch, commit, version, last_commit, pending, failed, waiting,
        parked: [{artifact, agent, failures, error}]}]}],
      damaged: [{ref, session, branch, error}], others: [{ref, commit, why}]}
    """
    with opened(store) as database:
        heads, broken, strays = scan_heads(database)
        found = [
            session
            for name, group in groupby(heads, key=lambda head: head.session)
            if (session := _session(database, name, list(group), broken)) is not None
        ]
    if as_json:
        others = [one._asdict() for one in strays]
        print_json({"sessions": found, "damaged": [one._asdict() for one in broken], "others": others})
    elif found:
        _print(found)
    elif not broken:
        line("no sessions")
    for one in () if as_json else strays:
        to_stderr(f"{plain(one.ref)} is not a branch of a session: {plain(one.why)}")
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
    found = waiting_actions(branch.state, branch.ledger, datetime.now(UTC))
    waiting, refused = found.pending, (*found.failed, *found.parked)
    pending.update(action.id for action in waiting)
    failed.update(action.id for action in refused)
    return {
        "branch": head.branch,
        "commit": head.commit,
        "version": branch.version,
        "last_commit": entry(database, head.commit).time.isoformat(),
        "pending": len(waiting),
        "failed": len(refused),
        "waiting": _waiting_for(branch.objects, head.commit),
        "parked": _parked(branch.objects, head.commit),
    }


def _waiting_for(objects: Objects, commit: Oid) -> dict[str, int]:
    """Return the agents that events of a commit wait for, with the number of events."""
    waiting = Counter(name for event in read_queue(objects, commit) for name in event.owed or ())
    return dict(sorted(waiting.items()))


def _parked(objects: Objects, commit: Oid) -> list[dict[str, Any]]:
    """Return the events of a commit that are parked, each with the agent that failed on it and how."""
    return [
        {
            "artifact": event.event["artifact_id"],
            "agent": agent,
            "failures": one["times"],
            "error": one["error"],
        }
        for event in read_queue(objects, commit)
        for agent, one in (event.failures or {}).items()
        if one["is_parked"]
    ]


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
    for session in found:
        for branch in session["branches"]:
            for agent, count in branch["waiting"].items():
                events = "1 event waits" if count == 1 else f"{count} events wait"
                place = f"{plain(session['session'])}/{plain(branch['branch'])}"
                line(f"{place}: {events} for agent {plain(agent)}")
            for one in branch["parked"]:
                place = f"{plain(session['session'])}/{plain(branch['branch'])}"
                agent, failures = plain(one["agent"]), counted(one["failures"], "failure")
                what = f"{plain(one['artifact'])} is parked for agent {agent}, {failures}"
                line(f"{place}: {what}: {one_line(one['error'])}")


# -- `reactifact outbox`: what still waits to be delivered, what failed and why --


@click.command(short_help="Show what waits, what failed and why.")
@store_argument
@click.argument("session", metavar="[REV]", required=False, shell_complete=complete_rev)
@click.option("--branch", help="Only this branch of the session.")
@click.option(
    "--rebuild-ledger",
    "rebuild",
    is_flag=True,
    help="Give up the lost ledger of SESSION; what waits is sent.",
)
@click.option("--parked", is_flag=True, help="Only actions that failed too often; `retry` re-arms them.")
@json_option
def outbox(
    store: str, session: str | None, branch: str | None, rebuild: bool, parked: bool, as_json: bool
) -> None:
    """Show the outbox of every branch, of the branches of a session, or of one: REV is SESSION[/BRANCH].

    Counts of pending, failed, parked and dispatched actions, the age of the oldest pending one, and each
    action that is not delivered with key, kind, age, attempts and error. With --parked, branches with
    parked actions and those alone; the exit code is 1 where there are any. A fork takes the actions of
    its origin along: one that waits on two branches is listed on both and delivered once. A branch
    that cannot be read is named on stderr after the others; the exit code is 2 then.

    From a branch whose ledger is missing or behind (a clone of one branch, a shallow clone) nothing is sent
    until the ledger is fetched. Where it is lost for good, --rebuild-ledger takes what no branch waits for
    as sent; what a branch waits for is sent by the next drain, perhaps for the second time.

    \b
    --json: {what, damaged: [{ref, session, branch, error}], outboxes: [{session, branch, oldest_pending_age,
      counts: {pending, failed, parked, dispatched, simulated},
      pending: [ACTION], failed: [ACTION], parked: [ACTION]}]}
    ACTION: {id, key, kind, status, planned_at, age, attempts, error,
      ordering_key, not_before}
    Ages are seconds; oldest_pending_age is null when nothing is pending.
    """
    if rebuild:
        _rebuild(store, session)
    with opened(store) as database:
        now = datetime.now(UTC)
        heads, broken = _heads(database, session, branch)
        found = []
        for head in heads:
            try:
                found.append(_status(database, head, now))
            except DAMAGE as error:
                broken.append(damaged(head, error))
    if parked:
        found = [replace(status, pending=(), failed=()) for status in found if status.parked]
    if as_json:
        statuses = [status.to_dict() for status in found]
        print_json({"outboxes": statuses, "damaged": [one._asdict() for one in broken]})
    elif not found and not broken:
        line("nothing is parked" if parked else "no sessions")
    else:
        for status in found:
            _outbox_print(status, only_parked=parked)
    fail_for(broken)
    if parked and found:
        raise click.exceptions.Exit(1)


def _rebuild(store: str, session: str | None) -> None:
    if session is None:
        raise click.UsageError("--rebuild-ledger gives up the record of one session: name it as SESSION")
    database = open_database(store, create=False)
    try:
        done = anyio.run(rebuild_ledger, database, session)
    finally:
        database.backend.close()
    text = "the ledger is complete: nothing to rebuild"
    if done.lost:
        text = (
            f"ledger rebuilt: {done.delivered} taken for sent, {len(done.wait)} to be sent by the next drain"
        )
    to_stderr(text)


def _heads(
    database: Database, session: str | None, branch: str | None
) -> tuple[list[Head], list[DamagedHead]]:
    if branch is not None:
        return [chosen_head(database, None, session, branch)], []
    found, broken = readable_heads(database, session)
    if session is not None and not found and not broken:
        found = [_one_branch(database, session)]
    return [head for head in found if not head.is_ledger], broken


def _one_branch(database: Database, text: str) -> Head:
    """Return the branch that `SESSION/BRANCH` names. Raises `UnknownRevision`."""
    try:
        return parse_head(database, text)
    except UnknownRevision:
        return chosen_head(database, None, text, None)  # it says what there is instead


def _status(database: Database, head: Head, now: datetime) -> OutboxStatus:
    branch = load_line(database, head)
    return status_of(branch.state, branch.ledger, session=head.session, branch=head.branch, now=now)


def _outbox_print(status: OutboxStatus, *, only_parked: bool = False) -> None:
    oldest = status.oldest_pending_age
    waiting = f"{len(status.pending)} pending"
    if oldest is not None:
        waiting += f" (oldest {duration(oldest)})"
    parts = [waiting, f"{len(status.failed)} failed", f"{status.dispatched} dispatched"]
    if status.parked:
        parts.insert(2, f"{len(status.parked)} parked")
    if status.simulated:
        parts.append(f"{status.simulated} simulated")
    if only_parked:
        parts = [f"{len(status.parked)} parked"]
    line(f"{plain(status.session)}/{plain(status.branch)}: {', '.join(parts)}", bold=True)
    rows = [_row(action) for action in (*status.pending, *status.failed, *status.parked)]
    if rows:
        table(rows, indent="  ")


def _row(action: ActionStatus) -> list[Cell | str]:
    attempts = f"{action.attempts} attempt{'s' if action.attempts != 1 else ''}" if action.attempts else ""
    return [
        Cell(action.status, "yellow" if action.status == "pending" else "red"),
        plain(action.key),
        plain(action.kind),
        duration(action.age),
        attempts,
        Cell(_remark(action), None if action.status == "pending" else "red"),
    ]


def _remark(action: ActionStatus) -> str:
    if action.error is None and action.not_before is not None:
        return f"not before {moment(action.not_before)}"
    return one_line(action.error or "")
