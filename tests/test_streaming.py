"""Announcements: every subscriber gets each, a full queue loses its oldest."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import anyio
import pytest
from anyio import to_thread

from reactifact import Context, RuntimeResources
from reactifact.errors import ReactifactError
from reactifact.streaming import EventHub, EventQueue, ProgressEvent, QueueEmpty

pytestmark = pytest.mark.every_loop


def event(number: int) -> ProgressEvent:
    return ProgressEvent("status", str(number))


def messages(queue: EventQueue) -> list[str]:
    found = []
    while not queue.empty():
        found.append(queue.get_nowait().message)
    return found


def test_an_event_has_defaults_of_its_own() -> None:
    first, second = ProgressEvent("status"), ProgressEvent("status")
    assert (first.message, first.data) == ("", {})
    assert first.data is not second.data
    assert first.timestamp.tzinfo is UTC


def test_every_subscriber_gets_each_event_from_its_subscription_on() -> None:
    hub = EventHub()
    hub.publish(event(0))
    early = hub.subscribe()
    hub.publish(event(1))
    late = hub.subscribe()
    hub.publish(event(2))
    assert messages(early) == ["1", "2"]
    assert messages(late) == ["2"]


def test_a_full_queue_loses_its_oldest_and_counts_it() -> None:
    hub = EventHub(maxsize=2)
    slow, quick = hub.subscribe(), hub.subscribe()
    for number in range(5):
        hub.publish(event(number))
        if number == 2:
            assert messages(quick) == ["1", "2"]
    assert (slow.qsize(), slow.dropped) == (2, 3)
    assert messages(slow) == ["3", "4"]
    assert (messages(quick), quick.dropped) == (["3", "4"], 1)


def test_the_default_size_is_1024() -> None:
    assert EventHub().subscribe().maxsize == 1024


def test_unsubscribing_leaves_what_is_there_and_can_be_repeated() -> None:
    hub = EventHub()
    queue, other = hub.subscribe(), hub.subscribe()
    hub.publish(event(1))
    for _ in range(2):
        hub.unsubscribe(queue)
    hub.publish(event(2))
    assert messages(queue) == ["1"]
    assert messages(other) == ["1", "2"]
    assert hub.has_subscribers
    hub.unsubscribe(other)
    assert not hub.has_subscribers


def test_an_empty_queue_says_so() -> None:
    queue = EventHub().subscribe()
    assert queue.empty()
    with pytest.raises(QueueEmpty, match="holds no event") as caught:
        queue.get_nowait()
    assert isinstance(caught.value, asyncio.QueueEmpty)
    assert isinstance(caught.value, ReactifactError)


@pytest.mark.parametrize("kind", [EventHub, EventQueue])
def test_a_size_below_one_is_refused(kind: type[EventHub | EventQueue]) -> None:
    with pytest.raises(ValueError, match="maxsize=1 or more"):
        kind(0)


@pytest.mark.anyio
async def test_get_waits_for_an_event() -> None:
    queue = EventHub().subscribe()
    got: list[str] = []

    async def read() -> None:
        got.append((await queue.get()).message)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert got == []
        queue.put_nowait(event(1))
        await anyio.wait_all_tasks_blocked()
        assert got == ["1"]
        queue.put_nowait(event(2))
    assert got == ["1", "2"]


@pytest.mark.anyio
async def test_a_cancelled_get_loses_no_event() -> None:
    queue = EventHub().subscribe()
    got: list[str] = []

    async def read() -> None:
        got.append((await queue.get()).message)

    for before in (True, False):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            if before:
                group.cancel_scope.cancel()
            queue.put_nowait(event(int(before)))
            group.cancel_scope.cancel()
    # whether a task that was cancelled after the event came still takes it is the event loop's choice
    assert sorted(got + messages(queue)) == ["0", "1"]


@pytest.mark.anyio
async def test_a_worker_thread_can_publish() -> None:
    hub = EventHub()
    queue = hub.subscribe()
    got: list[str] = []

    async def read() -> None:
        for _ in range(200):
            got.append((await queue.get()).message)

    def publish() -> None:
        for number in range(200):
            hub.publish(event(number))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await to_thread.run_sync(publish)
    assert got == [str(number) for number in range(200)]


@pytest.mark.anyio
async def test_a_thread_that_cannot_wake_the_reader_is_told_and_the_event_is_kept() -> None:
    queue = EventHub().subscribe()
    errors: list[BaseException] = []

    def publish() -> None:
        try:
            queue.put_nowait(event(1))
        except RuntimeError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(queue.get)
        await anyio.wait_all_tasks_blocked()
        stranger = threading.Thread(target=publish, name="stranger")
        stranger.start()
        await to_thread.run_sync(stranger.join)
        assert "'stranger' cannot wake" in str(errors[0])
        group.cancel_scope.cancel()
    assert messages(queue) == ["1"]


# -- through a context ---------------------------------------------------------------------------


class StoppedClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def test_announce_reaches_the_subscribers_of_its_context_alone() -> None:
    context = Context(RuntimeResources(clock=StoppedClock()))
    context.announce("nobody hears this")
    queue = context.subscribe()
    other = Context(context.resources)
    elsewhere = other.subscribe()
    context.announce("half way", done=3, of=6)
    context.announce("look", kind="hint")
    assert queue.get_nowait() == ProgressEvent(
        "status", "half way", {"done": 3, "of": 6}, datetime(2026, 1, 2, tzinfo=UTC)
    )
    assert queue.get_nowait().kind == "hint"
    context.unsubscribe(queue)
    context.announce("too late")
    assert queue.empty()
    assert elsewhere.empty()


def test_a_queue_of_another_context_can_be_unsubscribed_without_effect() -> None:
    context = Context()
    context.unsubscribe(Context().subscribe())
    queue = context.subscribe()
    context.announce("still here")
    assert messages(queue) == ["still here"]


def test_an_announcement_is_no_state() -> None:
    context = Context()
    context.subscribe()
    context.announce("hello")
    assert (context.version, context.pending_events(), context.snapshot()) == (0, [], {})
