"""Erasing artifacts, or their personal fields, from all that a store keeps of a session and of its forks.

Owns what belongs to an erasure (actions and questions that came from it), the refs that move and those that
go, the marker by which an erasure that was killed is finished, and the order of all that. How a commit is
made anew is `_store/_history/erasing`'s, how bytes go for good the backend's (`collect`).

The marker is written first, and holds all that is needed to go on. From then on the next opening of the
store, or the next erasure, finishes what was begun; before, nothing has happened.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from .._context.rebase import write_adopted
from .._store import canonical
from .._store._history.erasing import ACTION, Cleared, Rewriter, Spec, born, named, token_of
from .._store._history.oplog import kept_refs, operations_ref
from .._store._history.revset import Head, head_at
from .._store._history.squash import moved_notes, require_free
from .._store._history.tombstones import ERASING, Tombstone, staged_stones
from .._store.commits import own_record, read_roots, said_change
from .._store.graph import reachable, read_folded
from .._store.layout import Meta
from .._store.names import encode_name, is_ledger_ref, parse_ref, parse_tag_ref
from .._store.object_db import Database, Staging, blob_entry
from .._store.objects import TREE_MODE, Oid, object_id, tag_target
from .._store.protocol import Collectable, RefUpdate
from .._store.trees import update, walk
from ..erasure import ClearedPayload, ErasedArtifact, Erasure, cleared_payload, has_personal
from ..errors import Contention, ErasureRefused, MissingObject, SessionBusy, StoreError, UnknownRevision
from ..interrupt import PendingAction, PendingQuestion, TypedQuestion
from ..logging import get_logger
from ..types.ids import type_id_of
from ..types.registry import resolve

log = get_logger("reactifact.erasure")

_REPORT = "refs/reactifact/report"
_REJECTED = "refs/reactifact/rejected/"
_REMOTES = "refs/remotes/"
_DERIVED = frozenset(type_id_of(one) for one in (PendingAction, PendingQuestion, TypedQuestion))
"""Types of which an artifact that came from what is erased goes with it: they repeat it for the world."""

_ATTEMPTS = 8
_TELLING = 6  # characters of a value that say whose it is
_SHORT_NAME = 4  # characters below which an id is a word like any other
_SIGNATURE = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants erased, who, and why."""

    session: str
    ids: tuple[str, ...]
    fields_only: bool
    by: str
    reason: str
    when: datetime


def erase(database: Database, wish: Wish, *, dry_run: bool = False, wait: float = 30.0) -> Erasure:
    """Erase; see `SessionStore.erase`. Runs in a worker thread."""
    backend = database.backend
    if not isinstance(backend, Collectable):
        raise StoreError(
            f"{backend.location} is a {type(backend).__name__}, which cannot remove what no ref reaches (it "
            f"has no `collect`): nothing can be erased from it; bring it to another store with export_store"
        )
    if not wish.ids:
        raise ErasureRefused("nothing was named: give the id of at least one artifact")
    backend.require_collectable()
    if dry_run:
        return _planned(database, wish).report(is_dry_run=True)
    with backend.lock("erase", wait=wait):
        _finish_held(database, wait)
        while True:
            locks = _planned(database, wish).locks()
            with _locked(database, locks, wait):
                plan = _adopted(database, _planned(database, wish))
                if set(plan.locks()) <= set(locks):
                    return _carried_out(database, plan, lambda: _planned(database, wish))
            # a branch was made meanwhile


def _adopted(database: Database, plan: _Plan) -> _Plan:
    """Adopt what somebody made with git on the branches, so that it is erased from there as well."""
    before = database.backend.refs("")
    for head in plan.branches:
        if not head.is_ledger:
            write_adopted(database, head.session, head.branch)
    return plan if database.backend.refs("") == before else _planned(database, plan.wish)


# -- what belongs to it --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """What the histories of some sessions hold: the bookkeeping of all versions, by artifact."""

    versions: dict[str, dict[Oid, Meta]] = field(default_factory=lambda: defaultdict(dict))
    loose: dict[str, list[tuple[str, str, bytes, str]]] = field(default_factory=lambda: defaultdict(list))
    """Payloads that stand in records alone, by artifact: type id, revision, bytes, the commit's Change-Id."""


