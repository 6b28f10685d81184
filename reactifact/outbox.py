"""How the outbox of a branch stands: what waits, what failed and why, what was delivered.

Owns the counting and the listing, over stored bytes and the ledger; no model of a user is needed, and
nothing is noted in an execution's reads. It sends and changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from ._context.context import Context
from ._runtime.drain import Dispatcher
from ._store import canonical
from ._store.layout import Intent, Meta
from ._store.ledger import Ledger
from ._store.state import State, Stored
from .artifacts import ACTION_TYPE, Artifact, other_payload
from .errors import add_note
from .interrupt import PendingAction
from .produce import Backoff

__all__ = ["ActionStatus", "OutboxStatus", "RetryingDispatcher", "actions", "outbox_status"]


# -- how the outbox of a branch stands: what waits, what failed and why, what was delivered --


Status = Literal["pending", "failed", "parked", "dispatched", "simulated", "cancelled"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is known of the delivery of one action, seen from one branch."""

    status: Status
    attempts: int = 0
    error: str | None = None
    dispatched_at: str | None = None
    branch: str | None = None  # from which it was delivered, or tried last
    changes: int = 0  # versions of the action that its delivery made, beyond those of its payload


@dataclass(frozen=True, slots=True)
class ActionStatus:
    """An action that waits, failed or is parked. `age` is seconds since it was planned.

    `not_before` is when it may be sent at the earliest (ISO, UTC), `None` for at once.
    """

    id: str
    key: str
    kind: str
    status: Status
    planned_at: str
    age: float
    attempts: int
    error: str | None
    ordering_key: str | None
    not_before: str | None = None


