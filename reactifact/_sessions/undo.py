"""Taking back: what was done last to a branch (undo, redo), or one generation by a commit on top (revert).

Where a turn began is told by the branch itself: its commits carry one run id. What did not go forward, an
undo included, stands in the session's operation log, with where each ref was before: it is gone back to as
long as no prune has let go of that. The ledger is never rewound: what was delivered stays
delivered, and is not sent again when it is planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from .._context.commit import Committer
from .._context.context import Context
from .._context.merge import check_plan, check_step, prepare_revert
from .._context.push import publish, run_lock
from .._context.rebase import write_adopted
from .._context.reset import go_back
from .._store._history.adoption.tree import roots_at
from .._store._history.log import Entry, entry, find_point
from .._store._history.oplog import Operation, operations, without
from .._store._history.squash import require_free
from .._store.branch import MAIN, Branch
from .._store.commits import CommitRecord, read_roots
from .._store.graph import first_parents
from .._store.index import Indexes
from .._store.layout import Roots
from .._store.names import plain
from .._store.object_db import Database, Objects, Staging
from .._store.objects import TREE_MODE, GitObject, Oid, tag_target
from .._store.protocol import RefUpdate
from .._store.state import State
from ..clock import SystemClock
from ..errors import MissingObject, StoreError, UnknownRevision
from ..merging import Policy, check_policy, conflict, preview
from ..resources import RuntimeResources
from ..threads import in_thread
from . import verbs


def undo_last(
    database: Database, session: str, branch: str = MAIN, resources: RuntimeResources | None = None
) -> str:
    """Undo what was done last to a branch, in the store, and return what that was.

    A turn, merge or edit is dropped with all it committed; direct changes that it did not touch stay,
    and the queue is again what it was before. A checkout is undone where the branch has not moved since,
    a compaction for each branch that has not. Runs under the branch's run lock. The guard rails of
    `resources` are asked about what the branch holds then instead. Raises `UnknownRevision`
    for a branch that does not exist, `StoreError` when there is nothing to undo, `ProtectedBranch`,
    `SessionBusy`, `StaleSession`.
    """
    with _held(database, "undo", session, branch) as line:
        done = _leading_to(database, line)
        last = next((operation for operation in done if operation.kind != "undo"), None)
        if last is None:
            _refuse_over_checkout(database, line)
            return _undo_versions(line, resources)
        note = Operation("undo", SystemClock().now().isoformat(), last.text, {}, {}, last.to_dict())
        count = _go_to_before(line, last, note, resources)
        if last.kind == "compaction":
            return f"the compaction of {count} ref{'s' * (count != 1)}"
        return last.text


def redo_last(
    database: Database, session: str, branch: str = MAIN, resources: RuntimeResources | None = None
) -> str:
    """Take back the last undo of a branch that has not moved since; return what is done again.

    Every ref that the undo moved, and that has not moved since, stands where it stood before. Runs as
    `undo_last` does, and raises what it raises.
    """
    with _held(database, "redo", session, branch) as line:
        last = next(_leading_to(database, line), None)
        if last is None or last.kind != "undo":
            raise StoreError(
                f"branch {branch!r} of session {session!r} has nothing to redo: an undo can be taken back "
                f"until the branch moves on"
            )
        then = None if last.undone is None else Operation(**last.undone)
        _go_to_before(line, last, then, resources)
        return last.text


@contextmanager
def _held(database: Database, verb: str, session: str, branch: str) -> Iterator[Branch]:
    """Lend a branch, read under its run lock."""
    database.protection.require_free(verb, session, branch)
    with database.backend.lock(f"run {session}/{branch}"):
        write_adopted(database, session, branch)
        line = Branch.load(database, session, branch)
        if line is None:
            raise UnknownRevision(
                f"session {session!r} has no branch {branch!r}, so nothing can be {_done(verb)}"
            )
        line.write_moves_by_git()
        yield line


def _done(verb: str) -> str:
    return "undone" if verb == "undo" else "redone"


def _leading_to(database: Database, line: Branch) -> Iterator[Operation]:
    """Yield the operations that brought a branch to where it stands, the last first."""
    standing = _standing(line)
    for operation in reversed(operations(database, line.session)):
        if operation.after.get(line.ref or "") in standing:
            yield operation


def _standing(line: Branch) -> list[Oid]:
    """Return where a branch stands: its tip, and what is below notes of its queue or adopted by it."""
    found: list[Oid] = []
    for oid, record in first_parents(line.objects, line.tip):
        found.append(oid)
        if record is None or record.kind not in ("queue", "adopt"):
            break
    return found


def _refuse_over_checkout(database: Database, line: Branch) -> None:
    """Refuse where the last thing done is a checkout with commits on top that undoing it would lose."""
    led_to = {
        operation.after.get(line.ref or ""): operation
        for operation in operations(database, line.session)
        if operation.kind == "checkout"
    }
    for oid, record in first_parents(line.objects, line.tip) if led_to else ():
        if record is None or record.version != line.version:
            return
        if oid in led_to:
            last = led_to[oid]
            raise StoreError(
                f"{last.text} was done last to branch {line.branch!r} of session {line.session!r}, and it "
                f"cannot be undone, because direct changes came after it: to have both, fork "
                f"{last.before[line.ref or ''][:12]} with BranchStore.fork, and merge"
            )


# -- turns, merges, edits ------------------------------------------------------------------------


def _undo_versions(line: Branch, resources: RuntimeResources | None) -> str:
    last = _last_versions(line)
    if not last:
        where = f"; it was compacted at version {line.baseline}" if line.baseline else ""
        raise StoreError(f"branch {line.branch!r} of session {line.session!r} has nothing to undo{where}")
    newest, oldest = last[0], last[-1]
    what = _phrase(newest, len(last))
    queue = _queue_before(line, oldest)
    context = Context.over(line, resources)
    before = line.state.roots
    go_back(context.commits, oldest.version - 1, f"reactifact: undo {what}", newest.run_id)
    commits = context.commits
    check_step(commits.working, before, commits.line.state.roots, commits.resources, commits.principal)
    context.commits.restart_queue(queue)
    context.commits.hold([])
    context.commits.note_queue()
    line.note_move("undo", SystemClock().now(), what)
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
            return roots_at(line.objects, commit).queue
    return None


def _is_of(record: CommitRecord, run_id: str) -> bool:
    return bool(run_id) and record.run_id == run_id


def _phrase(newest: CommitRecord, count: int) -> str:
    commits = f"{count} commit{'s' * (count != 1)}"
    if newest.kind == "agent":
        run = f" of run {newest.run_id}" if newest.run_id else ""
        return f"the turn{run} ({commits})"
    return f"the {'merge' if newest.kind == 'merge' else 'edit'} that made version {newest.version}"


# -- what stands in the log ----------------------------------------------------------------------


def _go_to_before(
    line: Branch, last: Operation, then: Operation | None, resources: RuntimeResources | None
) -> int:
    """Bring the refs that an operation moved back, and take it out of the log; return their number.

    Refs that have moved since stay where they are. `then` is added to the log; of an undo, what it moved.
    """
    verb = "redo" if last.kind == "undo" else "undo"
    database, session = line.database, line.session
    refs = database.backend.refs()
    back = [
        RefUpdate(name, refs[name], last.before[name])
        for name, after in last.after.items()
        if refs.get(name) == (line.published if name == line.ref else after)
    ]
    branches = {move.name: move.expected for move in back if move.name.startswith("refs/heads/")}
    what = f"{verb} the {last.kind} of"
    require_free(database, what, {name: oid for name, oid in branches.items() if oid})
    objects = _dropped_objects(database, back, f"{last.text} cannot be {_done(verb)}")
    commits = Context.over(line, resources).commits
    for move in back:
        if move.name in branches and move.expected and move.new:
            here, there = (roots_at(line.objects, oid) for oid in (move.expected, move.new))
            check_step(commits.working, here, there, commits.resources, commits.principal)
    if then is not None and then.kind == "undo":
        before = {move.name: move.expected for move in back if move.expected}
        then = replace(then, before=before, after={move.name: move.new for move in back if move.new})
    staged = Staging(database)
    log = without(staged, session, last, then)
    database.write({**objects, **staged.objects}, [*log, *back])
    return len(back)


def _dropped_objects(database: Database, moves: Iterable[RefUpdate], trouble: str) -> dict[Oid, GitObject]:
    """Return the objects that only the history from before an operation reaches.

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
            f"{trouble}: what was dropped then was removed by `git gc` or a prune (object "
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


