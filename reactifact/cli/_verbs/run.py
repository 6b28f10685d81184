"""`reactifact run`: the agents of a module on a session of a store."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import anyio
import click

from ..._sessions.stores import open_database
from ..._store.names import plain
from ..._store.object_db import Database
from ...budget import Budget
from ...errors import ReactifactError
from ...runtime import Runtime
from ...session import Session, SessionStore
from .._shared.completion import complete_session
from ..common import (
    counted,
    find_models,
    json_option,
    line,
    load_agents,
    load_attribute,
    print_json,
    store_argument,
)


@click.command(short_help="Run the agents of a module on a session.")
@store_argument
@click.argument("app", metavar="MODULE[:ATTRIBUTE]")
@click.argument("session", metavar="SESSION", shell_complete=complete_session)
@click.option(
    "--dispatcher", metavar="MODULE:FUNCTION", help="What delivers the actions; default: they wait."
)
@click.option("--max-runs", type=click.IntRange(min=1), help="End the turn after so many executions.")
@click.option(
    "--max-seconds", type=click.FloatRange(min=0, min_open=True), help="End the turn after this time."
)
@json_option
def run(
    store: str,
    app: str,
    session: str,
    dispatcher: str | None,
    max_runs: int | None,
    max_seconds: float | None,
    as_json: bool,
) -> None:
    """Run one turn: the agents of MODULE on what waits in SESSION, until nothing is left to react to.

    ATTRIBUTE is an agent, a class of agents or a list, as for `graph`; or a function that takes the open
    `Session` and returns the `Runtime` to run, which may be async. MODULE is imported, with the current
    folder on the path. A session that is new is made. An error of an agent leaves as it was raised.

    \b
    --json: {what, session, runs, outcome, version, pending}
    """
    find_models([app.partition(":")[0]])  # before the session is opened, which reads what git wrote
    budget = Budget(max_runs=max_runs, max_seconds=max_seconds)

    async def work(database: Database) -> dict[str, Any]:
        async with await SessionStore(database).open(session) as opened:
            runtime = await _runtime(app, opened, dispatcher)
            runs = await runtime.arun(budget=budget)
            stats = runtime.last_stats
            return {
                "session": session,
                "runs": runs,
                "outcome": None if stats is None else str(stats.outcome),
                "version": opened.context.version,
                "pending": len(opened.context.pending_actions()),
            }

    database = open_database(store, create=False)
    try:
        done = anyio.run(work, database)
    finally:
        database.backend.close()
    if as_json:
        print_json(done)
    else:
        waiting = f", {counted(done['pending'], 'action')} waiting" if done["pending"] else ""
        runs = counted(done["runs"], "execution")
        line(plain(f"{session}: {runs}, {done['outcome']}, stands at v{done['version']}{waiting}"))


async def _runtime(app: str, session: Session, dispatcher: str | None) -> Runtime:
    """Return the runtime that a function of the module makes, or one of its agents."""
    try:
        agents = load_agents(app)
    except SystemExit:
        if ":" not in app:
            raise
        made = load_attribute(app, "a function that makes a Runtime")(session)
        made = await made if isinstance(made, Awaitable) else made
        if not isinstance(made, Runtime):
            raise ReactifactError(f"{app} returned {type(made).__name__}: return a Runtime") from None
        return made
    send = None if dispatcher is None else load_attribute(dispatcher, "a dispatcher")
    return Runtime(session.context, agents=agents, session=session, dispatcher=send)
