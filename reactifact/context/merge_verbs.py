"""The merges of a context: three-way with conflicts and policies, and the two-way union.

Owns the order of steps that makes a merge all or nothing: plan on the side, refuse, then commit what
was open, join the ledgers and apply.
"""

from __future__ import annotations

from ..errors import StoreError
from ..store.line import Line
from . import merging
from .committing import Committer
from .conflicts import conflict
from .encoding import check_text
from .merging import Merge
from .resolving import MergePreview, Policy, check_policy, preview


def merge(
    ours: Committer,
    theirs: Committer,
    *,
    message: str,
    policy: Policy | None,
    dry_run: bool,
    emit_events: bool,
) -> MergePreview | None:
    """Merge another branch into ours, or only say what that would do."""
    check_text(message, "merge message")
    check_policy(policy)
    before = _standing(ours.line), _standing(theirs.line)
    planned = merging.prepare(ours.line, theirs.line, policy)
    if before != (_standing(ours.line), _standing(theirs.line)):
        raise StoreError(
            "a policy or a merge function changed one of the contexts that are being merged: it may "
            "only look at what it is given; nothing was merged"
        )
    shown = preview(planned.objects, planned.plan)
    if dry_run:
        return shown
    if shown.details:
        raise conflict(list(shown.details), f"branch {theirs.line.branch!r}")
    _apply(ours, theirs, planned, message, emit_events=emit_events)
    return None


def merge_from(ours: Committer, theirs: Committer) -> None:
    """Take what ours has not or has in a lower version, and unite the relations."""
    planned = merging.prepare(ours.line, theirs.line, None, three_way=False)
    _apply(ours, theirs, planned, f"Merge from {theirs.line.branch}", emit_events=False)


def _standing(line: Line) -> tuple[object, ...]:
    state = line.state
    return line.change, state.roots, state.next_sequence, dict(state.changed), dict(state.edges)


def _apply(ours: Committer, theirs: Committer, planned: Merge, message: str, *, emit_events: bool) -> None:
    for side in (ours, theirs):
        side.begin()
        side.note_queue()
        side.line.seal()
    changed = merging.join_ledgers(ours.line, theirs.line)
    if not planned.plan.is_empty:
        planned.stage(ours.line, theirs.line)
        ours.commit_merge(planned, theirs.line, message, emit_events=emit_events)
    elif planned.is_news:
        planned.stage(ours.line, theirs.line)
        ours.commit_meeting(theirs.line)
    for action_id in changed:
        ours.working.renew(action_id)
