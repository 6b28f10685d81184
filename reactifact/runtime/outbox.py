"""Delivering what was decided: after the commit, in order, at least once, under one key.

Owns the drain: its lock, the calls of the dispatcher, and the recording of each outcome before the
next send. It never decides what is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio import CancelScope, to_thread

from ..authoring.agents import Agent
from ..context import Context, delivery
from ..context.artifacts import Artifact
from ..context.events import EventType
from ..context.interrupts import PendingAction
from ..context.publishing import publish_ledger
from ..errors import IntentConflict, SessionBusy
from .planning import named

Dispatcher = Callable[[Context, Artifact[PendingAction]], Any]
ErrorCallback = Callable[[Artifact[PendingAction], BaseException], Any]

_FIRST_WAIT = 0.005
_LONGEST_WAIT = 0.25


@dataclass(slots=True)
class Drained:
    """What one drain did."""

    tried: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def raise_first(self) -> None:
        """Raise the first failure bare, the others as notes on it; nothing when all went well."""
        if not self.errors:
            return
        first, *others = self.errors
        for other in others:
            first.add_note(f"also failed: {type(other).__name__}: {other}")
        raise first


@asynccontextmanager
async def drain_lock(context: Context) -> AsyncIterator[None]:
    """Hold the session's drain lock: one drain a session at a time, in all processes."""
    line = context.line
    wait = _FIRST_WAIT
    while True:
        lock = line.database.backend.lock(f"drain {line.session}")
        try:
            await to_thread.run_sync(lock.__enter__)
            break
        except SessionBusy:
            await context.resources.clock.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
    try:
        yield
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(lock.__exit__, None, None, None)


async def drain(
    context: Context,
    dispatcher: Dispatcher,
    on_error: ErrorCallback | None,
    agents: list[Agent],
) -> Drained:
    """Send every waiting action once, in the order they were planned.

    The branch must have been published. Each outcome is on stable storage before the next send, so
    a kill repeats at most the one in flight. An action that fails does not stop the others.
    """
    done = Drained()
    async with drain_lock(context):
        await to_thread.run_sync(context.line.ledger.refresh)
        owed = interested(agents)
        await _report_refused(context, on_error, done)
        for action in context.pending_actions():
            done.tried += 1
            await _send(context, dispatcher, action, owed, on_error, done)
    return done


def interested(agents: list[Agent]) -> list[str]:
    """Return the agents that may react to a delivery; conditions are asked when it is matched."""
    return [
        name
        for name, agent in named(agents)
        if any(
            trigger.event_type == EventType.ARTIFACT_UPDATED
            and trigger.artifact_type in (None, PendingAction)
            for trigger in agent.triggers or ()
        )
    ]


async def _send(
    context: Context,
    dispatcher: Dispatcher,
    action: Artifact[PendingAction],
    owed: list[str],
    on_error: ErrorCallback | None,
    done: Drained,
) -> None:
    clock = context.resources.clock
    working = context.working
    try:
        result = dispatcher(context, action)
        if isinstance(result, Awaitable):
            await result
    except Exception as error:
        text = f"{error}" or type(error).__name__
        failed = delivery.mark(working, action.id, "failed", text, clock.now(), owed=owed)
        await publish_ledger(context)
        done.errors.append(error)
        await _call_back(on_error, failed or action, error)
        return
    except BaseException:
        # cancelled in the middle of a send: whether it went out is not known, so it is sent again
        delivery.mark(working, action.id, "pending", "interrupted", clock.now(), owed=owed)
        await publish_ledger(context)
        raise
    delivery.mark(working, action.id, "dispatched", None, clock.now(), owed=owed)
    await publish_ledger(context)


async def _report_refused(context: Context, on_error: ErrorCallback | None, done: Drained) -> None:
    """Report, once, the actions whose key was delivered with another payload."""
    for action in delivery.refused(context.working):
        error = IntentConflict(action.data.error or "")
        delivery.refuse(context.working, action.id, context.resources.clock.now())
        await publish_ledger(context)
        done.errors.append(error)
        await _call_back(on_error, action, error)


async def _call_back(
    callback: ErrorCallback | None, action: Artifact[PendingAction], error: BaseException
) -> None:
    if callback is not None:
        result = callback(action, error)
        if isinstance(result, Awaitable):
            await result
