"""The public path of announcements."""

from __future__ import annotations

from .context.streaming import EventHub, EventQueue, ProgressEvent, QueueEmpty

__all__ = ["EventHub", "EventQueue", "ProgressEvent", "QueueEmpty"]
