"""A context as one dictionary of plain JSON types, and back.

Owns `to_dict` and `from_dict` of `Context`, and the checkpoints that hold such a dictionary.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .._store._backends.document import checked_document, decode_object, encode_object, new_document, reach
from .._store._backends.kv import MemoryBackend
from .._store.branch import MAIN, Branch
from .._store.ledger import Ledger
from .._store.names import branch_ref, ledger_ref
from .._store.object_db import Database
from .._store.protocol import RefUpdate
from ..checkpoints import CheckpointBackend, FileBackend
from ..errors import NotAStore
from .commit import Committer

CheckpointLike = str | os.PathLike[str] | CheckpointBackend
"""The path of a JSON file, or a backend."""

_WHERE = "the dictionary of a context"


def to_dict(commits: Committer) -> dict[str, Any]:
    """Return the document of a context. Direct changes become a commit, as with a save."""
    commits.begin()
    commits.note_queue()
    line = commits.line
    tip, ledger = line.seal(), line.ledger.tip
    assert tip is not None
    refs = {branch_ref(line.session, line.branch): tip}
    found = reach(line.objects, [tip])
    if ledger is not None:
        refs[ledger_ref(line.session)] = ledger
        found |= reach(line.ledger.staged, [ledger], found)
    texts = {oid: encode_object(item) for oid, item in found.items()}
    document = new_document(line.session, refs, texts)
    document["branch"] = line.branch
    document["is_session"] = line.is_session
    document["fork"] = line.fork
    return document


def line_of(document: Mapping[str, Any]) -> Branch:
    """Return the line of a document, over a store in memory.

    Raises `FormatTooNew`, `NotAStore`, `StoreError` for a damaged object, `MissingObject`.
    """
    document = checked_document(document, _WHERE)
    session, branch = document.get("session"), document.get("branch", MAIN)
    if not isinstance(session, str) or not isinstance(branch, str):
        raise NotAStore(f"{_WHERE} names no session or no branch: it was changed by hand, or cut short")
    refs = document["refs"]
    tip, delivered = refs.get(branch_ref(session, branch)), refs.get(ledger_ref(session))
    if tip is None:
        raise NotAStore(f"{_WHERE} of session {session!r} holds no branch {branch!r}")
    texts = document["objects"].items()
    objects = {oid: decode_object(oid, text, _WHERE) for oid, text in texts}
    backend = MemoryBackend()
    backend.write(objects, [RefUpdate(ledger_ref(session), None, delivered)] if delivered else [])
    database = Database(backend)
    ledger = Ledger(database, session)
    ledger.refresh()
    line = Branch(database, ledger, session, branch)
    line.move_to(tip)
    line.fork = document.get("fork")
    return line


def checkpoint(place: CheckpointLike) -> CheckpointBackend:
    """Return the backend that a path or a backend means. Raises `TypeError` for anything else."""
    if isinstance(place, CheckpointBackend):
        return place
    if isinstance(place, str | os.PathLike):
        return FileBackend(place)
    raise TypeError(
        f"a checkpoint is kept at a path or by a CheckpointBackend such as FileBackend(path), not "
        f"{type(place).__name__}"
    )
