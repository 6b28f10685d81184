"""Compacting a line, and with it the session it belongs to: refs, tags, notes, the line itself.

Owns which refs are rewritten and that they move in one write. What stays of the history is
`compaction`'s. In files the refs move one after another: a kill between leaves some branches rewritten
and others not, each whole, and they still merge, because changes are compared then (`changes`);
compacting again brings them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ..errors import Contention
from .changes import ChangeGraph
from .compaction import choose, rewrite
from .database import Database, Objects, Staging
from .document_backend import DocumentBackend
from .line import Line
from .names import branch_ref, is_ledger_ref, parse_ref, tag_ref
from .objects import CommitObject, Oid, Signature, TreeEntry
from .oplog import Operation, logged
from .protocol import CachesHistory, RefUpdate
from .records import COMMITTER, read_record
from .relinking import require_current
from .trees import update, walk

_ATTEMPTS = 8
_NOTES = "refs/notes/"


@dataclass(slots=True)
class _Refs:
    """The refs of a session that a compaction rewrites."""

    branches: dict[str, Oid] = field(default_factory=dict)
    tags: dict[str, Oid] = field(default_factory=dict)
    targets: dict[str, Oid] = field(default_factory=dict)  # tag -> the commit it stands for


def compact(line: Line, keep_commits: int, keep_versions: int | None, when: datetime) -> int:
    """Squash all but the last versions of a line, and of every branch of its session.

    A line without a ref is rewritten alone, in memory; so is one over a user's own backend, which
    can only be waited for: it follows at the next save. What is not published goes to the store
    with it. Returns how many versions of this line were folded. Raises `ValueError` for a negative
    number, `ProtectedBranch`, and `StaleSession` when somebody else wrote the branch.
    """
    if keep_commits < 0:
        raise ValueError(f"keep_commits={keep_commits}: give 0 or more")
    if keep_versions is not None and keep_versions < 0:
        raise ValueError(f"keep_versions={keep_versions}: give 0 or more, or None to keep all")
    tip = line.seal()
    if tip is None:
        return 0
    before = line.baseline
    if line.ref is None or isinstance(line.database.backend, DocumentBackend):
        if line.ref is not None:
            line.database.protection.require_free("compact", line.session, line.branch)
        _rewrite_alone(line, tip, keep_commits, keep_versions)
    else:
        _rewrite_session(line, line.ref, tip, keep_commits, keep_versions, when)
    return line.baseline - before


def _rewrite_alone(line: Line, tip: Oid, keep_commits: int, keep_versions: int | None) -> None:
    graph = ChangeGraph(line.objects, [tip])
    choice = choose(graph, [tip], [], keep_commits)
    done = rewrite(line.objects, graph, choice, keep_versions)
    line.stand_on(done.of(tip), line.published)


def _rewrite_session(
    line: Line, own: str, tip: Oid, keep_commits: int, keep_versions: int | None, when: datetime
) -> None:
    database = line.database
    line.ledger.write()
    for attempt in range(_ATTEMPTS):
        require_current(line)
        tip = line.tip or tip
        refs = _session_refs(database, line.session)
        require_free(database, "compact", refs.branches)
        refs.branches[own] = tip
        staged = line.objects.copy()
        graph = ChangeGraph(staged, [*refs.branches.values(), *refs.targets.values()])
        choice = choose(graph, refs.branches.values(), refs.targets.values(), keep_commits)
        done = rewrite(staged, graph, choice, keep_versions)
        moves = _moves(staged, line, own, refs, done.commits)
        if not moves:
            return
        if done.commits:
            text = f"compact, keeping {keep_commits} versions of each branch"
            moves.insert(0, logged(staged, line.session, _operation(moves, text, when)))
        wanted = staged.reachable(move.new for move in moves if move.new is not None)
        objects = {oid: found for oid, found in staged.objects.items() if oid in wanted}
        try:
            database.write(objects, moves)
        except Contention:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        if isinstance(database.backend, CachesHistory):
            database.backend.forget_history()
        line.stand_on(done.of(tip), done.of(tip))
        return


def _operation(moves: Iterable[RefUpdate], text: str, when: datetime) -> Operation:
    before = {move.name: move.expected for move in moves if move.expected and move.new}
    after = {move.name: move.new for move in moves if move.expected and move.new}
    return Operation("compaction", when.isoformat(), text, before, after)


def require_free(database: Database, verb: str, refs: Mapping[str, Oid]) -> None:
    """Refuse `verb` where one of some refs is a protected branch. Raises `ProtectedBranch`."""
    for name, oid in refs.items():
        session, branch = parse_ref(name) or (None, None)
        record = read_record(database, oid) if session is None or branch is None else None
        if record is not None:
            session, branch = record.session, record.branch
        if session is not None and branch is not None:
            database.protection.require_free(verb, session, branch)


def _session_refs(database: Database, session: str) -> _Refs:
    found = _Refs()
    prefix = branch_ref(session, "x").rpartition("/")[0] + "/"
    for name, oid in database.backend.refs(prefix).items():
        if not is_ledger_ref(name) and database.read(oid).kind == "commit":
            found.branches[name] = oid
    prefix = tag_ref(session, "x").rpartition("/")[0] + "/"
    for name, oid in database.backend.refs(prefix).items():
        target = _target(database, oid)
        if target is not None:
            found.tags[name], found.targets[name] = oid, target
    return found


def _target(objects: Objects, oid: Oid) -> Oid | None:
    """Return the commit of a tag; `None` for a signed one, which must stay as it was signed."""
    found = objects.read(oid)
    if found.kind == "commit":
        return oid
    if found.kind != "tag" or b"-----BEGIN " in found.data:
        return None
    inner = found.data.partition(b"\n")[0].removeprefix(b"object ").decode()
    return inner if objects.read(inner).kind == "commit" else None


def _moves(staged: Staging, line: Line, own: str, refs: _Refs, commits: Mapping[Oid, Oid]) -> list[RefUpdate]:
    """Return every move; the line's own comes last, so that a lost race leaves it where it was."""
    moves = [
        RefUpdate(name, oid, commits[oid])
        for name, oid in refs.branches.items()
        if name != own and oid in commits
    ]
    for name, oid in refs.tags.items():
        target = refs.targets[name]
        if target not in commits:
            continue
        new = commits[target]
        if oid != target:
            text = staged.read(oid).data
            new = staged.put("tag", text.replace(target.encode(), new.encode(), 1))
        moves.append(RefUpdate(name, oid, new))
    moves += _notes(staged, commits)
    tip = refs.branches[own]
    if commits.get(tip, tip) != line.published:
        moves.append(RefUpdate(own, line.published, commits.get(tip, tip)))
    return moves


