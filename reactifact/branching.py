"""The public path of branches."""

from __future__ import annotations

from .context.merging import MergeConflict
from .sessions.branching import BranchStore

__all__ = ["BranchStore", "MergeConflict"]
