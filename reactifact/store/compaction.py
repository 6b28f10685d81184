"""Compaction as a pure rewriting of history: which commits stay, and how they are linked anew.

Owns the choice (`choose`) and the rewriting (`rewrite`) over a graph of changes. A commit that stays
keeps its Change-Id, version, artifacts, relations, bookkeeping and queue; what changes is its parents,
what its record says of the compaction, and the versions that are kept beside (`kept_versions`). Moving
refs is `rewriting`'s.

What stays, beside the last `keep` versions of each line: the tagged commits, the roots, and whatever
may be a merge base of commits that stay. For that, each commit that would be folded is asked which
commits that stay are the first above it, on every way up. If there is one on all ways, or if a commit
between has the same ones above it, then that is a better common ancestor, and this one is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from blake3 import blake3

from .changes import FOLDED_FILE, Change, ChangeGraph
from .database import Staging, blob_entry
from .kept_versions import VersionKeeper
from .layout import BOOKKEEPING
from .migrations import RECORD_FILE, current_tree
from .objects import TREE_MODE, Oid, TreeEntry
from .records import CommitRecord, read_record, read_roots, state_hash
from .trees import update


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
) -> Rewritten:
    """Stage the commits that stay, linked anew; equal input gives equal commits."""
    name = compaction_name(graph, choice, keep_versions)
    keeper = VersionKeeper(objects, keep_versions)
    new: dict[str, Oid] = {}
    records: dict[str, CommitRecord] = {}
    commits: dict[Oid, Oid] = {}
    stands = {oid: change for oid, change in graph.names.items() if change in choice.parents}
    for change_name in choice.kept:
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
    trailer = f"Baseline: {baseline}\n"
    return message if trailer in message else message + trailer


def _moved_fork(
    fork: dict[str, object] | None, stands: Mapping[Oid, str], new: Mapping[str, Oid]
) -> dict[str, object] | None:
    """Return where a line was forked, said by the commit's new id, or by the change alone."""
    if fork is None or "commit" not in fork:
        return fork
    moved = new.get(stands.get(str(fork["commit"]), ""))
    return {**{k: v for k, v in fork.items() if k != "commit"}, **({"commit": moved} if moved else {})}
