"""What the inspector may change where it was asked to: arm a failed action anew, answer a question."""

from __future__ import annotations

import json
from typing import Any

from .._context import rebase
from .._context.context import Context
from .._context.push import publish, publish_ledger, run_lock
from .._store.branch import Branch
from .._store.object_db import Database
from ..errors import SessionBusy, UnknownRevision
from ..resources import RuntimeResources
from ..threads import in_thread
from .asked import BadQuery

AUTHOR = "inspector"
_WAIT = 2.0
"""Seconds to wait for a turn of the branch to end before an answer is refused."""


async def retry(database: Database, session: str, branch: str, action_id: str) -> None:
    """Let a failed action be sent again by the next drain. Raises `UnknownRevision`, `BadQuery`."""
    context = await _context(database, session, branch)
    try:
        found = context.retry_action(action_id)
    except ValueError as error:
        raise BadQuery(str(error)) from error
    if found is None:
        raise UnknownRevision(f"{session}/{branch} has no action {action_id!r}")
    await publish_ledger(context)


async def answer(
    database: Database, session: str, branch: str, question_id: str, text: str, kind: str
) -> None:
    """Answer a question; the next turn of the branch reacts to it.

    Raises `UnknownRevision`, `AnswerConflict`, `BadQuery` for what is not JSON, and `SessionBusy` while a
    turn runs: an answer written beneath a turn would cost it its results.
    """
    value: Any = text
    if kind == "json":
        try:
            value = json.loads(text)
        except ValueError as error:
            raise BadQuery(f"The answer is not JSON: {error}.") from error
    resources = RuntimeResources(principal=AUTHOR)
    try:
        async with run_lock(Branch.named(database, session, branch), resources.clock, _WAIT):
            context = await _context(database, session, branch, resources)
            if context.resume(question_id, value) is None:
                raise UnknownRevision(f"{session}/{branch} has no question {question_id!r}")
            context.commits.begin()
            await publish(context)
    except SessionBusy as error:
        raise SessionBusy(
            f"a turn of {session}/{branch} is running: answer again when it has ended"
        ) from error


async def _context(
    database: Database, session: str, branch: str, resources: RuntimeResources | None = None
) -> Context:
    line = await in_thread(rebase.load, database, session, branch, resources)
    if line is None:
        raise UnknownRevision(f"there is no branch {branch!r} of session {session!r}")
    return Context.over(line, resources)
