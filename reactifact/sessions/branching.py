"""Branches of a session, saved and loaded by name: `BranchStore`."""

from __future__ import annotations

from ..context import Context
from ..context.resources import RuntimeResources
from ..store.line import MAIN, Line
from ..store.names import branch_ref
from ..store.protocol import RefUpdate
from ..store.records import require_record
from ..threads import in_thread
from . import lines
from .stores import Durability, StoreLike, open_database


class BranchStore:
    """The branches of the sessions of one store. `backend` is a path or a backend object."""

    def __init__(
        self,
        backend: StoreLike,
        compact_every: int | None = 100,
        *,
        durability: Durability = "full",
    ) -> None:
        self.compact_every = compact_every
        self.database = open_database(backend, durability=durability)

    async def save_branch(self, context: Context, *, session_id: str, name: str) -> None:
        """Write a context as a branch of a session.

        A detached context (from `Context.branch`) is that branch from now on. Raises
        `StaleSession` where the branch holds commits that the context does not contain.
        """
        await lines.save_as(self.database, context, session_id, name, is_session=False)

    async def load_branch(
        self, session_id: str, name: str, resources: RuntimeResources | None = None
    ) -> Context | None:
        """Return the context of a branch, or `None`."""
        line = await in_thread(Line.load, self.database, session_id, name)
        return None if line is None else Context.over(line, resources)

    async def list_branches(self, session_id: str) -> list[str]:
        """Return the names of the saved branches of a session, sorted.

        The line that `SessionStore` keeps for the session is not one of them.
        """
        return await in_thread(self._names, session_id)

    def _names(self, session_id: str) -> list[str]:
        found = lines.branches(self.database, session_id)
        own = found.get(MAIN)
        if own is not None and require_record(self.database, own, MAIN).is_session:
            del found[MAIN]
        return list(found)

    async def delete_branch(self, session_id: str, name: str) -> None:
        """Remove a branch; one that is absent is fine. What it delivered stays in the ledger."""
        await in_thread(self._delete, session_id, name)

    def _delete(self, session_id: str, name: str) -> None:
        ref = branch_ref(session_id, name)
        held = self.database.backend.refs(ref).get(ref)
        if held is not None:
            self.database.backend.write({}, [RefUpdate(ref, held, None)])

    async def aclose(self) -> None:
        """Give back files and descriptors."""
        await in_thread(self.database.backend.close)
