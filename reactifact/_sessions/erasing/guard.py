"""Other stores that still hold what was erased: named when they are met, and nothing of it let in or out.

Owns what a sync asks about tombstones, and the way by which objects of a store that is not clean are fetched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ..._context.push import StoreLock
from ..._store import canonical
from ..._store._history.tombstones import (
    ERASED,
    ERASING,
    Stones,
    erased_ref,
    join_stones,
    read_stones,
    require_clean,
    require_same_states,
)
from ..._store.names import parse_ref, parse_tag_ref
from ..._store.object_db import Database
from ..._store.objects import GitObject, Oid, object_id
from ..._store.protocol import Collectable, RefUpdate
from ...clock import Clock
from ...errors import ErasedHistory
from ...threads import in_thread

_FETCHING = f"{ERASING}%sync"
"""The marker of a fetch: killed, what it brought and nobody looked at is removed. No session is called so."""

_COLLECTING = canonical.encode({"phase": "collecting"})
_LOCK_WAIT = 60.0


def heard_stones(database: Database, session: str, theirs: Mapping[str, Oid]) -> bool:
    """Take over the tombstones of a session of another store; return whether there were new ones."""
    found = theirs.get(erased_ref(session))
    return found is not None and join_stones(database, session, found)


def refuse_theirs(
    database: Database, session: str, ours: Mapping[str, Oid], theirs: Mapping[str, Oid], where: str
) -> ErasedHistory | None:
    """Return why nothing of another store's session is taken in, `None` where it holds nothing erased."""
    stones = read_stones(database, session)
    way_out = (
        "nothing of it was taken in, and what was fetched is removed again: erase the same there with "
        "`reactifact erase`, or delete the session there, then sync again"
    )
    return _refused(database, session, stones, ours, theirs, where, way_out)


def refuse_ours(
    database: Database, session: str, ours: Mapping[str, Oid], theirs: Mapping[str, Oid]
) -> ErasedHistory | None:
    """Return why nothing of our session is brought to another store, `None` where ours is clean."""
    stones = read_stones(database, session)
    way_out = (
        "nothing was brought together: erase the same here with `reactifact erase`, which comes to the same "
        "commits, or delete the session here, then sync again"
    )
    return _refused(database, session, stones, theirs, ours, f"{database.backend.location}", way_out)


def _refused(
    database: Database,
    session: str,
    stones: Stones,
    clean: Mapping[str, Oid],
    looked_at: Mapping[str, Oid],
    where: str,
    way_out: str,
) -> ErasedHistory | None:
    states = {ref: oid for ref, oid in looked_at.items() if _is_state(database, ref, oid)}
    known = {ref: oid for ref, oid in clean.items() if _is_state(database, ref, oid)}
    try:
        require_clean(database, session, stones, states, where, way_out)
    except ErasedHistory as error:
        return error
    try:
        require_clean(database, session, stones, known, "", "")
    except ErasedHistory:
        return None  # it is the other side that is to be named
    try:
        require_same_states(database, session, stones, known, states, where, way_out)
    except ErasedHistory as error:
        return error
    return None


def _is_state(database: Database, ref: str, oid: Oid) -> bool:
    is_ours = parse_ref(ref) is not None or parse_tag_ref(ref) is not None
    return is_ours and database.read(oid).kind == "commit"


@asynccontextmanager
async def fetching(database: Database, clock: Clock) -> AsyncIterator[None]:
    """Hold a fetch after which some of what came may have to go again.

    Nothing is done where nothing was ever erased. Killed inside, the next opening of the store removes what
    no ref reaches. Raises `SessionBusy` beside an erasure that takes long.
    """
    if not await in_thread(database.backend.refs, ERASED):
        yield
        return
    oid = object_id("blob", _COLLECTING)
    async with StoreLock(database.backend, "erase", clock, _LOCK_WAIT):
        held = (await in_thread(database.backend.refs, _FETCHING)).get(_FETCHING)
        if held is None:
            await in_thread(_write_marker, database)
        yield
        await in_thread(database.backend.write, {}, [RefUpdate(_FETCHING, oid, None)])


def _write_marker(database: Database) -> None:
    oid = object_id("blob", _COLLECTING)
    database.write({oid: GitObject("blob", _COLLECTING)}, [RefUpdate(_FETCHING, None, oid)])


def remove_fetched(database: Database) -> None:
    """Remove what was fetched and no ref reaches. Blocks."""
    assert isinstance(database.backend, Collectable)
    database.backend.collect()
    database.forget()
