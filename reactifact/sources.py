"""The public path of references to sources."""

from __future__ import annotations

from .context.sources import SourceRef

__all__ = ["SourceRef"]
