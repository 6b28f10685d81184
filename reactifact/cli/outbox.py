"""`reactifact outbox`: what still waits to be delivered, what failed and why."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ..context.outbox_status import ActionStatus, OutboxStatus, status_of
from ..store.database import Database
from ..store.revisions import DAMAGE, DamagedHead, Head, damaged, readable_heads
from .common import (
    Cell,
    chosen_head,
    duration,
    fail_for,
    json_option,
    line,
    load_line,
    one_line,
    opened,
    plain,
    print_json,
    store_argument,
    table,
)


@click.command(short_help="Show what waits, what failed and why.")
@store_argument
@click.argument("session", metavar="[SESSION]", required=False)
@click.option("--branch", help="Only this branch of the session.")
@json_option
def outbox(store: str, session: str | None, branch: str | None, as_json: bool) -> None:
    """Show the outbox of every branch, or of the branches of SESSION.

    Counts of pending, failed and dispatched actions, the age of the oldest pending one, and each
    pending or failed action with key, kind, age, attempts and error. A fork takes the actions of
    its origin along: one that waits on two branches is listed on both and delivered once. A branch
    that cannot be read is named on stderr after the others; the exit code is 2 then.

    \b
    --json: {damaged: [{ref, session, branch, error}], outboxes: [{session, branch, oldest_pending_age,
      counts: {pending, failed, dispatched, simulated},
      pending: [ACTION], failed: [ACTION]}]}
    ACTION: {id, key, kind, status, planned_at, age, attempts, error,
      ordering_key}
    Ages are seconds; oldest_pending_age is null when nothing is pending.
    """
    with opened(store) as database:
        now = datetime.now(UTC)
        heads, broken = _heads(database, session, branch)
        found = []
        for head in heads:
            try:
                found.append(_status(database, head, now))
            except DAMAGE as error:
                broken.append(damaged(head, error))
    if as_json:
        statuses = [status.to_dict() for status in found]
        print_json({"outboxes": statuses, "damaged": [one._asdict() for one in broken]})
    elif not found and not broken:
        line("no sessions")
    else:
        for status in found:
            _print(status)
    fail_for(broken)


def _heads(
    database: Database, session: str | None, branch: str | None
) -> tuple[list[Head], list[DamagedHead]]:
    if branch is not None:
        return [chosen_head(database, None, session, branch)], []
    found, broken = readable_heads(database, session)
    if session is not None and not found and not broken:
        found = [chosen_head(database, None, session, None)]
    return [head for head in found if not head.is_ledger], broken


def _status(database: Database, head: Head, now: datetime) -> OutboxStatus:
    branch = load_line(database, head)
    return status_of(branch.state, branch.ledger, session=head.session, branch=head.branch, now=now)


def _print(status: OutboxStatus) -> None:
    oldest = status.oldest_pending_age
    waiting = f"{len(status.pending)} pending"
    if oldest is not None:
        waiting += f" (oldest {duration(oldest)})"
    parts = [waiting, f"{len(status.failed)} failed", f"{status.dispatched} dispatched"]
    if status.simulated:
        parts.append(f"{status.simulated} simulated")
    line(f"{plain(status.session)}/{plain(status.branch)}: {', '.join(parts)}", bold=True)
    rows = [_row(action) for action in (*status.pending, *status.failed)]
    if rows:
        table(rows, indent="  ")


def _row(action: ActionStatus) -> list[Cell | str]:
    attempts = f"{action.attempts} attempt{'s' if action.attempts != 1 else ''}" if action.attempts else ""
    return [
        Cell(action.status, "red" if action.status == "failed" else "yellow"),
        plain(action.key),
        plain(action.kind),
        duration(action.age),
        attempts,
        Cell(one_line(action.error or ""), "red" if action.status == "failed" else None),
    ]
