"""A stored state rebuilt or summed up, and a session in one file with what replays it."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .._context.context import Context
from .._sessions.service import line_at
from .._sessions.stores import StoreLike, open_database
from .._store import canonical
from .._store._backends.bundle import BundleBackend, is_bundle, reachable, write_bundle
from .._store._history.revset import Head, find_head
from .._store.branch import MAIN, Branch
from .._store.commits import COMMITTER
from .._store.graph import first_parents
from .._store.names import branch_ref, is_ledger_ref, ledger_ref
from .._store.object_db import Database, Staging, blob_entry
from .._store.objects import CommitObject, Oid, Signature
from .._store.protocol import Progress
from .._store.state import State
from ..errors import StoreError, UnknownRevision
from ..interrupt import PendingQuestion, TypedQuestion
from ..outbox import status_of
from ..resources import RuntimeResources
from ..session import SessionStore
from ..threads import in_thread
from ..types.ids import type_id_of
from . import llm as recordings
from .hashes import Finder, View
from .history import session_refs
from .llm import RECORDING_FILE, REPORT_REF, VERSIONS_FILE

# -- state replay: what a session was at any version, read from the commit's tree exactly --


_QUESTIONS = (type_id_of(PendingQuestion), type_id_of(TypedQuestion))


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


def _line(database: Database, head: Head, commit: Oid, ledger: Oid | None) -> Branch:
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
        "failed_actions": len(outbox.failed) + len(outbox.parked),
    }


def _open_questions(state: State) -> int:
    found = 0
    for artifact_id in state.ids_of(_QUESTIONS):
        stored = state.stored(artifact_id)
        assert stored is not None
        question: Any = canonical.decode(state.payload(stored.meta))
        found += not (question["answered"] or question.get("expired"))
    return found


# -- A session in one file --


_PACKAGES = ("reactifact", "anyio", "blake3", "click", "pydantic", "pydantic-core", "pygit2")


@dataclass(frozen=True, slots=True)
class Bundled:
    """What a bundle holds: the refs by name, the number of objects, its size in bytes."""

    refs: dict[str, Oid]
    objects: int
    size: int


def bundle_session(
    database: Database,
    session: str,
    path: str | os.PathLike[str],
    *,
    recording: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Bundled:
    """Write a session with its branches, tags and ledger into one file that git reads too.

    `progress` is called with how many objects were read, and about how many the store holds.
    Raises `UnknownRevision` for a session that is not there, `FileNotFoundError` and `ValueError` for
    a recording that cannot be read, `StoreError` when the disk refuses.
    """
    refs = session_refs(database, session)
    if not refs:
        find_head(database, session)  # raises, naming the sessions there are
    data = None
    if recording is not None:
        with open(recording, "rb") as file:
            data = file.read()
        recordings.parse(data, os.fspath(recording))
    staged = Staging(database)
    refs[REPORT_REF] = _report(staged, session, refs, data)
    tips = [oid for name, oid in refs.items() if name != REPORT_REF]
    objects = reachable(database.backend, tips, progress)
    objects.update(staged.objects)
    head = _head(session, refs)
    listed = {**refs, **({"HEAD": head} if head is not None else {})}
    return Bundled(refs, len(objects), write_bundle(path, listed, objects))


def versions() -> dict[str, Any]:
    """Return what this process runs on: the packages, Python, the platform."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""  # run from a source folder on the path
    return {
        "packages": found,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
    }


def _head(session: str, refs: dict[str, Oid]) -> Oid | None:
    """Return the commit that a clone checks out: the session's own line, else any branch."""
    own = branch_ref(session, MAIN)
    if own in refs:
        return refs[own]
    branches = sorted(name for name in refs if name.startswith("refs/heads/") and not is_ledger_ref(name))
    return refs[branches[0]] if branches else None


def _report(staged: Staging, session: str, refs: dict[str, Oid], recording: bytes | None) -> Oid:
    record: dict[str, Any] = {"session": session, "refs": refs, **versions()}
    files = {VERSIONS_FILE: blob_entry(staged.put("blob", canonical.encode(record)))}
    if recording is not None:
        files[RECORDING_FILE] = blob_entry(staged.put("blob", recording))
    commits = [oid for oid in refs.values() if staged.read(oid).kind == "commit"]
    if not commits:
        raise StoreError(f"session {session!r} has no commit that could be bundled")
    when = max(staged.commit(oid).committer.time for oid in commits)  # equal sessions, equal files
    who = Signature(*COMMITTER, when)
    message = "Report: the recording and the versions of a bundled session\n"
    return staged.put_commit(CommitObject(staged.put_tree(files), (), who, who, message))
