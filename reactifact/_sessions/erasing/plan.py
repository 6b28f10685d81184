"""An erasure as it would be carried out: the sessions that hold what goes, and the refs that move or go.

Owns `Plan`. It reads the store, stages the new history and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..._store._history.erasing import Rewriter, Spec
from ..._store._history.oplog import kept_refs, operations_ref
from ..._store._history.revset import Head, head_at
from ..._store._history.squash import moved_notes, require_free
from ..._store._history.tombstones import Tombstone, staged_stones
from ..._store.commits import own_record, said_change
from ..._store.graph import reachable, read_folded
from ..._store.names import encode_name, is_ledger_ref, parse_ref, parse_tag_ref
from ..._store.object_db import Database, Staging, blob_entry
from ..._store.objects import Oid, tag_target
from ..._store.protocol import RefUpdate
from ..._store.trees import update, walk
from ...erasure import ErasedArtifact, Erasure
from ...errors import ErasureRefused, UnknownRevision
from .found import Wish, gather, spec_of

_REPORT = "refs/reactifact/report"
_REJECTED = "refs/reactifact/rejected/"
_REMOTES = "refs/remotes/"
_SIGNATURE = b"-----BEGIN "


@dataclass(slots=True)
class Plan:
    """An erasure as it would be carried out on the refs as they were read."""

    wish: Wish
    spec: Spec
    listed: list[ErasedArtifact]
    folders: dict[str, str]  # what the refs of a session stand under, and its id
    refs: dict[str, Oid]
    rewriter: Rewriter
    staged: Staging
    moves: list[RefUpdate]
    rests: tuple[str, ...] = ()
    first: set[Oid] = field(default_factory=set)
    branches: list[Head] = field(default_factory=list)

    def locks(self) -> list[str]:
        """Return the locks to hold: of every branch's runner, and of every drain."""
        runs = {f"run {head.session}/{head.branch}" for head in self.branches if not head.is_ledger}
        return [*sorted(runs), *sorted(f"drain {session}" for session in set(self.folders.values()))]

    def report(self, *, is_dry_run: bool = False) -> Erasure:
        """Return what it does, for people."""
        moved = [move for move in self.moves if not move.name.startswith("refs/reactifact/")]
        return Erasure(
            artifacts=tuple(self.listed),
            sessions=tuple(sorted(set(self.folders.values()))),
            refs=tuple(sorted(move.name for move in moved if move.new is not None)),
            dropped=tuple(sorted(move.name for move in self.moves if move.new is None)),
            commits=len(self.rewriter.changed),
            held=self.rewriter.held,
            waiting=self.rewriter.waiting,
            rests=self.rests,
            is_dry_run=is_dry_run,
        )


def planned(database: Database, wish: Wish) -> Plan:
    refs = database.backend.refs("")
    own = encode_name(wish.session)
    tips = _tips(database, refs)
    mine = [oid for ref, oid in tips.items() if _folder(ref) == own]
    if not mine:
        raise UnknownRevision(f"{database.backend.location} holds no session {wish.session!r}")
    found = gather(database, reachable(database, mine))
    spec, _ = spec_of(database, wish, found)
    scratch = Rewriter(Staging(database), spec)
    _rewrite(database, scratch, {ref: oid for ref, oid in tips.items() if _folder(ref) == own})
    changes = {said_change(database.commit(oid)) or oid for oid in scratch.changed}
    folders = {own, *_carrying(database, {r: o for r, o in tips.items() if _folder(r) != own}, changes)}
    carried = {ref: oid for ref, oid in tips.items() if _folder(ref) in folders}
    if folders != {own}:
        found = gather(database, reachable(database, list(carried.values())))
    spec, listed = spec_of(database, wish, found)
    if not spec.tokens and not any(spec.cleared.values()):
        raise ErasureRefused(
            f"the personal fields of {', '.join(map(repr, wish.ids))} hold their placeholders in every "
            f"version already: nothing is left to erase"
        )
    plan = made(database, wish, spec, listed, {f: _session_of(database, f, carried) for f in folders})
    gone = {*spec.tokens, *spec.cleared}
    plan.rests = tuple(
        sorted(
            name
            for name, metas in found.versions.items()
            if name not in gone and any(r.artifact_id in gone for m in metas.values() for r in m.reads)
        )
    )
    return plan


