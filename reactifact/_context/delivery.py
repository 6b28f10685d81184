"""What was delivered, as a context sees it: actions joined with the session's ledger.

Owns the reading of waiting actions and every change of a delivery's state. Sending is the
runtime's; nothing here talks to the world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from .._store.branch import Branch, new_change_id
from .._store.commits import CommitRecord
from .._store.layout import Intent, Meta
from .._store.ledger import LedgerEntry, LedgerEvent
from .._store.objects import Oid
from ..artifacts import ACTION_TYPE, Artifact, other_payload
from ..events import Event, EventType
from ..interrupt import PendingAction
from .working_copy import WorkingCopy

RetryAt = Callable[[LedgerEntry], datetime | None]
"""Says when a failed action is sent again by itself; `None`: not before it is re-armed."""

_AT_ONCE = datetime.min.replace(tzinfo=UTC)


def pending(working: WorkingCopy) -> list[Artifact[PendingAction]]:
    """Return the actions that wait to be sent, those of a later time too, in the order they were planned."""
    found = []
    for intent in working.state.waiting():
        stored = working.state.stored(intent.action_id)
        if stored is not None and intent.simulated_at is None and _is_pending(working, intent):
            found.append(working.artifact(stored))
    return found


def due(working: WorkingCopy, intent: Intent, retry_at: RetryAt | None = None) -> datetime | None:
    """Return from when on an intent may be sent; `None` for one that nothing but a person lets go on.

    That is one that failed (with `retry_at`: for good), is parked, delivered or simulated.
    """
    if intent.simulated_at is not None:
        return None
    entry = working.ledger.entry(intent.action_id)
    moment: datetime | None = _AT_ONCE
    if entry is not None and entry.status != "pending":
        moment = retry_at(entry) if retry_at is not None and entry.status == "failed" else None
    if moment is None or intent.not_before is None:
        return moment
    return max(moment, datetime.fromisoformat(intent.not_before))


class Outlook(NamedTuple):
    """What of a branch may be sent now, and when the next look is worth it (`None`: not by time alone)."""

    ready: list[Intent]
    next: datetime | None


def outlook(working: WorkingCopy, now: datetime, retry_at: RetryAt | None = None) -> Outlook:
    """Return what may be sent, in the order it was planned, and when more may be.

    What is not delivered, because it failed or because its time has not come, holds back what was planned
    behind it under the same ordering key.
    """
    blocked: set[str] = set()
    ready: list[Intent] = []
    later: list[datetime] = []
    for intent in working.state.waiting():
        key = intent.ordering_key
        if intent.simulated_at is not None or (key is not None and key in blocked):
            continue
        if working.state.stored(intent.action_id) is None:
            continue
        moment = due(working, intent, retry_at)
        if moment is not None and moment <= now:
            ready.append(intent)
            continue
        if moment is not None:
            later.append(moment)
        if key is not None and not _is_delivered(working, intent):
            blocked.add(key)
    return Outlook(ready, min(later, default=None))


def next_wake(working: WorkingCopy) -> datetime | None:
    """Return from when on a wake may be delivered, the earliest of them; `None` where none waits."""
    moments = (due(working, intent) for intent in working.state.waiting() if intent.is_wake)
    return min((moment for moment in moments if moment is not None), default=None)


def sendable(
    working: WorkingCopy, now: datetime, retry_at: RetryAt | None = None
) -> list[Artifact[PendingAction]]:
    """Return the actions that may be sent now, in the order they were planned."""
    found = []
    for intent in outlook(working, now, retry_at).ready:
        stored = working.state.stored(intent.action_id)
        if stored is not None:
            found.append(working.artifact(stored))
    return found


def may_send(working: WorkingCopy, action_id: str, now: datetime, retry_at: RetryAt | None = None) -> bool:
    """Tell whether an action of the branch is still to be sent, as far as the ledger was read."""
    intent = working.state.intent(action_id)
    moment = None if intent is None else due(working, intent, retry_at)
    return moment is not None and moment <= now


def failed(working: WorkingCopy) -> list[Artifact[PendingAction]]:
    """Return the actions whose delivery failed and that may be re-armed."""
    return _standing(working, "failed")


def parked(working: WorkingCopy) -> list[Artifact[PendingAction]]:
    """Return the actions that failed so often that nobody sends them before they are re-armed by hand."""
    return _standing(working, "parked")


def _standing(working: WorkingCopy, status: str) -> list[Artifact[PendingAction]]:
    found = []
    for intent in working.state.waiting():
        stored = working.state.stored(intent.action_id)
        entry = working.ledger.entry(intent.action_id)
        if stored is not None and entry is not None and entry.status == status:
            found.append(working.artifact(stored))
    return found


class Counts(NamedTuple):
    """How the outbox of a branch stands: numbers, and when the oldest that waits was planned."""

    waiting: int = 0
    failed: int = 0
    parked: int = 0
    oldest: datetime | None = None

    def plus(self, other: Counts) -> Counts:
        """Return both together."""
        moments = [moment for moment in (self.oldest, other.oldest) if moment is not None]
        return Counts(
            self.waiting + other.waiting,
            self.failed + other.failed,
            self.parked + other.parked,
            min(moments, default=None),
        )


def counts(working: WorkingCopy) -> Counts:
    """Return how many actions of a branch wait, failed and are parked; costs what the branch waits for."""
    number: Counter[str] = Counter()
    planned: list[datetime] = []
    for intent in working.state.waiting():
        stored = working.state.stored(intent.action_id)
        if stored is None or intent.simulated_at is not None or _is_delivered(working, intent):
            continue
        entry = working.ledger.entry(intent.action_id)
        status = "waiting" if entry is None or entry.status == "pending" else entry.status
        number[status] += 1
        if status == "waiting":
            planned.append(datetime.fromisoformat(intent.not_before or stored.meta.created_at))
    return Counts(number["waiting"], number["failed"], number["parked"], min(planned, default=None))


def _is_pending(working: WorkingCopy, intent: Intent) -> bool:
    entry = working.ledger.entry(intent.action_id)
    return entry is None or entry.status == "pending"


def _is_delivered(working: WorkingCopy, intent: Intent) -> bool:
    entry = working.ledger.entry(intent.action_id)
    return entry is not None and entry.status == "dispatched" and entry.intent == intent.intent


def is_idle(working: WorkingCopy, now: datetime) -> bool:
    """Tell whether a drain would find nothing: all is delivered, or its time has not come.

    A settled intent stays in the branch until its next commit, while its delivery is never undone.
    """
    for intent in working.state.waiting():
        if not _is_delivered(working, intent):
            moment = due(working, intent)
            if moment is None or moment <= now:
                return False
    return True


def simulate(working: WorkingCopy, actions: Sequence[Artifact[PendingAction]], when: datetime) -> None:
    """Note on the branch that actions would have been sent; nothing is claimed anywhere else."""
    for action in actions:
        intent = working.state.intent(action.id)
        if intent is not None:
            working.state.expect(intent._replace(simulated_at=when.isoformat()))
            working.emit_update(PendingAction, action.id, when)
            working.renew(action.id)


def refused(working: WorkingCopy) -> list[Artifact[PendingAction]]:
    """Return the waiting actions whose key was delivered with another payload, not yet reported."""
    found = []
    for intent in working.state.waiting():
        stored = working.state.stored(intent.action_id)
        entry = working.ledger.entry(intent.action_id)
        if stored is None or entry is None or entry.status != "dispatched":
            continue
        mine = stored.meta.content_hash
        if entry.intent != mine and mine not in entry.refused:
            found.append(working.artifact(stored))
    return found


def settle(working: WorkingCopy) -> list[str]:
    """Wait no longer for what the ledger says is delivered; return its ids, for the commit that writes it."""
    known = working.delivered
    ids = [i.action_id for i in working.state.waiting()] if known is None else sorted(known)
    working.delivered = set()
    settled = []
    for action_id in ids:
        intent = working.state.intent(action_id)
        if intent is not None and _is_delivered(working, intent):
            working.state.settle(action_id)
            settled.append(action_id)
    return settled


def mark(
    working: WorkingCopy,
    action_id: str,
    status: str,
    error: str | None,
    when: datetime,
    *,
    owed: list[str] | None = None,
) -> Artifact[PendingAction] | None:
    """Stage the outcome of a delivery in the ledger; `None` for an id that is not an action.

    `status` is `dispatched`, `failed`, `parked` for a failure that is not tried again before somebody
    re-arms it, or `pending` for an attempt that was interrupted.
    """
    meta = _action(working, action_id)
    if meta is None:
        return None
    entry = working.ledger.entry(action_id)
    if entry is not None and entry.status == "dispatched" and status != "dispatched":
        return working.get(action_id)
    moment = when.isoformat()
    changed = LedgerEntry(
        action_id,
        status,
        meta.content_hash,
        working.branch,
        attempts=(0 if entry is None else entry.attempts) + (status != "dispatched"),
        # an error's text may hold anything, and a failure must never fail to be recorded
        error=None if error is None else error.encode("utf-8", "backslashreplace").decode(),
        dispatched_at=moment if status == "dispatched" else None,
        updated_at=moment,
        changes=1 if entry is None else entry.changes + 1,
        refused=() if entry is None else entry.refused,
        rearmed=0 if entry is None else entry.rearmed,
        armed=0 if entry is None else entry.armed,
    )
    verb = {"dispatched": "delivered", "pending": "interrupted"}.get(status, status)
    return _record(working, changed, meta, when, f"{verb} {key_of(action_id)}", owed)


def refuse(working: WorkingCopy, action_id: str, when: datetime) -> Artifact[PendingAction] | None:
    """Stage that a second payload under a delivered key was refused."""
    meta = _action(working, action_id)
    entry = working.ledger.entry(action_id)
    if meta is None or entry is None:
        return None
    changed = replace(
        entry, refused=tuple(sorted({*entry.refused, meta.content_hash})), updated_at=when.isoformat()
    )
    message = f"refused {key_of(action_id)}: {other_payload(action_id)}"
    return _record(working, changed, meta, when, message, None)


def rearm(working: WorkingCopy, action_id: str, when: datetime) -> Artifact[PendingAction] | None:
    """Stage that a failed or parked action may be sent again. Raises `ValueError` for a dispatched one."""
    meta = _action(working, action_id)
    if meta is None:
        return None
    entry = working.ledger.entry(action_id)
    if entry is not None and entry.status == "dispatched":
        raise ValueError(
            f"{action_id!r} was dispatched and is not sent again under the same key: "
            f"plan a new action under a key of its own"
        )
    if entry is None or (entry.status == "pending" and entry.error is None):
        return working.get(action_id)
    changed = replace(
        entry,
        status="pending",
        error=None,  # while `attempts` only grows, so that whoever retries can put an end to it
        armed=entry.attempts,
        updated_at=when.isoformat(),
        changes=entry.changes + 1,
        rearmed=entry.rearmed + 1,
    )
    return _record(working, changed, meta, when, f"retry {key_of(action_id)}", None)


def missed(
    line: Branch, tip: Oid | None, record: CommitRecord | None
) -> list[tuple[Event, list[str] | None]]:
    """Return the events of the deliveries of a branch up to a commit of its ledger, and who is owed them.

    Those alone that a commit of the branch, which `record` is of, does not know.
    """
    entries: list[tuple[Event, list[str] | None]] = []
    if record is None or tip == record.ledger:
        return entries
    if tip == line.ledger.tip and line.ledger.owes_nothing_since(record.ledger):
        return entries
    for found in line.ledger.since(record.ledger, record.timestamp, upto=tip):
        if found.branch != line.branch or found.owed == []:
            continue
        event = Event(
            EventType.ARTIFACT_UPDATED,
            PendingAction,
            found.action_id,
            datetime.fromisoformat(found.timestamp),
        )
        entries.append((event, None if found.owed is None else list(found.owed)))
    return entries


def hear_of_others(working: WorkingCopy, events: Iterable[LedgerEvent], when: datetime) -> None:
    """Queue the updates that others recorded for this branch."""
    for found in events:
        if working.delivered is not None:
            working.delivered.add(found.action_id)
        working.renew(found.action_id)
        if found.branch == working.branch and working.state.stored(found.action_id) is not None:
            working.emit_update(PendingAction, found.action_id, when)


def _action(working: WorkingCopy, action_id: str) -> Meta | None:
    stored = working.state.stored(action_id)
    return None if stored is None or stored.meta.type_id != ACTION_TYPE else stored.meta


def key_of(action_id: str) -> str:
    """Return the idempotency key in the id of an action."""
    return action_id.removeprefix("action:")


def _record(
    working: WorkingCopy,
    entry: LedgerEntry,
    meta: Meta,
    when: datetime,
    message: str,
    owed: list[str] | None,
) -> Artifact[PendingAction] | None:
    working.ledger.record(
        {entry.action_id: entry},
        change=new_change_id(),
        when=when,
        message=message,
        branch=working.branch,
        owed=owed,
    )
    if working.delivered is not None:
        working.delivered.add(entry.action_id)
    working.emit_update(PendingAction, meta.id, when)
    return working.renew(meta.id) or working.get(meta.id)
