"""The public path of effects."""

from __future__ import annotations

from .authoring.effects import Effects, Handle, current_effects

__all__ = ["Effects", "Handle", "current_effects"]
