"""`@step`: an agent with its consumes and one produce, made of one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from .agents import Agent, create_agent
from .consume import BaseConsume, Consume
from .produce import Function, Types, as_types, produce
from .retries import Errors
from .triggers import Condition, Trigger

Consumes = type[BaseModel] | BaseConsume | Iterable[type[BaseModel] | BaseConsume]


def step(
    *,
    produces: Types,
    consumes: Consumes,
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
) -> Callable[[Function], Agent]:
    """Make an agent of a sync or async function of one argument, the call.

    `produces` is a type or several; `consumes` a type, several, or ready consumes. `condition` is on
    the artifacts of the types among `consumes`. The agent is called as the function unless `name` is
    given; the rest is as in `create_agent` and `@produce`. Raises `ValueError` and `TypeError` for
    what makes no agent.
    """
    kinds = as_types(produces)
    if not kinds:
        raise ValueError("@step produces nothing: name a type in produces")
    parts = _consumes(consumes, condition)

    def decorate(function: Function) -> Agent:
        made = produce(
            kinds[0],
            also_creates=(*kinds[1:], *as_types(also_creates)),
            reacts_to=reacts_to,
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