# -- reverting: one generation taken back as a commit of its own on top, whatever came after it --
#
# What is compared, and what becomes of a conflict, is a merge's (`_context/merge`).

Commits = Sequence[tuple[Oid, CommitRecord | None]]


async def revert(
    database: Database,
    branch: str,
    revision: str,
    *,
    session: str | None = None,
    policy: Policy | None = None,
    message: str | None = None,
    resources: RuntimeResources | None = None,
) -> Entry | None:
    """Take back, on a branch, the generation (or edit, merge, direct change) that a revision belongs to.

    Returns the commit that does, `None` where nothing of it is left to take back. Raises `MergeConflict`
    where what it wrote was changed since, `UnknownRevision`, `StoreError`, `SessionBusy`, `StaleSession`;
    nothing is written then.
    """
    check_policy(policy)
    head = await in_thread(verbs.named_branch, database, branch, session)
    context = await verbs.loaded(database, head, resources)
    async with run_lock(context.line, context.resources.clock):
        context = await verbs.loaded(database, head, resources)
        commits, before = await in_thread(_generation, context, revision, head.session, head.branch)
        change = context.line.change
        _apply(context.commits, commits, before, policy, message)
        if context.line.change == change:
            return None
        await publish(context)
    assert context.line.tip is not None
    return await in_thread(entry, database, context.line.tip)