def _gather(database: Database, commits: Iterable[Oid]) -> _Found:
    found = _Found()
    seen: set[Oid] = set()

    def note(oid: Oid | None) -> None:
        while oid is not None and oid not in seen:
            seen.add(oid)
            try:
                meta = Meta.decode(database.read(oid).data)
            except MissingObject:
                return  # of a version that was trimmed
            found.versions[meta.id][oid] = meta
            oid = meta.previous

    def visit(tree: Oid | None, is_kept: bool) -> None:
        if tree is None or tree in seen:
            return
        seen.add(tree)
        entries = database.tree(tree)
        database.prefetch(entry.oid for entry in entries.values())
        for name, entry in entries.items():
            if entry.mode == TREE_MODE:
                visit(entry.oid, is_kept)
            elif not is_kept or name == "meta.json":
                note(entry.oid)

    for oid in commits:
        record = own_record(database, oid)
        if record is None or record.kind == "ledger":
            continue
        roots = read_roots(database, oid)
        visit(roots.meta, False)
        visit(roots.versions, True)
        for operation in record.operations:
            if operation.get("payload") is None and "data" in operation:
                data = canonical.encode(operation["data"])
                kind, revision = operation.get("data_type", ""), operation.get("revision", "")
                found.loose[operation["artifact_id"]].append((kind, revision, data, record.change))
    return found


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of JSON data, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _values(value: Any) -> Iterator[str]:
    """Yield the texts of JSON data, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item)


@dataclass(slots=True)
class _Closure:
    """What goes with what was asked for: the actions and the questions that came from it or name it."""

    database: Database
    found: _Found
    values: tuple[str, ...]
    is_by_fields: bool
    because: dict[str, str] = field(default_factory=dict)

    def of(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return those actions and questions, each with the id of what it came from."""
        gone = list(wanted)
        types = {meta.type_id for name in gone for meta in self.found.versions[name].values()}
        placed = {
            kind: min(m.sequence for n in gone for m in self.found.versions[n].values() if m.type_id == kind)
            for kind in types
        }
        others = {
            name: list(metas.values())
            for name, metas in self.found.versions.items()
            if name not in gone and any(meta.type_id in _DERIVED for meta in metas.values())
        }
        telling = named(value for value in self.values if len(value) >= _TELLING)
        while True:
            exact = {form: name for name in gone for form in (name, name.removeprefix(ACTION))}
            words = named(one for one in exact if len(one) >= _SHORT_NAME or not one.isalnum())
            fresh = {}
            for name, metas in others.items():
                cause = next((c for m in metas if (c := self._cause(m, exact, words, telling, placed))), None)
                if cause is not None:
                    fresh[name] = cause
            if not fresh:
                return self.because
            self.because.update(fresh)
            gone += fresh
            for name in fresh:
                del others[name]

    def _cause(
        self,
        meta: Meta,
        exact: Mapping[str, str],
        words: re.Pattern[str] | None,
        telling: re.Pattern[str] | None,
        placed: Mapping[str, int],
    ) -> str | None:
        cause = next((exact[one.artifact_id] for one in meta.reads if one.artifact_id in exact), None)
        texts = [meta.id, *_texts(json.loads(self.database.read(meta.payload).data))]
        for text in texts if cause is None else ():
            match = words.search(text) if words is not None else None
            cause = exact.get(text) or (None if match is None else exact[match[0]])
            if cause is not None:
                break
        if cause is None and telling is not None:
            listed = any(placed.get(one.type_id, one.sequence) < one.sequence for one in meta.listings)
            if listed and any(telling.search(text) for text in texts):
                cause = next(iter(exact.values()))
        if cause is not None and self.is_by_fields:
            said = named(self.values)
            if said is None or not any(said.search(text) for text in texts):
                return None
        return cause


def _spec(database: Database, wish: Wish, found: _Found) -> tuple[Spec, list[ErasedArtifact]]:
    """Return what goes, and what it is. Raises `UnknownRevision`, `ErasureRefused`."""
    versions = {name: dict(found.versions.get(name, {})) for name in wish.ids}
    unknown = [name for name, metas in versions.items() if not metas and name not in found.loose]
    if unknown:
        raise UnknownRevision(
            f"no branch or tag of session {wish.session!r} holds, or ever held, "
            f"{', '.join(map(repr, unknown))}: nothing was erased"
        )
    cleared: dict[str, dict[Oid, Cleared]] = {}
    fields: dict[str, tuple[str, ...]] = {}
    values: dict[str, None] = {}
    for name, metas in versions.items():
        payloads = [(m.type_id, m.revision, database.read(m.payload).data, m.version) for m in metas.values()]
        payloads += [(kind, revision, data, -1) for kind, revision, data, _ in found.loose.get(name, ())]
        if wish.fields_only:
            cleared[name], fields[name] = _without_fields(name, payloads, values)
        else:
            values.update((text, None) for *_, data, _ in payloads for text in _values(json.loads(data)))
    because = _Closure(database, found, tuple(values), wish.fields_only).of(wish.ids)
    tokens: dict[str, str] = {}
    listed = []
    for name in (*wish.ids, *because):
        metas = found.versions.get(name, {})
        first = min(metas.values(), key=lambda m: (m.sequence, m.version), default=None)
        kinds = [m.type_id for m in metas.values()] or [kind for kind, *_ in found.loose[name]]
        mark = found.loose[name][0][3] if first is None else born(first)
        token = token_of(mark, is_whole=name not in cleared)
        if name not in cleared:
            tokens[name] = token
        count = len({m.version for m in metas.values()}) or len(found.loose[name])
        came = because.get(name, "")
        listed.append(ErasedArtifact(name, token, kinds[-1], count, came, fields.get(name, ())))
    return Spec(tokens, cleared, tuple(values)), listed


