"""Moves of a branch that git made and that did not go forward: a forced push, a rewritten history, a reset.

Owns how the notes that git keeps of its moves become operations of a session's log.
"""

from __future__ import annotations

from ...errors import MissingObject
from ..graph import not_below
from ..names import parse_ref
from ..object_db import Database
from ..objects import Oid
from ..protocol import LogsMoves, RefMove
from .oplog import LIMIT, Operation, operations

KIND = "rewrite"


def moves_by_git(database: Database, session: str, ref: str, tip: Oid) -> list[Operation]:
    """Return how git moved a branch to its tip, as far as that was not forward and no log says so yet.

    What a move left behind and is not there any more, after a `git gc`, cannot be gone back to, and is left
    out. Costs one look at a file where git moved nothing.
    """
    found: list[tuple[Oid, RefMove]] = []
    for move in _leading_to(database, ref, tip):
        if not _is_there(database, move.old):
            found.clear()
        elif not _is_forward(database, move):
            found.append((move.new, move))
        elif found:
            found[-1] = (move.new, found[-1][1])
    if not found:
        return []
    known = {(one.before.get(ref), one.after.get(ref)) for one in operations(database, session)}
    return [
        Operation(KIND, move.when.isoformat(), _text(ref, move.old, after), {ref: move.old}, {ref: after})
        for after, move in found
        if move.old != after and (move.old, after) not in known
    ]


def _leading_to(database: Database, ref: str, tip: Oid) -> list[RefMove]:
    """Return the moves of git, one after another, that ended at the tip of a branch, the oldest first."""
    backend = database.backend
    if not isinstance(backend, LogsMoves):
        return []
    found: list[RefMove] = []
    stands = tip
    for move in reversed(backend.moves_by_git(ref)):
        if move.new != stands or not move.old.strip("0") or len(found) == LIMIT:
            break
        found.append(move)
        stands = move.old
    return found[::-1]


def _is_there(database: Database, oid: Oid) -> bool:
    try:
        return database.read(oid).kind == "commit"
    except MissingObject:
        return False


def _is_forward(database: Database, move: RefMove) -> bool:
    try:
        return next(not_below(database, move.old, move.new), None) is None
    except MissingObject:
        return True  # half of it is gone, so it cannot be gone back to


def _text(ref: str, old: Oid, new: Oid) -> str:
    session, branch = parse_ref(ref) or (None, None)
    name = ref.removeprefix("refs/heads/") if session is None else f"{session}/{branch}"
    return f"the move of {name} with git from {old[:12]} to {new[:12]}"
