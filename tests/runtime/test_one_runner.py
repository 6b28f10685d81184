"""One runner a branch at a time, also where no store could refuse the second."""

from __future__ import annotations

import anyio
import pytest
from support import Answer, Echo, Question, commit

from reactifact import Consume, Context, ProduceCall, Runtime, create_agent, produce
from reactifact.errors import SessionBusy

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


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


async def test_going_back_while_a_turn_runs_is_refused_and_the_turn_goes_on() -> None:
    """Its executions see a state that going back would drop."""
    context = Context()
    entered, leave = anyio.Event(), anyio.Event()

    @produce(Answer)
    async def count(call: ProduceCall) -> Answer:
        entered.set()
        await leave.wait()
        return Answer(text=str(len([found.data for found in call.context.list_artifacts(Echo)])))

    agent = create_agent("a", consumes=[Consume(Question)], produces=[count])
    for text in "abc":
        await commit(context, lambda call, text=text: call.effects.create(Echo(text=text)))
    context.drain_events()
    context.create(Question(text="?"), id="q")
    async with anyio.create_task_group() as group:
        group.start_soon(Runtime(context, [agent]).arun)
        await entered.wait()
        with pytest.raises(SessionBusy, match=r"checkout.* while run .* is in progress"):
            context.checkout(1)
        leave.set()
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["3"]
    context.checkout(1)
    assert len(context.list_artifacts(Echo)) == 1