def _notes(staged: Staging, commits: Mapping[Oid, Oid]) -> Iterable[RefUpdate]:
    """Stage the notes on commits that were rewritten under their new ids."""
    for ref, oid in staged.database.backend.refs(_NOTES).items():
        if staged.read(oid).kind != "commit":
            continue
        old = staged.commit(oid)
        edits: dict[tuple[str, ...], TreeEntry | None] = {}
        for path, blob in walk(staged, old.tree):
            moved = commits.get("".join(path))
            if moved is not None:
                edits[path] = None
                edits[_spread(moved, path)] = _entry(staged, old.tree, path, blob)
        if not edits:
            continue
        tree = update(staged, old.tree, edits)
        if tree is None or tree == old.tree:
            continue
        who = Signature(*COMMITTER, old.committer.time)
        message = "Notes follow the commits that were compacted\n"
        yield RefUpdate(ref, oid, staged.put_commit(CommitObject(tree, (oid,), who, who, message)))


def _spread(oid: Oid, like: tuple[str, ...]) -> tuple[str, ...]:
    """Cut an id into the parts of a path, as another one is cut."""
    parts, rest = [], oid
    for part in like[:-1]:
        parts.append(rest[: len(part)])
        rest = rest[len(part) :]
    return (*parts, rest)


def _entry(objects: Objects, root: Oid, path: tuple[str, ...], blob: Oid) -> TreeEntry:
    tree = root
    for part in path[:-1]:
        tree = objects.tree(tree)[part].oid
    found = objects.tree(tree)[path[-1]]
    return TreeEntry(found.mode, blob)
