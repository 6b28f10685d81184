"""The reactive loop: planning, execution, commits, budgets, lifecycle, and the outbox.

Above the authoring layer. Everything runs on asyncio and trio through anyio.
"""

from __future__ import annotations

from .registry import RunInfo, active_runs, cancel_run
from .runtime import Runtime

__all__ = ["RunInfo", "Runtime", "active_runs", "cancel_run"]
