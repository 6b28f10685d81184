"""The public path of `Artifact`."""

from __future__ import annotations

from .context.artifacts import Artifact

__all__ = ["Artifact"]
