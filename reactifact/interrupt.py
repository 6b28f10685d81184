"""The public path of the built-in artifact types."""

from __future__ import annotations

from .context.interrupts import PendingAction, PendingQuestion

__all__ = ["PendingAction", "PendingQuestion"]
