"""The public path of events."""

from __future__ import annotations

from .context.events import Event, EventType

__all__ = ["Event", "EventType"]