def _apply(
    commits: Committer, undone: Commits, before: Oid | None, policy: Policy | None, message: str | None
) -> None:
    line = commits.line
    roots = read_roots(line.objects, before) if before is not None else Roots()
    planned = prepare_revert(line, undone[-1][0], roots, policy)
    shown = preview(planned.objects, planned.plan)
    if shown.details:
        raise conflict(list(shown.details), f"the revert of {undone[-1][0][:12]}")
    if planned.plan.is_empty:
        return
    check_plan(planned, commits.working, commits.resources, commits.principal)
    planned.stage_combined(line)
    then = State(Staging(line.objects), roots, 0, Indexes())
    changes = [record.change for _, record in undone if record is not None]
    commits.commit_revert(planned.plan, then, message or _revert_phrase(undone), changes)


def _revert_phrase(undone: Commits) -> str:
    oid, record = undone[-1]
    if record is not None and record.generation:
        return f"Revert generation {record.generation} of run {record.run_id[:12]}"
    return f"Revert {record.kind if record is not None else 'commit'} {oid[:12]}"


def _generation(context: Context, revision: str, session: str, branch: str) -> tuple[Commits, Oid | None]:
    """Return the commits of the generation that a revision belongs to, oldest first, and what is before."""
    line = context.line
    point = find_point(line.database, revision, session=session, branch=branch)
    oid, record = point.entry.commit, point.entry.record
    own = list(first_parents(line.objects, line.tip))[::-1]
    places = [place for place, (one, _) in enumerate(own) if one == oid]
    if not places:
        raise UnknownRevision(
            f"commit {oid[:12]} ({plain(revision)}) is not on the line of branch {branch!r} of session "
            f"{session!r}: revert the merge that brought it in, or the commit on its own branch"
        )
    if record is None or record.kind == "root" or (0 < record.version <= line.baseline):
        what = "was folded by a compaction" if record is not None and record.version else "begins the branch"
        raise StoreError(f"commit {oid[:12]} ({plain(revision)}) {what} and cannot be reverted")
    first = last = places[0]
    if record.generation:
        while last + 1 < len(own) and _belongs(own[last + 1 :], record):
            last += 1
        while first > 0 and _is_of_generation(own[first - 1][1], record):
            first -= 1
    return own[first : last + 1], own[first - 1][0] if first else None


def _belongs(rest: Commits, record: CommitRecord) -> bool:
    """Tell whether the next commit, or one after direct changes of the run, is of the same generation."""
    for _, found in rest:
        if found is None or found.run_id != record.run_id:
            return False
        if found.generation:
            return found.generation == record.generation
    return False


def _is_of_generation(found: CommitRecord | None, record: CommitRecord) -> bool:
    """Tell whether a commit is of a generation, or holds what its executions changed directly."""
    return (
        found is not None
        and found.run_id == record.run_id
        and (found.generation == record.generation or (found.kind == "direct" and not found.generation))
    )
