"""`reactifact show`: one commit, or one artifact with everything that is known of it."""

from __future__ import annotations

import click

from ..errors import UnknownRevision
from ..store.database import Database
from ..store.line import Line
from ..store.records import own_record
from .artifact import describe_artifact, print_artifact
from .commit import describe_commit, print_commit
from .common import (
    branch_options,
    chosen_head,
    json_option,
    load_line,
    note_default,
    opened,
    print_json,
    store_argument,
)
from .revisions import commit_named


@click.command(short_help="Show one commit or one artifact.")
@store_argument
@click.argument("name", metavar="COMMIT-or-ARTIFACT")
@branch_options
@click.option("--as", "kind", type=click.Choice(["artifact", "commit"]), help="Take NAME for this.")
@json_option
def show(
    store: str, name: str, session: str | None, branch: str | None, kind: str | None, as_json: bool
) -> None:
    """Show a commit (what it did, read and left to do) or an artifact (its data and its ties).

    An artifact id counts on --branch of --session (default: main of the session written last) and
    comes before a commit of the same name. A commit is an id or a Change-Id (four digits are
    enough), SESSION/BRANCH, SESSION/TAG, SESSION/BRANCH@vN, or vN: a version of --session.

    \b
    --json of a commit: {what: "commit", the keys of log, message, ledger,
      operations: [{type, artifact_id, data_type, version, data} or
                   {type, artifact_id, relation, target_id}],
      reads: [{artifact_id, version}], listings: [{type, change}],
      writes: [{artifact_id, version, op_type}],
      queue: [{event, owed}], deliveries: [{action_id, status, ...}],
      fork, details}
    A read of version -1 found nothing; a listing read all of a type.
    --json of an artifact: {what: "artifact", id, session, branch, type,
      version, created_at, updated_at, author, change, created_by, writer,
      writer_author, reads, content_hash, payload, data,
      relations: {out: [{relation, target}], in: [{source, relation}]},
      delivery: null or {status, attempts, error, dispatched_at, branch}}
    change, created_by, writer: Change-Ids of versioned commits, or null.
    """
    with opened(store) as database:
        line = _holder(database, name, session, branch, kind)
        if line is not None:
            document = describe_artifact(line, name)
        else:
            document = describe_commit(database, _commit(database, name, session, branch, kind))
    if as_json:
        print_json(document)
    elif line is not None:
        print_artifact(document)
    else:
        print_commit(document)


def _holder(
    database: Database, name: str, session: str | None, branch: str | None, kind: str | None
) -> Line | None:
    """Return the branch that has an artifact of this name, or `None`."""
    if kind == "commit":
        return None
    head = chosen_head(database, None, session, branch, quiet=True)
    by_hand = kind is None and own_record(database, head.commit) is None  # its commits can be shown still
    line = None if head.is_ledger or by_hand else load_line(database, head)
    if line is not None and line.state.stored(name) is not None:
        if session is None:
            note_default(database, head)
        return line
    if kind == "artifact":
        raise UnknownRevision(f"{head.name} holds no artifact {name!r}{_way_out(session)}")
    return None


def _commit(database: Database, name: str, session: str | None, branch: str | None, kind: str | None) -> str:
    try:
        return commit_named(database, name, session, branch)
    except UnknownRevision as error:
        if kind == "commit":
            raise
        head = chosen_head(database, None, session, branch, quiet=True)
        raise UnknownRevision(
            f"{head.name} holds no artifact {name!r}{_way_out(session)}; {error}"
        ) from error


def _way_out(session: str | None) -> str:
    return "" if session is not None else " (--session chooses another session)"
