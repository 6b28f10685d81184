"""Saving a context under a session and a branch, and listing what a store holds.

Owns the rule that saving never loses commits: a branch moves only to a commit that contains what
it holds.
"""

from __future__ import annotations

from ..context import Context
from ..context.merging import copy_history
from ..context.publishing import publish
from ..errors import StaleSession
from ..store.database import Database
from ..store.history import first_parents, is_ancestor
from ..store.ledger import Ledger
from ..store.line import MAIN, Line
from ..store.names import branch_ref, is_cut, is_ledger_ref, parse_ref
from ..store.protocol import scan_refs
from ..store.records import require_record
from ..store.relinking import settle_fork
from ..threads import in_thread


async def save_as(
    database: Database, context: Context, session_id: str, branch: str, *, is_session: bool
) -> None:
    """Write a context as a branch of a session. Raises `StaleSession` where commits would be lost."""
    line = context.line
    ref = branch_ref(session_id, branch)
    if line.ref == ref and line.database is database:
        await publish(context)
        return
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


async def _copied(line: Line, database: Database, session_id: str, branch: str) -> Line:
    """Return a detached line on the same commit, in the database it is to be saved to."""
    twin = line.fork_off(branch)
    if line.database is database:
        return twin
    return await in_thread(
        _copy, twin, line.ledger, Line(database, Ledger(database, session_id), session_id, branch)
    )


def _copy(source: Line, delivered: Ledger, target: Line) -> Line:
    assert source.tip is not None
    target.ledger.refresh()
    copy_history(source.objects, target.objects, source.tip, set())
    target.move_to(source.tip)
    target.take_ledger(delivered)
    return target


async def _attach(context: Context, session_id: str, branch: str) -> None:
    line = context.line
    copy = line.fork_off(line.branch)
    if await in_thread(settle_fork, copy):
        context.commits.note_queue()
        line.objects.absorb(copy.objects)  # what was read for the copy, so that nothing is read here
        settle_fork(line)
    if context.commits.working.state is not line.state:
        context.commits.replace_line(line)
    ref = branch_ref(session_id, branch)
    refs = await in_thread(line.database.backend.refs, ref)
    held = refs.get(ref)
    tip = line.seal()
    assert tip is not None
    if held is not None and not is_ancestor(line.objects, held, tip):
        raise StaleSession(
            f"branch {branch!r} of session {session_id!r} holds commits that this context does not "
            f"contain, and saving would lose them: load the branch and merge it first, delete it, "
            f"or save under another name"
        )
    context.commits.attach(session_id, branch, held)
    assert line.record is not None
    if is_cut(ref) and (line.record.session, line.record.branch) != (session_id, branch):
        context.commits.commit_name()
    await publish(context)


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
    found = set()
    refs, damaged = scan_refs(database.backend, "refs/heads/")
    for error in damaged:
        session, branch = parse_ref(error.ref) or (None, None)
        if session is None and (error.ref.endswith(f"/{MAIN}") or not error.ref.startswith("refs/")):
            raise error
        if session is not None and branch == MAIN:
            found.add(session)
    for ref, oid in refs.items():
        if not ref.endswith(f"/{MAIN}"):
            continue
        name = whole_names(database, ref, oid)
        if name is not None and name[1] == MAIN:
            found.add(name[0])
    return sorted(found)


def whole_names(database: Database, ref: str, oid: str) -> tuple[str, str] | None:
    """Return (session, branch) of a ref, `None` for a ledger or a ref that is not ours."""
    parsed = parse_ref(ref)
    if parsed is None or is_ledger_ref(ref):
        return None
    session, branch = parsed
    if session is None or branch is None:
        record = require_record(database, oid, ref)
        return record.session, record.branch
    return session, branch
