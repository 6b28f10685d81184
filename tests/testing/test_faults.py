"""Injected faults: the n-th write, produce or dispatch fails, or the process dies there."""

from __future__ import annotations

from typing import Any

import pytest
from support import Answer, Order, Outside, Place, Question, action, answering_agents, live, notifier

from reactifact import Consume, Context, ProduceCall, Runtime, SessionStore, create_agent, produce, step
from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.protocol import ObjectBackend, RefUpdate
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import MissingObject, StoreError
from reactifact.testing import Crash, FaultyBackend, InjectedFault, crashing, failing
from reactifact.testing.conformance import MAIN, BackendConformance, OpenBackend, commit


class TestAFaultyBackendWithoutAFault(BackendConformance):
    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        backend = FaultyBackend(MemoryBackend(), fail_at=10_000)
        return lambda: backend


def backend_of(place: Place) -> Any:
    return place._memory if place.path is None else place.path


async def serve(store: SessionStore, outside: Any, *names: str) -> Context:
    session = await store.open("s")
    for name in names:
        session.context.create(Order(item=name), id=name)
    await Runtime(session.context, [notifier()], dispatcher=outside, session=session).arun()
    return session.context


# --- the store ---------------------------------------------------------------------------------


def test_the_nth_write_fails_and_stores_nothing() -> None:
    backend = FaultyBackend(InMemoryKVBackend(), fail_at=2)
    assert isinstance(backend, ObjectBackend)
    first, one = commit("one")
    second, two = commit("two", first)
    backend.write(one, [RefUpdate(MAIN, None, first)])
    with pytest.raises(StoreError, match="write 2 to memory fails"):
        backend.write(two, [RefUpdate(MAIN, first, second)])
    assert backend.refs() == {MAIN: first}
    with pytest.raises(MissingObject):
        backend.read_many([second])
    backend.write(two, [RefUpdate(MAIN, first, second)])
    assert backend.refs() == {MAIN: second}
    assert (backend.writes, backend.crashed) == (3, False)


