"""What goes on while it goes on: announcements of produces, and the life of turns and deliveries.

Owns `ProgressEvent`, the lifecycle events, the bounded queue of one subscriber and the hub that fills them.
Nothing here is state: an event is not stored, and without a subscriber it is gone. Who listens imports this
module, and nobody else does; who is told of lifecycle events is `_observers`'.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
from anyio import from_thread
from anyio.lowlevel import checkpoint

from .errors import ReactifactError

__all__ = [
    "ActionDelivered",
    "CommitMade",
    "DeliveryStarted",
    "EventHub",
    "EventQueue",
    "ExecutionFailed",
    "ExecutionFinished",
    "ExecutionStarted",
    "GenerationFailed",
    "GenerationFinished",
    "GenerationStarted",
    "LifecycleEvent",
    "ProgressEvent",
    "QuestionAsked",
    "QueueEmpty",
    "TurnFailed",
    "TurnFinished",
    "TurnStarted",
]


DEFAULT_SIZE = 1024


class QueueEmpty(ReactifactError, asyncio.QueueEmpty):
    """`get_nowait` was called on a queue that holds nothing."""


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One announcement. `timestamp` is an aware UTC time."""

    kind: str
    message: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))


# -- the life of turns and deliveries ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent(ProgressEvent):
    """Something the runtime or a drain did, of a session, a branch and a run (empty: outside of a turn)."""

    kind: str = "lifecycle"
    session_id: str = ""
    branch: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(LifecycleEvent):
    """A turn holds its branch and begins."""

    kind: str = "turn_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished(LifecycleEvent):
    """A turn ended in good order; `duration` in seconds."""

    kind: str = "turn_finished"
    outcome: str = ""
    runs: int = 0
    errors: int = 0
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed(LifecycleEvent):
    """A turn ended by an error or a cancellation; `duration` in seconds."""

    kind: str = "turn_failed"
    error: str = ""
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted(LifecycleEvent):
    """A generation of so many executions begins; `number` counts from 1 within the turn."""

    kind: str = "generation_started"
    number: int = 0
    executions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFinished(LifecycleEvent):
    """A generation is committed, and stored where each is (`per_commit`); it ran so many executions."""

    kind: str = "generation_finished"
    number: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFailed(LifecycleEvent):
    """A generation ended by an error, a failed delivery or a cancellation."""

    kind: str = "generation_failed"
    number: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStarted(LifecycleEvent):
    """An agent begins on an event; `execution` tells the executions of a process apart."""

    kind: str = "execution_started"
    execution: int = 0
    agent: str = ""
    artifact_id: str = ""
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFinished(ExecutionStarted):
    """An agent came to its end; `latency` in milliseconds. Whether it counts, its generation decides."""

    kind: str = "execution_finished"
    latency: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFailed(ExecutionFinished):
    """An agent failed."""

    kind: str = "execution_failed"
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMade(LifecycleEvent):
    """An agent's patch is committed under an id (`Context.head_id`); its generation stores it."""

    kind: str = "commit_made"
    commit: str = ""
    version: int = 0
    agent: str = ""
    artifact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(LifecycleEvent):
    """A question to a human is committed."""

    kind: str = "question_asked"
    artifact_id: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStarted(LifecycleEvent):
    """An action is about to be sent; `commit` is the id of the commit that planned it, if there is one."""

    kind: str = "delivery_started"
    action_id: str = ""
    action_kind: str = ""
    key: str = ""
    agent: str = ""
    commit: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDelivered(DeliveryStarted):
    """How a send ended, as it is recorded: dispatched, failed, parked, or pending where it was cut off.

    `attempts` counts the failures, this one included; `latency` in milliseconds.
    """

    kind: str = "action_delivered"
    status: str = ""
    error: str = ""
    latency: float = 0.0


# -- queues --------------------------------------------------------------------------------------


