"""A session in one file: its history, its recording, and the versions of everything that made it.

Owns what goes into the bundle of a session and where it stands there. The session's refs keep their
names, so that the file is read like a store; recording and versions are files of one more commit,
under `refs/reactifact/report`, which git carries along.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..errors import StoreError
from ..store import canonical
from ..store.bundle import reachable, write_bundle
from ..store.database import Database, Staging, blob_entry
from ..store.line import MAIN
from ..store.names import branch_ref, is_ledger_ref
from ..store.objects import CommitObject, Oid, Signature
from ..store.records import COMMITTER
from ..store.revisions import find_head
from . import recording as recordings
from .enclosed import RECORDING_FILE, REPORT_REF, VERSIONS_FILE
from .history import session_refs

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
) -> Bundled:
    """Write a session with its branches, tags and ledger into one file that git reads too.

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
    objects = reachable(database.backend, (oid for name, oid in refs.items() if name != REPORT_REF))
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
