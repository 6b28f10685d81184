"""The public path of structured answers."""

from __future__ import annotations

from .authoring.structured import structured_llm

__all__ = ["structured_llm"]
