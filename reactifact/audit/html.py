"""An audit report as one HTML page that needs nothing else: its style inside, no script."""

from __future__ import annotations

from .._html import Child, Html, el, facts, moment, self_contained, table
from .report import AuditReport, ProvenanceEntry

_SHORT = 12


def report_to_html(report: AuditReport) -> str:
    """Return a report as a page: the answer, its sources, what it rests on, relations, model calls."""
    answer = report.answer
    return self_contained(
        f"Audit of {answer.artifact_id}",
        el(
            "main",
            el("p", "Audit report", class_="muted"),
            el("h1", answer.artifact_id, class_="id"),
            el("p", f"{answer.data_type}, version {answer.version}", class_="muted"),
            _head(report),
            _sources(report),
            _provenance(report),
            _relations(report),
            _calls(report),
        ),
        el(
            "footer", el("p", "Times are UTC. Check it with `reactifact verify` on its JSON.", class_="muted")
        ),
    )


def _head(report: AuditReport) -> Html:
    session: Child = "none, the context stands alone"
    if report.session_id:
        session = [el("b", report.session_id), ", branch ", el("span", report.branch, class_="chip branch")]
    followed = "all relations" if report.followed is None else ", ".join(report.followed) or "no relation"
    rows: list[tuple[Child, Child]] = [
        ("session", session),
        ("version", f"v{report.context_version}"),
        ("data hash", el("code", report.answer.sha256)),
        ("state hash", el("code", report.context_sha256)),
        ("commit", el("code", report.commit or "not committed")),
        ("state", el("code", report.state or "not committed")),
        ("followed", [followed, ", and what the commits read" if report.followed_reads else None]),
    ]
    return el("section", facts(rows, class_="facts"), class_="card")


def _sources(report: AuditReport) -> Html:
    found = [el("li", source) for source in report.sources]
    shown = (
        el("ul", found, class_="plain")
        if found
        else el("p", "None of the artifacts names one.", class_="empty")
    )
    return el("section", el("h2", "Sources"), shown)


def _provenance(report: AuditReport) -> Html:
    head = ["Artifact", "Type", "By", "Because of", "Read", "Commit", "Time"]
    rows = [_row(entry) for entry in report.entries]
    return el("section", el("h2", "What it rests on"), table(head, rows, class_="cards"))


def _row(entry: ProvenanceEntry) -> list[Child]:
    trigger = entry.trigger or {}
    kind = str(trigger.get("type", "")).removeprefix("artifact_")
    cause: Child = [kind, " ", _id(str(trigger["artifact_id"]))] if trigger.get("artifact_id") else None
    reads: list[Child] = [
        [_id(str(name)), f" v{version} " if version >= 0 else " (not there) "]
        for name, version in entry.reads
    ]
    reads += [["all of ", el("code", str(one[0])), " "] for one in entry.listings]
    who: list[Child] = [el("b", entry.author), " (directly)" if entry.is_direct else None]
    return [
        [_id(entry.artifact_id), f" v{entry.version} ", el("code", entry.sha256[:_SHORT], class_="muted")],
        entry.data_type,
        [who, f" {entry.code}" if entry.code else None],
        cause,
        reads or None,
        el("code", entry.commit[:_SHORT]) if entry.commit else None,
        moment(entry.committed_at or entry.updated_at or None),
    ]


def _id(artifact_id: str) -> Html:
    return el("span", artifact_id, class_="id")


def _relations(report: AuditReport) -> Child:
    if not report.relations:
        return None
    rows = [[_id(source), el("i", relation), _id(target)] for source, relation, target in report.relations]
    return el("section", el("h2", "Relations"), table(["From", "Relation", "To"], rows, class_="cards"))


def _calls(report: AuditReport) -> Child:
    rows = [
        [
            _id(entry.artifact_id),
            str(call.get("model") or "unnamed model"),
            el("code", str(call["request"])[:_SHORT]),
            el("code", str(call["response"])[:_SHORT]),
        ]
        for entry in report.entries
        for call in entry.calls
    ]
    if not rows:
        return None
    head = ["For", "Model", "Hash of the request", "Hash of the answer"]
    return el("section", el("h2", "Model calls"), table(head, rows, class_="cards"))