def test_a_failure_can_have_an_error_of_its_own() -> None:
    backend = FaultyBackend(InMemoryKVBackend(), fail_at=1, error=OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        backend.write(commit("one")[1])


@pytest.mark.parametrize("torn", [False, True])
def test_after_a_crash_nothing_is_stored(torn: bool) -> None:
    inner = InMemoryKVBackend()
    backend = FaultyBackend(inner, crash_at=2, torn=torn)
    first, one = commit("one")
    second, two = commit("two", first)
    backend.write(one, [RefUpdate(MAIN, None, first)])
    for _ in range(2):
        with pytest.raises(Crash):
            backend.write(two, [RefUpdate(MAIN, first, second)])
    assert inner.refs() == {MAIN: first}
    assert (backend.writes, backend.crashed) == (2, True)
    if torn:
        assert second in inner.read_many([second])
    else:
        with pytest.raises(MissingObject):
            inner.read_many([second])


@pytest.mark.parametrize("number", [0, -1, True, 1.5])
def test_a_number_below_one_is_refused(number: Any) -> None:
    for name in ("fail_at", "crash_at"):
        with pytest.raises(ValueError, match=name):
            FaultyBackend(InMemoryKVBackend(), **{name: number})
    with pytest.raises(ValueError, match="at="):
        failing(Outside(), at=number)


@pytest.mark.anyio
async def test_wherever_a_run_dies_the_next_one_ends_as_if_it_had_not(place: Place) -> None:
    inner = backend_of(place)
    crashes = 0
    for number in range(1, 20):
        outside = Outside()
        backend = FaultyBackend(
            MemoryBackend() if place.path is None else f"{inner}.{number}", crash_at=number
        )
        again = backend.inner
        if not await dies(SessionStore(backend), outside):
            assert number == crashes + 1
            break
        crashes += 1
        assert backend.crashed
        store = SessionStore(again)
        session = await store.open("s")
        known = {artifact.id for artifact in session.context.list_artifacts(Order)}
        context = await serve(store, outside, *sorted({"a", "b"} - known))
        assert [action(context, f"notify:{name}").status for name in "ab"] == ["dispatched"] * 2
        assert sorted(set(outside.sent)) == ["notify:a", "notify:b"]
        assert len(outside.sent) <= 3  # only the send in flight is repeated
    assert crashes >= 3


async def dies(store: SessionStore, outside: Any) -> bool:
    try:
        await serve(store, outside, "a", "b")
    except Crash:
        return True
    return False


@pytest.mark.anyio
async def test_a_failed_save_can_be_repeated() -> None:
    store = SessionStore(FaultyBackend(InMemoryKVBackend(), fail_at=1))
    session = await store.open("s")
    session.context.create(Order(item="tea"), id="o")
    with pytest.raises(StoreError, match="injected"):
        await session.save()
    assert not await store.has_session("s")
    await session.save()
    found = await store.load_session("s")
    assert found is not None
    assert live(found, "o").data == Order(item="tea")


# --- produces, agents, dispatchers -------------------------------------------------------------


@pytest.mark.anyio
async def test_the_nth_dispatch_fails_and_the_others_go_out() -> None:
    outside = Outside()
    with pytest.raises(InjectedFault, match="call 2 of Outside"):
        await serve(SessionStore(InMemoryKVBackend()), failing(outside, at=2), "a", "b", "c")
    assert outside.tried == ["notify:a", "notify:c"]


@pytest.mark.anyio
async def test_a_dispatch_may_fail_after_it_was_sent() -> None:
    outside = Outside()
    wrapped = failing(outside, at=1, error=TimeoutError, when="after")
    with pytest.raises(TimeoutError):
        await serve(SessionStore(InMemoryKVBackend()), wrapped, "a")
    assert outside.sent == ["notify:a"]


@pytest.mark.anyio
async def test_a_process_that_dies_after_a_send_sends_it_again_under_the_same_key(place: Place) -> None:
    outside = Outside()
    backend = FaultyBackend(backend_of(place))
    assert await dies(SessionStore(backend), crashing(outside, at=1, backend=backend, when="after"))
    assert backend.crashed
    assert outside.sent == ["notify:a"]
    waiting = action(await place.load("s"), "notify:a")
    assert (waiting.status, waiting.attempts, waiting.error) == ("pending", 0, None)  # nothing was recorded
    report = await place.store().drain(outside)
    assert outside.sent == ["notify:a", "notify:a", "notify:b"]
    assert report is not None


@pytest.mark.anyio
async def test_the_nth_produce_fails_and_the_original_is_left_alone() -> None:
    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        assert call.trigger is not None
        return Answer(text=call.trigger.data.text)

    async def run(part: Any) -> list[str]:
        context = Context()
        for number in range(3):
            context.create(Question(text=str(number)))
        runtime = Runtime(context, [create_agent("a", consumes=[Consume(Question)], produces=[part])])
        try:
            await runtime.arun()
        finally:
            texts.extend(found.data.text for found in context.list_artifacts(Answer))
        return texts

    texts: list[str] = []
    broken = failing(answer, at=2, error=ValueError("no model"))
    assert broken is not answer
    assert broken.name == answer.name
    with pytest.raises(ValueError, match="no model"):
        await run(broken)
    assert "1" not in texts
    texts.clear()
    assert await run(answer) == ["0", "1", "2"]


@pytest.mark.anyio
async def test_a_retry_is_a_call() -> None:
    @produce(Answer, retries=1, backoff=0)
    def answer(call: ProduceCall) -> Answer:
        return Answer(text="there")

    context = Context()
    context.create(Question(text="?"))
    part = failing(answer, at=1)
    await Runtime(context, [create_agent("a", consumes=[Consume(Question)], produces=[part])]).arun()
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["there"]


@pytest.mark.anyio
async def test_an_agent_fails_as_a_whole() -> None:
    @step(produces=Answer, consumes=Question)
    def answer(call: ProduceCall) -> Answer:
        return Answer(text="there")

    context = Context()
    context.create(Question(text="?"))
    with pytest.raises(InjectedFault, match="call 1 of answer"):
        await Runtime(context, [failing(answer, at=1)]).arun()
    assert context.list_artifacts(Answer) == []


def test_what_cannot_fail_is_refused() -> None:
    with pytest.raises(TypeError, match="pass a produce, an agent, or a dispatcher"):
        failing(Outside, at=1)
    with pytest.raises(ValueError, match="when='during'"):
        failing(Outside(), at=1, when="during")  # type: ignore[arg-type]


def test_an_agent_that_was_copied_keeps_its_name() -> None:
    [first, _] = answering_agents()
    assert failing(first, at=1).name == first.name
