"""`reactifact replay` and `fsck`: what a session was at a version, its hashes, checks of whole histories."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import anyio
import click

from .._store._history.revset import find_head
from .._store.commits import state_hash
from .._store.names import plain
from .._store.object_db import Database
from ..errors import ReactifactError, UnknownRevision
from ..replay import llm
from ..replay.fsck import check_store, repair
from ..replay.hashes import View, state_digest
from ..replay.history import HistoryReport, verify_history
from ..replay.llm import bundled_recording, bundled_versions
from ..replay.state import summary_of, view_of
from ..viz import state_to_mermaid
from ._shared.naming import complete_rev
from ._shared.terminal import progress
from .common import (
    backend_option,
    branch_options,
    chosen_head,
    counted,
    find_models,
    json_option,
    line,
    models_option,
    print_json,
    say_error,
    short,
    store_argument,
    stored_at,
    to_stderr,
    warn_of_folding,
)

MISMATCH = 1


@click.command(short_help="Rebuild a state, hash it, check a history.")
@click.argument("path", metavar="[STORE]")
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_rev)
@branch_options
@click.option("--version", type=click.IntRange(min=0), help="The version; default: the newest state.")
@click.option("--hash", "with_hash", is_flag=True, help="Print the hash of the state.")
@click.option("--verify", metavar="HASH", help="Compare the hash, or the State, with HASH.")
@click.option("--verify-all", is_flag=True, help="Check every commit and payload of the session.")
@click.option("--diagram", is_flag=True, help="Draw the artifacts and relations (Mermaid).")
@backend_option
@models_option
@json_option
@click.pass_context
def replay(
    click_context: click.Context,
    path: str,
    rev: str | None,
    session: str | None,
    branch: str | None,
    version: int | None,
    with_hash: bool,
    verify: str | None,
    verify_all: bool,
    diagram: bool,
    backend: str,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print what a session holds, or held at a version: REV is SESSION[/BRANCH]. STORE may be a bundle.

    No agent and no dispatcher runs, nothing is written, and no class is imported but those that
    --models names. The hash covers data, versions and relations, no times and no commits; the State is
    the one in the commit's record. docs/replay.md has the rules of both.

    --verify-all hashes every object again and holds every State and every payload against what names
    it, and warns on stderr of a store that a disk which folds upper and lower case cannot hold. Exit
    code 1 for a mismatch, which is named, and for a session or a version that is not there; 2 for a
    store that is not there.

    \b
    --json: {what: "replay", session, branch, commit, version, artifacts,
      by_type, relations, pending_questions, pending_actions,
      dispatched_actions, failed_actions, hash, state,
      matches: null or true or false,
      history: null or {ok, commits, objects, commit, fault}}
    """
    find = find_models(models)
    with stored_at(path, backend, read_only=True) as database:
        try:
            head = chosen_head(database, rev, session, branch)
            report = _checked(database, head.session) if verify_all else None
            if verify_all:
                warn_of_folding(database)
            if report is not None and not report.ok:
                _print_fault(report, as_json)
                click_context.exit(MISMATCH)
            view = view_of(database, head, version, find)
            document = _describe(view, hashed=with_hash or verify is not None or as_json)
        except (UnknownRevision, ValueError) as error:
            say_error(error)
            click_context.exit(MISMATCH)
        except ReactifactError as error:
            if not verify_all:
                raise
            say_error(error)
            click_context.exit(MISMATCH)
        document["matches"] = None if verify is None else _matches(document, verify)
        document["history"] = None if report is None else _history(report)
        if as_json:
            print_json(document)
        else:
            _print(document, database, with_hash, verify)
            if report is not None:
                line(plain(str(report)))
            if diagram:
                line()
                for text in state_to_mermaid(view.working.state).splitlines():
                    line(text)
        if document["hash"] is not None and view.unknown_types():
            to_stderr(
                f"{counted(len(view.unknown_types()), 'type')} not imported: fields that they declare as "
                f"transient are left out of the hash only if --models names their modules"
            )
        if document["matches"] is False:
            click_context.exit(MISMATCH)


def _checked(database: Database, session: str) -> HistoryReport:
    with progress("checking", "commits") as told:
        return verify_history(database, session, progress=told)


def _describe(view: View, *, hashed: bool) -> dict[str, Any]:
    return {
        "what": "replay",
        "session": view.line.session,
        "branch": view.line.branch,
        "commit": view.line.tip,
        **summary_of(view, datetime.now(UTC)),
        "hash": state_digest(view) if hashed else None,
        "state": state_hash(view.line.state.roots),
    }


def _matches(document: dict[str, Any], wanted: str) -> bool:
    return wanted.strip().lower() in (document["hash"], document["state"])


def _history(report: HistoryReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "commits": report.commits,
        "objects": report.objects,
        "commit": report.commit,
        "fault": report.fault,
    }


def _print_fault(report: HistoryReport, as_json: bool) -> None:
    if as_json:
        print_json({"what": "replay", "session": report.session, "history": _history(report)})
    else:
        line(plain(str(report)))


def _print(document: dict[str, Any], database: Database, with_hash: bool, verify: str | None) -> None:
    line(f"replay v{document['version']}", bold=True)
    line(f"session: {plain(document['session'])}, branch: {plain(document['branch'])}")
    line(f"artifacts: {document['artifacts']}")
    line(f"relations: {document['relations']}")
    line(f"pending questions: {document['pending_questions']}")
    for status in ("pending", "dispatched", "failed"):
        count = document[f"{status}_actions"]
        if count:
            line(f"{status} actions: {count}")
    for name, count in document["by_type"].items():
        line(f"  {plain(name)}: {count}")
    _print_enclosed(database)
    if with_hash or verify is not None:
        line(f"hash: {document['hash']}")
        line(f"state: {document['state']}")
    if verify is not None:
        line("verified: the hash matches" if document["matches"] else f"MISMATCH: expected {plain(verify)}")


def _print_enclosed(database: Database) -> None:
    """Say what a bundle carries beside the history."""
    found = bundled_versions(database)
    if found is not None:
        packages = found.get("packages", {})
        line(plain(f"bundled with reactifact {packages.get('reactifact') or '?'}, Python {found['python']}"))
    calls = bundled_recording(database)
    if calls is not None:
        line(f"recorded model calls: {len(llm.parse(calls, 'bundle'))}")


# -- `reactifact fsck`: every session of a store checked, and bookkeeping made anew from payloads --


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
        click_context.exit(MISMATCH)
