"""The public path of triggers."""

from __future__ import annotations

from .authoring.triggers import Trigger

__all__ = ["Trigger"]
