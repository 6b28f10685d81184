"""Compaction: a shorter history of the same state, for one branch and with it the whole session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

from blake3 import blake3

from ...errors import Contention
from .._backends.document import DocumentBackend
from ..branch import Branch
from ..commits import COMMITTER, CommitRecord, read_record, read_roots, state_hash, with_note
from ..graph import FOLDED_FILE, Change, ChangeGraph
from ..layout import BOOKKEEPING
from ..migrations import RECORD_FILE, current_tree
from ..names import branch_ref, is_ledger_ref, parse_ref, tag_ref
from ..object_db import Database, Objects, Staging, blob_entry
from ..objects import TREE_MODE, CommitObject, Oid, Signature, TreeEntry
from ..protocol import CachesHistory, Progress, RefUpdate
from ..trees import update, walk
from ..versions import VersionKeeper
from .oplog import Operation, logged
from .rebase import require_current

# -- compaction as a pure rewriting of history --


@dataclass(slots=True)
class Choice:
    """Which changes stay, and what they are linked to."""

    kept: list[str]  # each after its ancestors
    parents: dict[str, list[str]] = field(default_factory=dict)
    folded: dict[str, frozenset[str]] = field(default_factory=dict)  # what each lists as folded
    baselines: set[str] = field(default_factory=set)  # those whose own line goes no deeper
    floors: dict[str, int] = field(default_factory=dict)  # the baseline that a line says at a commit


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became of the commits that stay; those that are as they were are left out."""

    commits: dict[Oid, Oid]

    def of(self, commit: Oid) -> Oid:
        """Return what a commit is now."""
        return self.commits.get(commit, commit)


def choose(graph: ChangeGraph, lines: Iterable[Oid], pinned: Iterable[Oid], keep: int) -> Choice:
    """Decide which changes stay when each line keeps its last `keep` versions."""
    order = graph.oldest_first()
    kept = {name for name in order if not graph.changes[name].parents}
    kept.update(graph.names[oid] for oid in pinned)
    floors: dict[str, int] = {}
    for head in lines:
        change = graph.changes[graph.names[head]]
        floor = max(0, change.version - keep, change.baseline)
        for name in _newest(graph, change, floor, keep):
            # a commit that several lines share says what all of them still have
            floors[name] = min(floor, floors.get(name, floor))
    kept |= floors.keys()
    _close(graph, order, kept)
    choice = Choice([name for name in order if name in kept], floors=floors)
    _link(graph, order, kept, choice)
    return choice


def _newest(graph: ChangeGraph, change: Change, floor: int, keep: int) -> Iterable[str]:
    """Yield what a line keeps: its versions above a floor and the commit that stands for those before.

    Of the direct changes made before there was any version, it keeps the last `keep` commits, one at least.
    """
    unversioned = 0
    while True:
        yield change.name
        unversioned += change.version == 0
        below = graph.changes[change.parents[0]] if change.parents else None
        if below is None or unversioned >= max(keep, 1) or (0 < floor == change.version > below.version):
            return
        change = below


def _close(graph: ChangeGraph, order: Sequence[str], kept: set[str]) -> None:
    """Add every change that may be a merge base of two that stay."""
    above: dict[str, list[frozenset[str]]] = {name: [] for name in order}
    for name in reversed(order):
        ways = above[name]
        firsts = frozenset().union(*ways)
        if name not in kept and firsts not in ways:
            kept.add(name)
        if name in kept:
            firsts = frozenset([name])
        for parent in graph.changes[name].parents:
            above[parent].append(firsts)


def _link(graph: ChangeGraph, order: Sequence[str], kept: set[str], choice: Choice) -> None:
    """Link what stays to the nearest of its ancestors that stay."""
    nearest: dict[str, list[str]] = {}  # of a folded change: the first of them on its own line first
    listed: dict[str, frozenset[str]] = {}

    @lru_cache(maxsize=1024)
    def below(name: str) -> frozenset[str]:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            for parent in choice.parents.get(waiting.pop(), ()):
                if parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)
        return frozenset(seen)

    for name in order:
        change = graph.changes[name]
        found: list[str] = []
        folded = set(change.folded)
        for parent in change.parents:
            found += [parent] if parent in kept else nearest[parent]
            if parent not in kept:
                folded |= listed[parent] | {parent}
        found = list(dict.fromkeys(found))
        direct = {parent for parent in change.parents if parent in kept and parent not in change.folded}
        candidates = found[1:]
        found = found[:1] + [
            one
            for one in candidates
            if one in direct or not any(one in below(other) for other in found if other != one)
        ]
        if name not in kept:
            nearest[name], listed[name] = found, frozenset(folded)
            continue
        choice.parents[name] = found
        choice.folded[name] = frozenset(folded - kept)
        if change.parents and change.parents[0] not in kept:
            choice.baselines.add(name)


