"""Applying what a merge planned to the working state of a context.

Owns which version of an artifact a merge leaves, the operations and events it notes, and what the
branch waits for afterwards. Nothing is compared or decided here.
"""

from __future__ import annotations

from ..store.layout import Meta
from ..store.merge import Combined, MergePlan
from ..store.state import Origin, State, Stored
from . import staleness
from .commits import Write
from .encoding import ACTION_TYPE
from .events import EventType
from .working import Working


def apply_plan(plan: MergePlan, working: Working, theirs: State, origin: Origin) -> list[Write]:
    """Take over what a plan says, adopted versions as they are; return what was written.

    The objects of the plan are staged. Queues the events of it all; the caller decides whether they stay.
    """
    writes: list[Write] = []
    state = working.state
    adopted = {stored.meta.id for stored in plan.adopt}
    written = [_adopt(stored, state, origin) for stored in plan.adopt]
    for item in plan.combine:
        meta, is_theirs = _combine(item, state, origin)
        written.append((meta, item.ours.stored is not None))
        if is_theirs:
            adopted.add(meta.id)
    staleness.settle_listings(state, theirs, adopted)
    for meta, existed in written:
        _note(meta, existed, working, origin, writes)
    for artifact_id in plan.delete:
        gone = working.delete(artifact_id, origin)
        writes.append(Write(artifact_id, 0 if gone is None else gone.version, "delete"))
    for artifact_id in _taken_over(plan):
        state.take_versions(artifact_id, theirs)
    state.edges.update(plan.edges)
    state.next_sequence = max(state.next_sequence, theirs.next_sequence)
    for kind, links in (("link", plan.link), ("unlink", plan.unlink)):
        for source, relation, target in links:
            working.journal({"type": kind, "artifact_id": source, "relation": relation, "target_id": target})
    return writes


def _taken_over(plan: MergePlan) -> list[str]:
    """Return the artifacts that go on from the other side's versions."""
    found = [stored.meta.id for stored in plan.adopt]
    for item in plan.combine:
        mine, other = item.ours.stored, item.theirs.stored
        if other is not None and (mine is None or other.meta.version > mine.meta.version):
            found.append(other.meta.id)
    return found


def _adopt(stored: Stored, state: State, origin: Origin) -> tuple[Meta, bool]:
    """Take a version over; return it, and whether there was one before."""
    known = state.stored(stored.meta.id)
    state.adopt(stored, origin.commit)
    return stored.meta, known is not None


def _combine(item: Combined, state: State, origin: Origin) -> tuple[Meta, bool]:
    """Write a new version on top of the side with the higher one, so that no version goes back.

    Returns it, and whether it is that of the other side.
    """
    mine, other, result = item.ours.stored, item.theirs.stored, item.result.stored
    assert result is not None
    if other is not None and (mine is None or other.meta.version > mine.meta.version):
        if item.result.content == item.theirs.content:
            return _adopt(other, state, origin)[0], True
        state.adopt(other, origin.commit)
    like = result.meta
    return state.put(like.id, like.type_id, state.payload(like), like.revision, origin), False


def _note(meta: Meta, existed: bool, working: Working, origin: Origin, writes: list[Write]) -> None:
    kind = "update" if existed else "create"
    if meta.type_id == ACTION_TYPE:
        working.expect(meta)
    working.journal(
        {
            "type": kind,
            "artifact_id": meta.id,
            "data_type": meta.type_id,
            "payload": meta.payload,
            "revision": meta.revision,
            "version": meta.version,
        }
    )
    model = working.type_of(meta)
    if existed:
        working.emit_update(model, meta.id, origin.when)
    else:
        working.emit(EventType.ARTIFACT_CREATED, model, meta.id, origin.when)
    writes.append(Write(meta.id, meta.version, kind))
