"""State replay: what a session was at any version, read from the commit's tree exactly.

Owns `replay_context` and `replay_summary`. Nothing is run, sent or written; the classes of the
artifacts are not needed until their data is asked for.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from ..context import Context
from ..context.interrupts import PendingQuestion
from ..context.outbox_status import status_of
from ..context.resources import RuntimeResources
from ..context.types import type_id_of
from ..errors import UnknownRevision
from ..sessions.session import SessionStore
from ..sessions.snapshots import line_at
from ..sessions.stores import StoreLike, open_database
from ..store import canonical
from ..store.bundle import BundleBackend, is_bundle
from ..store.database import Database
from ..store.history import first_parents
from ..store.line import MAIN, Line
from ..store.names import ledger_ref
from ..store.objects import Oid
from ..store.revisions import Head, find_head
from ..store.state import State
from ..threads import in_thread
from .hashes import Finder, View

_QUESTION = type_id_of(PendingQuestion)


def readable(store: StoreLike) -> Database:
    """Return the database behind a store, a path, a bundle or a backend, for reading alone.

    Raises `NotAStore` where there is none; nothing is created.
    """
    if isinstance(store, SessionStore):
        return store.database
    if isinstance(store, str | os.PathLike) and is_bundle(store):
        return Database(BundleBackend(store))
    return open_database(store, read_only=True)


async def replay_context(
    store: StoreLike,
    session_id: str,
    *,
    version: int | None = None,
    branch: str = MAIN,
    resources: RuntimeResources | None = None,
) -> Context:
    """Return a session as it is, or as it was when it stood at `version`.

    `store` is a `SessionStore`, a path (of a bundle too) or a backend. The state is read from the
    tree of that commit, with the deliveries recorded until the next one; no agent and no dispatcher
    runs. The context is to be looked at: it cannot be saved. Raises `KeyError` for a session or a
    branch that is not there, `ValueError` for a version that it never had or that was compacted.
    """
    return await in_thread(_replay, store, session_id, version, branch, resources)


def _replay(
    store: StoreLike, session_id: str, version: int | None, branch: str, resources: RuntimeResources | None
) -> Context:
    database = readable(store)
    try:
        head = find_head(database, session_id, branch)
    except UnknownRevision as error:
        raise KeyError(str(error)) from error
    return context_of(database, head, version, resources)


def context_of(
    database: Database, head: Head, version: int | None = None, resources: RuntimeResources | None = None
) -> Context:
    """Return the state of a branch at a version (`None`: as it is). Raises `ValueError`."""
    commit, ledger = commit_of(database, head, version)
    return Context.over(_line(database, head, commit, ledger), resources)


def view_of(database: Database, head: Head, version: int | None, find: Finder) -> View:
    """Return the same without a context, so that no class is needed. Raises `ValueError`."""
    commit, ledger = commit_of(database, head, version)
    return View.at(_line(database, head, commit, ledger), find)


def _line(database: Database, head: Head, commit: Oid, ledger: Oid | None) -> Line:
    """Return the line on a commit under the name that it has in the store now."""
    line = line_at(database, commit, ledger=ledger)
    line.session, line.branch = head.session, head.branch
    return line


def commit_of(database: Database, head: Head, version: int | None) -> tuple[Oid, Oid | None]:
    """Return the commit of a version, and the commit of the ledger that belongs to it.

    That is the last one before the next commit of the branch: what was delivered while the branch
    stood there. Raises `ValueError` for a version that is not in the history.
    """
    ledger = database.backend.refs(ledger_ref(head.session)).get(ledger_ref(head.session))
    if version is None:
        return head.commit, ledger
    newest, baseline = None, 0
    for oid, record in first_parents(database, head.commit):
        if record is None:
            continue
        if newest is None:
            newest, baseline = record.version, record.baseline
        if record.context_version == version or (version == 0 and record.kind == "root"):
            return oid, ledger
        ledger = record.ledger
    if 0 <= version < baseline:
        raise ValueError(
            f"version {version} of {head.name} lies below its compaction baseline, version {baseline}: "
            f"choose {baseline} to {newest or 0}"
        )
    raise ValueError(f"{head.name} has no version {version}: choose 0 to {newest or 0}")


def replay_summary(context: Context) -> dict[str, Any]:
    """Return what a state holds, in numbers: artifacts by type, relations, questions, actions."""
    return summary_of(View.of(context), context.resources.clock.now())


def summary_of(view: View, now: datetime) -> dict[str, Any]:
    """Return the same of a view."""
    line, working, _ = view
    state = working.state
    by_type: dict[str, int] = {}
    for type_id in state.type_ids():
        name = view.class_name(type_id)
        by_type[name] = by_type.get(name, 0) + len(state.ids_of([type_id]))
    outbox = status_of(
        state,
        working.ledger,
        session=line.session,
        branch=line.branch,
        now=now,
    )
    return {
        "version": line.version,
        "artifacts": sum(by_type.values()),
        "by_type": dict(sorted(by_type.items())),
        "relations": len(working.relations()),
        "pending_questions": _open_questions(state),
        "pending_actions": len(outbox.pending),
        "dispatched_actions": outbox.dispatched,
        "failed_actions": len(outbox.failed),
    }


def _open_questions(state: State) -> int:
    found = 0
    for artifact_id in state.ids_of([_QUESTION]):
        stored = state.stored(artifact_id)
        assert stored is not None
        question: Any = canonical.decode(state.payload(stored.meta))
        found += not question["answered"]
    return found
