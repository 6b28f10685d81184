"""The working state of one branch: artifacts, relations, events, operations, types.

Over the store, below the authoring layer: nothing here runs an agent or sends anything.
"""

from __future__ import annotations

from .context import Context

__all__ = ["Context"]
