"""Bringing a context to the store: the barrier that a save and a delivery wait for, and the locks for it.

Owns the way of a write from the event loop to a worker thread and back, and the run and drain locks of a
branch. Once started a write is not cancelled: a commit is written whole or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar
from typing import TypeVar

from anyio import CancelScope

from .._store._backends.kv import MemoryBackend
from .._store._backends.locks import Ticket
from .._store.branch import Branch, new_change_id
from .._store.protocol import HeldLock, ObjectBackend, recalling, releasing
from ..clock import Clock
from ..errors import SessionBusy, StaleSession
from ..threads import at_once, during, is_quick, short_call, write_through
from .context import Context
from .preload import look_ahead

T = TypeVar("T")

# -- bringing a context to the store: the barrier that a save and a delivery wait for --


async def publish(context: Context) -> None:
    """Commit what is open, write it and move the ref. Raises `StaleSession`.

    When this returns, all that was committed so far is on stable storage, as far as the store's
    durability promises.
    """
    commits = context.commits
    if commits.working.closed:
        context.require_open()
    is_free = not (context.is_publishing or commits.is_remote)
    if is_free and commits.is_written:
        return
    async with at_once(context.publish_lock, shield=True):  # nothing inside can be cancelled
        if not is_free and commits.is_written:
            return
        if commits.is_remote:
            with CancelScope(shield=True):
                await look_ahead(commits)
        commits.note_queue()
        line = commits.line
        publication = line.prepare()
        if publication is not None or not line.ledger.is_published:
            is_local = not commits.is_remote
            try:
                await write_through(is_local, line.write, publication)
            except StaleSession:
                # a compaction moves every branch of a session, and changes none
                if not _follow(line):
                    raise
                publication = line.prepare()
                await write_through(is_local, line.write, publication)
            line.finish(publication)
            line.database.tidy()


async def require_current(context: Context, lock: StoreLock | None = None) -> None:
    """Raise `StaleSession` when somebody else wrote the branch; go on as `follow` does where nobody did.

    A `lock` is taken first, and is held afterwards whatever is raised, but for what `acquire` raises.
    """
    line = context.line
    try:
        if lock is None:
            await short_call(line.database.backend.is_local, line.require_current)
        else:
            await lock.acquire(line.require_current, *([] if line.ref is None else [line.ref]))
    except StaleSession:
        if not _follow(line):
            line.require_current()  # unless a write of ours went through meanwhile


def _follow(line: Branch) -> bool:
    from .._store._history.rebase import follow  # seldom needed: somebody else moved the branch

    return follow(line)


async def publish_ledger(context: Context) -> None:
    """Write what was recorded of deliveries. Raises `Contention` after several lost races."""
    line = context.commits.line
    if line.ledger.tip != line.ledger.head:
        await write_through(not context.commits.is_remote, line.ledger.write)
        line.database.tidy()


def ensure_attached(context: Context) -> bool:
    """Give a detached branch of a durable store a ref, so that it can be published.

    Returns whether the context has a ref. One over memory alone needs none: nothing outlives it.
    """
    line = context.commits.line
    if line.ref is None and not isinstance(line.database.backend, MemoryBackend):
        context.commits.attach(line.session, f"{line.branch}-{new_change_id()[:12]}", None)
    return line.ref is not None


# -- holding a store's lock from async code: waiting for it without blocking the event loop --


_FIRST_WAIT = 0.005
_LONGEST_WAIT = 0.1


class StoreLock:
    """A named lock of a backend, held from `acquire` to `release` or for an `async with`.

    `wait` is how many seconds to wait for it; without end by `math.inf`.
    """

    def __init__(self, backend: ObjectBackend, name: str, clock: Clock, wait: float = 0.0) -> None:
        self._backend = backend
        self._name = name
        self._clock = clock
        self._wait = wait
        self._held: AbstractContextManager[HeldLock] | None = None
        self._lock: HeldLock | None = None

    async def acquire(self, look: Callable[[], T] | None = None, *refs: str) -> T | None:
        """Take the lock, and return what `look` finds under it; it is held also where that raises.

        A backend far away says in one trip whether the lock is taken and what `refs` hold.

        Raises `SessionBusy`, naming the holder, when the wait was in vain, and at once where the holder
        waits for the code that asks.
        """
        pause = _FIRST_WAIT
        until = self._clock.monotonic() + self._wait
        ticket: Ticket | None = None
        try:
            while True:
                try:
                    return await short_call(self._backend.is_local, self._attempt, ticket, look, refs)
                except SessionBusy as error:
                    self._refuse_own(error)
                    left = until - self._clock.monotonic()
                    if left <= 0:
                        raise
                if ticket is None:
                    ticket = await short_call(self._backend.is_local, self._backend.queue(self._name).join)
                    continue
                await self._clock.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_WAIT)
        finally:
            if ticket is not None:
                with CancelScope(shield=True):
                    await short_call(self._backend.is_local, ticket.leave)

    def _attempt(
        self, ticket: Ticket | None, look: Callable[[], T] | None, refs: tuple[str, ...]
    ) -> T | None:
        """Take the lock where it is our turn, and look. Raises `SessionBusy`."""
        is_ours = self._backend.queue(self._name).is_empty() if ticket is None else ticket.is_first()
        if not is_ours:
            raise SessionBusy(
                f"others wait for the lock {self._name!r} of {self._backend.location} and came first: "
                f"wait, or pass a longer wait"
            )
        with recalling(self._backend, *refs) if refs else nullcontext():
            lock = self._backend.lock(self._name)
            self._lock = lock.__enter__()
            self._held = lock
            return None if look is None else look()

    def require_held(self) -> None:
        """Ask whether the lock is still ours; blocks. Raises `LockLost`."""
        if self._lock is not None:
            self._lock.require_held()

    def waits_for(self) -> during:
        """Let the code in a `with`, and its tasks, know that the holder of this lock waits for it."""
        return during(_waiting, (*_waiting.get(), self))

    def _refuse_own(self, error: SessionBusy) -> None:
        place = self._backend.location
        for one in _waiting.get():
            if one._held is not None and (one._name, one._backend.location) == (self._name, place):
                raise SessionBusy(
                    f"lock {self._name!r} of {place} is held by the drain that called this code and waits "
                    f"for it, so it would wait for ever: do not run or drain the session in its dispatcher; "
                    f"plan what follows from a delivery in an agent that is triggered by it"
                ) from error

    async def release(self) -> None:
        """Give the lock back; one that is not held is fine."""
        await release_together(self)

    async def __aenter__(self) -> StoreLock:
        await self.acquire()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()


async def release_together(*locks: StoreLock) -> None:
    """Give locks of one backend back, of one far away in one round trip; those that are not held are fine."""
    held: list[AbstractContextManager[HeldLock]] = []
    for lock in locks:
        if lock._held is not None:
            held.append(lock._held)
        lock._held = lock._lock = None
    if not held:
        return
    backend = locks[0]._backend

    if is_quick(backend.is_local):
        _give_back(backend, held)
    else:
        with CancelScope(shield=True):
            await short_call(backend.is_local, _give_back, backend, held)


def _give_back(backend: ObjectBackend, held: list[AbstractContextManager[HeldLock]]) -> None:
    if len(held) == 1:
        held[0].__exit__(None, None, None)
        return
    with releasing(backend), ExitStack() as stack:
        for one in held:
            stack.push(one)


_waiting: ContextVar[tuple[StoreLock, ...]] = ContextVar("reactifact_locks", default=())
"""The locks whose holders wait for the present code."""


def run_lock(line: Branch, clock: Clock, wait: float = 0.0) -> StoreLock:
    """Return the lock of whoever runs a branch: one runner a branch at a time."""
    return StoreLock(line.database.backend, f"run {line.session}/{line.branch}", clock, wait)


def drain_lock(line: Branch, clock: Clock, wait: float = math.inf) -> StoreLock:
    """Return the lock of whoever drains the outbox of a session: one drain at a time."""
    return StoreLock(line.database.backend, f"drain {line.session}", clock, wait)
