"""Going on from what somebody else wrote: direct changes are applied again on top of it.

Owns the reload of a context whose branch moved in the store. What agents had committed here and
could not publish is dropped: its events are in the queue that the store holds, or come again from
the direct changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ..errors import StaleSession
from ..store.database import Objects
from ..store.history import first_parents
from ..store.line import Line
from ..store.merge import MergePlan
from ..store.objects import Oid
from ..store.records import CommitRecord, operation_payload, read_record
from ..store.state import Origin
from . import merging, rejoining
from .committing import Committer
from .conflicts import conflict, details_of
from .context import Context
from .encoding import Encoded
from .resources import RuntimeResources
from .types import resolve, revision_of
from .working import Working


def refresh(context: Context) -> bool:
    """Load the branch again and apply unpublished direct changes on top; return whether it moved.

    Raises `MergeConflict`, naming the artifacts, when somebody else changed what was changed
    here, and `StaleSession` when the branch is gone; the context is untouched then.
    """
    commits = context.commits
    line = commits.line
    if line.ref is None:
        raise StaleSession("a branch that has no name in the store cannot be refreshed: save it first")
    fresh = rejoining.load(line.database, line.session, line.branch, context.resources)
    if fresh is None:
        if line.published is None:
            return False
        raise StaleSession(
            f"branch {line.branch!r} of session {line.session!r} was deleted: open the session anew"
        )
    if fresh.published == line.published:
        return False
    context.commits.commit_direct()
    mine = _direct_changes(line)
    if mine is None:
        commits.reload(fresh)
        return True
    merge = merging.prepare(fresh, mine, None)
    if merge.plan.clashes:
        details = details_of(merge.objects, merge.plan.clashes)
        raise conflict(details, "the direct changes made here")
    commits.reload(fresh)
    merge.stage(fresh, mine)
    _apply_again(commits, merge.plan)
    return True


def _apply_again(commits: Committer, plan: MergePlan) -> None:
    """Make the direct changes once more, as changes of the state that is there now."""
    origin, working = commits.origin(), commits.working
    made = [combined.result.stored for combined in plan.combine]
    for stored in [*plan.adopt, *(stored for stored in made if stored is not None)]:
        meta = stored.meta
        payload = working.state.payload(meta)
        encoded = Encoded(meta.type_id, payload, meta.revision, resolve(meta.type_id))
        working.write(meta.id, encoded, origin, "update")
    for artifact_id in plan.delete:
        working.delete(artifact_id, origin)
    for source, relation, target in plan.link:
        working.link(source, relation, target)
    for source, relation, target in plan.unlink:
        working.unlink(source, relation, target)


def _direct_changes(line: Line) -> Line | None:
    """Return a line with the unpublished direct changes alone, `None` when there are none."""
    tip = line.seal()
    if line.published is None:
        return None
    ours, dropped = _unpublished(line.objects, tip, line.published)
    known = [operation for record in _direct(line.objects, dropped) for operation in record.operations]
    records = list(_direct(line.objects, ours))
    if not records:
        return None
    twin = Line(line.database, line.ledger, line.session, line.branch)
    twin.objects.absorb(line.objects)
    twin.move_to(line.published)
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


def _direct(objects: Objects, commits: Iterable[Oid]) -> Iterator[CommitRecord]:
    for oid in commits:
        record = read_record(objects, oid)
        if record is not None and record.kind == "direct":
            yield record


def _unpublished(objects: Objects, tip: Oid | None, published: Oid) -> tuple[list[Oid], list[Oid]]:
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
