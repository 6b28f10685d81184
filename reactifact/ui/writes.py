"""What the inspector may change where it was asked to: arm a failed action anew, answer a question."""

from __future__ import annotations

from typing import Any

from .._context import rebase
from .._context.context import Context
from .._context.push import publish_ledger
from .._sessions import questions
from .._store.object_db import Database
from ..clock import SYSTEM_CLOCK, Clock
from ..errors import SessionBusy, UnknownRevision
from ..resources import RuntimeResources
from ..threads import in_thread
from .asked import BadQuery

AUTHOR = "inspector"
_WAIT = 2.0
"""Seconds to wait for a turn of the branch to end before an answer is refused."""


async def retry(database: Database, session: str, branch: str, action_id: str) -> None:
    """Let a failed action be sent again by the next drain. Raises `UnknownRevision`, `BadQuery`."""
    line = await in_thread(rebase.load, database, session, branch)
    if line is None:
        raise UnknownRevision(f"there is no branch {branch!r} of session {session!r}")
    context = Context.over(line)
    try:
        found = context.retry_action(action_id)
    except ValueError as error:
        raise BadQuery(str(error)) from error
    if found is None:
        raise UnknownRevision(f"{session}/{branch} has no action {action_id!r}")
    await publish_ledger(context)


async def answer(
    database: Database,
    place: tuple[str, str],
    question_id: str,
    given: Any,
    *,
    option: str | None = None,
    clock: Clock | None = None,
) -> None:
    """Answer a question of a (session, branch); the next turn of the branch reacts to it.

    Raises what `SessionStore.answer` does, `SessionBusy` while a turn runs: an answer written beneath a turn
    would cost it its results.
    """
    resources = RuntimeResources(principal=AUTHOR, clock=clock or SYSTEM_CLOCK)
    session, branch = place
    try:
        await questions.answer(
            database,
            question_id,
            given,
            session=session,
            branch=branch,
            option=option,
            wait=_WAIT,
            resources=resources,
        )
    except SessionBusy as error:
        raise SessionBusy(
            f"a turn of {session}/{branch} is running: answer again when it has ended"
        ) from error
