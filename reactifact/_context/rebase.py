"""A branch that moved beneath a context: going on from what others wrote, and merges made by hand.

Owns `refresh`, which puts what was changed here on top, and the merging again, by our rules, of a merge
that somebody made with git.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .._store import canonical
from .._store._history.merge import MergePlan
from .._store.branch import Branch, stored_ref
from .._store.commits import CommitRecord, operation_payload, own_record, read_record, read_roots
from .._store.graph import first_parents
from .._store.layout import BOOKKEEPING, Roots, artifact_path, decode_edges
from .._store.ledger import Ledger
from .._store.object_db import Database, Objects
from .._store.objects import CommitObject, Oid
from .._store.state import Origin
from .._store.trees import Path, compare, lookup
from ..artifacts import Encoded, encode
from ..errors import MergedByHand, ReactifactError, SessionBusy, StaleSession, StoreError
from ..merging import ConflictDetail, MergeConflict, conflict, details_of
from ..resources import RuntimeResources
from ..threads import in_thread
from ..types.codec import decode_payload
from ..types.registry import resolve, revision_of
from . import commit, merge
from .commit import Committer
from .context import Context
from .working_copy import WorkingCopy

# -- A merge that somebody made with git is merged again by our rules when its branch is opened --


_ATTEMPTS = 4


def load(
    database: Database, session: str, branch: str, resources: RuntimeResources | None = None
) -> Branch | None:
    """Read a branch, or return `None` when there is none; a merge made by hand is merged again first.

    Runs in a worker thread. Raises what `Branch.load` does, `MergeConflict` where the hand-made merge
    leaves one open, `StoreError` where it holds what no merge of its parents gives; nothing has moved then.
    """
    deeper: Oid | None = None
    for _ in range(_ATTEMPTS):
        try:
            return Branch.load(database, session, branch)
        except MergedByHand as error:
            ref = stored_ref(database, session, branch)
            if database.backend.refs(ref).get(ref) != error.commit:
                if error.commit == deeper:
                    raise  # it stands deeper in the history
                deeper = error.commit  # or the branch moved since it was read
                continue
            try:
                _rejoin(database, session, branch, error, resources or RuntimeResources())
            except StaleSession:
                continue  # somebody else moved the branch, perhaps in the same way
    return Branch.load(database, session, branch)


def _rejoin(
    database: Database, session: str, branch: str, error: MergedByHand, resources: RuntimeResources
) -> None:
    made = database.commit(error.commit)
    records = [own_record(database, parent) for parent in made.parents]
    if len(records) != 2 or any(record is None or record.kind == "ledger" for record in records):
        raise error
    other = records[1]
    assert other is not None
    ref = stored_ref(database, session, branch)
    ours = _standing(Branch.named(database, session, branch), made.parents[0])
    ours.ref, ours.published = ref, error.commit
    theirs = _standing(Branch.named(database, other.session, other.branch), made.parents[1])
    tree, mine, others = (read_roots(database, oid) for oid in (error.commit, *made.parents))
    by_hand = _ByHand(database, error.commit, tree, mine, others)
    way_out = (
        f"Move the ref back with `git update-ref {ref} {made.parents[0]}`, then merge {made.parents[1][:12]} "
        f"with BranchStore.merge(into=, source=, policy=)"
    )
    heading = f"{ref} points at {error.commit[:12]}, a merge made by hand"
    committer = Committer(ours, resources)
    try:
        commit.merge(
            committer,
            Committer(theirs, resources),
            message=_message(made, error.commit),
            policy=by_hand.decide,
            dry_run=False,
            emit_events=False,
        )
    except MergeConflict as conflict:
        text = "\n".join(
            [
                f"{heading}, which leaves conflicts open; nothing was moved",
                *map(str, conflict.details),
                *(f"{name}: {reason}" for name, reason in sorted(by_hand.refused.items())),
                way_out,
            ]
        )
        raise MergeConflict(text, conflict.conflicts, conflict.details) from error
    edited = by_hand.edits(ours.objects, ours.state.roots)
    if edited:
        raise StoreError(
            f"{heading}, and {', '.join(edited)} in it is neither what a side has nor what merging them "
            f"gives: make that change with BranchStore.edit after the merge; nothing was moved. {way_out}"
        ) from error
    committer.note_queue()  # a merge leaves what the branch has still to react to
    ours.publish()


def _standing(line: Branch, commit: Oid) -> Branch:
    line.ledger.refresh()
    line.move_to(commit)
    return line


def _message(made: CommitObject, commit: Oid) -> str:
    said = made.message.strip().split("\n")[0].encode("utf-8", "replace").decode()
    return (
        f"{said or 'Merge by hand'}\n\n"
        f"Made by hand by {made.author.name} as {commit}; merged again by reactifact"
    )


@dataclass(slots=True)
class _ByHand:
    """The hand-made tree beside those of its two parents."""

    objects: Objects
    commit: Oid
    made: Roots
    ours: Roots
    theirs: Roots
    refused: dict[str, str] = field(default_factory=dict)  # why a payload was not taken, by artifact id

    def decide(self, detail: ConflictDetail) -> Any:
        """Return what the person decided on an artifact that both sides changed, `None` for nothing."""
        sides = {"ours": detail.types[1], "theirs": detail.types[2]}
        held: dict[str, Oid] = {}
        for type_id in sides.values():
            blob = None if type_id is None else self._blob(self.made, type_id, detail.artifact_id)
            if type_id is not None and blob is not None:
                held[type_id] = blob
        if not held:
            for side, type_id in sides.items():
                if type_id is None:
                    return side
            return self._refuse(detail, "the hand-made tree has no payload of it, and no side deleted it")
        if len(held) > 1:
            return self._refuse(detail, "the hand-made tree has a payload of it in each of its two types")
        ((type_id, blob),) = held.items()
        for side, roots in (("ours", self.ours), ("theirs", self.theirs)):
            if sides[side] == type_id and self._blob(roots, type_id, detail.artifact_id) == blob:
                return side
        return self._written(detail, type_id, blob)

    def _written(self, detail: ConflictDetail, type_id: str, blob: Oid) -> Any:
        """Return the model of a payload that the person wrote, where it is valid."""
        data = self.objects.read(blob).data
        try:
            model = resolve(type_id)
            found = decode_payload(model, data, type_id=type_id, revision=revision_of(model))
            if canonical.decode(encode(found).payload) == canonical.decode(data):
                return found
        except (ReactifactError, ValueError) as error:
            return self._refuse(detail, f"its payload in the hand-made tree is not valid: {error}")
        return self._refuse(detail, "its payload in the hand-made tree is not what its class would store")

    def _refuse(self, detail: ConflictDetail, reason: str) -> None:
        self.refused[detail.artifact_id] = reason

    def _blob(self, roots: Roots, type_id: str, artifact_id: str) -> Oid | None:
        return _at(self.objects, roots.artifacts, artifact_path(type_id, artifact_id))

    def edits(self, objects: Objects, result: Roots) -> list[str]:
        """Return the files of the hand-made tree that neither side has and whose content ours lacks."""
        tree = objects.tree(objects.commit(self.commit).tree)
        found = sorted(tree.keys() - _OWN)
        for name, read in (("artifacts", _payload), ("relations", _links)):
            made, merged = getattr(self.made, name), getattr(result, name)
            sides = (getattr(self.ours, name), getattr(self.theirs, name))
            for path, blob, ours in compare(objects, made, merged):
                if blob in [_at(objects, side, path) for side in sides]:
                    continue
                if blob is None or ours is None or read(objects, blob) != read(objects, ours):
                    found.append("/".join((name, *path)))
        return found


_OWN = {".gitattributes", BOOKKEEPING, "artifacts", "relations", "outbox"}
"""The names at the top of a commit. What a person did to bookkeeping and outbox does not count."""


def _at(objects: Objects, root: Oid | None, path: Path) -> Oid | None:
    entry = lookup(objects, root, path)
    return None if entry is None else entry.oid


def _payload(objects: Objects, blob: Oid) -> Any:
    """Return what a payload says, however it is written; its bytes where that is no JSON."""
    data = objects.read(blob).data
    try:
        return canonical.decode(data)
    except ValueError:
        return data


def _links(objects: Objects, blob: Oid) -> Any:
    """Return the relations of a file without their order; its bytes where it is none of ours."""
    data = objects.read(blob).data
    try:
        source, edges = decode_edges(data)
    except (ValueError, LookupError, TypeError):
        return data
    return source, {(edge.relation, edge.target) for edge in edges}


# -- going on from what somebody else wrote: direct changes are applied again on top of it --


async def refresh(context: Context) -> bool:
    """Load the branch again and apply unpublished direct changes on top; return whether it moved.

    Worker threads read, on copies; the context is changed on the event loop alone and in one go, with all
    that was changed meanwhile. Raises `SessionBusy` while a turn runs, `MergeConflict`, naming the
    artifacts, when somebody else changed what was changed here, and `StaleSession` when the branch is
    gone, or where a merge or an edit of ours would be dropped; the context is untouched then.
    """
    _refuse_beside_a_turn(context)
    async with context.publish_lock:
        _refuse_beside_a_turn(context)  # one that began while we waited; another waits for us now
        line = context.line
        fresh = await in_thread(_load, line.database, line.session, line.branch, line.ref, context.resources)
        if fresh is None and line.published is not None:
            raise StaleSession(
                f"branch {line.branch!r} of session {line.session!r} was deleted: open the session anew"
            )
        if fresh is None or fresh.published == line.published:
            return False
        ours = _Ours.of(context)
        again = await in_thread(ours.on_top_of, fresh)
        await in_thread(line.ledger.refresh)
        # from here on nothing is awaited
        now = _Ours.of(context)
        if now.tip != ours.tip:
            again = now.on_top_of(fresh)  # the store was read just now, and is in the cache
        _go_on(context, fresh, again)
    return True


def _refuse_beside_a_turn(context: Context) -> None:
    if context.runner is not None:
        raise SessionBusy(
            f"session.refresh() was called while run {context.runner} is in progress, whose executions still "
            f"read what it would replace: await the run first"
        )


def _load(
    database: Database, session: str, branch: str, ref: str | None, resources: RuntimeResources
) -> Branch | None:
    if ref is None:
        raise StaleSession("a branch that has no name in the store cannot be refreshed: save it first")
    return load(database, session, branch, resources)


@dataclass(frozen=True, slots=True)
class _Again:
    """The direct changes as a line of their own, and how they go on top of what the store holds."""

    changes: Branch
    merge: merge.Merge


@dataclass(frozen=True, slots=True)
class _Ours:
    """A copy of a line, for a thread to read, and the commit that the store was last known to hold."""

    copy: Branch
    tip: Oid | None
    published: Oid | None

    @classmethod
    def of(cls, context: Context) -> _Ours:
        """Commit what is open on a context and copy its line."""
        context.commits.commit_direct()
        line = context.line
        return cls(line.fork_off(line.branch), line.seal(), line.published)

    def on_top_of(self, fresh: Branch) -> _Again | None:
        """Return how the direct changes apply to `fresh`, which stays as it is; `None` without any.

        Raises `MergeConflict`, `StaleSession`.
        """
        changes = _direct_changes(self.copy, self.published, fresh.ledger)
        if changes is None:
            return None
        planned = merge.prepare(fresh, changes, None)
        if planned.plan.clashes:
            details = details_of(planned.objects, planned.plan.clashes)
            raise conflict(details, "the direct changes made here")
        return _Again(changes, planned)


def _go_on(context: Context, fresh: Branch, again: _Again | None) -> None:
    fresh.ledger = context.line.ledger  # it holds what was recorded here and is not written yet
    context.commits.reload(fresh)
    if again is not None:
        again.merge.stage(fresh, again.changes)
        _apply_again(context.commits, again.merge.plan)


def _apply_again(commits: Committer, plan: MergePlan) -> None:
    """Make the direct changes once more, as changes of the state that is there now."""
    origin, working = commits.origin(), commits.working
    made = [combined.result.stored for combined in plan.combine]
    for stored in [*plan.adopt, *(stored for stored in made if stored is not None)]:
        meta = stored.meta
        payload = working.state.payload(meta)
        encoded = Encoded(meta.type_id, payload, meta.revision, resolve(meta.type_id))
        kind = "create" if working.state.stored(meta.id) is None else "update"
        working.write(meta.id, encoded, origin, kind)
    for artifact_id in plan.delete:
        working.delete(artifact_id, origin)
    for source, relation, target in plan.link:
        working.link(source, relation, target)
    for source, relation, target in plan.unlink:
        working.unlink(source, relation, target)


def _direct_changes(line: Branch, published: Oid | None, ledger: Ledger) -> Branch | None:
    """Return a line with the unpublished direct changes alone, `None` when there are none.

    Raises `StaleSession` where there is something else that the application made.
    """
    ours, dropped = _unpublished(line.objects, line.seal(), published)
    _refuse_to_drop(line, ours)
    known = [operation for record in _direct(line.objects, dropped) for operation in record.operations]
    records = list(_direct(line.objects, ours))
    if not records:
        return None
    twin = Branch(line.database, ledger, line.session, line.branch)
    twin.objects.absorb(line.objects)
    if published is not None:
        twin.move_to(published)
    working = WorkingCopy(twin.state, twin.ledger, RuntimeResources(), durable=False, branch=line.branch)
    for record in reversed(records):
        origin = Origin(record.author, datetime.fromisoformat(record.timestamp))
        for operation in record.operations:
            if not any(_is_same(operation, other) for other in known):
                _apply(working, operation, origin)
        known = []  # only what outlived a checkout tells again what the store holds
        twin.commit(record)
    twin.seal()
    return twin


def _refuse_to_drop(line: Branch, commits: Iterable[Oid]) -> None:
    """Raise `StaleSession` where commits hold what neither an agent nor a direct change brings back."""
    for oid in commits:
        record = read_record(line.objects, oid)
        if record is not None and record.kind in ("merge", "edit"):
            raise StaleSession(
                f"branch {line.branch!r} of session {line.session!r} moved in the store, and a refresh would "
                f"drop what was committed here and never saved: {record.message!r}; open the session anew "
                f"and do it again"
            )


def _direct(objects: Objects, commits: Iterable[Oid]) -> Iterator[CommitRecord]:
    for oid in commits:
        record = read_record(objects, oid)
        if record is not None and record.kind == "direct":
            yield record


def _unpublished(objects: Objects, tip: Oid | None, published: Oid | None) -> tuple[list[Oid], list[Oid]]:
    """Return the commits of a line that the store does not hold, and those of the store that it dropped.

    Both the newest first; the second are there after a checkout that was not published.
    """
    ours: list[Oid] = []
    for oid, _ in first_parents(objects, tip):
        if oid == published:
            return ours, []
        ours.append(oid)
    places = {oid: place for place, oid in enumerate(ours)}
    dropped: list[Oid] = []
    for oid, _ in first_parents(objects, published):
        if oid in places:
            return ours[: places[oid]], dropped
        dropped.append(oid)
    return ours, dropped


def _is_same(operation: dict[str, Any], other: dict[str, Any]) -> bool:
    """Tell whether a change that outlived a checkout is one that the store holds.

    The record of a checkout tells several changes of one artifact as one: what counts is what came of them.
    """
    names = ("artifact_id", "payload", "version", "relation", "target_id")
    return all(operation.get(name) == other.get(name) for name in names)


def _apply(working: WorkingCopy, operation: dict[str, Any], origin: Origin) -> None:
    """Apply one operation of a record as the direct change it was."""
    kind, artifact_id = operation["type"], operation["artifact_id"]
    if kind == "delete":
        working.delete(artifact_id, origin)
    elif kind == "link":
        working.link(artifact_id, operation["relation"], operation["target_id"])
    elif kind == "unlink":
        working.unlink(artifact_id, operation.get("relation"), operation.get("target_id"))
    else:
        payload = operation_payload(working.state.objects, operation)
        model = resolve(operation["data_type"])
        encoded = Encoded(operation["data_type"], payload, revision_of(model), model)
        working.write(artifact_id, encoded, origin, kind)
