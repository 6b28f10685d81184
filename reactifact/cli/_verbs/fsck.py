"""`reactifact fsck`: every session of a store checked, and bookkeeping made anew from payloads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import anyio
import click

from ..._store._history.revset import find_head
from ..._store.names import plain
from ...replay.fsck import check_store, repair
from .._shared.terminal import progress
from ..common import (
    backend_option,
    branch_options,
    find_models,
    json_option,
    line,
    models_option,
    print_json,
    short,
    store_argument,
    stored_at,
)

FAULTY = 1


@click.command(short_help="Check every session; --repair makes bookkeeping anew.")
@store_argument
@branch_options
@click.option("--repair", "is_repair", is_flag=True, help="Make the bookkeeping of a branch anew.")
@backend_option
@models_option
@json_option
@click.pass_context
def fsck(
    click_context: click.Context,
    store: str,
    session: str | None,
    branch: str | None,
    is_repair: bool,
    backend: str,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check objects, records, bookkeeping against payloads, outbox and ledger of all sessions, or of one.

    It names the first fault of each session. With --repair, the branch (--branch, default: main) of --session
    gets a commit on top that derives all bookkeeping from its payloads; nothing is rewritten. Exit code 1
    where a fault is found, or left.

    \b
    --json: {what, sessions: [{session, commits, objects, commit, subject, fault}]}
            with --repair: {what, session, branch, before, after, onto}
    """
    if is_repair and session is None:
        raise click.UsageError("--repair mends one branch: name its session with --session")
    find_models(models)
    with stored_at(store, backend, read_only=not is_repair) as database:
        if is_repair:
            assert session is not None
            head = find_head(database, session, branch)
            done = anyio.run(repair, database, head.session, head.branch)
            document: dict[str, Any] = asdict(done)
            said = [f"{head.name}: bookkeeping made anew, {short(done.before)} -> {short(done.after)}"]
            is_faulty = False
        else:
            with progress("checking", "commits") as told:
                chosen = None if session is None else [session]
                reports = check_store(database, chosen, progress=told)
            document = {"sessions": [asdict(report) for report in reports]}
            said = [f"{report}" for report in reports]
            is_faulty = not all(report.ok for report in reports)
    if as_json:
        print_json(document)
    else:
        for text in said:
            line(plain(text))
    if is_faulty:
        click_context.exit(FAULTY)
