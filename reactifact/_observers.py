"""Who is told what the present code does: the observers of turns and deliveries.

The events that they are told of are `streaming`'s, which is imported when there is somebody to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .clock import Clock
from .errors import told
from .logging import get_logger
from .threads import during

if TYPE_CHECKING:
    from .streaming import LifecycleEvent

log = get_logger("reactifact.runtime")


Observer: TypeAlias = "Callable[[LifecycleEvent], None]"


class Observation(NamedTuple):
    """Who is told what the present code does, and what it is done for."""

    observers: tuple[Observer, ...]
    clock: Clock
    session_id: str = ""
    branch: str = ""
    run_id: str = ""


_observation: ContextVar[Observation | None] = ContextVar("reactifact_observation", default=None)


observed: Callable[[Observation | None], during] = partial(during, _observation)
"""Lets some observers be told of what happens in a `with`, and no others; `None`: nobody."""

observation: Callable[[], Observation | None] = _observation.get
"""Returns who observes the present code."""


def emit(kind: type[LifecycleEvent], **fields: Any) -> None:
    """Tell the observers of the present code. What one of them raises is logged, and stops nothing."""
    found = _observation.get()
    if found is None:
        return
    event = kind(
        session_id=found.session_id,
        branch=found.branch,
        run_id=found.run_id,
        timestamp=found.clock.now(),
        **fields,
    )
    for observer in found.observers:
        try:
            observer(event)
        except Exception as error:
            log.error("an observer of the lifecycle failed", extra={"error": told(error)})