class WaitingActions(NamedTuple):
    """The actions of a branch that are not delivered, and how many are simulated."""

    pending: tuple[ActionStatus, ...]
    failed: tuple[ActionStatus, ...]
    parked: tuple[ActionStatus, ...]
    simulated: int


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """The outbox of one branch; actions in the order they were planned."""

    session: str
    branch: str
    pending: tuple[ActionStatus, ...]
    failed: tuple[ActionStatus, ...]
    dispatched: int
    simulated: int
    parked: tuple[ActionStatus, ...] = ()

    @property
    def oldest_pending_age(self) -> float | None:
        """Seconds since the oldest pending action was planned; `None` when nothing is pending."""
        return max((action.age for action in self.pending), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types; ages in seconds."""
        return {
            "session": self.session,
            "branch": self.branch,
            "counts": {
                "pending": len(self.pending),
                "failed": len(self.failed),
                "parked": len(self.parked),
                "dispatched": self.dispatched,
                "simulated": self.simulated,
            },
            "oldest_pending_age": self.oldest_pending_age,
            "pending": [asdict(action) for action in self.pending],
            "failed": [asdict(action) for action in self.failed],
            "parked": [asdict(action) for action in self.parked],
        }


def outbox_status(context: Context) -> OutboxStatus:
    """Return how the outbox of a context's branch stands, changes not saved yet included.

    It is what this context knows: deliveries that another process made since it was loaded show
    after the next drain or reload. Costs the number of actions ever delivered for the session.
    """
    working = context.working
    return status_of(
        working.state,
        working.ledger,
        session=context.line.session,
        branch=context.line.branch,
        now=context.resources.clock.now(),
    )


def status_of(state: State, ledger: Ledger, *, session: str, branch: str, now: datetime) -> OutboxStatus:
    """Return how the outbox of one branch stands."""
    waiting = waiting_actions(state, ledger, now)
    dispatched = sum(1 for _ in _dispatched(state, ledger))
    return OutboxStatus(
        session,
        branch,
        waiting.pending,
        waiting.failed,
        dispatched,
        waiting.simulated,
        waiting.parked,
    )


def waiting_actions(state: State, ledger: Ledger, now: datetime) -> WaitingActions:
    """Return the actions that are not delivered. Costs what the branch waits for, not what was delivered."""
    found: dict[str, list[ActionStatus]] = {"pending": [], "failed": [], "parked": []}
    simulated = 0
    for intent in state.waiting():
        stored = state.stored(intent.action_id)
        if stored is None:
            continue
        delivery = _delivery(stored.meta, intent, ledger)
        if delivery.status == "simulated":
            simulated += 1
        elif delivery.status != "dispatched":
            found[delivery.status].append(_action(state, stored.meta, intent, delivery, now))
    return WaitingActions(tuple(found["pending"]), tuple(found["failed"]), tuple(found["parked"]), simulated)


def actions(context: Context, status: Status | None = None) -> list[Artifact[PendingAction]]:
    """Return the actions of a context's branch, in the order they were planned; `data` tells the rest.

    `status` leaves those that stand so, `None` all. It is what this context knows, as with
    `outbox_status`, and no read is noted. "pending", "failed", "parked" and "simulated" cost what the
    branch waits for; "dispatched", "cancelled" and `None` cost the number of all actions. No
    other artifact is looked at. An action whose delivery was erased or pruned from the ledger is not
    listed. Raises `ValueError` for another status.
    """
    if status is not None and status not in get_args(Status):
        known = ", ".join(map(repr, get_args(Status)))
        raise ValueError(f"status={status!r} is none of an action: pass one of {known}, or None for all")
    working = context.working
    state, ledger = working.state, working.ledger
    found: dict[str, Stored] = {}
    if status != "dispatched":
        for intent in state.waiting():
            stored = state.stored(intent.action_id)
            if stored is None or status not in (None, _delivery(stored.meta, intent, ledger).status):
                continue
            found[intent.action_id] = stored
    if status in (None, "dispatched"):
        found.update((stored.meta.id, stored) for stored in _dispatched(state, ledger))
    if status in (None, "cancelled"):
        for artifact_id in state.ids_of([ACTION_TYPE]):
            stored = state.stored(artifact_id)
            if stored is not None and artifact_id not in found and _is_cancelled(state, stored.meta):
                entry = ledger.entry(artifact_id)
                if entry is None or entry.status != "dispatched":
                    found[artifact_id] = stored
    in_order = sorted(found.values(), key=lambda stored: (stored.meta.sequence, stored.meta.id))
    return [working.artifact(stored) for stored in in_order]


def delivery_of(state: State, ledger: Ledger, action_id: str) -> Delivery | None:
    """Return the delivery of one action; `None` for an id that is not an action of the branch."""
    stored = state.stored(action_id)
    if stored is None or stored.meta.type_id != ACTION_TYPE:
        return None
    found = _delivery(stored.meta, state.intent(action_id), ledger)
    if found.status == "dispatched" or not _is_cancelled(state, stored.meta):
        return found
    entry = ledger.entry(action_id)
    if entry is not None and entry.status == "dispatched":  # it was cancelled too late
        return Delivery("dispatched", entry.attempts, None, entry.dispatched_at, entry.branch, entry.changes)
    return replace(found, status="cancelled", error=None)


def _delivery(meta: Meta, intent: Intent | None, ledger: Ledger) -> Delivery:
    entry = ledger.entry(meta.id)
    if entry is None:
        if intent is not None and intent.simulated_at is not None:
            return Delivery("simulated", dispatched_at=intent.simulated_at)
        return Delivery("pending")
    if entry.status == "dispatched":
        if entry.intent != meta.content_hash:
            return Delivery("failed", error=other_payload(meta.id), changes=entry.changes)
        moment = entry.dispatched_at
        return Delivery("dispatched", entry.attempts, None, moment, entry.branch, entry.changes)
    undelivered: dict[str, Status] = {"failed": "failed", "parked": "parked"}
    status = undelivered.get(entry.status, "pending")
    return Delivery(status, entry.attempts, entry.error, None, entry.branch, entry.changes)


def _action(state: State, meta: Meta, intent: Intent, delivery: Delivery, now: datetime) -> ActionStatus:
    data = _stored_fields(state, meta)
    age = (now - datetime.fromisoformat(meta.created_at)).total_seconds()
    return ActionStatus(
        id=meta.id,
        key=data["idempotency_key"],
        kind=data["kind"],
        status=delivery.status,
        planned_at=meta.created_at,
        age=max(0.0, age),
        attempts=delivery.attempts,
        error=delivery.error,
        ordering_key=data.get("ordering_key"),
        not_before=intent.not_before,
    )


def _dispatched(state: State, ledger: Ledger) -> Iterator[Stored]:
    """Yield the actions of a branch that were delivered with the payload they have there."""
    for entry in ledger.entries():
        if entry.status == "dispatched":
            stored = state.stored(entry.action_id)
            if stored is not None and (
                stored.meta.content_hash == entry.intent or _is_cancelled(state, stored.meta)
            ):
                yield stored


def _is_cancelled(state: State, meta: Meta) -> bool:
    """Whether an action was cancelled; one that is delivered all the same was cancelled too late."""
    return _stored_fields(state, meta).get("cancelled_at") is not None


def _stored_fields(state: State, meta: Meta) -> dict[str, Any]:
    """Return the stored fields of an action."""
    data: Any = canonical.decode(state.payload(meta))
    return dict(data)


# -- ready wrappers around a dispatcher --


class RetryingDispatcher:
    """Tries a delivery several times before it counts as failed.

    `attempts` is the number of calls, `backoff` the first wait in seconds (doubled each time, at
    most `longest`), `jitter` the largest share of a wait that is taken off it at random, as in
    `Produce`. Errors not in `retry_on` are raised at once. The waits are taken from the context's
    clock; every try carries the same key.
    """

    def __init__(
        self,
        dispatch: Dispatcher,
        attempts: int = 3,
        backoff: float = 0.5,
        jitter: float = 0.1,
        *,
        longest: float = 60.0,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        random_share: Callable[[], float] = random.random,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts is a number of at least 1, not {attempts!r}")
        if backoff < 0 or not 0 <= jitter <= 1:
            raise ValueError("backoff is a number of seconds, jitter a share from 0 to 1")
        self._dispatch = dispatch
        self._attempts = attempts
        self._backoff = Backoff(backoff, longest, jitter)
        self._retry_on = retry_on
        self._random = random_share

    async def __call__(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Deliver one action. Raises the last error, with a note saying how often it was tried."""
        for attempt in range(1, self._attempts + 1):
            try:
                result = self._dispatch(context, action)
                if isinstance(result, Awaitable):
                    await result
                return
            except self._retry_on as error:
                if attempt == self._attempts:
                    add_note(error, f"tried {attempt} times")
                    raise
                await context.resources.clock.sleep(self._backoff.wait(attempt, self._random))

    def __repr__(self) -> str:
        return f"RetryingDispatcher({self._dispatch!r}, attempts={self._attempts})"
