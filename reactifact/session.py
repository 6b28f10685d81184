"""The public path of sessions."""

from __future__ import annotations

from .sessions.session import Session, SessionStore

__all__ = ["Session", "SessionStore"]
