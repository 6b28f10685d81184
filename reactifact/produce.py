"""The public path of produces."""

from __future__ import annotations

from .authoring.produce import Produce, ProduceCall, produce

__all__ = ["Produce", "ProduceCall", "produce"]
