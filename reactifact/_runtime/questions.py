"""Questions that agents wait for: whom an answer wakes, and what becomes of a question at its deadline.

Owns the way from an answered or expired question back to the execution that asked it. What an answer must
be is `interrupt`'s, answering from outside the session layer's.
"""

from __future__ import annotations

from datetime import datetime

from .._context.context import Context
from .._context.working_copy import WorkingCopy
from .._store.migrations import current_tree
from .._store.names import encode_name
from .._store.object_db import Objects
from .._store.objects import Oid
from .._store.trees import subtree
from ..events import Event, EventType
from ..interrupt import TypedQuestion
from ..types.ids import type_id_of

_TYPE = type_id_of(TypedQuestion)
_FOLDER = (encode_name(_TYPE),)  # below `artifacts/`


def resumed_by(view: WorkingCopy, event: Event) -> tuple[str, Event] | None:
    """Return the agent that waited for what an event tells, and the event it is run again on."""
    if event.artifact_type is not TypedQuestion or event.type != EventType.ARTIFACT_UPDATED:
        return None
    stored = view.state.stored(event.artifact_id)
    if stored is None:
        return None
    data = view.artifact(stored).data
    if not isinstance(data, TypedQuestion) or not data.asked_by or not (data.answered or data.expired):
        return None
    return None if data.asked_on is None else (data.asked_by, Event.from_dict(data.asked_on))


def holds_questions(objects: Objects, commit: Oid) -> bool:
    """Tell whether the state of a commit has any question that may have a deadline."""
    return subtree(objects, current_tree(objects, commit), ("artifacts", *_FOLDER)) is not None


class Deadlines:
    """The deadlines of the open questions of a context.

    Where no question has changed since the last look, a look costs one comparison; else that of those that
    have changed.
    """

    def __init__(self) -> None:
        self._tree: Oid | None = None
        self._known: dict[str, tuple[Oid, datetime | None]] = {}  # by id: its payload, until when it is open

    def expire(self, context: Context) -> None:
        """Mark the open questions whose deadline has passed, in a commit of its own; that wakes who asked."""
        context.commits.commit_direct()  # an answer may be among them
        working = context.commits.working
        self._look(working)
        if not self._known:
            return
        now = context.resources.clock.now()
        over = sorted((until, key) for key, (_, until) in self._known.items() if until and until <= now)
        for _, question_id in over:
            stored = working.state.stored(question_id)
            data = None if stored is None else working.version_data(stored.meta)
            if isinstance(data, TypedQuestion):
                working.update(
                    question_id, data.model_copy(update={"expired": True}), context.commits.origin()
                )
        if over:
            names = ", ".join(question_id for _, question_id in over)
            context.commits.commit_direct(author="reactifact", message=f"reactifact: expire {names}")

    def next(self, context: Context) -> datetime | None:
        """Return when the first of the open questions is over, `None` where none has a deadline."""
        self._look(context.commits.working)
        return min((until for _, until in self._known.values() if until is not None), default=None)

    def _look(self, working: WorkingCopy) -> None:
        state = working.state
        entry = state.objects.find(state.roots.artifacts, _FOLDER)
        tree = None if entry is None else entry.oid
        if tree == self._tree:
            return
        known, self._known = self._known, {}
        for question_id in working.state.ids_of([_TYPE]) if tree is not None else ():
            stored = working.state.stored(question_id)
            if stored is None:
                continue
            payload = stored.meta.payload
            found = known.get(question_id)
            if found is None or found[0] != payload:
                data = working.version_data(stored.meta)
                is_open = isinstance(data, TypedQuestion) and not (data.answered or data.expired)
                found = payload, data.deadline if is_open and isinstance(data, TypedQuestion) else None
            self._known[question_id] = found
        self._tree = tree
