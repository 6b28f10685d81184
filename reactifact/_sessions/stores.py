"""Opening the store that a place names, saving contexts under sessions and branches, listing, pruning."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from .._context.commit import NAMED
from .._context.context import Context
from .._context.preload import look_ahead
from .._context.push import publish
from .._store._backends.files import checked_path
from .._store._backends.kv import KVBackend
from .._store.branch import MAIN, Branch, stored_ref
from .._store.commits import own_record
from .._store.graph import first_parents, is_ancestor
from .._store.ledger import Ledger
from .._store.names import branch_ref, is_cut, is_ledger_ref, parse_ref, tag_ref
from .._store.object_db import Database, Objects, Staging
from .._store.objects import Oid
from .._store.protocol import Durability as Durability
from .._store.protocol import (
    FetchesRefs,
    LogsMoves,
    ObjectBackend,
    Progress,
    Prunable,
    Pruned,
    RefUpdate,
    scan_refs,
)
from ..clock import SystemClock
from ..errors import Contention, NotAStore, StaleSession, StoreError
from ..threads import in_thread, is_on_loop

# -- which store a path, a DSN or a backend means --


StoreLike = Any
"""A path, a DSN, or a backend.

A path that ends in `.db`, `.sqlite` or `.sqlite3` is a SQLite file, any other a bare repository; each
is made when absent. A text that begins with `postgresql://` is the DSN of a PostgreSQL database. A
`KVBackend` that has only the methods of that class keeps one document a session.
"""

_ATTEMPTS = 8
_SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_DSN_PREFIXES = ("postgresql://", "postgres://")


def open_database(
    store: StoreLike,
    *,
    durability: Durability = "full",
    create: bool = True,
    read_only: bool = False,
) -> Database:
    """Return the database of a path, a DSN or a backend.

    What is opened `read_only` by its path or DSN is neither made nor changed, and every write to it
    raises; a backend object is taken as it is.

    Raises `NotAStore` for a path or DSN where there is no store and for any other address, `ImportError`
    for a DSN without the driver, `TypeError` for anything else.
    """
    if isinstance(store, Database):
        return store
    if isinstance(store, ObjectBackend):
        database = Database(store)
        if store.is_local or not is_on_loop():
            finish_erasures(database)
        return database
    if isinstance(store, KVBackend):
        from .._store._backends.document import DocumentBackend

        database = Database(DocumentBackend(store))
        database.has_finished_erasures = True  # to ask would read all sessions; the next erasure does
        return database
    if not isinstance(store, str | os.PathLike):
        hint = "; give its `database`" if isinstance(getattr(store, "database", None), Database) else ""
        given = type(store).__name__
        raise TypeError(f"a store is a path, a DSN or a backend such as GitBackend(path), not {given}{hint}")
    path = os.fspath(store) if is_dsn(store) else checked_path(store)
    if not path:
        raise NotAStore("an empty text does not name a store: give a path or a DSN")
    database = Database(_kind_of(path)(path, durability=durability, create=create, read_only=read_only))
    database.has_finished_erasures = read_only
    try:
        finish_erasures(database)
    except BaseException:
        database.backend.close()
        raise
    return database


def finish_erasures(database: Database) -> None:
    """Finish what somebody who was killed over it has left of an erasure; asked once. Blocks."""
    if database.has_finished_erasures:
        return
    database.has_finished_erasures = True
    from .._store._history.tombstones import ERASING

    if scan_refs(database.backend, ERASING).refs:
        from .erasing.erase import finish

        finish(database)


def _kind_of(path: StoreLike) -> Any:
    """Return the class of the store at a place; the others, and what they need, are not imported."""
    if is_dsn(path):
        from .._store._backends.sql.postgres import PostgreSQLKVBackend

        return PostgreSQLKVBackend
    if os.fsdecode(path).endswith(_SQLITE_SUFFIXES):
        from .._store._backends.sql.sqlite import SQLiteKVBackend

        return SQLiteKVBackend
    from .._store._backends.git.backend import GitBackend

    return GitBackend


def is_dsn(store: StoreLike) -> bool:
    """Tell whether a text is the DSN of a PostgreSQL database."""
    return isinstance(store, str) and store.startswith(_DSN_PREFIXES)


# -- saving a context under a session and a branch, and listing what a store holds --


async def save_as(
    database: Database, context: Context, session_id: str, branch: str, *, is_session: bool
) -> None:
    """Write a context as a branch of a session. Raises `StaleSession` where commits would be lost."""
    line = context.line
    ref = stored_ref(database, session_id, branch)
    if line.ref == ref and line.database is database:
        await publish(context)
        return
    await look_ahead(context.commits)
    line.is_session = line.is_session or (is_session and line.record is None)
    context.commits.begin()
    context.commits.note_queue()
    if line.ref is None and line.database is database:
        await _attach(context, session_id, branch)
        return
    twin = Context.over(await _copied(line, database, session_id, branch), context.resources)
    twin.line.is_session = is_session
    twin.line.is_watched = line.is_watched
    twin.queue.remove_since(line.next_event)  # deliveries that the queue of `context` knows
    await _attach(twin, session_id, branch)


async def _copied(line: Branch, database: Database, session_id: str, branch: str) -> Branch:
    """Return a detached line on the same commit, in the database it is to be saved to."""
    twin = line.fork_off(branch)
    if line.database is database:
        return twin
    return await in_thread(
        _copy, twin, line.ledger, Branch(database, Ledger(database, session_id), session_id, branch)
    )


def _copy(source: Branch, delivered: Ledger, target: Branch) -> Branch:
    assert source.tip is not None
    target.ledger.refresh()
    from .._context.merge import copy_history

    copy_history(source.objects, target.objects, source.tip, set())
    target.move_to(source.tip)
    target.take_ledger(delivered)
    return target


async def _attach(context: Context, session_id: str, branch: str) -> None:
    from .._store._history.rebase import settle_fork

    line = context.line
    copy = line.fork_off(line.branch)
    if await in_thread(settle_fork, copy):
        context.commits.note_queue()
        line.objects.absorb(copy.objects)  # what was read for the copy, so that nothing is read here
        settle_fork(line)
    if context.commits.working.state is not line.state:
        context.commits.replace_line(line)
    ref = stored_ref(line.database, session_id, branch)
    held, is_contained, is_named = await in_thread(_held, line.fork_off(line.branch), ref, session_id)
    if not is_contained:
        raise StaleSession(
            f"branch {branch!r} of session {session_id!r} holds commits that this context does not "
            f"contain, and saving would lose them: load the branch and merge it first, delete it, "
            f"or save under another name"
        )
    context.commits.attach(session_id, branch, held)
    assert line.record is not None
    if line.record.session != session_id or (is_cut(ref) and line.record.branch != branch):
        context.commits.commit_name([held] if held and is_named else [])
    await publish(context)


def _held(copy: Branch, ref: str, session: str) -> tuple[Oid | None, bool, bool]:
    """Return what a ref holds, whether a line contains that, and whether it only says whose branch it is."""
    held = copy.database.backend.refs(ref).get(ref)
    assert copy.tip is not None
    below = None if held is None else _named_over(copy.objects, held, session)
    is_contained = held is None or is_ancestor(copy.objects, below or held, copy.tip)
    return held, is_contained, below is not None


def _named_over(objects: Objects, held: Oid, session: str) -> Oid | None:
    """Return the commit below one that only says whose branch it is, `None` for another commit."""
    record = own_record(objects, held)
    is_note = record is not None and record.session == session and record.message == NAMED
    return objects.commit(held).parents[0] if is_note else None


def unsaved(context: Context) -> list[str]:
    """Return what was changed on a context and is not in the store, in words, the oldest first."""
    line = context.line
    records = [] if line.draft is None else [line.draft.record]
    if line.tip != line.published:
        for oid, record in first_parents(line.objects, line.tip):
            if oid == line.published:
                break
            records += [] if record is None else [record]
    found = [
        f"{operation['type']} {operation['artifact_id']}"
        for operations in (*(record.operations for record in reversed(records)), context.working.operations)
        for operation in operations
    ]
    return found if line.ledger.is_published else [*found, "what was recorded of deliveries"]


def sessions(database: Database) -> list[str]:
    """Return the ids of all sessions that have a line of their own, sorted.

    One whose ref is damaged is among them: opening it says why. Raises `DamagedRef` where the ids of
    damaged ones are not known.
    """
    from .._store._history.revset import DAMAGE, head_at

    found = set()
    refs, damaged = scan_refs(database.backend, "refs/heads/")
    for error in damaged:
        session, branch = parse_ref(error.ref) or (None, None)
        if session is None and (error.ref.endswith(f"/{MAIN}") or not error.ref.startswith("refs/")):
            raise error
        if session is not None and branch == MAIN:
            found.add(session)
    mains = {ref: oid for ref, oid in refs.items() if ref.endswith(f"/{MAIN}") and parse_ref(ref) is not None}
    with suppress(*DAMAGE):  # read one by one below
        database.prefetch(mains.values())
    for ref, oid in mains.items():
        session, _ = parse_ref(ref) or (None, None)
        try:
            head = head_at(database, ref, oid)
        except DAMAGE:
            if session is None:
                raise
            found.add(session)  # opening it says why
        else:
            found |= set() if head is None else {head.session}
    return sorted(found)


def delete_session(database: Database, session_id: str) -> None:
    """Remove the refs of a session that are there, and what others wrote while that went on.

    Raises `ProtectedBranch`, and `Contention` where others write it as fast as it is removed.
    """
    from .._store._history.deleted import note_deleted
    from .._store._history.oplog import kept_refs, operations_ref
    from .._store._history.squash import require_free

    backend = database.backend
    for left in reversed(range(_ATTEMPTS)):
        refs = {}
        for own in (branch_ref(session_id, MAIN), tag_ref(session_id, MAIN)):
            refs.update(backend.refs(own.rpartition("/")[0] + "/"))
        refs.update(backend.refs(operations_ref(session_id)))
        refs.update(backend.refs(kept_refs(session_id)))
        if not refs:
            return
        require_free(database, "delete", {n: oid for n, oid in refs.items() if parse_ref(n)})
        # The ledger last: what a deletion that was cut short left must not be sent once more.
        last = sorted(refs, key=lambda name: (is_ledger_ref(name), name))
        staged = Staging(database)
        known = {name: oid for name, oid in refs.items() if name.startswith(("refs/heads/", "refs/tags/"))}
        note = note_deleted(staged, session_id, known)
        try:
            database.write(staged.objects, [*note, *(RefUpdate(name, refs[name], None) for name in last)])
        except Contention:
            if not left:
                raise


# -- removing from a store what no branch and no tag reaches any more --


async def prune_store(
    database: Database,
    *,
    grace: float = 3600.0,
    rewrite: bool = False,
    progress: Progress | None = None,
) -> Pruned:
    """Prune a store; see `SessionStore.prune`."""
    from .._store._history.oplog import forget

    backend = database.backend
    if not isinstance(backend, Prunable | FetchesRefs):
        raise StoreError(
            f"{backend.location} is not pruned by reactifact: it keeps nothing beyond the process"
        )
    if not grace >= 0:
        raise ValueError(f"grace={grace}: give seconds, 0 or more")
    before = SystemClock().now() - timedelta(seconds=grace)
    forgotten = await in_thread(forget, database, before)
    if isinstance(backend, LogsMoves):
        await in_thread(backend.forget_moves, before)
    if not isinstance(backend, Prunable):  # a bare repository, which `git gc` tidies
        return Pruned(0, 0, 0, forgotten)
    done = await in_thread(partial(backend.prune, grace=grace, rewrite=rewrite, progress=progress))
    return done._replace(operations=forgotten)