class _Waiter:
    """A task that waits for an event, and the thread its loop runs in."""

    def __init__(self) -> None:
        self._ready = anyio.Event()
        self._thread = threading.get_ident()

    async def wait(self) -> None:
        await self._ready.wait()

    def wake(self) -> None:
        """Wake the task; from a worker thread of its loop too. Raises `RuntimeError` elsewhere."""
        if threading.get_ident() == self._thread:
            self._ready.set()
            return
        try:
            woken = from_thread.run_sync(self._set_at_home)
        except RuntimeError as error:
            raise self._stranger() from error
        if not woken:
            raise self._stranger()

    def _set_at_home(self) -> bool:
        if threading.get_ident() != self._thread:
            return False
        self._ready.set()
        return True

    def _stranger(self) -> RuntimeError:
        return RuntimeError(
            f"thread {threading.current_thread().name!r} cannot wake the task that waits for this "
            f"announcement: publish from the task's event loop, or from a thread that "
            f"anyio.to_thread.run_sync started there"
        )


class EventQueue:
    """The events of one subscriber, the oldest first. A full queue loses its oldest.

    `dropped` counts what was lost. Reading is for tasks of one event loop; putting may also be done
    in worker threads of that loop.
    """

    def __init__(self, maxsize: int = DEFAULT_SIZE) -> None:
        if maxsize < 1:
            raise ValueError(f"a queue of {maxsize} events holds nothing: pass maxsize=1 or more")
        self.maxsize = maxsize
        self.dropped = 0
        self._events: deque[ProgressEvent] = deque(maxlen=maxsize)
        self._waiters: list[_Waiter] = []
        self._lock = threading.Lock()

    def qsize(self) -> int:
        """Return the number of events in the queue."""
        return len(self._events)

    def empty(self) -> bool:
        """Tell whether the queue holds nothing."""
        return not self._events

    def put_nowait(self, event: ProgressEvent) -> None:
        """Add an event, in place of the oldest where the queue is full."""
        with self._lock:
            self.dropped += len(self._events) == self.maxsize
            self._events.append(event)
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.wake()

    def get_nowait(self) -> ProgressEvent:
        """Remove and return the oldest event.

        Raises `QueueEmpty`, which is an `asyncio.QueueEmpty`, when there is none.
        """
        with self._lock:
            if self._events:
                return self._events.popleft()
        raise QueueEmpty("the queue holds no event: check empty(), or wait with `await queue.get()`")

    async def get(self) -> ProgressEvent:
        """Remove and return the oldest event, waiting for one. Cancelling it loses no event."""
        await checkpoint()
        while True:
            with self._lock:
                if self._events:
                    return self._events.popleft()
                waiter = _Waiter()
                self._waiters.append(waiter)
            try:
                await waiter.wait()
            finally:
                with self._lock:
                    self._waiters.remove(waiter)

    def __repr__(self) -> str:
        return f"EventQueue({self.qsize()} of {self.maxsize} events)"


class EventHub:
    """Hands each event to all subscribers. `maxsize` bounds each of their queues, in events."""

    def __init__(self, maxsize: int = DEFAULT_SIZE) -> None:
        if maxsize < 1:
            raise ValueError(f"queues of {maxsize} events hold nothing: pass maxsize=1 or more")
        self.maxsize = maxsize
        self._queues: tuple[EventQueue, ...] = ()

    @property
    def has_subscribers(self) -> bool:
        """Whether anybody listens."""
        return bool(self._queues)

    def subscribe(self) -> EventQueue:
        """Return a queue that gets every event published from now on."""
        queue = EventQueue(self.maxsize)
        self._queues = (*self._queues, queue)
        return queue

    def unsubscribe(self, queue: EventQueue) -> None:
        """Let a queue get no more events; what it holds can still be read. May be repeated."""
        self._queues = tuple(known for known in self._queues if known is not queue)

    def publish(self, event: ProgressEvent) -> None:
        """Put an event into every subscriber's queue."""
        for queue in self._queues:
            queue.put_nowait(event)

    def __repr__(self) -> str:
        return f"EventHub({len(self._queues)} subscribers)"
