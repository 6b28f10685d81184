"""Calls in worker threads are waited for, whoever cancels: anyio, asyncio itself, or nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from reactifact import PendingAction, Runtime, SessionStore, threads
from reactifact.threads import calls_in_flight, during, in_thread, write_through

pytestmark = pytest.mark.every_loop


class Call:
    """A blocking call that goes on until it is let go."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> str:
        self.started.set()
        assert self.may_end.wait(30)
        return "done"


@pytest.mark.anyio
async def test_a_call_returns_what_the_function_returns_and_raises_what_it_raises() -> None:
    assert await in_thread(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)
    assert calls_in_flight() == 0


async def write_locally(call: Any, *args: Any) -> Any:
    return await write_through(True, call, *args)


WAYS = [pytest.param(in_thread, id="in_thread"), pytest.param(write_locally, id="write_through")]
Way = Callable[..., Awaitable[Any]]


@pytest.mark.anyio
async def test_a_write_through_returns_what_the_function_returns_and_raises_what_it_raises() -> None:
    assert await write_through(True, divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await write_through(True, divmod, 7, 0)
    assert calls_in_flight() == 0


@pytest.mark.anyio
async def test_write_throughs_run_side_by_side_in_a_few_threads_with_the_variables_of_the_caller() -> None:
    seen: list[tuple[str, bool]] = []
    most = at_once = 0
    mutex = threading.Lock()

    def write() -> None:
        nonlocal most, at_once
        with mutex:
            at_once += 1
            most = max(most, at_once)
            seen.append((variable.get(), threads.is_on_loop()))
        barrier.wait(30)
        with mutex:
            at_once -= 1

    barrier = threading.Barrier(threads._THREADS)
    variable.set("mine")
    async with anyio.create_task_group() as group:
        for _ in range(2 * threads._THREADS):
            group.start_soon(write_through, True, write)
    assert seen == [("mine", False)] * 2 * threads._THREADS
    assert most == threads._THREADS


variable: ContextVar[str] = ContextVar("variable", default="")


@pytest.mark.anyio
@pytest.mark.parametrize("way", WAYS)
async def test_a_scope_that_is_cancelled_waits_for_the_call(way: Way) -> None:
    call = Call()
    results: list[str] = []
    async with anyio.create_task_group() as group:

        async def work() -> None:
            results.append(await way(call))
            await anyio.sleep_forever()

        group.start_soon(work)
        await anyio.to_thread.run_sync(call.started.wait)
        group.cancel_scope.cancel()
        call.may_end.set()
    assert results == ["done"]


@pytest.mark.anyio
async def test_a_scope_that_is_cancelled_already_starts_nothing() -> None:
    call = Call()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await in_thread(call)
    assert scope.cancelled_caught
    assert not call.started.is_set()


@pytest.mark.anyio
async def test_a_write_is_made_in_a_scope_that_is_cancelled_already() -> None:
    written: list[int] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await write_locally(written.append, 1)
        await write_locally(written.append, 2)
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert written == [1, 2]


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_asyncio_cancels_waits_for_the_call_and_has_its_result(way: Way) -> None:
    call = Call()
    results: list[str] = []

    async def work() -> None:
        results.append(await way(call))
        await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.to_thread(call.started.wait)
        for _ in range(3):
            task.cancel("enough")
            await asyncio.sleep(0)
        assert not task.done()
        call.may_end.set()
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert results == ["done"]


@pytest.mark.parametrize("way", WAYS)
def test_a_timeout_of_asyncio_is_still_a_timeout(way: Way) -> None:
    call = Call()
    results: list[str] = []

    async def main() -> None:
        try:
            async with asyncio.timeout(0.01):
                asyncio.get_running_loop().call_later(0.05, call.may_end.set)
                results.append(await way(call))
                await asyncio.sleep(30)
        except TimeoutError:
            results.append("timeout")

    asyncio.run(main())
    assert results == ["done", "timeout"]


class Note(BaseModel):
    text: str


@pytest.mark.parametrize("calls", [1, 2])
def test_a_turn_that_asyncio_cancels_leaves_a_context_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The turn is cancelled during its n-th blocking call: writing the branch, writing the ledger."""
    store = SessionStore(tmp_path / "state.git")
    cancel_at: dict[int, asyncio.Task[int]] = {}
    cancelled: list[int] = []
    count = 0
    put = threads._Lane.put

    def counting(lane: threads._Lane, call: threads._Call) -> None:
        nonlocal count
        count += 1
        if count in cancel_at:
            cancelled.append(count)
            cancel_at[count].cancel()
        put(lane, call)

    async def main() -> None:
        session = await store.open("notes")
        context = session.context
        runtime = Runtime(context, agents=[], session=session, dispatcher=lambda context, action: None)
        monkeypatch.setattr(threads._Lane, "put", counting)
        context.create(Note(text="first"), id="a")
        context.create(PendingAction(kind="k", idempotency_key="k"), id="action:k")
        task = asyncio.create_task(runtime.arun())
        cancel_at[count + calls] = task
        await asyncio.wait([task])
        assert cancelled
        cancel_at.clear()
        context.create(Note(text="second"), id="b")
        await runtime.arun()
        again = (await store.open("notes")).context
        assert [note.id for note in again.list_artifacts(Note)] == ["a", "b"]
        action = again.get("action:k")
        assert action is not None
        assert action.data.status == "dispatched"
        await store.aclose()

    asyncio.run(main())


@pytest.mark.anyio
async def test_a_variable_has_its_value_for_the_length_of_a_with_and_in_tasks_begun_there() -> None:
    seen: list[str] = []
    place: ContextVar[str] = ContextVar("place", default="outside")

    async def look() -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(place.get())

    async with anyio.create_task_group() as group:
        with during(place, "inside"):
            group.start_soon(look)
            with during(place, "deeper"):
                assert place.get() == "deeper"
            assert place.get() == "inside"
        with pytest.raises(ValueError, match="boom"), during(place, "failing"):
            raise ValueError("boom")
        assert place.get() == "outside"
    assert seen == ["inside"]
