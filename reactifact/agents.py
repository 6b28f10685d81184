"""An agent: what it consumes, what it produces, and how urgent it is; `@step` makes one of a function.

Owns `Agent`, `create_agent` and `step`. Scheduling and committing are the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel
from typing_extensions import TypeVar

from ._context.context import Context
from ._context.working_copy import Scope, current_scope, entered
from ._memo import Memos
from .artifacts import Artifact, check_text
from .consume import BaseConsume, Consume
from .effects import Effects
from .events import Event
from .operations import Patch
from .produce import Errors, Inputs, Produce, ProduceCall, Types, as_types, produce
from .triggers import Condition, Trigger

__all__ = ["Agent", "create_agent", "step"]


# -- an agent: what it consumes, what it produces, and how urgent it is --


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
    aliases: Sequence[str] = ()
    """Earlier names of the agent: what is owed to them is owed to it."""
    code_version: ClassVar[str | None] = None

    def __init__(
        self,
        name: str | None = None,
        triggers: Sequence[Trigger] | None = None,
        priority: int | None = None,
    ) -> None:
        self.name = name or type(self).name or type(self).__name__
        check_text(self.name, "name of an agent")
        if isinstance(self.aliases, str):
            raise TypeError(f"agent {self.name!r}: aliases are names, not one text: pass ({self.aliases!r},)")
        self.aliases = tuple(self.aliases)
        for alias in self.aliases:
            check_text(alias, f"alias of agent {self.name!r}")
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
                f"not {self.concurrency_limit!r}; None means no limit"
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
        with entered(Scope(context, context.working, effects, Memos)):
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
    aliases: Sequence[str] = (),
) -> Agent:
    """Make an agent. Triggers are derived from `consumes` unless given.

    `aliases` are earlier names of a renamed agent, which takes over what is owed to them.
    """
    attributes = {
        "consumes": consumes,
        "produces": produces,
        "capabilities": tuple(capabilities),
        "concurrency_limit": concurrency_limit,
        "aliases": aliases,
    }
    kind: type[Agent] = type("Agent", (Agent,), attributes)
    return kind(name, triggers, priority)


# -- `@step`: an agent with its consumes and one produce, made of one function --


T = TypeVar("T", bound=BaseModel, default=Any)

Consumes = type[BaseModel] | BaseConsume | Iterable[type[BaseModel] | BaseConsume]


def step(
    *,
    produces: Types,
    consumes: type[T] | BaseConsume | Iterable[type[BaseModel] | BaseConsume],
    name: str | None = None,
    condition: Condition | None = None,
    also_creates: Types | None = None,
    reacts_to: Types | None = None,
    capabilities: Sequence[str] = (),
    priority: int = 0,
    concurrency_limit: int | None = None,
    triggers: Sequence[Trigger] | None = None,
    retries: int = 0,
    retry_on: Errors = (Exception,),
    backoff: float = 0.5,
    jitter: float = 0.0,
    aliases: Sequence[str] = (),
) -> Callable[[Callable[[ProduceCall[T]], Any]], Agent]:
    """Make an agent of a sync or async function of one argument, the call.

    `produces` is a type or several; `consumes` a type, several, or ready consumes. `condition` is on
    the artifacts of the types among `consumes`. Where that is one type, the type checker holds the
    argument of the function against it (`ProduceCall[Order]`). The agent is called as the function
    unless `name` is given; the rest is as in `create_agent` and `@produce`. Raises `ValueError` and
    `TypeError` for what makes no agent.
    """
    kinds = as_types(produces)
    if not kinds:
        raise ValueError("@step produces nothing: name a type in produces")
    parts = _consumes(consumes, condition)
    wanted: Any = reacts_to  # the type of the call follows from `consumes` here

    def decorate(function: Callable[[ProduceCall[T]], Any]) -> Agent:
        made = produce(
            kinds[0],
            also_creates=(*kinds[1:], *as_types(also_creates)),
            reacts_to=wanted,
            retries=retries,
            retry_on=retry_on,
            backoff=backoff,
            jitter=jitter,
        )(function)
        agent = create_agent(
            name if name is not None else made.name,
            consumes=parts,
            produces=[made],
            capabilities=capabilities,
            priority=priority,
            concurrency_limit=concurrency_limit,
            aliases=aliases,
            triggers=triggers,
        )
        agent.__doc__ = function.__doc__
        return agent

    return decorate


def _consumes(given: Consumes, condition: Condition | None) -> list[BaseConsume]:
    items: tuple[Any, ...] = (given,) if isinstance(given, type | BaseConsume) else tuple(given)
    if not items:
        raise ValueError("@step consumes nothing: name a type in consumes")
    types = [item for item in items if not isinstance(item, BaseConsume)]
    if condition is not None and not types:
        raise ValueError(
            "@step has a condition, but no type in consumes that it could be for: "
            "give the condition to the ready consume"
        )
    as_types(types)
    return [item if isinstance(item, BaseConsume) else Consume(item, condition) for item in items]
