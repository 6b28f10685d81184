"""An agent: what it consumes, what it produces, and how urgent it is.

Owns `Agent` and `create_agent`. Scheduling and committing are the runtime's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ..context import Context
from ..context.artifacts import Artifact
from ..context.encoding import check_text
from ..context.events import Event
from ..context.operations import Patch
from ..context.scope import Scope, current_scope, entered
from .consume import BaseConsume
from .effects import Effects
from .inputs import Inputs
from .produce import Produce, ProduceCall
from .triggers import Trigger


class Agent:
    """Reacts to events with its produces.

    Subclass it, with class attributes or an overridden `run`, or use `create_agent`. Agents with a
    lower `priority` run first.
    """

    name: str = ""
    consumes: Sequence[BaseConsume] | None = None
    produces: Sequence[Produce[Any]] | None = None
    capabilities: Sequence[str] = ()
    triggers: Sequence[Trigger] | None = None
    priority: int = 0
    concurrency_limit: int | None = None
    code_version: ClassVar[str | None] = None

    def __init__(
        self,
        name: str | None = None,
        triggers: Sequence[Trigger] | None = None,
        priority: int | None = None,
    ) -> None:
        self.name = name or type(self).name or type(self).__name__
        check_text(self.name, "name of an agent")
        self.consumes = _checked(self.consumes, BaseConsume, "consumes", "Consume", self.name)
        self.produces = _checked(self.produces, Produce, "produces", "Produce", self.name)
        given = triggers if triggers is not None else type(self).triggers
        if given is None:
            derived = (trigger for found in self.consumes or () for trigger in found.to_triggers())
            self.triggers = list(derived)
        else:
            self.triggers = list(given)
        if priority is not None:
            self.priority = priority
        if self.concurrency_limit is not None and self.concurrency_limit < 1:
            raise ValueError(
                f"agent {self.name!r}: concurrency_limit is a number of at least 1, "
                f"not {self.concurrency_limit!r}; None is no limit"
            )

    def matching_triggers(self, event: Event, context: Context | None = None) -> list[Trigger]:
        """Return the triggers that an event wakes."""
        return [trigger for trigger in self.triggers or () if trigger.matches(event, context)]

    def matches(self, event: Event, context: Context | None = None) -> bool:
        """Tell whether an event wakes the agent."""
        return any(trigger.matches(event, context) for trigger in self.triggers or ())

    def collect_inputs(self, context: Context) -> list[Artifact[Any]]:
        """Return what the consumes match now, each artifact once."""
        found: dict[str, Artifact[Any]] = {}
        for part in self.consumes or ():
            for artifact in part.collect(context):
                found.setdefault(artifact.id, artifact)
        return list(found.values())

    async def run(self, event: Event | None, context: Context) -> Patch | None:
        """Run the produces that react to an event. Override for an agent without produces."""
        trigger = None if event is None else context.get(event.artifact_id)
        inputs = Inputs(lambda: self.collect_inputs(context))
        for part in self.produces or ():
            if part.accepts(event, trigger):
                await part.run(ProduceCall(context, inputs, event, trigger))
        return None

    async def execute(self, context: Context, event: Event | None = None) -> Patch:
        """Run once and return everything it asks for; nothing is applied.

        Operations of a patch that `run` returns come first, effects after.
        """
        scope = current_scope()
        if scope is not None and scope.context is context and scope.effects is not None:
            return Patch().merge(self._patch(await self.run(event, context)), scope.effects.to_patch())
        effects = Effects(context)
        with entered(Scope(context, context.working, effects)):
            returned = await self.run(event, context)
        return Patch().merge(self._patch(returned), effects.to_patch())

    def _patch(self, returned: Any) -> Patch | None:
        if returned is None or isinstance(returned, Patch):
            return returned
        raise TypeError(
            f"run() of agent {self.name!r} returned {type(returned).__name__}: return a Patch or None"
        )

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"


def _checked(given: Iterable[Any] | None, kind: type, what: str, label: str, name: str) -> list[Any] | None:
    if given is None:
        return None
    items = list(given)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"agent {name!r}: {what} holds {item!r}, which is no {label}")
    return items


def create_agent(
    name: str,
    *,
    consumes: Sequence[BaseConsume] | None = None,
    produces: Sequence[Produce[Any]] | None = None,
    capabilities: Sequence[str] = (),
    priority: int = 0,
    concurrency_limit: int | None = None,
    triggers: Sequence[Trigger] | None = None,
) -> Agent:
    """Make an agent. Triggers are derived from `consumes` unless given."""
    attributes = {
        "consumes": consumes,
        "produces": produces,
        "capabilities": tuple(capabilities),
        "concurrency_limit": concurrency_limit,
    }
    kind: type[Agent] = type("Agent", (Agent,), attributes)
    return kind(name, triggers, priority)
