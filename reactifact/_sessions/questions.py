"""Questions in a store: which are open, in which session, and answering one from outside.

Owns finding a question by its id among sessions and branches. What an answer must be is `interrupt`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from .._context import rebase
from .._context.context import Context
from .._context.push import publish, run_lock
from .._store._history.revset import DAMAGE, DamagedHead, Head, damaged, readable_heads
from .._store.branch import MAIN, Branch
from .._store.object_db import Database
from ..errors import AnswerInvalid, UnknownQuestion
from ..interrupt import PendingQuestion, TypedQuestion
from ..resources import RuntimeResources
from ..threads import in_thread
from ..types.ids import type_id_of

_TYPES = (type_id_of(PendingQuestion), type_id_of(TypedQuestion))


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """One question on one branch. `status` is open, answered or expired; times are aware.

    `answer_type`, `answer_schema`, `options` (by label) and `deadline` are those of a `TypedQuestion`.
    """

    session: str
    branch: str
    id: str
    question: str
    kind: str
    status: str
    asked_at: datetime
    notes: dict[str, Any]
    answer: Any = None
    answer_type: str | None = None
    answer_schema: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    deadline: datetime | None = None
    asked_by: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        until = None if self.deadline is None else self.deadline.isoformat()
        return {**asdict(self), "asked_at": self.asked_at.isoformat(), "deadline": until}


def questions(
    database: Database, session: str | None, now: datetime, *, only_open: bool = True
) -> tuple[list[AskedQuestion], list[DamagedHead]]:
    """Return the questions of a session, or of all, the oldest first in each branch; and what is damaged.

    A fork takes the questions of its origin along: they are listed for both.
    """
    heads, broken = readable_heads(database, session)
    found: list[AskedQuestion] = []
    for head in heads:
        try:
            if not head.is_ledger:
                found += _of_branch(database, head, now)
        except DAMAGE as error:
            broken.append(damaged(head, error))
    return [one for one in found if one.status == "open" or not only_open], broken


def _of_branch(database: Database, head: Head, now: datetime) -> Iterator[AskedQuestion]:
    line = Branch.load(database, head.session, head.branch)
    if line is None:
        return
    working = Context.over(line).commits.working
    for question_id in line.state.ids_of(_TYPES):
        stored = line.state.stored(question_id)
        if stored is None:
            continue
        data = working.version_data(stored.meta)
        if isinstance(data, PendingQuestion):
            asked_at = datetime.fromisoformat(stored.meta.created_at)
            yield _asked((head.session, head.branch), question_id, data, asked_at, now)


def _asked(
    place: tuple[str, str], question_id: str, data: PendingQuestion, at: datetime, now: datetime
) -> AskedQuestion:
    typed: dict[str, Any] = {}
    status = "answered" if data.answered else "open"
    if isinstance(data, TypedQuestion):
        names = ("answer_type", "answer_schema", "deadline", "asked_by")
        typed = {name: getattr(data, name) for name in names}
        if data.options is not None:
            typed["options"] = {option.label: option.answer for option in data.options}
        status = "expired" if data.is_over(now) else status
    return AskedQuestion(
        *place,
        question_id,
        data.question,
        data.kind,
        status,
        at,
        data.notes,
        data.resolution,
        **typed,
    )


async def answer(
    database: Database,
    question_id: str,
    given: Any,
    *,
    session: str | None = None,
    branch: str | None = None,
    option: str | None = None,
    change: bool = False,
    wait: float = 0.0,
    resources: RuntimeResources | None = None,
) -> AskedQuestion:
    """Answer a question and write that; see `SessionStore.answer`."""
    clock = (resources or RuntimeResources()).clock
    if session is not None and branch is not None:
        place = session, branch
    else:
        place = await in_thread(_place, database, question_id, session, branch, clock.now())
    async with run_lock(Branch.named(database, *place), clock, wait):
        line = await in_thread(rebase.load, database, *place, resources)
        context = None if line is None else Context.over(line, resources)
        found = None if context is None else context.get(question_id)
        if context is None or found is None or not isinstance(found.data, PendingQuestion):
            raise UnknownQuestion(
                f"{place[0]}/{place[1]} holds no question {question_id!r}: `reactifact questions` lists what "
                f"is open"
            )
        if option is not None:
            given = _option(question_id, found.data, option)
        context.resume(question_id, given, change=change)
        await publish(context)
        return _asked(place, question_id, found.data, found.created_at, clock.now())


def _option(question_id: str, data: PendingQuestion, label: str) -> Any:
    options = (data.options or []) if isinstance(data, TypedQuestion) else []
    for option in options:
        if option.label == label:
            return option.answer
    known = f"it has {', '.join(repr(option.label) for option in options)}" if options else "it has none"
    raise AnswerInvalid(f"question {question_id!r} has no option {label!r}: {known}")


def _place(
    database: Database, question_id: str, session: str | None, branch: str | None, now: datetime
) -> tuple[str, str]:
    """Return (session, branch) of a question. Raises `UnknownQuestion`, naming where it is instead."""
    found = [
        one
        for one in questions(database, session, now, only_open=False)[0]
        if one.id == question_id and branch in (None, one.branch)
    ]
    if len(found) > 1 and branch is None:
        found = [one for one in found if one.branch == MAIN] or found
    if len(found) == 1:
        return found[0].session, found[0].branch
    place = database.backend.location
    if not found:
        where = "" if session is None else f" in session {session!r}"
        raise UnknownQuestion(
            f"{place} holds no question {question_id!r}{where}: `reactifact questions` lists what is open"
        )
    places = ", ".join(f"{one.session}/{one.branch}" for one in found)
    raise UnknownQuestion(
        f"question {question_id!r} is open in several places: {places}; name session and branch"
    )
