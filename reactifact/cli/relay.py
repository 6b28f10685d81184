"""`reactifact relay`, `retry` and `run`: delivering what waits, re-arming it, and running agents."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio
import click

from .._sessions.service import rearm, rearm_events
from .._sessions.stores import open_database
from .._store._history.revset import readable_heads
from .._store.names import plain
from .._store.object_db import Database
from ..budget import Budget
from ..errors import ReactifactError
from ..logging import configure_logging
from ..runtime import Runtime
from ..session import Session, SessionStore
from ._shared.naming import complete_session
from .common import (
    counted,
    fail_for,
    find_models,
    json_option,
    line,
    load_agents,
    load_attribute,
    print_json,
    store_argument,
    to_stderr,
)

_COUNTS = (
    "tried",
    "delivered",
    "failed",
    "parked",
    "skipped",
    "expired",
    "waiting",
    "waiting_failed",
    "waiting_parked",
)


@click.command(short_help="Deliver what waits in all sessions, until told to stop.")
@store_argument
@click.option(
    "--dispatcher",
    metavar="MODULE:FUNCTION",
    required=True,
    help="What delivers an action: a function, async or not, of a context and the action's artifact.",
)
@click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Sessions at once.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that a send may take.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Failures after which an action is parked.",
)
@click.option(
    "--backoff",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds before the first retry; doubled each time, at random shortened.",
)
@click.option("--once", is_flag=True, help="End when nothing is due any more.")
@click.option(
    "--log", "log_format", type=click.Choice(["human", "json", "off"]), default="human", help="On stderr."
)
@json_option
def relay(
    store: str,
    dispatcher: str,
    concurrency: int,
    timeout: float,
    max_attempts: int,
    backoff: float,
    once: bool,
    log_format: str,
    as_json: bool,
) -> None:
    """Deliver what waits in all sessions of a store until SIGTERM or Ctrl-C.

    Several relays may run on one store, on one machine or many. What is being sent when the signal comes may
    end and is recorded; a second signal cuts it. An action that failed is sent again by itself, later each
    time, and is parked after --max-attempts failures: `outbox --parked` shows it, `retry` re-arms it.

    The module of the dispatcher is imported, with the current folder on the path; the classes of the
    artifacts are not needed. A function that is not async runs in a thread. The exit code is 1 where with
    --once something failed or could not be read.

    \b
    --json: {what, tried, delivered, failed, parked, skipped, expired, waiting,
      waiting_failed, waiting_parked, oldest_waiting, errors: [{session, branch, error}]}
    """
    deliver = load_attribute(dispatcher, "a dispatcher: a function of a context and an action")
    if log_format != "off":
        configure_logging(logging.INFO, json=log_format == "json")
    options = {
        "concurrency": concurrency,
        "timeout": timeout,
        "max_attempts": max_attempts,
        "backoff": backoff,
        "once": once,
    }
    database = open_database(store, create=False)
    try:
        report = anyio.run(_relay, database, deliver, options)
    finally:
        database.backend.close()
    errors = [{"session": s, "branch": b, "error": e} for s, b, e in report.errors]
    if as_json:
        oldest = None if report.oldest_waiting is None else report.oldest_waiting.isoformat()
        found = {name: getattr(report, name) for name in _COUNTS}
        print_json({**found, "oldest_waiting": oldest, "errors": errors})
    else:
        parts = [f"{report.delivered} delivered", f"{report.failed} failed", f"{report.parked} parked"]
        if report.expired:
            parts.append(f"{counted(report.expired, 'branch', 'branches')} with questions that expired")
        line(f"{', '.join(parts)}; {report.waiting} waiting")
        for error in errors:
            to_stderr(f"{plain(error['session'])}/{plain(error['branch'])}: {error['error']}")
    if once and errors:
        raise click.exceptions.Exit(1)


async def _relay(database: Database, deliver: Callable[..., Any], options: dict[str, Any]) -> Any:
    stop, found = anyio.Event(), []
    async with anyio.create_task_group() as group:

        async def heed() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
                async for _ in received:
                    if stop.is_set():
                        work.cancel()
                    stop.set()

        group.start_soon(heed)
        with anyio.CancelScope() as work:
            found.append(await SessionStore(database).relay(deliver, stop=stop, **options))
        group.cancel_scope.cancel()
    if not found:
        raise click.Abort
    return found[0]


@click.command(short_help="Let actions that failed or are parked be sent again.")
@store_argument
@click.argument("session")
@click.argument("actions", metavar="[ACTION]...", nargs=-1)
@click.option("--parked", is_flag=True, help="All that are parked.")
@click.option("--failed", is_flag=True, help="All that failed.")
@click.option("--events", is_flag=True, help="All events on which an agent failed too often.")
@json_option
def retry(
    store: str,
    session: str,
    actions: tuple[str, ...],
    parked: bool,
    failed: bool,
    events: bool,
    as_json: bool,
) -> None:
    """Re-arm actions of SESSION, by id or key, or all that are parked or failed; or parked events.

    Their attempts stay counted, and a relay begins its schedule anew. The exit code is 1 where an ACTION is
    not one that failed or is parked; the others are re-armed all the same.

    \b
    --json: {what, session, actions: [id], events: {branch: count}, missing: [text]}
    """
    if not actions and not parked and not failed and not events:
        raise click.UsageError("name an ACTION, or pass --parked, --failed or --events")
    statuses = {name for name, is_asked in (("parked", parked), ("failed", failed)) if is_asked}
    database = open_database(store, create=False)
    try:
        found, broken = readable_heads(database, session)
        branches = [head.branch for head in found if not head.is_ledger]
        armed = anyio.run(rearm, database, session, branches, set(actions), statuses)
        tried = anyio.run(rearm_events, database, session, branches) if events else {}
    finally:
        database.backend.close()
    missing = [name for name in actions if name not in armed and f"action:{name}" not in armed]
    if as_json:
        print_json({"session": session, "actions": list(armed), "events": dict(tried), "missing": missing})
    else:
        _say_armed(armed, tried)
    for name in missing:
        to_stderr(f"{plain(name)} is not an action of {plain(session)} that failed or is parked")
    if not armed and not tried and not missing and not as_json:
        line("nothing to re-arm")
    fail_for(broken)
    if missing:
        raise click.exceptions.Exit(1)


def _say_armed(actions: Iterable[str], events: Mapping[str, int]) -> None:
    for action_id in actions:
        line(f"re-armed {plain(action_id)}")
    for branch, count in events.items():
        line(f"re-armed {counted(count, 'event')} of {plain(branch)}")


# -- `reactifact run`: the agents of a module on a session of a store --


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