def _without_fields(
    name: str, payloads: Sequence[tuple[str, str, bytes, int]], values: dict[str, None]
) -> tuple[dict[Oid, Cleared], tuple[str, ...]]:
    """Return each payload of an artifact without its personal fields, by its id, and the names of those."""
    made: dict[Oid, Cleared] = {}
    fields: dict[str, None] = {}
    for type_id, revision, data, version in payloads:
        model = resolve(type_id)
        if not has_personal(model):
            raise ErasureRefused(
                f"{model.__name__} marks no field as personal, so nothing of {name!r} can be erased alone: "
                f"mark them (`email: Annotated[str, Personal()]`), or erase the whole artifact"
            )
        found: ClearedPayload = cleared_payload(
            model, data, type_id=type_id, revision=revision, artifact=name, version=version
        )
        if found.fields:
            made[object_id("blob", data)] = Cleared(found.payload.decode(), found.revision)
            fields.update(dict.fromkeys(found.fields))
            values.update(dict.fromkeys(found.values))
    return made, tuple(fields)


# -- which refs move -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Plan:
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


def _planned(database: Database, wish: Wish) -> _Plan:
    refs = database.backend.refs("")
    own = encode_name(wish.session)
    tips = _tips(database, refs)
    mine = [oid for ref, oid in tips.items() if _folder(ref) == own]
    if not mine:
        raise UnknownRevision(f"{database.backend.location} holds no session {wish.session!r}")
    found = _gather(database, reachable(database, mine))
    spec, _ = _spec(database, wish, found)
    scratch = Rewriter(Staging(database), spec)
    _rewrite(database, scratch, {ref: oid for ref, oid in tips.items() if _folder(ref) == own})
    changes = {said_change(database.commit(oid)) or oid for oid in scratch.changed}
    folders = {own, *_carrying(database, {r: o for r, o in tips.items() if _folder(r) != own}, changes)}
    carried = {ref: oid for ref, oid in tips.items() if _folder(ref) in folders}
    if folders != {own}:
        found = _gather(database, reachable(database, list(carried.values())))
    spec, listed = _spec(database, wish, found)
    if not spec.tokens and not any(spec.cleared.values()):
        raise ErasureRefused(
            f"the personal fields of {', '.join(map(repr, wish.ids))} hold their placeholders in every "
            f"version already: nothing is left to erase"
        )
    plan = _made(database, wish, spec, listed, {f: _session_of(database, f, carried) for f in folders})
    gone = {*spec.tokens, *spec.cleared}
    plan.rests = tuple(
        sorted(
            name
            for name, metas in found.versions.items()
            if name not in gone and any(r.artifact_id in gone for m in metas.values() for r in m.reads)
        )
    )
    return plan


def _made(
    database: Database,
    wish: Wish,
    spec: Spec,
    listed: list[ErasedArtifact],
    folders: dict[str, str],
) -> _Plan:
    """Stage the histories of some sessions without what a spec names, on the refs as they are now."""
    refs = database.backend.refs("")
    staged = Staging(database)
    rewriter = Rewriter(staged, spec)
    carried = {ref: oid for ref, oid in _tips(database, refs).items() if _folder(ref) in folders}
    _rewrite(database, rewriter, carried)
    spec = replace(spec, calls=tuple(sorted({*spec.calls, *rewriter.calls})))
    plan = _Plan(wish, spec, listed, folders, refs, rewriter, staged, [])
    for ref, oid in carried.items():
        if (head := head_at(database, ref, oid) if parse_ref(ref) else None) is not None:
            plan.branches.append(head)
    require_free(database, "erase from", {ref: oid for ref, oid in carried.items() if parse_ref(ref)})
    moves = [*_stones(plan), *_moved(database, plan, carried), *_others(database, plan), *_dropped(plan)]
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


def _stones(plan: _Plan) -> list[RefUpdate]:
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
        found += staged_stones(plan.staged, session, stones, plan.rewriter.first)
    return found


def _moved(database: Database, plan: _Plan, carried: Mapping[str, Oid]) -> list[RefUpdate]:
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


def _tag(database: Database, plan: _Plan, tag: Oid, commit: Oid, new: Oid) -> Oid:
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


def _others(database: Database, plan: _Plan) -> Iterator[RefUpdate]:
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


