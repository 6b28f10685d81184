"""`reactifact show`: an artifact, who wrote it and from what; or a commit, what it did and why."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from .._store import canonical
from .._store._history.log import Entry, entry
from .._store.branch import Branch
from .._store.commits import CommitRecord, operation_payload, own_record, read_queue
from .._store.graph import find_change
from .._store.ledger import Ledger
from .._store.names import plain
from .._store.object_db import Database
from ..errors import UnknownRevision
from ..outbox import delivery_of
from ._shared.naming import complete_artifact, complete_either, named
from ._shared.terminal import paged
from .common import (
    Cell,
    branch_options,
    cause,
    chosen_head,
    commit_named,
    json_option,
    line,
    load_line,
    moment,
    note_default,
    one_line,
    opened,
    print_json,
    short,
    store_argument,
    table,
)

# -- one artifact with everything that is known of it: as a dictionary, and printed for people --


def describe_artifact(branch: Branch, artifact_id: str) -> dict[str, Any]:
    """Return an artifact of a branch, an action joined with its delivery. It must be live."""
    state = branch.state
    stored = state.stored(artifact_id)
    assert stored is not None
    meta = stored.meta
    delivery = delivery_of(state, branch.ledger, artifact_id)
    known = None if delivery is None else asdict(delivery)
    written = None if meta.commit is None else find_change(branch.objects, branch.tip, meta.commit)
    record = None if written is None else own_record(branch.objects, written)
    version = meta.version + (0 if known is None else known.pop("changes"))
    return {
        "what": "artifact",
        "id": artifact_id,
        "session": branch.session,
        "branch": branch.branch,
        "type": meta.type_id,
        "version": version,
        "created_at": meta.created_at,
        "updated_at": meta.updated_at,
        "author": meta.author,
        "change": meta.commit,
        "commit": written,
        "trigger": None if record is None else record.trigger,
        "created_by": meta.created_by,
        "writer": meta.writer,
        "writer_author": meta.writer_author,
        "reads": [{"artifact_id": read.artifact_id, "version": read.version} for read in meta.reads],
        "content_hash": meta.content_hash,
        "payload": meta.payload,
        "data": canonical.decode(state.payload(meta)),
        "relations": _relations(branch, artifact_id),
        "delivery": known,
    }


def _relations(branch: Branch, artifact_id: str) -> dict[str, Any]:
    state = branch.state
    incoming = [
        {"source": source, "relation": edge.relation}
        for source in state.incoming_sources(artifact_id)
        for edge in state.outgoing(source)
        if edge.target == artifact_id
    ]
    outgoing = [{"relation": edge.relation, "target": edge.target} for edge in state.outgoing(artifact_id)]
    return {"out": outgoing, "in": incoming}


def print_artifact(document: dict[str, Any]) -> None:
    """Print an artifact for people."""
    line(f"{plain(document['id'])}  v{document['version']}", bold=True)
    table(_head_rows(document))
    line()
    for text in json.dumps(document["data"], ensure_ascii=False, indent=2).split("\n"):
        line(plain(text))
    _section("read", [[plain(r["artifact_id"]), _seen(r["version"])] for r in document["reads"]])
    out = [["->", plain(one["relation"]), plain(one["target"])] for one in document["relations"]["out"]]
    came = [["<-", plain(one["relation"]), plain(one["source"])] for one in document["relations"]["in"]]
    if out or came:
        line()
        line("relations", bold=True)
        table(out + came, indent="  ")


def _head_rows(document: dict[str, Any]) -> list[list[Cell | str]]:
    change, commit = document["change"], document["commit"]
    how = "directly" if change is None else f"in {plain(short(commit or change))}"
    written = f"{moment(document['updated_at'])} by {plain(document['author'])}, {how}"
    rows: list[list[Cell | str]] = [
        ["type", plain(document["type"])],
        ["branch", Cell(f"{plain(document['session'])}/{plain(document['branch'])}", "cyan")],
        ["created", moment(document["created_at"])],
        ["written", written],
    ]
    if document["trigger"]:
        rows.append(["because", cause(document["trigger"])])
    if document["delivery"] is not None:
        rows.append(["delivery", _delivery(document["delivery"])])
    return rows


def _delivery(delivery: dict[str, Any]) -> Cell:
    colour = {"failed": "red", "dispatched": "green"}.get(delivery["status"], "yellow")
    text = str(delivery["status"])
    if delivery["dispatched_at"]:
        text += f" at {moment(delivery['dispatched_at'])}"
    if delivery["branch"]:
        text += f" from branch {plain(delivery['branch'])}"
    if delivery["attempts"]:
        text += f", attempts: {delivery['attempts']}"
    if delivery["error"]:
        text += f", {one_line(delivery['error'])}"
    return Cell(text, colour)


# -- one commit in full: as a dictionary, and printed for people --


_OF_LINKS = ("type", "artifact_id", "relation", "target_id")


def describe_commit(database: Database, commit: str) -> dict[str, Any]:
    """Return everything that a commit records, payloads included."""
    found = entry(database, commit)
    record = found.record
    document = {"what": "commit", **found.to_dict()}
    if record is None:
        empty: dict[str, list[Any]] = {
            name: [] for name in ("operations", "reads", "listings", "writes", "queue", "deliveries")
        }
        message = found.object.message
        return {**document, **empty, "message": message, "ledger": None, "fork": None, "details": {}}
    return {
        **document,
        "message": record.message or found.subject,
        "ledger": record.ledger,
        "operations": [_operation(database, op) for op in record.operations],
        "reads": [{"artifact_id": found_id, "version": version} for found_id, version in record.reads],
        "listings": [{"type": listing[0], "change": listing[1]} for listing in record.listings],
        "writes": [
            {"artifact_id": write[0], "version": write[1], "op_type": write[2]} for write in record.writes
        ],
        "queue": [{"event": one.event, "owed": one.owed} for one in read_queue(database, found.commit)],
        "deliveries": _deliveries(database, found, record),
        "fork": record.fork,
        "details": record.details,
    }


def _operation(database: Database, operation: dict[str, Any]) -> dict[str, Any]:
    if operation["type"] in ("link", "unlink"):
        return {name: operation.get(name) for name in _OF_LINKS}
    payload = operation_payload(database, operation) if "payload" in operation else None
    return {
        "type": operation["type"],
        "artifact_id": operation["artifact_id"],
        "data_type": operation.get("data_type"),
        "version": operation.get("version"),
        "data": None if payload is None else canonical.decode(payload),
    }


def _deliveries(database: Database, found: Entry, record: CommitRecord) -> list[dict[str, Any]]:
    """Return what a commit of the ledger says of the actions that it is about."""
    if record.kind != "ledger":
        return []
    ledger = Ledger(database, record.session, head=found.commit)
    known = (ledger.entry(action_id) for action_id in record.details.get("actions", ()))
    return [asdict(delivered) for delivered in known if delivered is not None]


def print_commit(document: dict[str, Any]) -> None:
    """Print a commit for people."""
    line(plain(document["subject"]), bold=True)
    table(_commit_head_rows(document))
    _section("operations", [_operation_row(op) for op in document["operations"]])
    reads: list[list[Cell | str]] = [
        [plain(r["artifact_id"]), _seen(r["version"])] for r in document["reads"]
    ]
    reads += [
        [f"all of type {plain(one['type'])}", f"at {plain(short(one['change']))}"]
        for one in document["listings"]
    ]
    _section("reads", reads)
    writes = [[w["op_type"], plain(w["artifact_id"]), f"v{w['version']}"] for w in document["writes"]]
    _section("writes", writes)
    _section("deliveries", [_delivery_row(one) for one in document["deliveries"]])
    _section("left in the queue", [_queue_row(one) for one in document["queue"]])


def _commit_head_rows(document: dict[str, Any]) -> list[list[Cell | str]]:
    version = "" if document["version"] is None else f"  v{document['version']}"
    kind = document["kind"]
    if document["generation"]:
        kind += f", generation {document['generation']}, run {plain(short(document['run_id'] or ''))}"
    rows: list[list[Cell | str]] = [["commit", Cell(document["commit"], "yellow")]]
    if document["change"] is not None:
        rows.append(["change", plain(document["change"])])
        rows.append(
            ["branch", Cell(f"{plain(document['session'])}/{plain(document['branch'])}{version}", "cyan")]
        )
    rows += [["kind", kind], ["author", plain(document["author"])], ["time", moment(document["time"])]]
    if document["trigger"]:
        trigger = document["trigger"]
        rows.append(["trigger", f"{cause(trigger)}  {plain(str(trigger.get('artifact_type', '')))}"])
    if document["parents"]:
        rows.append(["parents", " ".join(short(parent) for parent in document["parents"])])
    if document["ledger"]:
        rows.append(["ledger", short(document["ledger"])])
    return rows


def _section(title: str, rows: list[list[Any]]) -> None:
    if rows:
        line()
        line(title, bold=True)
        table(rows, indent="  ")


def _operation_row(operation: dict[str, Any]) -> list[str]:
    if operation["type"] in ("link", "unlink"):
        relation, target = operation["relation"] or "any", operation["target_id"] or "any"
        ends = f"{operation['artifact_id']} -[{relation}]-> {target}"
        return [operation["type"], plain(ends), "", ""]
    version = "" if operation["version"] is None else f"v{operation['version']}"
    kind = plain(operation["data_type"] or "")
    return [operation["type"], plain(operation["artifact_id"]), version, kind]


def _seen(version: int) -> str:
    return "not there" if version < 0 else f"v{version}"


def _delivery_row(entry: dict[str, Any]) -> list[Cell | str]:
    colour = {"failed": "red", "dispatched": "green"}.get(entry["status"], "yellow")
    attempts = f"attempts {entry['attempts']}" if entry["attempts"] else ""
    status = Cell(entry["status"], colour)
    return [status, plain(entry["action_id"]), attempts, one_line(entry["error"] or "")]


def _queue_row(waiting: dict[str, Any]) -> list[str]:
    owed = waiting["owed"]
    to_whom = "not matched yet" if owed is None else f"owed to {', '.join(map(plain, owed))}"
    return [cause(waiting["event"]), to_whom]


# -- `reactifact show`: one commit, or one artifact with everything that is known of it --


@click.command(short_help="Show one commit or one artifact.")
@store_argument
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_either)
@click.argument("of", metavar="[ARTIFACT]", required=False, shell_complete=complete_artifact)
@branch_options
@click.option("--as", "kind", type=click.Choice(["artifact", "commit"]), help="Take a single name for this.")
@json_option
def show(
    store: str,
    rev: str | None,
    of: str | None,
    session: str | None,
    branch: str | None,
    kind: str | None,
    as_json: bool,
) -> None:
    """Show a commit (what it did, read and left to do) or an artifact (its data, its ties, its cause).

    With ARTIFACT it is that artifact as it was at REV. A single name is an artifact of --branch of
    --session (default: main of the session written last), else a revision; an artifact comes before a
    commit of the same name. Without a name it is the newest commit. Ids of commits are those of git.

    \b
    --json of a commit: {what: "commit", the keys of log but heads and tags,
      message, ledger,
      operations: [{type, artifact_id, data_type, version, data} or
                   {type, artifact_id, relation, target_id}],
      reads: [{artifact_id, version}], listings: [{type, change}],
      writes: [{artifact_id, version, op_type}],
      queue: [{event, owed}], deliveries: [{action_id, status, ...}],
      fork, details}
    A read of version -1 found nothing; a listing read all of a type.
    --json of an artifact: {what: "artifact", id, session, branch, type,
      version, created_at, updated_at, author, change, commit, trigger,
      created_by, writer, writer_author, reads, content_hash, payload, data,
      relations: {out: [{relation, target}], in: [{source, relation}]},
      delivery: null or {status, attempts, error, dispatched_at, branch}}
    change, created_by, writer: Change-Ids of versioned commits, or null;
    commit, trigger: the id of the commit that wrote it, and its cause.
    """
    with opened(store) as database:
        artifact = rev if of is None else of
        state: Branch | None = None
        if of is not None:
            state = named(database, rev, session, branch).branch(database)
            if state.state.stored(of) is None:
                raise UnknownRevision(f"{state.session}/{state.branch} holds no artifact {of!r} at {rev}")
        elif rev is not None:
            state = _holder(database, rev, session, branch, kind)
        if state is not None and artifact is not None:
            document = describe_artifact(state, artifact)
        else:
            document = describe_commit(database, _commit(database, rev or "HEAD", session, branch, kind))
    if as_json:
        print_json(document)
        return
    with paged():
        (print_commit if document["what"] == "commit" else print_artifact)(document)


def _holder(
    database: Database, name: str, session: str | None, branch: str | None, kind: str | None
) -> Branch | None:
    """Return the branch that has an artifact of this name, or `None`."""
    if kind == "commit":
        return None
    head = chosen_head(database, None, session, branch, quiet=True)
    line = None if head.is_ledger else load_line(database, head)
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
