"""The working state of one branch: artifacts, relations, events, operations, types.

Over the store, below the authoring layer: nothing here runs an agent or sends anything.
"""

from __future__ import annotations

from .context import Context
from .views import View

__all__ = ["Context", "View"]