def _note(
    database: Database, plan: _Plan, ref: str, oid: Oid, moved: RefUpdate | None
) -> Iterator[RefUpdate]:
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


def _report(database: Database, plan: _Plan, oid: Oid) -> Iterator[RefUpdate]:
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


def _dropped(plan: _Plan) -> list[RefUpdate]:
    """Return the removal of what moves left behind, what was rejected and what was fetched of sessions."""
    found = []
    for folder, session in plan.folders.items():
        prefixes = (kept_refs(session), f"{_REJECTED}{folder}/")
        for ref, oid in plan.refs.items():
            is_fetched = ref.startswith(_REMOTES) and ref.split("/")[3:4] == [folder]
            if ref == operations_ref(session) or ref.startswith(prefixes) or is_fetched:
                found.append(RefUpdate(ref, oid, None))
    return found


# -- carrying it out -----------------------------------------------------------------------------------


def _locked(database: Database, names: Sequence[str], wait: float) -> ExitStack:
    stack = ExitStack()
    try:
        for name in names:
            stack.enter_context(database.backend.lock(name, wait=wait))
    except BaseException:
        stack.close()
        raise
    return stack


def _carried_out(database: Database, plan: _Plan, again: Callable[[], _Plan]) -> Erasure:
    """Write the marker, the new history and the tombstones, then remove the bytes. Callers hold the locks.

    Where somebody who needs no lock moved a ref, it is planned `again`.
    """
    report = plan.report()
    marker, ended = ERASING + encode_name(plan.wish.session), object_id("blob", _COLLECTING)
    for left in reversed(range(_ATTEMPTS)):
        held = database.backend.refs(marker).get(marker)
        begun = plan.staged.put("blob", _marker(plan))
        plan.staged.put("blob", _COLLECTING)
        if held != begun:
            database.write({begun: plan.staged.objects[begun]}, [RefUpdate(marker, held, begun)])
        wanted = plan.staged.reachable(move.new for move in plan.moves if move.new is not None)
        objects = {oid: item for oid, item in plan.staged.objects.items() if oid in {*wanted, ended}}
        try:
            database.write(objects, [*plan.moves, RefUpdate(marker, begun, ended)])
        except Contention:
            if not left:
                raise
            plan = again()
        else:
            break
    _collected(database, marker, ended)
    log.info(
        "erased",
        extra={
            "session": plan.wish.session,
            "erased": [one.token for one in plan.listed],
            "by": plan.wish.by,
        },
    )
    return report


_COLLECTING = canonical.encode({"phase": "collecting"})


def _marker(plan: _Plan) -> bytes:
    wish = plan.wish
    return canonical.encode(
        {
            "phase": "rewriting",
            "session": wish.session,
            "by": wish.by,
            "reason": wish.reason,
            "when": wish.when.isoformat(),
            "fields_only": wish.fields_only,
            "folders": plan.folders,
            "spec": plan.spec.to_dict(),
            "listed": [
                [one.id, one.token, one.type_id, one.versions, one.because, list(one.fields)]
                for one in plan.listed
            ],
        }
    )


def _collected(database: Database, marker: str, ended: Oid) -> None:
    assert isinstance(database.backend, Collectable)
    database.backend.collect()
    database.forget()
    database.write({}, [RefUpdate(marker, ended, None)])


def finish(database: Database, *, wait: float = 0.0) -> bool:
    """Finish the erasures that were killed, if there are any; return whether none is left.

    One that somebody is at, or whose branches somebody runs, is left alone. Blocks.
    """
    if not database.backend.refs(ERASING):
        return True
    try:
        with database.backend.lock("erase", wait=wait):
            _finish_held(database, wait)
    except SessionBusy as error:
        log.warning("an erasure is not finished yet", extra={"error": f"{error}"})
        return False
    return True


def _finish_held(database: Database, wait: float) -> None:
    """Finish what was killed. The lock `erase` is held, so nobody is at it."""
    for marker, held in database.backend.refs(ERASING).items():
        record: Any = canonical.decode(database.read(held).data)
        if record["phase"] == "collecting":
            _collected(database, marker, held)
            continue
        listed = [
            ErasedArtifact(name, token, kind, count, because, tuple(fields))
            for name, token, kind, count, because, fields in record["listed"]
        ]
        when = datetime.fromisoformat(record["when"])
        wish = Wish(
            record["session"],
            tuple(one.id for one in listed if not one.because),
            record["fields_only"],
            record["by"],
            record["reason"],
            when,
        )
        spec = Spec.from_dict(record["spec"])
        plan = _made(database, wish, spec, listed, dict(record["folders"]))
        with _locked(database, plan.locks(), wait):

            def again(was: _Plan = plan) -> _Plan:
                return _made(database, was.wish, was.spec, was.listed, was.folders)

            _carried_out(database, again(), again)
