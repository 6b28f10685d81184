"""Going on after somebody else compacted: unpublished commits are linked onto the rewritten history.

Owns the two cases: a branch whose ref holds its own last commit, rewritten or as it is (`follow`), and a fork
without a ref whose history the store may give up (`settle_fork`). Nothing is merged here: the commits
below are the same changes.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import MissingObject, StaleSession
from .changes import ChangeGraph, compactions_of, joined_compactions
from .kept_versions import VersionKeeper
from .layout import BOOKKEEPING
from .line import Line
from .migrations import RECORD_FILE, current_tree
from .names import branch_ref, is_ledger_ref
from .objects import TREE_MODE, Oid, TreeEntry
from .records import CommitRecord, own_record, read_roots, require_record, state_hash
from .trees import Path, update


def follow(line: Line) -> bool:
    """Go on from what the ref holds, where that is our own: a commit rewritten, or a write that got through.

    A write may have moved the ref and failed afterwards. Returns false, with nothing changed, where it is
    neither: then somebody else has written.
    """
    if line.ref is None:
        return False
    held = line.database.backend.refs(line.ref).get(line.ref)
    if held is None or held == line.published:
        return False
    if _is_staged(line, held):
        line.published, line.is_unsure = held, True
        return True
    if line.published is None:
        return False
    try:
        ours, theirs = own_record(line.objects, line.published), own_record(line.database, held)
        if ours is None or theirs is None or ours.change != theirs.change:
            return False
        return _relink(line, line.published, held)
    except MissingObject:
        return False  # what our commits stand on was collected meanwhile


def _is_staged(line: Line, commit: Oid) -> bool:
    """Tell whether a commit is one of those that the line has made and not heard of as written."""
    oid = line.tip
    while oid is not None and oid in line.objects.objects:
        if oid == commit:
            return True
        parents = line.objects.commit(oid).parents
        oid = parents[0] if parents else None
    return False


def require_current(line: Line) -> None:
    """Raise `StaleSession` when somebody else wrote the branch; go on as `follow` does where nobody did."""
    try:
        line.require_current()
    except StaleSession:
        if not follow(line):
            raise


def settle_fork(line: Line) -> bool:
    """Make sure that the store will hold what a fork stands on, though it was compacted meanwhile.

    The fork is linked onto its fork point where that was kept; else the old history is written
    with it. Returns whether there was anything to do. Raises `StaleSession` when it was collected already.
    """
    try:
        return _settle_fork(line)
    except MissingObject as error:
        raise StaleSession(
            f"the history that fork {line.branch!r} of session {line.session!r} stands on was compacted and "
            f"removed by `git gc` or a prune before the fork was saved: fork the branch again ({error})"
        ) from error


def _settle_fork(line: Line) -> bool:
    tip = line.seal()
    if tip is None:
        return False
    prefix = branch_ref(line.session, "x").rpartition("/")[0] + "/"
    heads = [oid for name, oid in line.database.backend.refs(prefix).items() if not is_ledger_ref(name)]
    own = compactions_of(line.objects, tip)
    if all(compactions_of(line.database, head) == own for head in heads):
        return False
    base: Oid | None = tip
    while base is not None and base in line.objects.objects:
        parents = line.objects.commit(base).parents
        base = parents[0] if parents else None
    if base is None:
        return False
    graph = ChangeGraph(line.database, heads, is_complete=False)
    record = own_record(line.objects, base)
    kept = None if record is None else graph.changes.get(record.change)
    if kept is not None and kept.commit != base:
        if base == tip:
            line.stand_on(kept.commit, line.published)
        else:
            _relink(line, base, kept.commit)
    elif kept is None:
        _stage_all(line, base)
    else:
        return False
    return True


def _relink(line: Line, old: Oid, new: Oid) -> bool:
    """Make the commits above `old` anew above `new`, which is the same change."""
    objects = line.objects
    above: list[Oid] = []
    oid = line.seal()
    while oid is not None and oid != old:
        above.append(oid)
        parents = objects.commit(oid).parents
        oid = parents[0] if parents else None
    if oid is None:
        return False
    keeper = VersionKeeper(objects, None)
    keeper.know(old, read_roots(objects, old), read_roots(objects, new).versions)
    line_below, parent = old, new
    record = require_record(objects, new, "a commit that was compacted")
    for commit in reversed(above):
        roots = read_roots(objects, commit)
        versions = keeper.versions(commit, roots, line=line_below, others=None)
        record = _above(require_record(objects, commit, "a commit of ours"), record)
        edits: dict[Path, TreeEntry | None] = {
            (BOOKKEEPING, "versions"): None if versions is None else TreeEntry(TREE_MODE, versions),
            (BOOKKEEPING, RECORD_FILE): None,  # of format 1
        }
        found = objects.commit(commit)
        tree = update(objects, current_tree(objects, commit), edits)
        assert tree is not None
        line_below = commit
        parents = (parent, *found.parents[1:])
        header = record.header(tree, parents, state_hash(roots))
        parent = objects.put_commit(replace(found, tree=tree, parents=parents, record=header))
    line.tip, line.record = parent, record
    line.state.roots = line.state.roots._replace(versions=read_roots(objects, parent).versions)
    if line.published == old:
        line.published = new
    return True


def _above(record: CommitRecord, below: CommitRecord) -> CommitRecord:
    return replace(
        record,
        baseline=below.baseline,
        compactions=joined_compactions([below.compactions, record.compactions])
        if record.kind == "merge"
        else below.compactions,
    )


def _stage_all(line: Line, start: Oid) -> None:
    """Stage all that a commit reaches, so that the next write holds it."""
    seen: set[Oid] = set()
    waiting = [start]
    while waiting:
        oid = waiting.pop()
        if oid in seen:
            continue
        seen.add(oid)
        found = line.objects.read(oid)
        line.objects.put(found.kind, found.data)
        if found.kind == "commit":
            commit = line.objects.commit(oid)
            waiting += [commit.tree, *commit.parents]
        elif found.kind == "tree":
            waiting += [entry.oid for entry in line.objects.tree(oid).values()]
