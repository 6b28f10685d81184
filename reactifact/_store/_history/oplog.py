"""The operation log of a session: every move of its refs that did not go forward.

A checkout, a compaction, an undo, a branch set back or rewritten. One small blob under
`refs/reactifact/operations/<session>`, the last `LIMIT` entries, the newest last. A turn writes nothing
here: where it began is told by the branch itself. What such moves dropped is kept by
`refs/reactifact/kept/<session>/`, until the log forgets the move, after
`LIMIT` others or when a prune says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ...errors import Contention, MissingObject
from .. import canonical
from ..commits import COMMITTER
from ..graph import not_below
from ..names import encode_name, parse_ref
from ..object_db import Database, Staging
from ..objects import CommitObject, Oid, Signature
from ..protocol import LogsMoves, RefMove, RefUpdate

LIMIT = 32
"""How many operations a session remembers."""

KEPT = "refs/reactifact/kept/"
"""What holds the histories that the logs name: of use in this store alone, and not brought to another."""

_LOGS = "refs/reactifact/operations/"
_COMMITS = "commits"
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what it was, and where each ref it moved stood before and after."""

    kind: str  # checkout, compaction, undo, sync, rewrite (by git); other moves give their own name
    when: str
    text: str
    before: Mapping[str, Oid]
    after: Mapping[str, Oid]
    undone: Mapping[str, Any] | None = None  # the operation of this log that an undo took out of it

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def operations_ref(session: str) -> str:
    """Return the name of the ref of a session's operation log."""
    return _LOGS + encode_name(session)


def kept_refs(session: str) -> str:
    """Return the folder of the refs that hold what the session's log names."""
    return f"{KEPT}{encode_name(session)}/"


def operations(database: Database, session: str) -> list[Operation]:
    """Return what is remembered of a session, the oldest first."""
    return _read(database, database.backend.refs(operations_ref(session)).get(operations_ref(session)))


def _read(database: Database, held: Oid | None) -> list[Operation]:
    if held is None:
        return []
    record: Any = canonical.decode(database.read(held).data)
    return [Operation(**entry) for entry in record["operations"]]


def moved(
    objects: Staging,
    session: str,
    kind: str,
    moves: Mapping[str, tuple[Oid, Oid]],
    when: datetime,
    reason: str,
) -> list[RefUpdate]:
    """Stage that some refs were moved, each from one id to another, by an operation `kind` for a `reason`.

    The moves to write before those of the refs themselves are returned, so that in files, where one ref moves
    after the other, what is dropped is always held. `undo` goes back over it, and says the reason.
    """
    before = {ref: old for ref, (old, _) in moves.items()}
    after = {ref: new for ref, (_, new) in moves.items()}
    return logged(objects, session, Operation(kind, when.isoformat(), reason, before, after))


def logged(objects: Staging, session: str, *made: Operation) -> list[RefUpdate]:
    """Stage the log with more operations, the oldest first, and return the moves of its refs."""
    return _staged(objects, session, lambda known: [*known, *made])


def without(objects: Staging, session: str, taken: Operation, then: Operation | None) -> list[RefUpdate]:
    """Stage the log with one operation taken out and perhaps another added; return the moves of its refs.

    What is done again stands below the undoes that can still be taken back.
    """

    def change(known: list[Operation]) -> list[Operation]:
        left = [one for one in known if one != taken]
        place = len(left)
        while then is not None and then.kind != "undo" and place and left[place - 1].kind == "undo":
            place -= 1
        return left if then is None else [*left[:place], then, *left[place:]]

    return _staged(objects, session, change)


def forget(database: Database, before: datetime) -> int:
    """Forget all operations older than a moment, so that what they dropped is held no more; return how many.

    Raises `Contention` where others write a log as fast as it is changed.
    """
    count = 0
    for ref in database.backend.refs(_LOGS):
        for left in reversed(range(_ATTEMPTS)):
            staged = Staging(database)
            held = database.backend.refs(ref).get(ref)
            known = _read(database, held)
            young = [one for one in known if datetime.fromisoformat(one.when) > before]
            moves = _moves(staged, ref.removeprefix(_LOGS), held, known, young)
            try:
                database.write(staged.objects, moves)
            except Contention:
                if not left:
                    raise
                continue
            count += len(known) - len(young)
            break
    return count


def _staged(
    objects: Staging, session: str, change: Callable[[list[Operation]], list[Operation]]
) -> list[RefUpdate]:
    ref = operations_ref(session)
    held = objects.database.backend.refs(ref).get(ref)
    known = _read(objects.database, held)
    return _moves(objects, encode_name(session), held, known, change(known)[-LIMIT:])


def _moves(
    objects: Staging, folder: str, held: Oid | None, known: list[Operation], entries: list[Operation]
) -> list[RefUpdate]:
    if entries == known:
        return []
    data = canonical.encode({"operations": [entry.to_dict() for entry in entries]})
    log = RefUpdate(_LOGS + folder, held, objects.put("blob", data))
    kept = _kept(objects, f"{KEPT}{folder}/", known, entries)
    return [*(move for move in kept if move.new), log, *(move for move in kept if not move.new)]


def _kept(
    objects: Staging, folder: str, known: Iterable[Operation], entries: Iterable[Operation]
) -> list[RefUpdate]:
    """Return the moves of the refs that hold the dropped histories: one for commits, one for each tag."""
    refs = objects.database.backend.refs(folder)
    own = refs.get(folder + _COMMITS)
    # what an earlier version logged may be gone by now, and was held by nothing
    held = {name.removeprefix(folder) for name in refs} | set(
        () if own is None else objects.commit(own).parents
    )
    old = {oid for entry in known for oid in entry.before.values()}
    wanted = {oid for entry in entries for oid in entry.before.values() if oid in held or oid not in old}
    commits = sorted(oid for oid in wanted if objects.read(oid).kind == "commit")
    made = None
    if commits:
        who = Signature(*COMMITTER, 0)
        tree = objects.put_tree({})
        message = "What moves of this session's branches left behind\n"
        made = objects.put_commit(CommitObject(tree, tuple(commits), who, who, message))
    new = {oid: oid for oid in wanted - set(commits)} | ({} if made is None else {_COMMITS: made})
    names = sorted({name.removeprefix(folder) for name in refs} | new.keys())
    moves = (RefUpdate(folder + name, refs.get(folder + name), new.get(name)) for name in names)
    return [move for move in moves if move.expected != move.new]


# -- moves of a branch that git made and that did not go forward: a forced push, a rewritten history --

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
