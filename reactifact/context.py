"""What reading a context has cost, for applications that watch it."""

from __future__ import annotations

from ._context.context import Context
from ._context.view import View

__all__ = ["Context", "View"]


def loop_reads(context: Context) -> int:
    """Return how many single objects were read from the store while an event loop waited for them.

    All contexts of an opened store (`SessionStore`, `BranchStore`) count together, from its opening
    on. Each is a look-up that found its object neither in the cache nor preloaded: next to nothing
    on a local store, a round trip on a remote one, which `await context.preload(...)` saves.
    """
    return context.line.database.loop_reads
