"""One runner a branch at a time, also where no store could refuse the second."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Place, Question, answering_agents, commit

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


async def test_a_session_that_is_held_alone_stands_for_its_own_context_and_no_other(git_place: Place) -> None:
    """The run lock of another session, or of another branch, is taken and found taken as ever."""
    store = git_place.store()
    async with await store.open("mine", wait=0) as mine, await store.open("other", wait=0) as another:
        await another.save()
        other = await git_place.load("other")
        with pytest.raises(SessionBusy):
            await Runtime(other, [], session=mine).arun()
        fork = mine.context.branch(name="fork")
        branches = git_place.branches()
        await branches.save_branch(fork, session_id="mine", name="fork")
        first, second = await git_place.load("mine", "fork"), await git_place.load("mine", "fork")
        entered, leave = anyio.Event(), anyio.Event()

        @produce(Answer)
        async def answer(call: ProduceCall) -> Answer:
            entered.set()
            await leave.wait()
            return Answer(text="once")

        first.create(Question(text="?"), id="q")
        agent = create_agent("a", consumes=[Consume(Question)], produces=[answer])
        async with anyio.create_task_group() as group:
            group.start_soon(Runtime(first, [agent], session=mine).arun)
            await entered.wait()
            with pytest.raises(SessionBusy):
                await Runtime(second, [agent], session=mine).arun()
            leave.set()
        assert await Runtime(mine.context, [agent], session=mine).arun() == 0  # its own lock is no obstacle


LOOPS = ["asyncio", "trio"]


@pytest.mark.parametrize(("one", "two"), list(itertools.product(LOOPS, LOOPS)))
@pytest.mark.parametrize("wait", [None, 0])
def test_what_was_opened_on_one_event_loop_goes_on_on_another(
    place: Place, one: str, two: str, wait: int | None
) -> None:
    found: list[Any] = []

    async def begin() -> None:
        session = await place.store().open("s", wait=wait)
        session.context.create(Question(text="why"), id="q0")
        runtime = Runtime(session.context, answering_agents(), session=session)
        assert await runtime.arun() == 2
        async for event in runtime.astream():
            if event.kind == "run_start":
                break
        found.extend([session, runtime])

    async def go_on(number: int) -> None:
        session, runtime = found
        session.context.create(Question(text="why"), id=f"q{number}")
        await session.save()
        assert await runtime.arun() == 2
        assert [event.kind async for event in runtime.astream()] == ["run_start", "run_end"]
        assert not await session.refresh()
        session.context.checkout(session.context.version - 1)
        await session.save()

    anyio.run(begin, backend=one)
    anyio.run(go_on, 1, backend=two)
    anyio.run(go_on, 2, backend=one)
    anyio.run(found[0].aclose, backend=two)
