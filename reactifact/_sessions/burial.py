"""Deletions that travel: what was deleted in another store is deleted here, unless somebody went on with it.

Owns which refs that concerns, on either side. Nothing is lost by it: what is deleted here is held by the
session's operation log until a prune, and a branch that holds more than was deleted stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from .._context.push import run_lock
from .._store._history.deleted import Deleted, deleted_ref, is_below, join_deleted, read_deleted
from .._store._history.oplog import Operation, logged
from .._store._history.revset import head_at
from .._store.branch import Branch
from .._store.names import branch_ref, encode_name, is_ledger_ref, parse_ref
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.protocol import RefUpdate
from ..errors import ProtectedBranch, StoreError
from ..resources import RuntimeResources
from ..threads import in_thread


def dead_refs(
    database: Database, session: str, ours: Mapping[str, Oid], theirs: Mapping[str, Oid]
) -> dict[str, Oid]:
    """Return the refs of the other store that were deleted here, where nothing was added to them since.

    A ledger is among them when no branch of the session is left.
    """
    ref = deleted_ref(session)
    known = read_deleted(database, database.backend.refs(ref).get(ref))
    dead = {
        ref: oid
        for ref, oid in theirs.items()
        if known.covers(database, ref, oid) and not (ref in ours and is_below(database, oid, ours[ref]))
    }
    if any(_is_branch(ref) and ref not in dead for ref in theirs):
        return {ref: oid for ref, oid in dead.items() if not is_ledger_ref(ref)}
    return dead


def _is_branch(ref: str) -> bool:
    return ref.startswith("refs/heads/") and not is_ledger_ref(ref)


@dataclass(frozen=True, slots=True)
class Burial:
    """How deletions are taken over: how long a busy branch is waited for, what the other store is called."""

    database: Database
    resources: RuntimeResources
    wait: float
    remote: str

    async def take(
        self, ref: str, said: Oid, seen: Mapping[str, Oid], bases: Mapping[str, Oid]
    ) -> list[tuple[str, str]]:
        """Delete what the commit `said` of another store names and `ref` here does not say yet.

        `seen` is what the other store holds, `bases` where its refs stood at the last sync, by our names.
        Returns session and branch of what went. Raises `SessionBusy` for a branch that is run, `Contention`.
        """
        theirs = await in_thread(read_deleted, self.database, said)
        session = theirs.session
        if deleted_ref(session) != ref:
            raise StoreError(
                f"{ref} of {self.remote} says what was deleted of session {session!r}, which is another: "
                f"remove it there with `git update-ref -d {ref}`"
            )
        doomed = await in_thread(self._doomed, theirs, seen, bases)
        names = [parse_ref(name) for name in doomed if _is_branch(name)]
        branches = [name for _, name in filter(None, names) if name is not None]
        async with AsyncExitStack() as stack:
            for branch in sorted(branches):
                line = Branch.named(self.database, session, branch)
                await stack.enter_async_context(run_lock(line, self.resources.clock, self.wait))
            await in_thread(self._write, session, doomed, said)
        return [(session, branch) for branch in sorted(branches)]

    def _doomed(self, theirs: Deleted, seen: Mapping[str, Oid], bases: Mapping[str, Oid]) -> dict[str, Oid]:
        database, session = self.database, theirs.session
        own = deleted_ref(session)
        refs = database.backend.refs()
        found: dict[str, Oid] = {}
        again = self._again(theirs, seen)
        for name in theirs.news(read_deleted(database, refs.get(own))):
            held, base = refs.get(name), bases.get(name)
            if held is None or (name in again and is_below(database, held, seen[name])):
                continue  # it is moved forward
            # whoever deleted it saw that their store held nothing more, so neither did it before
            is_old = base is not None and is_below(database, held, base)
            if (is_old or theirs.covers(database, name, held)) and not self._is_protected(
                session, name, held
            ):
                found[name] = held
        folder = branch_ref(session, "x").rpartition("/")[0] + "/"
        if any(_is_branch(name) and name.startswith(folder) and name not in found for name in refs):
            return {name: oid for name, oid in found.items() if not is_ledger_ref(name)}
        return found

    def _again(self, theirs: Deleted, seen: Mapping[str, Oid]) -> set[str]:
        """Return the refs that stand in the other store again, and not still."""
        return {name for name, oid in seen.items() if not theirs.covers(self.database, name, oid)}

    def _is_protected(self, session: str, name: str, held: Oid) -> bool:
        head = head_at(self.database, name, held) if _is_branch(name) else None
        try:
            if head is not None:
                self.database.protection.require_free("delete", session, head.branch)
        except ProtectedBranch:
            return True
        return False

    def _write(self, session: str, doomed: Mapping[str, Oid], said: Oid) -> None:
        staged = Staging(self.database)
        moves: list[RefUpdate] = []
        if doomed:
            when = self.resources.clock.now().isoformat()
            text = f"the deletion of {len(doomed)} refs of {encode_name(session)} that {self.remote} told of"
            moves += logged(staged, session, Operation("delete", when, text, doomed, {}))
        last = sorted(doomed, key=lambda name: (is_ledger_ref(name), name))
        moves += [RefUpdate(name, doomed[name], None) for name in last]
        self.database.write(staged.objects, [*moves, *join_deleted(staged, session, said)])