def made(
    database: Database,
    wish: Wish,
    spec: Spec,
    listed: list[ErasedArtifact],
    folders: dict[str, str],
    first: Iterable[Oid] = (),
) -> Plan:
    """Stage the histories of some sessions without what a spec names, on the refs as they are now.

    `first` are the commits by which an erasure that goes on knew the history from before.
    """
    refs = database.backend.refs("")
    staged = Staging(database)
    rewriter = Rewriter(staged, spec)
    carried = {ref: oid for ref, oid in _tips(database, refs).items() if _folder(ref) in folders}
    _rewrite(database, rewriter, carried)
    spec = replace(spec, calls=tuple(sorted({*spec.calls, *rewriter.calls})))
    plan = Plan(wish, spec, listed, folders, refs, rewriter, staged, [])
    plan.first = {*first, *rewriter.first}
    for ref, oid in carried.items():
        if (head := head_at(database, ref, oid) if parse_ref(ref) else None) is not None:
            plan.branches.append(head)
    require_free(database, "erase from", {ref: oid for ref, oid in carried.items() if parse_ref(ref)})
    moves = [*_moved(database, plan, carried), *_others(database, plan), *_dropped(plan), *_stones(plan)]
    # the marker moves with what is last: where each session is a document, that is the one it stands in
    own = encode_name(wish.session)
    plan.moves = sorted(moves, key=lambda move: own in move.name.split("/")[2:4])
    return plan


def _tips(database: Database, refs: Mapping[str, Oid]) -> dict[str, Oid]:
    """Return the commits of the branches, ledgers and tags of sessions, by ref."""
    found = {}
    for ref, oid in refs.items():
        if parse_ref(ref) is None and parse_tag_ref(ref) is None:
            continue
        commit = _commit_of(database, oid)
        if commit is not None:
            found[ref] = commit
    return found


def _commit_of(database: Database, oid: Oid) -> Oid | None:
    item = database.read(oid)
    while item.kind == "tag":
        oid = tag_target(item.data)
        item = database.read(oid)
    return oid if item.kind == "commit" else None


def _folder(ref: str) -> str:
    return ref.split("/")[2]


def _session_of(database: Database, folder: str, refs: Mapping[str, Oid]) -> str:
    """Return the id of the session whose refs stand in a folder; the folder where git alone made it."""
    for ref, oid in refs.items():
        if _folder(ref) == folder:
            named_in_ref = (parse_ref(ref) or parse_tag_ref(ref) or (None, None))[0]
            record = None if named_in_ref is not None else own_record(database, oid)
            found = named_in_ref if record is None else record.session
            if found:
                return found
    return folder


def _carrying(database: Database, tips: Mapping[str, Oid], changes: set[str]) -> set[str]:
    """Return the folders of sessions whose history holds one of some changes. Costs the store's commits."""
    seen: dict[Oid, bool] = {}
    found = set()
    for ref, tip in tips.items():
        if _folder(ref) in found or is_ledger_ref(ref):
            continue
        for oid in reachable(database, [tip]):
            if oid not in seen:
                seen[oid] = (said_change(database.commit(oid)) or oid) in changes
                if not seen[oid] and (record := own_record(database, oid)) is not None and record.compactions:
                    seen[oid] = not changes.isdisjoint(read_folded(database, oid))
            if seen[oid]:
                found.add(_folder(ref))
                break
    return found


def _rewrite(database: Database, rewriter: Rewriter, tips: Mapping[str, Oid]) -> None:
    """Make all that some refs reach anew: ledgers first, because branches name commits of theirs."""
    ledgers = [oid for ref, oid in tips.items() if is_ledger_ref(ref)]
    others = [oid for ref, oid in tips.items() if not is_ledger_ref(ref)]
    for heads in (ledgers, others):
        for oid in _oldest_first(database, heads):
            rewriter.add(oid)


def _oldest_first(database: Database, heads: Iterable[Oid]) -> Iterator[Oid]:
    seen: set[Oid] = set()
    for head in sorted(set(heads)):
        stack = [(head, False)]
        while stack:
            oid, is_done = stack.pop()
            if is_done:
                yield oid
            elif oid not in seen:
                seen.add(oid)
                stack.append((oid, True))
                stack += [(parent, False) for parent in database.commit(oid).parents if parent not in seen]


def _stones(plan: Plan) -> list[RefUpdate]:
    tokens = {one.id: one.token for one in plan.listed}
    stones = [
        Tombstone(
            one.token,
            one.type_id,
            one.versions,
            plan.wish.when.isoformat(),
            plan.wish.by,
            plan.wish.reason,
            tokens.get(one.because, ""),
            one.fields,
        )
        for one in plan.listed
    ]
    found = []
    for session in sorted(set(plan.folders.values())):
        found += staged_stones(plan.staged, session, stones, plan.first)
    return found


