"""A checkpoint saver for LangGraph: a thread is a session, a checkpoint a commit.

Needs the extra `langgraph`. `docs/langgraph.md` says what stands where.
"""

from __future__ import annotations

from ..._extras import needing

with needing("langgraph"):
    from .saver import ReactifactSaver

__all__ = ["ReactifactSaver"]
