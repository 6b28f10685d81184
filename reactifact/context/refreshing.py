"""Going on from what somebody else wrote: direct changes are applied again on top of it.

Owns the reload of a context whose branch moved in the store. What agents had committed here and
could not publish is dropped: its events are in the queue that the store holds, or come again from
the direct changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import SessionBusy, StaleSession
from ..store.database import Database, Objects
from ..store.history import first_parents
from ..store.ledger import Ledger
from ..store.line import Line
from ..store.merge import MergePlan
from ..store.objects import Oid
from ..store.records import CommitRecord, operation_payload, read_record
from ..store.state import Origin
from ..threads import in_thread
from . import merging, rejoining
from .committing import Committer
from .conflicts import conflict, details_of
from .context import Context
from .encoding import Encoded
from .resources import RuntimeResources
from .types import resolve, revision_of
from .working import Working


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
) -> Line | None:
    if ref is None:
        raise StaleSession("a branch that has no name in the store cannot be refreshed: save it first")
    return rejoining.load(database, session, branch, resources)


@dataclass(frozen=True, slots=True)
class _Again:
    """The direct changes as a line of their own, and how they go on top of what the store holds."""

    changes: Line
    merge: merging.Merge


@dataclass(frozen=True, slots=True)
class _Ours:
    """A copy of a line, for a thread to read, and the commit that the store was last known to hold."""

    copy: Line
    tip: Oid | None
    published: Oid | None

    @classmethod
    def of(cls, context: Context) -> _Ours:
        """Commit what is open on a context and copy its line."""
        context.commits.commit_direct()
        line = context.line
        return cls(line.fork_off(line.branch), line.seal(), line.published)

    def on_top_of(self, fresh: Line) -> _Again | None:
        """Return how the direct changes apply to `fresh`, which stays as it is; `None` without any.

        Raises `MergeConflict`, `StaleSession`.
        """
        changes = _direct_changes(self.copy, self.published, fresh.ledger)
        if changes is None:
            return None
        merge = merging.prepare(fresh, changes, None)
        if merge.plan.clashes:
            details = details_of(merge.objects, merge.plan.clashes)
            raise conflict(details, "the direct changes made here")
        return _Again(changes, merge)


def _go_on(context: Context, fresh: Line, again: _Again | None) -> None:
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


def _direct_changes(line: Line, published: Oid | None, ledger: Ledger) -> Line | None:
    """Return a line with the unpublished direct changes alone, `None` when there are none.

    Raises `StaleSession` where there is something else that the application made.
    """
    ours, dropped = _unpublished(line.objects, line.seal(), published)
    _refuse_to_drop(line, ours)
    known = [operation for record in _direct(line.objects, dropped) for operation in record.operations]
    records = list(_direct(line.objects, ours))
    if not records:
        return None
    twin = Line(line.database, ledger, line.session, line.branch)
    twin.objects.absorb(line.objects)
    if published is not None:
        twin.move_to(published)
    working = Working(twin.state, twin.ledger, RuntimeResources(), durable=False, branch=line.branch)
    for record in reversed(records):
        origin = Origin(record.author, datetime.fromisoformat(record.timestamp))
        for operation in record.operations:
            if not any(_is_same(operation, other) for other in known):
                _apply(working, operation, origin)
        known = []  # only what outlived a checkout tells again what the store holds
        twin.commit(record)
    twin.seal()
    return twin


def _refuse_to_drop(line: Line, commits: Iterable[Oid]) -> None:
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


def _apply(working: Working, operation: dict[str, Any], origin: Origin) -> None:
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
