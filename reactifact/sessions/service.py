"""Finding and delivering what waits anywhere in a store: for a service that starts after a crash.

Owns the scan over all branches and the drain of each. It runs no agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..context import Context, delivery
from ..context.resources import RuntimeResources
from ..errors import ReactifactError
from ..runtime import outbox
from ..store.database import Database
from ..store.line import Line
from ..store.trees import subtree
from ..threads import in_thread
from . import lines


@dataclass
class DrainReport:
    """What a drain of a whole store did. `failed` holds (session, branch, error text)."""

    tried: int = 0
    delivered: int = 0
    failed: list[tuple[str, str, str]] = field(default_factory=list)


def waiting_branches(database: Database) -> list[tuple[str, str]]:
    """Return (session, branch) of every branch that holds intents not known to be delivered."""
    found = []
    for ref, oid in database.backend.refs("refs/heads/").items():
        names = lines.whole_names(database, ref, oid)
        if names is None:
            continue
        tree = database.commit(oid).tree
        if subtree(database, tree, ("outbox",)) is not None:
            found.append(names)
    return sorted(found)


def sendable_branches(database: Database, *, failed: bool = False) -> list[tuple[str, str]]:
    """Return (session, branch) of every branch with actions to send (with `failed`: or re-arm)."""
    found = []
    for session, branch in waiting_branches(database):
        line = Line.load(database, session, branch)
        if line is None:
            continue
        working = Context.over(line).working
        if delivery.sendable(working) or (failed and delivery.failed(working)):
            found.append((session, branch))
    return found


async def drain_store(
    database: Database,
    dispatcher: outbox.Dispatcher,
    options: outbox.Options,
    *,
    retry_failed: bool = False,
    resources: RuntimeResources | None = None,
) -> DrainReport:
    """Deliver what waits in every branch of a store; failures are recorded, not raised."""
    report = DrainReport()

    def branches() -> list[tuple[str, str]]:
        return sendable_branches(database, failed=retry_failed)

    for session, branch in await in_thread(branches):
        try:
            drained = await _drain_branch(
                database, session, branch, dispatcher, options, retry_failed, resources
            )
        except (ReactifactError, OSError) as error:  # a damaged session does not stop the others
            report.failed.append((session, branch, f"{error}"))
            continue
        report.tried += drained.tried
        # an action whose key was delivered with another payload is an error, but was not tried
        report.delivered += drained.tried - sum(place >= 0 for place, _ in drained.errors)
        report.failed += [(session, branch, f"{error}") for _, error in drained.errors]
    return report


async def _drain_branch(
    database: Database,
    session: str,
    branch: str,
    dispatcher: outbox.Dispatcher,
    options: outbox.Options,
    retry_failed: bool,
    resources: RuntimeResources | None,
) -> outbox.Drained:
    line = await in_thread(Line.load, database, session, branch)
    if line is None:
        return outbox.Drained()  # deleted meanwhile
    context = Context.over(line, resources)
    if retry_failed:
        for action in delivery.failed(context.working):
            context.retry_action(action.id)
    return await outbox.drain(context, dispatcher, options)
