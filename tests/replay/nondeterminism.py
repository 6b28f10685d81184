"""Builds that another process can import: the same run, with and without something that varies."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from reactifact import Consume, Context, ProduceCall, Runtime, RuntimeResources, create_agent, produce

WORDS = [f"word-{number}" for number in range(40)]


class Ticket(BaseModel):
    text: str


class Draft(BaseModel):
    text: str
    when: str = ""
    words: list[str] = []
    number: float = 0.0


async def run(resources: RuntimeResources, **fields: Any) -> Context:
    """Make a run of two generations; `fields` are callables for what the draft holds."""
    made = {name: value for name, value in fields.items() if name != "id"}

    @produce(Draft)
    async def draft(call: ProduceCall) -> None:
        assert call.trigger is not None
        data = {name: value() for name, value in made.items()}
        new_id = fields["id"]() if "id" in fields else None
        call.effects.create(Draft(text=call.trigger.data.text.upper(), **data), id=new_id)

    context = Context(resources)
    context.create(Ticket(text="hello"))
    drafter = create_agent("drafter", consumes=[Consume(Ticket)], produces=[draft])
    await Runtime(context, agents=[drafter]).arun()
    return context


async def steady(resources: RuntimeResources) -> Context:
    return await run(
        resources,
        when=lambda: resources.clock.now().isoformat(),
        words=lambda: sorted(set(WORDS)),
    )


async def random_ids(resources: RuntimeResources) -> Context:
    return await run(resources, id=lambda: f"draft:{uuid.uuid4()}")


async def random_data(resources: RuntimeResources) -> Context:
    return await run(resources, number=random.random)


async def wall_time(resources: RuntimeResources) -> Context:
    return await run(resources, when=lambda: datetime.now(UTC).isoformat())


async def set_order(resources: RuntimeResources) -> Context:
    return await run(resources, words=lambda: list(set(WORDS)))


async def fails_elsewhere(resources: RuntimeResources) -> Context:
    if SET_BY_A_TEST is None:
        raise RuntimeError("this process was not prepared")
    return await run(resources)


SET_BY_A_TEST: str | None = None
