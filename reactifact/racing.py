"""A race: strategies that work side by side on forks of one branch, a judge, and the merge of the winner.

Owns the forks of a race and what they come to; `BranchStore.race` starts one. A fork is a branch like any
other, and what is done there is saved there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import Any

import anyio

from ._context.context import Context
from ._sessions import verbs
from ._store._history.log import BranchDiff, Entry
from ._store._history.revset import Head, find_head
from ._store.branch import stored_ref
from ._store.object_db import Database
from .agents import Agent
from .artifacts import Artifact
from .errors import StoreError, add_note, told
from .interrupt import PendingAction
from .merging import Policy
from .resources import RuntimeResources
from .runtime import Runtime
from .session import Session, SessionStore
from .threads import in_thread

__all__ = ["Fork", "Judge", "Race", "Strategy"]


Strategy = Sequence[Agent] | Callable[[Session], Awaitable[Any]]
"""Agents that run on the fork until nothing is left to react to, or a function that is given its session."""


@dataclass(slots=True)
class Fork:
    """The branch of one strategy at the end of the race, to be looked at.

    `diff` is what it changed of the source, `result` what a function returned (of agents: the number of
    executions), `error` what ended it early. A fork with an error cannot win.
    """

    name: str
    context: Context
    diff: BranchDiff
    result: Any = None
    error: Exception | None = None


Judge = Callable[[Mapping[str, Fork]], str | Awaitable[str | None] | None]
"""Given the forks that came to their end, returns the name of the winner, `None` for none of them."""


@dataclass(slots=True)
class Race:
    """What a race came to: its forks by name, the winner, and the commit that merged it.

    `merged` is `None` without a winner, and where the winner had nothing to take over.
    """

    forks: dict[str, Fork] = field(default_factory=dict)
    winner: str | None = None
    merged: Entry | None = None


async def race(
    store: SessionStore,
    source: str,
    strategies: Mapping[str, Strategy],
    judge: Judge,
    *,
    session: str | None = None,
    policy: Policy | None = None,
    keep: bool = False,
    resume: bool = False,
    max_concurrency: int | None = None,
    resources: RuntimeResources | None = None,
) -> Race:
    """Run a race: see `BranchStore.race`."""
    if not strategies:
        raise ValueError("a race needs strategies: names, each with agents or with a function of a session")
    database = store.database
    head = await in_thread(verbs.named_branch, database, source, session)
    for name in strategies:
        await _begin(database, head, name, keep=keep, resume=resume)
    ends: dict[str, tuple[Any, Exception | None]] = {}
    limit = anyio.Semaphore(max_concurrency or len(strategies))

    async def run(name: str) -> None:
        async with limit:
            ends[name] = await _run(store, head.session, name, strategies[name], resources)

    async with anyio.create_task_group() as group:
        for name in strategies:
            group.start_soon(run, name)
    found = Race({name: await _fork(database, head, name, *ends[name], resources) for name in strategies})
    ended = {name: fork for name, fork in found.forks.items() if fork.error is None}
    if not ended:
        raise _first_error(found)
    chosen = judge(ended)
    found.winner = await chosen if isawaitable(chosen) else chosen
    if found.winner is not None:
        if found.winner not in ended:
            raise ValueError(
                f"the judge of the race named {found.winner!r}, which is not one of the forks that came to "
                f"their end ({', '.join(map(repr, ended))}); nothing was merged, and the forks are kept"
            )
        found.merged = await _merge(database, head, found.winner, policy, resources)
    for name in () if keep else strategies:
        await in_thread(verbs.delete_branch, database, head.session, name)
    return found


async def _begin(database: Database, head: Head, name: str, *, keep: bool, resume: bool) -> None:
    """Fork the source for one strategy, unless an earlier race that is resumed has done it."""
    if not keep:
        database.protection.require_free("delete, after a race,", head.session, name)
    ref = stored_ref(database, head.session, name)
    if not (resume and ref in await in_thread(database.backend.refs, ref)):
        await verbs.fork(database, head.branch, name, session=head.session)


async def _run(
    store: SessionStore, session_id: str, name: str, strategy: Strategy, resources: RuntimeResources | None
) -> tuple[Any, Exception | None]:
    """Let a strategy work on its fork; return what it came to. Nothing that agents plan is sent."""
    try:
        async with await store.open(session_id, resources, branch=name) as session:
            if callable(strategy):
                return await strategy(session), None
            runtime = Runtime(
                session.context,
                strategy,
                session=session,
                session_save_policy="per_step",
                dispatcher=_send_nothing,
                simulate=True,
            )
            return await runtime.arun(), None
    except Exception as error:
        add_note(error, f"raised by strategy {name!r} of a race in session {session_id!r}")
        return None, error


async def _send_nothing(context: Context, action: Artifact[PendingAction]) -> None:
    raise StoreError(f"a race sends nothing, and was asked to send {action.id!r}")


async def _fork(
    database: Database,
    head: Head,
    name: str,
    result: Any,
    error: Exception | None,
    resources: RuntimeResources | None,
) -> Fork:
    context = await in_thread(verbs.at, database, name, head.session, resources)
    compare = partial(verbs.diff, session=head.session)
    return Fork(name, context, await in_thread(compare, database, head.commit, name), result, error)


async def _merge(
    database: Database, head: Head, winner: str, policy: Policy | None, resources: RuntimeResources | None
) -> Entry | None:
    target = await verbs.loaded(database, head, resources)
    fork = await in_thread(find_head, database, head.session, winner)
    other = await verbs.loaded(database, fork, resources)
    message = f"Merge {winner}, the winner of a race"
    return await verbs.merge(target, other, message=message, policy=policy, emit_events=False)


def _first_error(found: Race) -> Exception:
    """Return the first fork's error, with those of the others as notes."""
    first, *others = [fork.error for fork in found.forks.values() if fork.error is not None]
    for error in others:
        add_note(first, f"and {told(error)}")
    return first