def rewrite(
    objects: Staging,
    graph: ChangeGraph,
    choice: Choice,
    keep_versions: int | None,
    progress: Progress | None = None,
) -> Rewritten:
    """Stage the commits that stay, linked anew; equal input gives equal commits."""
    name = compaction_name(graph, choice, keep_versions)
    keeper = VersionKeeper(objects, keep_versions)
    new: dict[str, Oid] = {}
    records: dict[str, CommitRecord] = {}
    commits: dict[Oid, Oid] = {}
    stands = {oid: change for oid, change in graph.names.items() if change in choice.parents}
    for done, change_name in enumerate(choice.kept):
        if progress is not None:
            progress(done, len(choice.kept))
        change = graph.changes[change_name]
        parents = [new[parent] for parent in choice.parents[change_name]]
        is_whole = all(parent in choice.parents for parent in change.parents)
        has_line = bool(change.parents) and change.parents[0] in choice.parents
        roots = read_roots(objects, change.commit)
        versions = keeper.versions(
            change_name,
            roots,
            line=change.parents[0] if has_line else None,
            others=change.parents[1:] if is_whole else None,
        )
        old = objects.commit(change.commit)
        edits: dict[tuple[str, ...], TreeEntry | None] = {
            (BOOKKEEPING, "versions"): None if versions is None else TreeEntry(TREE_MODE, versions)
        }
        message = old.message
        record = read_record(objects, change.commit)
        if change.is_own and record is not None:
            above = records.get(change.parents[0]) if change.parents else None
            baseline = choice.floors.get(
                change_name, max(record.baseline, above.baseline if above is not None else 0)
            )
            if change_name in choice.baselines:
                baseline = record.version
                message = _noted(message, baseline) if baseline else message
            is_other = (
                tuple(parents) != old.parents
                or choice.folded[change_name] != change.folded
                or versions != roots.versions
                or baseline != record.baseline
            )
            record = replace(
                record,
                baseline=baseline,
                compactions=[name] if is_other else record.compactions,
                fork=_moved_fork(record.fork, stands, new),
            )
            records[change_name] = record
            edits[BOOKKEEPING, RECORD_FILE] = None  # of format 1
        folded = choice.folded[change_name]
        edits[BOOKKEEPING, FOLDED_FILE] = (
            blob_entry(objects.put("blob", "".join(f"{f}\n" for f in sorted(folded)).encode()))
            if folded
            else None
        )
        tree = update(objects, current_tree(objects, change.commit), edits)
        assert tree is not None
        made = replace(old, tree=tree, parents=tuple(parents), message=message)
        if change.is_own and record is not None:
            made = replace(made, record=record.header(tree, parents, state_hash(roots)))
        new[change_name] = change.commit if made == old else objects.put_commit(made)
    for oid, change_name in stands.items():
        if new[change_name] != oid:
            commits[oid] = new[change_name]
    return Rewritten(commits)


def compaction_name(graph: ChangeGraph, choice: Choice, keep_versions: int | None) -> str:
    """Return a name for what this compaction makes of this history: equal input, equal name."""
    text = "\n".join([*(graph.changes[name].commit for name in choice.kept), f"{keep_versions}"])
    return blake3(text.encode()).hexdigest()[:16]


def _noted(message: str, baseline: int) -> str:
    """Return the message of a baseline, which says what it stands for, and no longer for what before."""
    note = f"Stands for all commits up to version {baseline}."
    return message if note in message else with_note(_NOTED.sub("", message), note)


def _moved_fork(
    fork: dict[str, object] | None, stands: Mapping[Oid, str], new: Mapping[str, Oid]
) -> dict[str, object] | None:
    """Return where a line was forked, said by the commit's new id, or by the change alone."""
    if fork is None or "commit" not in fork:
        return fork
    moved = new.get(stands.get(str(fork["commit"]), ""))
    return {**{k: v for k, v in fork.items() if k != "commit"}, **({"commit": moved} if moved else {})}


# -- compacting a line, and with it the session it belongs to --


_ATTEMPTS = 8
_NOTES = "refs/notes/"
_NOTED = re.compile(r"\n\nStands for all commits up to version \d+\.(?=\n)|\nBaseline: \d+(?=\n)")


@dataclass(slots=True)
class _Refs:
    """The refs of a session that a compaction rewrites."""

    branches: dict[str, Oid] = field(default_factory=dict)
    tags: dict[str, Oid] = field(default_factory=dict)
    targets: dict[str, Oid] = field(default_factory=dict)  # tag -> the commit it stands for


def compact(
    line: Branch,
    keep_commits: int,
    keep_versions: int | None,
    when: datetime,
    progress: Progress | None = None,
) -> int:
    """Squash all but the last versions of a line, and of every branch of its session.

    A line without a ref is rewritten alone, in memory; so is one over a user's own backend, which
    can only be waited for: it follows at the next save. What is not published goes to the store
    with it. `progress` is told how many of the commits that stay were made anew. Returns how many versions of
    this line were folded. Raises `ValueError` for a negative
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
        _rewrite_alone(line, tip, keep_commits, keep_versions, progress)
    else:
        _rewrite_session(line, line.ref, tip, keep_commits, keep_versions, when, progress)
    return line.baseline - before


def _rewrite_alone(
    line: Branch, tip: Oid, keep_commits: int, keep_versions: int | None, progress: Progress | None
) -> None:
    graph = ChangeGraph(line.objects, [tip])
    choice = choose(graph, [tip], [], keep_commits)
    done = rewrite(line.objects, graph, choice, keep_versions, progress)
    line.stand_on(done.of(tip), line.published)


def _rewrite_session(
    line: Branch,
    own: str,
    tip: Oid,
    keep_commits: int,
    keep_versions: int | None,
    when: datetime,
    progress: Progress | None,
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
        done = rewrite(staged, graph, choice, keep_versions, progress)
        moves = _moves(staged, line, own, refs, done.commits)
        if not moves:
            return
        if done.commits:
            text = f"compact, keeping {keep_commits} versions of each branch"
            moves[:0] = logged(staged, line.session, _operation(moves, text, when))
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


def _moves(
    staged: Staging, line: Branch, own: str, refs: _Refs, commits: Mapping[Oid, Oid]
) -> list[RefUpdate]:
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
    moves += moved_notes(staged, commits)
    tip = refs.branches[own]
    if commits.get(tip, tip) != line.published:
        moves.append(RefUpdate(own, line.published, commits.get(tip, tip)))
    return moves


def moved_notes(staged: Staging, commits: Mapping[Oid, Oid]) -> Iterable[RefUpdate]:
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
