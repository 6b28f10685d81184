"""One commit in full: as a dictionary, and printed for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..store import canonical
from ..store.database import Database
from ..store.ledger import Ledger
from ..store.records import CommitRecord, operation_payload, read_queue
from ..store.timeline import Entry, entry
from .common import Cell, cause, line, moment, one_line, plain, short, table

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
    table(_head_rows(document))
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


def _head_rows(document: dict[str, Any]) -> list[list[Cell | str]]:
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
