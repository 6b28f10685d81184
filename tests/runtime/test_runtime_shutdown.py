"""Ending a turn from outside (API §15): stop, shutdown, cancel, signals, in real processes too."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import forked
import pytest
from hanging_turn_child import agents
from support import Answer, Echo, Note, Order, Place, Question, action, fsck, live, notifier

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    create_agent,
    produce,
)
from reactifact.runtime import active_runs, cancel_run, stop_on_signals
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

CHILD = Path(__file__).with_name("hanging_turn_child.py")
ROOT = CHILD.parents[2]


class Held:
    """An agent that waits until it is let go."""

    def __init__(self) -> None:
        self.running = anyio.Event()
        self.go = anyio.Event()
        self.runs = 0

        @produce(Answer)
        async def answer(call: ProduceCall) -> Answer:
            self.runs += 1
            self.running.set()
            await self.go.wait()
            return Answer(text="42")

        self.agent = create_agent("held", consumes=[Consume(Question)], produces=[answer])


def asked(resources: RuntimeResources | None = None) -> Context:
    context = Context(resources)
    context.create(Question(text="why"), id="q")
    return context


def echoer() -> Any:
    @produce(Echo)
    async def echo(call: ProduceCall) -> Echo:
        return Echo(text="echo")

    return create_agent("echoer", consumes=[Consume(Answer)], produces=[echo])


class Ended:
    """Runs a function and keeps how it ended."""

    def __init__(self) -> None:
        self.result: Any = None

    async def __call__(self, function: Any) -> None:
        try:
            self.result = await function()
        except BaseException as error:  # trio's own cancellation never comes here
            self.result = error


def was_cancelled(result: Any) -> bool:
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return type(result) is asyncio.CancelledError
    return type(result).__name__ == "RunCancelled"


# -- ashutdown ----------------------------------------------------------------------------------------


async def test_shutdown_waits_for_the_generation_and_starts_no_other() -> None:
    held, ended = Held(), Ended()
    runtime = Runtime(asked(), [held.agent, echoer()])
    async with anyio.create_task_group() as group:
        group.start_soon(ended, runtime.arun)
        await held.running.wait()
        group.start_soon(runtime.ashutdown)
        await anyio.wait_all_tasks_blocked()
        assert runtime.in_flight  # shutdown waits, and cuts nothing
        held.go.set()
    assert ended.result == 1
    assert runtime.outcome == RunOutcome.STOPPED
    assert [commit.author for commit in runtime.context.history()] == ["held"]
    assert len(runtime.context.pending_events()) == 1  # the answer waits for the echoer
    assert active_runs() == []


@pytest.mark.parametrize("limit", [None, 4])
async def test_shutdown_with_a_timeout_cancels_when_it_passes(limit: int | None, place: Place) -> None:
    clock = JumpingClock()
    session = await place.store().open("s", RuntimeResources(clock=clock))
    session.context.create(Question(text="why"), id="q")
    held, ended = Held(), Ended()
    runtime = Runtime(session.context, [held.agent], limit, session=session)
    async with anyio.create_task_group() as group:
        group.start_soon(ended, runtime.arun)
        await held.running.wait()
        await runtime.ashutdown(timeout=20)
        assert clock.slept == [20]
        assert not runtime.in_flight
        assert active_runs() == []
    assert was_cancelled(ended.result)
    assert runtime.outcome == RunOutcome.STOPPED
    stored = await place.load("s")  # a turn that is cut is saved
    assert (stored.version, [event.artifact_id for event in stored.pending_events()]) == (0, ["q"])
    held.go.set()
    assert await Runtime(stored, [held.agent]).arun() == 1


async def test_shutdown_in_time_cancels_nothing() -> None:
    clock = JumpingClock()
    held, ended = Held(), Ended()
    runtime = Runtime(asked(RuntimeResources(clock=clock)), [held.agent])
    async with anyio.create_task_group() as group:
        group.start_soon(ended, runtime.arun)
        await held.running.wait()
        held.go.set()
        await runtime.ashutdown(timeout=20)
    assert ended.result == 1
    assert clock.monotonic() == 0


@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_better_6_after_shutdown_a_turn_is_refused_with_the_reason(timeout: float | None) -> None:
    runtime = Runtime(asked(), [echoer()], dispatcher=lambda context, artifact: None)
    for _ in range(2):  # a runtime that is shut already is left as it is
        await runtime.ashutdown(timeout=timeout)
    for verb in (runtime.arun, runtime.arun_once, runtime.flush_pending_actions):
        with pytest.raises(RuntimeError, match=r"shut down by ashutdown\(\)"):
            await verb()
    with pytest.raises(RuntimeError, match=r"shut down by ashutdown\(\)"):
        async for _ in runtime.astream():
            pass
    assert [event.artifact_id for event in runtime.context.pending_events()] == ["q"]


async def test_a_callback_that_would_wait_for_itself_is_told_so() -> None:
    context = Context()
    context.create(Order(item="x"), id="o")

    async def give_up(context: Context, action: Artifact[PendingAction]) -> None:
        await runtime.ashutdown()

    runtime = Runtime(context, [notifier()], dispatcher=give_up)
    with anyio.fail_after(5), pytest.raises(RuntimeError, match=r"callback .* would wait for itself"):
        await runtime.arun()
    assert action(context, "notify:o").status == "failed"
    assert await runtime.arun() == 0  # it was not shut down


@pytest.mark.parametrize("from_child", [False, True])
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_callback_in_a_task_of_its_own_is_told_so_too(concurrency: int, from_child: bool) -> None:
    context = Context()
    context.create(Order(item="x"), id="o")

    async def give_up(context: Context, action: Artifact[PendingAction]) -> None:
        if not from_child:
            await runtime.ashutdown()
            return
        ended = Ended()
        async with anyio.create_task_group() as group:
            group.start_soon(ended, runtime.ashutdown)
        raise ended.result

    runtime = Runtime(context, [notifier()], dispatcher=give_up, dispatch_concurrency=concurrency)
    with anyio.fail_after(5), pytest.raises(RuntimeError, match=r"callback .* would wait for itself"):
        await runtime.arun()
    assert await runtime.arun() == 0  # it was not shut down


async def test_a_callback_may_shut_down_another_runtime_but_none_that_waits_for_it() -> None:
    inner_context, outer_context = Context(), Context()
    for context in (inner_context, outer_context):
        context.create(Order(item="x"), id="o")
    other = Runtime(asked(), [echoer()])

    async def give_up(context: Context, action: Artifact[PendingAction]) -> None:
        await other.ashutdown()
        await outer.ashutdown()

    async def run_inner(context: Context, action: Artifact[PendingAction]) -> None:
        await Runtime(inner_context, [notifier()], dispatcher=give_up).arun()

    outer = Runtime(outer_context, [notifier()], dispatcher=run_inner)
    with anyio.fail_after(5), pytest.raises(RuntimeError, match=r"would wait for itself"):
        await outer.arun()
    with pytest.raises(RuntimeError, match=r"shut down by ashutdown\(\)"):
        await other.arun()


async def test_a_task_of_a_callback_that_outlives_the_turn_may_shut_down() -> None:
    context = Context()
    context.create(Order(item="x"), id="o")
    over = anyio.Event()

    async with anyio.create_task_group() as group:

        async def later() -> None:
            await over.wait()
            await runtime.ashutdown()

        def send(context: Context, action: Artifact[PendingAction]) -> None:
            group.start_soon(later)

        runtime = Runtime(context, [notifier()], dispatcher=send)
        await runtime.arun()
        over.set()
    with pytest.raises(RuntimeError, match=r"shut down by ashutdown\(\)"):
        await runtime.arun()


async def test_shutdown_closes_no_resources() -> None:
    closed: list[str] = []

    class Model:
        async def aclose(self) -> None:
            closed.append("llm")

    runtime = Runtime(asked(RuntimeResources(llm=Model())), [])
    await runtime.ashutdown()
    assert closed == []


async def test_shutdown_cuts_a_flush_that_hangs() -> None:
    sending, ended = anyio.Event(), Ended()

    async def hang(context: Context, artifact: Artifact[PendingAction]) -> None:
        sending.set()
        await anyio.sleep_forever()

    context = Context(RuntimeResources(clock=JumpingClock()))
    context.create(Order(item="x"), id="o")
    await Runtime(context, [notifier()]).arun()
    runtime = Runtime(context, dispatcher=hang)
    async with anyio.create_task_group() as group:
        group.start_soon(ended, runtime.flush_pending_actions)
        await sending.wait()
        await runtime.ashutdown(timeout=3)
    assert was_cancelled(ended.result)
    assert (action(context, "notify:o").status, action(context, "notify:o").error) == (
        "pending",
        "interrupted",
    )


# -- cancel_run ---------------------------------------------------------------------------------------


async def test_cancel_run_cuts_one_turn_among_several() -> None:
    helds = [Held(), Held()]
    ends = [Ended(), Ended()]
    runtimes = [Runtime(asked(), [held.agent]) for held in helds]
    async with anyio.create_task_group() as group:
        for runtime, held, ended in zip(runtimes, helds, ends, strict=True):
            group.start_soon(ended, runtime.arun)
            await held.running.wait()
        runs = {info.runtime_id: info for info in active_runs()}
        assert [info.generation for info in runs.values()] == [1, 1]
        assert cancel_run(runs[id(runtimes[0])].run_id)
        await anyio.wait_all_tasks_blocked()
        assert [info.runtime_id for info in active_runs()] == [id(runtimes[1])]
        helds[1].go.set()
    assert was_cancelled(ends[0].result)
    assert ends[1].result == 1
    assert not cancel_run(runs[id(runtimes[0])].run_id)  # it is over


async def test_cancel_run_under_a_deadline_is_no_deadline() -> None:
    from reactifact import Budget

    held, ended = Held(), Ended()
    clock = JumpingClock()
    runtime = Runtime(asked(RuntimeResources(clock=clock)), [held.agent], budget=Budget(max_seconds=30))

    async def cancel_soon() -> None:
        await held.running.wait()
        (info,) = active_runs()
        cancel_run(info.run_id)

    async with anyio.create_task_group() as group:
        group.start_soon(cancel_soon)
        group.start_soon(ended, runtime.arun)
    assert was_cancelled(ended.result)
    assert runtime.outcome == RunOutcome.STOPPED
    assert clock.monotonic() == 0


# -- errors that are no Exception ---------------------------------------------------------------------


class Fatal(BaseException):
    pass


@pytest.mark.parametrize("limit", [None, 3])
async def test_what_is_no_exception_leaves_bare_and_keeps_what_has_finished(limit: int | None) -> None:
    fails = [True]
    runs: list[str] = []

    def agent(name: str) -> Any:
        @produce(Answer)
        async def answer(call: ProduceCall) -> Answer:
            runs.append(name)
            if name == "fatal":
                await anyio.lowlevel.checkpoint()
                if fails[0]:
                    raise Fatal("the end")
            return Answer(text=name)

        return create_agent(name, consumes=[Consume(Question)], produces=[answer])

    runtime = Runtime(asked(), [agent("first"), agent("fatal")], limit)
    with pytest.raises(Fatal, match="the end"):
        await runtime.arun()
    assert not runtime.in_flight
    fails[0] = False
    assert await runtime.arun() == 1
    assert runs == ["first", "fatal", "fatal"]


@pytest.mark.parametrize("limit", [None, 3])
def test_a_task_that_the_agent_cancelled_itself_ends_the_turn_and_does_not_loop(limit: int | None) -> None:
    """Waiting for a cancelled task raises `CancelledError` in an agent that nobody cancelled."""
    runs: list[str] = []

    @produce(Answer)
    async def careless(call: ProduceCall) -> None:
        runs.append("careless")
        task = asyncio.ensure_future(asyncio.sleep(3600))
        task.cancel()
        await task

    agent = create_agent("careless", consumes=[Consume(Question)], produces=[careless])
    runtime = Runtime(asked(), [agent], limit)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await runtime.arun()

    asyncio.run(main())
    assert runs == ["careless"]
    assert len(runtime.context.pending_events()) == 1


# -- stop_on_signals ----------------------------------------------------------------------------------


async def test_an_error_inside_stop_on_signals_comes_out_bare() -> None:
    @produce(Answer)
    async def explode(call: ProduceCall) -> None:
        raise ConnectionError("no route")

    agent = create_agent("x", consumes=[Consume(Question)], produces=[explode])
    runtime = Runtime(asked(), [agent])
    with pytest.raises(ConnectionError, match="no route"):
        async with stop_on_signals(runtime):
            await runtime.arun()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


async def test_a_signal_stops_several_runtimes_and_a_second_one_cuts_them() -> None:
    helds, ends = [Held(), Held()], [Ended(), Ended()]
    runtimes = [Runtime(asked(), [held.agent]) for held in helds]
    async with stop_on_signals(*runtimes), anyio.create_task_group() as group:
        for runtime, held, ended in zip(runtimes, helds, ends, strict=True):
            group.start_soon(ended, runtime.arun)
            await held.running.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        while not all(runtime._is_shut for runtime in runtimes):
            await anyio.lowlevel.checkpoint()
        helds[0].go.set()
        while runtimes[0].in_flight:
            await anyio.lowlevel.checkpoint()
        assert runtimes[1].in_flight  # the first signal cuts nothing
        os.kill(os.getpid(), signal.SIGTERM)
    assert ends[0].result == 1
    assert was_cancelled(ends[1].result)


def start(path: Path, backend: Any, how: str) -> forked.Process:
    name = "uvloop" if backend[1].get("use_uvloop") else backend[0]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = forked.start("-W", "error", CHILD, path, name, how, env=environment)
    assert process.stdout.readline() == "hanging\n"
    return process


async def resumed(place: Place) -> list[str]:
    """Run what is left in the store and return which agents ran."""
    assert place.path is not None
    fsck(place.path)
    runs: list[str] = []
    session = await place.store().open("s")
    await Runtime(session.context, agents(runs.append), session=session).arun()
    context = await place.load("s")
    assert [commit.author for commit in context.history()] == ["answerer", "echoer", "noter"]
    assert [len(context.list_artifacts(kind)) for kind in (Answer, Echo, Note)] == [1, 1, 1]
    assert live(context, "q").data.text == "why"
    assert context.pending_events() == []
    return runs


async def test_sigterm_and_sigkill_in_mid_turn_leave_equally_resumable_state(
    tmp_path: Path, anyio_backend: Any
) -> None:
    kept = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        place = Place(tmp_path / f"{number.name}.git")
        assert place.path is not None
        process = start(place.path, anyio_backend, "plain")
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == -number
        stored = await place.load("s")
        assert [commit.author for commit in stored.history()] == ["answerer"]
        kept.append([event.artifact_type for event in stored.pending_events()])
        assert await resumed(place) == ["echoer", "noter"]
    assert kept[0] == kept[1] == [Answer]


async def test_sigterm_under_the_helper_lets_the_generation_commit(
    git_place: Place, anyio_backend: Any
) -> None:
    assert git_place.path is not None
    process = start(git_place.path, anyio_backend, "stop")
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("stopped\n", 0)
    assert len((await git_place.load("s")).history()) == 3
    assert await resumed(git_place) == []


async def test_sigterm_under_the_helper_cuts_after_the_timeout_and_keeps_what_finished(
    git_place: Place, anyio_backend: Any
) -> None:
    assert git_place.path is not None
    process = start(git_place.path, anyio_backend, "cut")
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert out.strip() == ("RunCancelled" if anyio_backend[0] == "trio" else "CancelledError")
    assert len((await git_place.load("s")).history()) == 1
    assert await resumed(git_place) == ["noter"]  # the echoer had finished, and was held