def _moved(database: Database, plan: Plan, carried: Mapping[str, Oid]) -> list[RefUpdate]:
    """Return the moves of branches, ledgers and tags, ledgers first."""
    found = []
    for ref, commit in sorted(carried.items(), key=lambda one: (not is_ledger_ref(one[0]), one[0])):
        old = plan.refs[ref]
        new = plan.rewriter.commits[commit]
        if old != commit:
            new = _tag(database, plan, old, commit, new)
        if new != old:
            found.append(RefUpdate(ref, old, new))
    return found


def _tag(database: Database, plan: Plan, tag: Oid, commit: Oid, new: Oid) -> Oid:
    """Return a tag on a commit that was made anew, in its words; without a signature, which is void then."""
    data = database.read(tag).data
    text = plan.spec.without(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    if commit == new and text == data:
        return tag
    text = text.partition(_SIGNATURE)[0]
    inner = tag_target(data)
    if database.read(inner).kind == "tag":
        new = _tag(database, plan, inner, commit, new)
    return plan.staged.put("tag", text.replace(inner.encode(), new.encode(), 1))


def _others(database: Database, plan: Plan) -> Iterator[RefUpdate]:
    """Return the moves of refs that are no session's: what reaches commits made anew, notes, a report."""
    changed = plan.rewriter.changed
    notes = {move.name: move for move in moved_notes(plan.staged, changed)}
    for ref, oid in plan.refs.items():
        if ref == _REPORT:
            yield from _report(database, plan, oid)
        elif ref.startswith("refs/notes/"):
            yield from _note(database, plan, ref, oid, notes.get(ref))
        elif ref.startswith(("refs/reactifact/", "refs/kv/", _REMOTES)) or ref in _tips(database, {ref: oid}):
            continue
        elif _reaches(database, commit := _commit_of(database, oid), changed):
            assert commit is not None
            _rewrite(database, plan.rewriter, {ref: commit})
            yield RefUpdate(ref, oid, plan.rewriter.commits[commit])


def _reaches(database: Database, commit: Oid | None, changed: Mapping[Oid, Oid]) -> bool:
    return commit is not None and any(one in changed for one in reachable(database, [commit]))


def _note(database: Database, plan: Plan, ref: str, oid: Oid, moved: RefUpdate | None) -> Iterator[RefUpdate]:
    new = oid if moved is None or moved.new is None else moved.new
    commit = plan.staged.commit(new)
    edits = {}
    for path, blob in walk(plan.staged, commit.tree):
        data = plan.staged.read(blob).data
        text = plan.spec.without(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if text != data:
            edits[path] = blob_entry(plan.staged.put("blob", text))
    if not edits:
        if moved is not None:
            yield moved
        return
    tree = update(plan.staged, commit.tree, edits)
    assert tree is not None
    # without the notes there were: they say what goes
    yield RefUpdate(ref, oid, plan.staged.put_commit(replace(commit, tree=tree, parents=())))


def _report(database: Database, plan: Plan, oid: Oid) -> Iterator[RefUpdate]:
    """Take the model calls that what goes was part of out of a recording that stands in the store."""
    commit = database.commit(oid)
    edits = {}
    for path, blob in walk(database, commit.tree):
        data = database.read(blob).data
        kept = [one for one in data.splitlines(keepends=True) if not _is_of(plan.spec, one)]
        if len(kept) != data.count(b"\n") + (not data.endswith(b"\n")) and path[-1].endswith(".jsonl"):
            edits[path] = blob_entry(plan.staged.put("blob", b"".join(kept)))
    tree = update(plan.staged, commit.tree, edits)
    if edits and tree is not None:
        yield RefUpdate(_REPORT, oid, plan.staged.put_commit(replace(commit, tree=tree, parents=())))


def _is_of(spec: Spec, line: bytes) -> bool:
    text = line.decode("utf-8", "replace")
    if spec.names(text):
        return True
    try:
        return json.loads(text).get("key") in spec.calls
    except (ValueError, AttributeError):
        return False


def _dropped(plan: Plan) -> list[RefUpdate]:
    """Return the removal of what moves left behind, what was rejected and what was fetched of sessions."""
    found = []
    for folder, session in plan.folders.items():
        prefixes = (kept_refs(session), f"{_REJECTED}{folder}/")
        for ref, oid in plan.refs.items():
            is_fetched = ref.startswith(_REMOTES) and ref.split("/")[3:4] == [folder]
            if ref == operations_ref(session) or ref.startswith(prefixes) or is_fetched:
                found.append(RefUpdate(ref, oid, None))
    return found
