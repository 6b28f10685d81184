"""The turns in progress in this process: listing them and cancelling one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from anyio import CancelScope

from ..errors import ReactifactError


class RunCancelled(ReactifactError):
    """The turn was cancelled by `cancel_run` (on trio; on asyncio it is `CancelledError`)."""


@dataclass
class RunInfo:
    """A turn in progress. `generation` counts from 1 within the turn."""

    run_id: str
    session_id: str
    started_at: datetime
    request: Mapping[str, Any]
    runtime_id: int
    generation: int = 0
    scope: CancelScope = field(default_factory=CancelScope, repr=False, compare=False)
    is_cancelled: bool = False


_runs: dict[str, RunInfo] = {}


def active_runs() -> list[RunInfo]:
    """Return the turns in progress in this process."""
    return list(_runs.values())


def cancel_run(run_id: str) -> bool:
    """Cancel a turn; return whether there was one. Call it on the turn's event loop."""
    info = _runs.get(run_id)
    if info is None:
        return False
    info.is_cancelled = True
    info.scope.cancel()
    return True


def enter(info: RunInfo) -> None:
    """List a turn."""
    _runs[info.run_id] = info


def leave(info: RunInfo) -> None:
    """Take a turn off the list."""
    _runs.pop(info.run_id, None)
