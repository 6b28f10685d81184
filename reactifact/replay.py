"""Replay and determinism: states rebuilt, histories checked, runs repeated and compared."""

from .replaying.apart import RunApartFailed
from .replaying.bundling import bundle_session
from .replaying.clock import SteppingClock
from .replaying.enclosed import bundled_recording, bundled_versions
from .replaying.hashes import artifact_hash, content_hash, context_hash, counter_ids, data_hash
from .replaying.history import HistoryReport, verify_history
from .replaying.llm import NotingLLM, ReplayLLM, ReplayMiss
from .replaying.state import replay_context, replay_summary
from .replaying.tracing import Divergence
from .replaying.verifying import ReproReport, verify_run

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
