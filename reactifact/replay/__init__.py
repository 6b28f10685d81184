"""Replay and determinism: states rebuilt, histories checked, runs repeated and compared."""

from __future__ import annotations

from .hashes import artifact_hash, content_hash, context_hash, counter_ids, data_hash
from .history import HistoryReport, verify_history
from .llm import NotingLLM, ReplayLLM, ReplayMiss, bundled_recording, bundled_versions
from .runs import Divergence, ReproReport, RunApartFailed, SteppingClock, verify_run
from .state import bundle_session, replay_context, replay_summary

__all__ = [
    "Divergence",
    "HistoryReport",
    "NotingLLM",
    "ReplayLLM",
    "ReplayMiss",
    "ReproReport",
    "RunApartFailed",
    "SteppingClock",
    "artifact_hash",
    "bundle_session",
    "bundled_recording",
    "bundled_versions",
    "content_hash",
    "context_hash",
    "counter_ids",
    "data_hash",
    "replay_context",
    "replay_summary",
    "verify_history",
    "verify_run",
]
