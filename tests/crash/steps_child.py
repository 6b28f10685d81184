"""Paid calls side by side in a process of its own, killed with some in flight. Run by `test_steps_killed`.

steps_child.py STORE WORLD CALLS HANGING AT_ONCE POLICY   ask what is not asked yet, then answer all of it

The first CALLS - HANGING calls end after a moment of their own, the others never. The file outside has
`paid ID` for each call that came to its end, on disk before the produce has it.
"""

from __future__ import annotations

import random
import sys
from typing import Any, ClassVar

import anyio
from crash_support import World
from pydantic import BaseModel

from reactifact import Consume, ProduceCall, Runtime, SessionStore, create_agent, produce


class Question(BaseModel):
    TYPE_ID: ClassVar[str] = "steps.Question"
    number: int


class Finding(BaseModel):
    TYPE_ID: ClassVar[str] = "steps.Finding"
    number: int


async def main(store: str, world: World, calls: int, hanging: int, at_once: int, policy: Any) -> None:
    session = await SessionStore(store).open("steps")

    @produce(Finding)
    async def find(call: ProduceCall) -> None:
        assert call.trigger is not None
        number = call.trigger.data.number
        if number >= calls - hanging:
            await anyio.sleep_forever()
        await anyio.sleep(random.uniform(0, 0.02))
        world.note("paid", number)
        call.effects.create(Finding(number=number), id=f"finding:{number}")

    agent = create_agent("finder", consumes=[Consume(Question)], produces=[find])
    if not session.loaded:
        for number in range(calls):
            session.context.create(Question(number=number), id=f"question:{number}")
    runtime = Runtime(session.context, [agent], at_once, session=session, session_save_policy=policy)
    await runtime.arun()


if __name__ == "__main__":
    place, outside, *numbers, how = sys.argv[1:]
    anyio.run(main, place, World(outside), *map(int, numbers), how)
