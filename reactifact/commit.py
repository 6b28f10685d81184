"""The public path of commits."""

from __future__ import annotations

from .context.commits import Commit, Read, Write

__all__ = ["Commit", "Read", "Write"]
