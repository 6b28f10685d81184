"""The public path of merging: conflicts, previews, policies, and ready merge functions."""

from __future__ import annotations

from .context.conflicts import ConflictDetail, MergeConflict
from .context.merge_functions import (
    CONFLICT,
    MISSING,
    append_only,
    as_set,
    counter,
    last_writer,
    per_field,
    unless_both,
)
from .context.resolving import MergePreview, Policy

__all__ = [
    "CONFLICT",
    "MISSING",
    "ConflictDetail",
    "MergeConflict",
    "MergePreview",
    "Policy",
    "append_only",
    "as_set",
    "counter",
    "last_writer",
    "per_field",
    "unless_both",
]
