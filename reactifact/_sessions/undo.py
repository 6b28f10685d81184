"""Undoing what was done last to a branch: a turn, a merge, an edit, or a compaction.

Where a turn began is told by the branch itself: its commits carry one run id. A compaction is undone from
the session's operation log, as long as neither `git gc` nor a prune has removed what it folded. The ledger
is never rewound: what was delivered stays delivered, and is not sent again when it is planned again.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._context.context import Context
from .._context.reset import go_back
from .._store._history.squash import Operation, operations, require_free, without
from .._store.branch import MAIN, Branch
from .._store.commits import CommitRecord, read_roots
from .._store.graph import first_parents
from .._store.object_db import Database, Objects, Staging
from .._store.objects import TREE_MODE, GitObject, Oid, tag_target
from .._store.protocol import RefUpdate
from ..clock import SystemClock
from ..errors import MissingObject, StoreError, UnknownRevision


def undo_last(database: Database, session: str, branch: str = MAIN) -> str:
    """Undo what was done last to a branch, in the store, and return what that was.

    A turn, merge or edit is dropped with all it committed; direct changes that it did not touch stay,
    and the queue is again what it was before. A compaction is undone for each branch that has not
    moved since. Runs under the branch's run lock. Raises `UnknownRevision` for a branch that does not
    exist, `StoreError` when there is nothing to undo, `ProtectedBranch`, `SessionBusy`, `StaleSession`.
    """
    database.protection.require_free("undo", session, branch)
    with database.backend.lock(f"run {session}/{branch}"):
        line = Branch.load(database, session, branch)
        if line is None:
            raise UnknownRevision(f"session {session!r} has no branch {branch!r}, so nothing can be undone")
        operation = _compaction_to(database, line)
        if operation is not None:
            return _undo_compaction(database, session, operation)
        return _undo_versions(line)


def _compaction_to(database: Database, line: Branch) -> Operation | None:
    """Return the compaction that brought a branch to where it stands, if that was the last thing done."""
    for operation in reversed(operations(database, line.session)):
        if operation.kind == "compaction" and operation.after.get(line.ref or "") == line.published:
            return operation
    return None


# -- turns, merges, edits ------------------------------------------------------------------------


def _undo_versions(line: Branch) -> str:
    last = _last_versions(line)
    if not last:
        where = f"; it was compacted at version {line.baseline}" if line.baseline else ""
        raise StoreError(f"branch {line.branch!r} of session {line.session!r} has nothing to undo{where}")
    newest, oldest = last[0], last[-1]
    what = _phrase(newest, len(last))
    queue = _queue_before(line, oldest)
    context = Context.over(line)
    go_back(context.commits, oldest.version - 1, f"reactifact: undo {what}", newest.run_id)
    context.commits.restart_queue(queue)
    context.commits.hold([])
    context.commits.note_queue()
    line.publish()
    return what


def _last_versions(line: Branch) -> list[CommitRecord]:
    """Return the versioned commits of what was done last, the newest first."""
    found: list[CommitRecord] = []
    for _, record in first_parents(line.objects, line.tip):
        if record is None or record.version <= line.baseline:
            break
        if record.context_version is None:
            continue
        is_same_turn = record.kind == "agent" and bool(record.run_id)
        if found and not (is_same_turn and record.run_id == found[0].run_id):
            break
        found.append(record)
        if not is_same_turn:
            break
    return found


def _queue_before(line: Branch, oldest: CommitRecord) -> Oid | None:
    """Return the queue that the newest commit before a turn left."""
    for commit, record in first_parents(line.objects, line.tip):
        if record is not None and record.version < oldest.version and not _is_of(record, oldest.run_id):
            return read_roots(line.objects, commit).queue
    return None


def _is_of(record: CommitRecord, run_id: str) -> bool:
    return bool(run_id) and record.run_id == run_id


def _phrase(newest: CommitRecord, count: int) -> str:
    commits = f"{count} commit{'s' * (count != 1)}"
    if newest.kind == "agent":
        run = f" of run {newest.run_id}" if newest.run_id else ""
        return f"the turn{run} ({commits})"
    return f"the {'merge' if newest.kind == 'merge' else 'edit'} that made version {newest.version}"


# -- compactions ---------------------------------------------------------------------------------


def _undo_compaction(database: Database, session: str, operation: Operation) -> str:
    refs: dict[str, str] = {}
    for name in operation.after:
        refs.update(database.backend.refs(name))
    back = [
        RefUpdate(name, after, operation.before[name])
        for name, after in operation.after.items()
        if refs.get(name) == after
    ]
    branches = {move.name: move.expected for move in back if move.name.startswith("refs/heads/")}
    require_free(database, "undo the compaction of", {n: oid for n, oid in branches.items() if oid})
    objects = _folded_objects(database, back)
    staged = Staging(database)
    now = SystemClock().now().isoformat()
    note = Operation(
        kind="undo",
        when=now,
        text=operation.text,
        before={move.name: move.expected for move in back if move.expected},
        after={move.name: move.new for move in back if move.new},
    )
    log = without(staged, session, operation, note)
    database.write({**objects, **staged.objects}, [*back, log])
    return f"the compaction of {len(back)} ref{'s' * (len(back) != 1)}"


def _folded_objects(database: Database, moves: Iterable[RefUpdate]) -> dict[Oid, GitObject]:
    """Return the objects that only the history from before a compaction reaches.

    They are written again, so that a `git gc` meanwhile cannot take half of them. Raises
    `StoreError` when some are gone.
    """
    moves = list(moves)
    present: set[Oid] = set()
    for move in moves:
        if move.expected is not None:
            _walk(database, move.expected, present, None)
    found: dict[Oid, GitObject] = {}
    try:
        for move in moves:
            if move.new is not None:
                _walk(database, move.new, present, found)
    except MissingObject as error:
        raise StoreError(
            f"the compaction cannot be undone: what it folded was removed by `git gc` or a prune (object "
            f"{error.oid[:12]} is gone); restore a backup or a clone if it is needed"
        ) from error
    return found


def _walk(objects: Objects, start: Oid, seen: set[Oid], found: dict[Oid, GitObject] | None) -> None:
    """Visit all that a commit or a tag reaches; with `found`, read and note every object."""
    waiting = [start]
    while waiting:
        oid = waiting.pop()
        if oid in seen:
            continue
        seen.add(oid)
        item = objects.read(oid)
        if found is not None:
            found[oid] = item
        if item.kind == "commit":
            commit = objects.commit(oid)
            waiting += [commit.tree, *commit.parents]
        elif item.kind == "tag":
            waiting.append(tag_target(item.data))
        elif item.kind == "tree":
            for entry in objects.tree(oid).values():
                if entry.mode == TREE_MODE or found is not None:
                    waiting.append(entry.oid)
                else:
                    seen.add(entry.oid)
