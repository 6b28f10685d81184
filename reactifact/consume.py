"""The public path of consumes."""

from __future__ import annotations

from .authoring.consume import Consume, consume
from .authoring.correlated import AbsentConsume, CorrelatedConsume, JoinConsume

__all__ = ["AbsentConsume", "Consume", "CorrelatedConsume", "JoinConsume", "consume"]
