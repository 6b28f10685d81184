"""Bringing a context to the store: the barrier that a save and a delivery wait for.

Owns the way of a write from the event loop to a worker thread and back. Once started it is not
cancelled: a commit is written whole or not at all.
"""

from __future__ import annotations

from anyio import CancelScope

from ..errors import StaleSession
from ..store.line import Line, new_change_id
from ..store.memory import MemoryBackend
from ..store.protocol import Maintained
from ..store.relinking import follow
from ..threads import in_thread, short_call
from .context import Context


async def publish(context: Context) -> None:
    """Commit what is open, write it and move the ref. Raises `StaleSession`.

    When this returns, all that was committed so far is on stable storage, as far as the store's
    durability promises.
    """
    with CancelScope(shield=True):
        async with context.publish_lock:
            context.commits.note_queue()
            line = context.line
            publication = line.prepare()
            if publication is not None or not line.ledger.is_published:
                try:
                    await in_thread(line.write, publication)
                except StaleSession:
                    # a compaction moves every branch of a session, and changes none
                    if not follow(line):
                        raise
                    publication = line.prepare()
                    await in_thread(line.write, publication)
                line.finish(publication)
                await _maintain(line)


async def require_current(context: Context) -> None:
    """Raise `StaleSession` when somebody else wrote the branch; go on as `follow` does where nobody did."""
    line = context.line
    try:
        await short_call(line.database.backend.is_local, line.require_current)
    except StaleSession:
        if not follow(line):
            line.require_current()  # unless a write of ours went through meanwhile


async def publish_ledger(context: Context) -> None:
    """Write what was recorded of deliveries. Raises `Contention` after several lost races."""
    with CancelScope(shield=True):
        if not context.line.ledger.is_published:
            await in_thread(context.line.ledger.write)
            await _maintain(context.line)


async def _maintain(line: Line) -> None:
    database = line.database
    if isinstance(database.backend, Maintained) and database.is_due(database.backend.needs_maintenance):
        await in_thread(database.backend.maintain)


def ensure_attached(context: Context) -> bool:
    """Give a detached branch of a durable store a ref, so that it can be published.

    Returns whether the context has a ref. One over memory alone needs none: nothing outlives it.
    """
    line = context.line
    if line.ref is None and not isinstance(line.database.backend, MemoryBackend):
        context.commits.attach(line.session, f"{line.branch}-{new_change_id()[:12]}", None)
    return line.ref is not None
