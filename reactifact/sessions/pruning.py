"""Removing from a store what no branch and no tag reaches any more.

Owns which stores do so themselves, and what is to be done for the others. Which objects go is decided by
`store/pruning`.
"""

from __future__ import annotations

from functools import partial

from ..errors import StoreError
from ..store.database import Database
from ..store.protocol import Prunable, Pruned
from ..threads import in_thread


async def prune_store(database: Database, *, grace: float = 3600.0, rewrite: bool = False) -> Pruned:
    """Prune a store; see `SessionStore.prune`."""
    backend = database.backend
    if not isinstance(backend, Prunable):
        raise StoreError(
            f"{backend.location} is not pruned by reactifact: in a bare repository `git gc` removes what no "
            f"branch or tag reaches, and other stores keep nothing of it beyond the process"
        )
    return await in_thread(partial(backend.prune, grace=grace, rewrite=rewrite))
