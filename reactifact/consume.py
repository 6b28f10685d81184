"""The public path of consumes."""

from __future__ import annotations

from .authoring.consume import Consume, consume

__all__ = ["Consume", "consume"]
