"""One execution: an agent on an event, over its own view of the generation's snapshot.

Owns what an execution sees and leaves behind. Whether its result is committed is the generation's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..authoring.agents import Agent
from ..authoring.effects import Effects
from ..context import Context
from ..context.operations import Create, Operation
from ..context.scope import Scope, entered
from ..context.working import Working
from ..store.layout import ListingRecord
from .planning import Work


@dataclass(slots=True)
class Result:
    """What one execution asked for, or how it failed."""

    work: Work
    operations: list[Operation] = field(default_factory=list)
    direct: list[Operation] = field(default_factory=list)
    reads: dict[str, int] = field(default_factory=dict)
    listings: dict[str, ListingRecord] = field(default_factory=dict)
    error: BaseException | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the execution asked for nothing."""
        return not self.operations and not self.direct


async def execute(context: Context, work: Work, new_view: Callable[[], Working]) -> Result:
    """Run one agent on one event. Errors of the agent's code are kept in the result."""
    view = new_view()
    view.is_tracking = True
    view.reads = dict(work.reads)
    effects = Effects(context)
    result = Result(work)
    with entered(Scope(context, view, effects)):
        try:
            _note_trigger(view, work)
            patch = await work.agent.execute(context, work.event)
            view.check_loaded()
            check_declared(work.agent, patch.operations)
        except Exception as error:
            result.error = error
            return result
    result.operations = patch.operations
    result.direct = view.direct
    result.reads = view.reads
    result.listings = view.listings
    return result


def _note_trigger(view: Working, work: Work) -> None:
    """The artifact behind the event is read first, also by an agent that never looks at it."""
    stored = view.state.stored(work.event.artifact_id)
    if stored is not None:
        others = view.reads
        view.reads = {}
        view.get(work.event.artifact_id)
        view.reads.update({k: v for k, v in others.items() if k not in view.reads})


def check_declared(agent: Agent, operations: list[Operation]) -> None:
    """Refuse the creation of a type that no produce declares. Raises `ValueError`."""
    if not agent.produces:
        return
    allowed = {kind for part in agent.produces for kind in part.creates}
    for operation in operations:
        if isinstance(operation, Create) and type(operation.data) not in allowed:
            names = ", ".join(sorted(kind.__name__ for kind in allowed))
            raise ValueError(
                f"agent {agent.name!r} creates {type(operation.data).__name__}, which is "
                f"not declared in produces (artifact_type or also_creates); declared are {names}"
            )
