"""Audit: where an answer comes from, as a report that can be checked against the store later."""

from .auditing.checking import CheckedReport, verify_report
from .auditing.rendering import report_from_json, report_to_json, report_to_markdown
from .auditing.report import AuditReport, ProvenanceEntry, build_report
from .replaying.hashes import artifact_hash, context_hash, data_hash

__all__ = [
    "AuditReport",
    "CheckedReport",
    "ProvenanceEntry",
    "artifact_hash",
    "build_report",
    "context_hash",
    "data_hash",
    "report_from_json",
    "report_to_json",
    "report_to_markdown",
    "verify_report",
]
