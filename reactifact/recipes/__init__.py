"""Recipes: produces and helpers for memory, status and stages, built on the public face alone.

Each name here is public, and this package is its import path. A recipe drops artifacts or writes
over them; how much history is kept is the store's compaction, which is something else.
"""

from __future__ import annotations

from .memory import (
    RollingDigestSummarizer,
    WindowPruner,
    WindowSummarizer,
    find,
    find_all,
    llm_digest_summarizer,
    llm_summarizer,
)
from .status import StatusMachine, changed_fields, downstream_fields, earliest_stage

__all__ = [
    "RollingDigestSummarizer",
    "StatusMachine",
    "WindowPruner",
    "WindowSummarizer",
    "changed_fields",
    "downstream_fields",
    "earliest_stage",
    "find",
    "find_all",
    "llm_digest_summarizer",
    "llm_summarizer",
]
