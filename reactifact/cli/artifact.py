"""One artifact with everything that is known of it: as a dictionary, and printed for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ..context.outbox_status import delivery_of
from ..store import canonical
from ..store.line import Line
from .common import Cell, line, moment, one_line, plain, short, table


def describe_artifact(branch: Line, artifact_id: str) -> dict[str, Any]:
    """Return an artifact of a branch, an action joined with its delivery. It must be live."""
    state = branch.state
    stored = state.stored(artifact_id)
    assert stored is not None
    meta = stored.meta
    delivery = delivery_of(state, branch.ledger, artifact_id)
    known = None if delivery is None else asdict(delivery)
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


def _relations(branch: Line, artifact_id: str) -> dict[str, Any]:
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
    out = [["->", plain(one["relation"]), plain(one["target"])] for one in document["relations"]["out"]]
    came = [["<-", plain(one["relation"]), plain(one["source"])] for one in document["relations"]["in"]]
    if out or came:
        line()
        line("relations", bold=True)
        table(out + came, indent="  ")


def _head_rows(document: dict[str, Any]) -> list[list[Cell | str]]:
    change = document["change"]
    how = "directly" if change is None else f"in {plain(short(change))}"
    written = f"{moment(document['updated_at'])} by {plain(document['author'])}, {how}"
    rows: list[list[Cell | str]] = [
        ["type", plain(document["type"])],
        ["branch", Cell(f"{plain(document['session'])}/{plain(document['branch'])}", "cyan")],
        ["created", moment(document["created_at"])],
        ["written", written],
    ]
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
