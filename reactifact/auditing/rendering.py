"""A report as JSON, for programs and for the check later, and as Markdown, for people.

Owns both forms and the way back from JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ..store.printable import plain, plain_lines
from .report import FORMAT, AuditReport, ProvenanceEntry

_SHORT = 12


def report_to_json(report: AuditReport, *, indent: int | None = 2) -> str:
    """Return a report as JSON with sorted keys, and no character that steers a terminal."""
    return plain_lines(json.dumps(asdict(report), indent=indent, sort_keys=True, ensure_ascii=False))


def report_from_json(text: str | bytes) -> AuditReport:
    """Return the report in a JSON text. Raises `ValueError` for what is none, or of a newer format."""
    try:
        record: Any = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("it is no JSON object")
        version = record.get("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            raise ValueError(f"it has format {version!r}, and {FORMAT} is what is read here")
        record["answer"] = _entry(record["answer"])
        record["provenance"] = [_entry(entry) for entry in record["provenance"]]
        return AuditReport(**{name: record[name] for name in _names(AuditReport) if name in record})
    except (KeyError, TypeError, ValueError) as error:
        cause = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"this is no audit report ({cause}): give the JSON that `reactifact audit --json` printed"
        ) from error


def _entry(record: Mapping[str, Any]) -> ProvenanceEntry:
    return ProvenanceEntry(**{name: record[name] for name in _names(ProvenanceEntry) if name in record})


def _names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


def report_to_markdown(report: AuditReport) -> str:
    """Return a report as Markdown: the answer, its sources, and what it rests on as a table."""
    answer = report.answer
    lines = [
        "# Audit report",
        "",
        f"- answer: {_code(answer.artifact_id)} ({_text(answer.data_type)}, version {answer.version})",
        f"- data hash: `{answer.sha256[:_SHORT]}` (sha256 `{answer.sha256}`)",
        f"- session: {_code(report.session_id) if report.session_id else 'none, the context stands alone'}"
        + (f", branch {_code(report.branch)}" if report.session_id else ""),
        f"- context version: {report.context_version}, hash `{report.context_sha256[:_SHORT]}`",
        f"- commit: {_code(report.commit) if report.commit else 'not committed'}",
        f"- state: {_code(report.state) if report.state else 'not committed'}",
        "",
        "## Sources",
        "",
    ]
    lines += [f"- {_text(source)}" for source in report.sources] or ["None of the artifacts names one."]
    lines += ["", "## Provenance", ""]
    header = ["artifact", "type", "data hash", "by", "commit", "code", "because of", "time"]
    lines += [_row(header), _row(["---"] * len(header))]
    lines += [_row(_cells(entry)) for entry in report.entries]
    if report.relations:
        lines += ["", "## Relations", ""]
        lines += [
            f"- {_code(one['source_id'])} {_text(one['relation'])} {_code(one['target_id'])}"
            for one in report.relations
        ]
    calls = [(entry, call) for entry in report.entries for call in entry.calls]
    if calls:
        lines += ["", "## Model calls", ""]
        lines += [
            f"- {_code(entry.artifact_id)}: {_text(call['model'] or 'unnamed model')}, request "
            f"`{call['request'][:_SHORT]}`, answer `{call['response'][:_SHORT]}`"
            for entry, call in calls
        ]
    return "\n".join(lines) + "\n"


def _cells(entry: ProvenanceEntry) -> list[str]:
    who = f"{_text(entry.author)} (directly)" if entry.is_direct else _text(entry.author)
    trigger = entry.trigger or {}
    kind = str(trigger.get("type", "")).removeprefix("artifact_")
    cause = f"{_text(kind)} {_code(str(trigger['artifact_id']))}" if trigger.get("artifact_id") else ""
    return [
        f"{_code(entry.artifact_id)} v{entry.version}",
        _text(entry.data_type),
        f"`{entry.sha256[:_SHORT]}`",
        who,
        f"`{entry.commit[:_SHORT]}`" if entry.commit else "",
        _text(entry.code),
        cause,
        _text(entry.committed_at or entry.updated_at),
    ]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return a stored text so that it is shown as it is, whatever Markdown would make of it."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#" else char for char in plain(text))


def _code(text: str) -> str:
    """Return a stored text as code, longer fences around what has backticks in it."""
    shown = plain(text).replace("|", "\\|")
    fence = "`"
    while fence in shown:
        fence += "`"
    padding = " " if "`" in shown else ""
    return f"{fence}{padding}{shown}{padding}{fence}"
