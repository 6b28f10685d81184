"""The public path of diagrams."""

from __future__ import annotations

from .sessions.diagrams import blueprint, context_to_mermaid

__all__ = ["blueprint", "context_to_mermaid"]
