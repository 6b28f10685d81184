"""What tests of agents need: for now, a clock that jumps.

Owns helpers for users' tests as well as our own. Nothing of the library depends on it.
"""

from __future__ import annotations

from .clock import JumpingClock

__all__ = ["JumpingClock"]
