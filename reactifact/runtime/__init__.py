"""The reactive loop: planning, execution, commits, budgets, lifecycle, and the outbox.

Above the authoring layer. Everything runs on asyncio and trio through anyio.
"""

from __future__ import annotations

from .registry import RunCancelled, RunInfo, active_runs, cancel_run
from .runtime import Runtime
from .signals import stop_on_signals

__all__ = ["RunCancelled", "RunInfo", "Runtime", "active_runs", "cancel_run", "stop_on_signals"]
