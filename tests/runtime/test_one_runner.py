"""One runner a branch at a time, also where no store could refuse the second."""

from __future__ import annotations

import anyio
import pytest
from support import Answer, Question

from reactifact import Consume, Context, ProduceCall, Runtime, create_agent, produce
from reactifact.errors import SessionBusy

pytestmark = pytest.mark.anyio


async def test_a_second_runtime_on_the_same_context_is_refused_while_the_first_runs() -> None:
    context = Context()
    entered, leave = anyio.Event(), anyio.Event()

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        entered.set()
        await leave.wait()
        return Answer(text="once")

    def runtime() -> Runtime:
        return Runtime(context, agents=[create_agent("a", consumes=[Consume(Question)], produces=[answer])])

    context.create(Question(text="?"), id="q")
    async with anyio.create_task_group() as group:
        group.start_soon(runtime().arun)
        await entered.wait()
        with pytest.raises(SessionBusy, match="another Runtime"):
            await runtime().arun()
        leave.set()
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["once"]
    assert await runtime().arun() == 0
