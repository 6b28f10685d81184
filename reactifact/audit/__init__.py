"""Audit: where an answer comes from, as a report that can be checked against the store later."""

from __future__ import annotations

from ..replay.hashes import artifact_hash, context_hash, data_hash
from .checking import CheckedReport, verify_report
from .html import report_to_html
from .report import (
    AuditReport,
    FollowedRelation,
    ProvenanceEntry,
    build_report,
    report_from_json,
    report_to_json,
    report_to_markdown,
)

__all__ = [
    "AuditReport",
    "CheckedReport",
    "FollowedRelation",
    "ProvenanceEntry",
    "artifact_hash",
    "build_report",
    "context_hash",
    "data_hash",
    "report_from_json",
    "report_to_html",
    "report_to_json",
    "report_to_markdown",
    "verify_report",
]
