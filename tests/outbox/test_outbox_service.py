"""The outbox in service (DESIGN §6): ordering, concurrency, recording, simulation, interruption, drains."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from stores import counted_reads
from support import Note, Order, Outside, Place, Question, action, commit, fsck, notifier

from reactifact import (
    Artifact,
    Budget,
    Context,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
)
from reactifact.errors import Contention, IntentConflict
from reactifact.outbox import RetryingDispatcher, actions, outbox_status
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

Plan = list[tuple[str, str | None]]
"""(key, ordering key) of each action."""

MIXED: Plan = [("a1", "a"), ("b1", "b"), ("a2", "a"), ("x", None), ("b2", "b"), ("a3", "a")]


async def plan(context: Context, actions: Plan) -> None:
    """Commit some actions."""

    def act(call: ProduceCall) -> None:
        for key, ordering_key in actions:
            call.effects.act("mail", key=key, ordering_key=ordering_key)

    await commit(context, act)


async def opened(place: Place, actions: Plan, session_id: str = "s", **resources: Any) -> Any:
    session = await place.store().open(session_id, RuntimeResources(**resources))
    await plan(session.context, actions)
    await session.save()
    return session


def statuses(context: Context, actions: Plan) -> dict[str, str]:
    return {key: action(context, key).status for key, _ in actions}


class Gate:
    """A dispatcher whose deliveries wait until they are let go, each by its key."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.most = 0
        self._gates: dict[str, anyio.Event] = {}

    async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        key = artifact.data.idempotency_key
        self.started.append(key)
        self.most = max(self.most, len(self.started) - len(self.ended))
        await self._gates.setdefault(key, anyio.Event()).wait()
        self.ended.append(key)

    async def let(self, key: str) -> None:
        """Let a delivery end once it has begun."""
        while key not in self.started:
            await anyio.lowlevel.checkpoint()
        self._gates[key].set()
        while key not in self.ended:
            await anyio.lowlevel.checkpoint()


# -- ordering keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2, 10])
async def test_a_failed_one_holds_back_its_successors_and_others_pass(concurrency: int, place: Place) -> None:
    session, outside = await opened(place, MIXED), Outside("a1")
    runtime = Runtime(session.context, session=session, dispatcher=outside, dispatch_concurrency=concurrency)
    with pytest.raises(ConnectionError, match="no route for a1"):
        await runtime.arun()
    assert sorted(outside.sent) == ["b1", "b2", "x"]
    assert sorted(outside.tried) == ["a1", "b1", "b2", "x"]
    expected = {"a1": "failed", "a2": "pending", "a3": "pending"}
    stored = await place.load("s")
    assert statuses(stored, MIXED) == {**dict.fromkeys(["b1", "b2", "x"], "dispatched"), **expected}

    # they stay held back in later turns, and in another process
    await runtime.arun()
    await Runtime(stored, dispatcher=outside).arun()
    assert len(outside.tried) == 4

    # and go out in order once the first one has
    outside.failing.clear()
    session.context.retry_action("action:a1")
    await runtime.arun()
    assert outside.sent[3:] == ["a1", "a2", "a3"]
    assert set(statuses(await place.load("s"), MIXED).values()) == {"dispatched"}


@pytest.mark.parametrize("concurrency", [1, 3, 10])
async def test_actions_of_one_ordering_key_never_overtake_one_another(concurrency: int) -> None:
    context, gate = Context(), Gate()
    await plan(context, MIXED)
    runtime = Runtime(context, dispatcher=gate, dispatch_concurrency=concurrency)
    order = {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]}
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        while len(gate.ended) < len(MIXED):
            await anyio.lowlevel.checkpoint()
            waiting = [key for key in gate.started if key not in gate.ended]
            if waiting:
                await gate.let(waiting[-1])  # the youngest first: what could overtake does
    for keys in order.values():
        assert [key for key in gate.started if key in keys] == keys
        assert [key for key in gate.ended if key in keys] == keys
    assert gate.most <= concurrency
    if concurrency == 1:
        assert gate.started == [key for key, _ in MIXED]  # commit order


async def test_an_ordering_key_holds_over_generations_and_commits() -> None:
    context, outside = Context(), Outside("one")
    for key in ("one", "two"):
        await commit(context, lambda call, key=key: call.effects.act("mail", key=key, ordering_key="k"))
    runtime = Runtime(context, dispatcher=outside, dispatch_errors="record")
    await runtime.arun()
    assert outside.tried == ["one"]
    assert action(context, "two").status == "pending"


# -- concurrency --------------------------------------------------------------------------------------


async def test_dispatch_concurrency_sends_several_at_once_and_records_each(place: Place) -> None:
    actions: Plan = [(f"k{number}", None) for number in range(6)]
    session, gate = await opened(place, actions), Gate()
    runtime = Runtime(session.context, session=session, dispatcher=gate, dispatch_concurrency=3)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        while len(gate.started) < 3:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert len(gate.started) == 3  # no more than three
        last = gate.started[-1]
        await gate.let(last)
        while len(gate.started) < 4:  # a place is free only after the delivery is recorded
            await anyio.lowlevel.checkpoint()
        assert action(await place.load("s"), last).status == "dispatched"
        for key, _ in actions:
            if key != last:
                await gate.let(key)
    assert gate.most == 3
    assert set(statuses(await place.load("s"), actions).values()) == {"dispatched"}


async def test_sends_that_wait_for_their_place_are_no_tasks_and_begin_in_order() -> None:
    context, started = Context(), list[str]()
    actions: Plan = [(f"k{number}", f"o{number // 2}" if number < 10 else None) for number in range(60)]
    await plan(context, actions)
    before, tasks = len(anyio.get_running_tasks()), list[int]()

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        started.append(artifact.data.idempotency_key)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        tasks.append(len(anyio.get_running_tasks()) - before)

    await Runtime(context, dispatcher=send, dispatch_concurrency=3).arun()
    assert max(tasks) <= 3 + 3  # those that record beside those that send
    keys = [key for key, _ in actions]
    assert sorted(started, key=keys.index) == keys
    assert started[:3] == ["k0", "k2", "k4"]  # what may begin and was planned first
    assert [key for key in started if key in keys[10:]] == keys[10:]


async def test_the_first_failure_in_the_order_of_sending_is_raised_with_the_others_as_notes() -> None:
    context, outside = Context(), Outside("k1", "k2", "k4")
    await plan(context, [(f"k{number}", None) for number in range(6)])
    runtime = Runtime(context, dispatcher=outside, dispatch_concurrency=4)
    with pytest.raises(ConnectionError) as caught:
        await runtime.arun()
    texts = [str(caught.value), *caught.value.__notes__]
    assert {text.rpartition(" ")[2] for text in texts} == {"k1", "k2", "k4"}
    assert str(caught.value).rpartition(" ")[2] == next(k for k in outside.tried if k in outside.failing)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_ledger_that_cannot_be_written_leaves_as_it_was_raised(
    concurrency: int, git_place: Place
) -> None:
    session = await opened(git_place, [("k0", None), ("k1", None)])
    backend: Any = session.store.database.backend

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        backend.fault = broken

    def broken(step: str) -> None:
        raise Contention("the disk is full")

    runtime = Runtime(session.context, dispatcher=send, dispatch_concurrency=concurrency)
    with pytest.raises(Contention, match="the disk is full"):  # bare, in no group
        await runtime.arun()
    backend.fault = None
    assert not runtime.in_flight


@pytest.mark.parametrize("value", [0, -1])
def test_a_concurrency_below_one_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="dispatch_concurrency"):
        Runtime(Context(), dispatch_concurrency=value)
    with pytest.raises(ValueError, match="dispatch_errors"):
        Runtime(Context(), dispatch_errors="ignore")  # type: ignore[arg-type]


# -- failures that are only recorded ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["per_commit", "per_turn"])
async def test_dispatch_errors_record_raises_nothing(policy: Any, place: Place) -> None:
    reported: list[str] = []
    session, outside = await opened(place, [("k0", None), ("k1", None)]), Outside("k0")
    runtime = Runtime(
        session.context,
        session=session,
        dispatcher=outside,
        dispatch_errors="record",
        session_save_policy=policy,
        on_dispatch_error=lambda artifact, error: reported.append(str(error)),
    )
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.COMPLETED
    assert reported == ["no route for k0"]
    found = action(await place.load("s"), "k0")
    assert (found.status, found.attempts, found.error) == ("failed", 1, "no route for k0")
    assert action(await place.load("s"), "k1").status == "dispatched"
    session.context.retry_action("action:k0")
    assert await runtime.flush_pending_actions() == 1


# -- simulation ---------------------------------------------------------------------------------------


async def test_simulate_sends_nothing_and_claims_nothing_outside_its_branch(place: Place) -> None:
    session, outside = await opened(place, MIXED), Outside()
    fork = session.context.branch(name="experiment")
    runtime = Runtime(fork, dispatcher=outside, simulate=True)
    await runtime.arun()
    assert runtime.outcome == RunOutcome.COMPLETED
    assert outside.tried == []
    assert set(statuses(fork, MIXED).values()) == {"simulated"}
    assert fork.pending_actions() == []
    await place.branches().save_branch(fork, session_id="s", name="experiment")
    again = await place.load("s", "experiment")
    assert set(statuses(again, MIXED).values()) == {"simulated"}
    await Runtime(again, dispatcher=outside).arun()
    assert outside.tried == []  # what was simulated is not sent from there

    main = await place.load("s")
    assert set(statuses(main, MIXED).values()) == {"pending"}
    await Runtime(main, dispatcher=outside).arun()
    assert sorted(outside.sent) == sorted(key for key, _ in MIXED)


# -- interruption -------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_an_interrupted_drain_loses_nothing(concurrency: int, place: Place) -> None:
    actions: Plan = [(f"k{number}", None) for number in range(4)]
    session, gate = await opened(place, actions), Gate()
    runtime = Runtime(session.context, session=session, dispatcher=gate, dispatch_concurrency=concurrency)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        await gate.let("k0")
        while len(gate.started) < 1 + concurrency:
            await anyio.lowlevel.checkpoint()
        interrupted = [key for key in gate.started if key not in gate.ended]
        group.cancel_scope.cancel()
    stored = await place.load("s")
    assert action(stored, "k0").status == "dispatched"
    for key in interrupted:
        found = action(stored, key)
        assert (found.status, found.attempts, found.error) == ("pending", 1, "interrupted")
    for key in {name for name, _ in actions} - {"k0", *interrupted}:
        assert (action(stored, key).status, action(stored, key).attempts) == ("pending", 0)
    outside = Outside()
    await Runtime(stored, dispatcher=outside).arun()
    assert outside.sent == ["k1", "k2", "k3"]  # in order, under the same keys; k0 is not repeated
    found = action(await place.load("s"), interrupted[0])
    assert (found.status, found.error) == ("dispatched", None)


async def test_a_dispatcher_that_hangs_is_cut_by_the_deadline_and_sent_again() -> None:
    async def hang(context: Context, artifact: Artifact[PendingAction]) -> None:
        await anyio.sleep_forever()

    context = Context(RuntimeResources(clock=JumpingClock()))
    await plan(context, [("k0", None), ("k1", None)])
    runtime = Runtime(context, dispatcher=hang, budget=Budget(max_seconds=10))
    await runtime.arun()
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    assert action(context, "k0").error == "interrupted"
    outside = Outside()
    await Runtime(context, dispatcher=outside).arun()
    assert outside.sent == ["k0", "k1"]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_plain_function_and_an_awaitable_will_do(concurrency: int) -> None:
    sent: list[str] = []

    def plain(context: Context, artifact: Artifact[PendingAction]) -> None:
        sent.append(artifact.data.idempotency_key)
        if artifact.data.idempotency_key == "k1":
            raise ConnectionError("no route for k1")

    context = Context()
    await plan(context, [("k0", None), ("k1", None), ("k2", None)])
    with pytest.raises(ConnectionError):
        await Runtime(context, dispatcher=plain, dispatch_concurrency=concurrency).arun()
    assert sorted(sent) == ["k0", "k1", "k2"]
    assert action(context, "k1").status == "failed"


# -- the ledger ---------------------------------------------------------------------------------------


async def test_the_ledger_outlives_its_branch_and_the_process(place: Place) -> None:
    session, outside = await opened(place, [("k", None)]), Outside()
    await place.branches().save_branch(session.context.branch(), session_id="s", name="b")
    await Runtime(await place.load("s", "b"), dispatcher=outside).arun()
    await place.branches().delete_branch("s", "b")
    main = await place.store().open("s")
    assert action(main.context, "k").status == "dispatched"
    await Runtime(main.context, session=main, dispatcher=outside).arun()
    late = main.context.branch(name="late")
    await Runtime(late, dispatcher=outside).arun()
    assert outside.sent == ["k"]
    with pytest.raises(ValueError, match=r"action:k.*dispatched"):
        late.retry_action("action:k")
    if place.path is not None:
        fsck(place.path)


# -- a service that starts after a crash --------------------------------------------------------------


async def test_pending_sessions_names_what_has_something_to_send(place: Place) -> None:
    store = place.store()
    assert await store.pending_sessions() == []
    await opened(place, [("k", None)], "waiting")
    done = await opened(place, [("k", None)], "delivered")
    await Runtime(done.context, session=done, dispatcher=Outside()).arun()
    failed = await opened(place, [("k", "o"), ("l", "o")], "failed")
    await Runtime(failed.context, session=failed, dispatcher=Outside("k"), dispatch_errors="record").arun()
    forked = await opened(place, [], "forked")
    fork = forked.context.branch()
    await plan(fork, [("k", None)])
    await place.branches().save_branch(fork, session_id="forked", name="b")
    idle = await place.store().open("idle")
    await idle.save()
    assert await place.store().pending_sessions() == ["forked", "waiting"]


async def test_drain_delivers_what_waits_anywhere_in_the_store(place: Place) -> None:
    for name in ("one", "two"):
        await opened(place, [(f"{name}-0", None), (f"{name}-1", None)], name)
    one = await place.store().open("one")
    fork = one.context.branch()
    await plan(fork, [("fork-0", None)])
    await place.branches().save_branch(fork, session_id="one", name="b")

    outside = Outside("two-0")
    report = await place.store().drain(outside)
    assert (report.tried, report.delivered) == (5, 4)
    assert report.failed == [("two", "main", "no route for two-0")]
    assert sorted(outside.sent) == ["fork-0", "one-0", "one-1", "two-1"]  # each once, over the branches
    assert action(await place.load("one", "b"), "fork-0").status == "dispatched"

    outside.failing.clear()
    assert (await place.store().drain(outside)).tried == 0  # failed is final
    assert await place.store().pending_sessions() == []
    report = await place.store().drain(outside, retry_failed=True)
    assert (report.tried, report.delivered, report.failed) == (1, 1, [])
    assert action(await place.load("two"), "two-0").status == "dispatched"


async def test_drain_tells_of_a_key_that_was_delivered_with_another_payload(place: Place) -> None:
    session = await opened(place, [])
    fork = session.context.branch(name="b")
    await commit(session.context, lambda call: call.effects.act("mail", key="k", payload={"to": "ada"}))
    await session.save()
    await commit(
        fork,
        lambda call: (
            call.effects.act("mail", key="k", payload={"to": "bob"}),
            call.effects.act("mail", key="l"),
        ),
    )
    await place.branches().save_branch(fork, session_id="s", name="b")
    await Runtime(await place.load("s"), dispatcher=Outside()).arun()
    outside, errors = Outside(), []

    def report_error(artifact: Artifact[PendingAction], error: Exception) -> None:
        errors.append(type(error))

    report = await place.store().drain(outside, on_dispatch_error=report_error)
    assert outside.sent == ["l"]
    assert errors == [IntentConflict]
    assert (report.tried, report.delivered, len(report.failed)) == (1, 1, 1)


async def test_an_agent_hears_in_the_next_turn_of_what_a_drain_delivered(place: Place) -> None:
    from reactifact import Consume, create_agent, produce

    await opened(place, [("k", None)])
    await place.store().drain(Outside())
    heard: list[str] = []

    @produce(Note)
    async def hear(call: ProduceCall) -> None:
        assert call.trigger is not None
        heard.append(call.trigger.data.status)

    listener = create_agent("l", consumes=[Consume.by_status(PendingAction, "dispatched")], produces=[hear])
    session = await place.store().open("s")
    await Runtime(session.context, [listener], session=session).arun()
    assert heard == ["dispatched"]
    again = await place.store().open("s")  # what was heard is not heard again, though nothing was written
    assert again.context.pending_events() == []
    await Runtime(again.context, [listener], session=again).arun()
    assert heard == ["dispatched"]

    # the same, where the turn itself delivers
    await plan(again.context, [("l", None)])
    await Runtime(again.context, [listener], session=again, dispatcher=Outside()).arun()
    assert heard == ["dispatched"] * 2
    last = await place.store().open("s")
    await Runtime(last.context, [listener], session=last).arun()
    assert heard == ["dispatched"] * 2


# -- retries ------------------------------------------------------------------------------------------


class Flaky:
    """A dispatcher that fails a number of times."""

    def __init__(self, failures: int, error: Callable[[], Exception] = ConnectionError) -> None:
        self.failures = failures
        self.error = error
        self.keys: list[str] = []

    async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        self.keys.append(artifact.data.idempotency_key)
        if len(self.keys) <= self.failures:
            raise self.error()


async def test_a_retrying_dispatcher_waits_longer_each_time_and_keeps_the_key() -> None:
    clock, flaky = JumpingClock(), Flaky(3)
    context = Context(RuntimeResources(clock=clock))
    await plan(context, [("k", None)])
    retrying = RetryingDispatcher(flaky, attempts=5, backoff=2, jitter=0, longest=5)
    await Runtime(context, dispatcher=retrying).arun()
    assert flaky.keys == ["k"] * 4
    assert clock.slept == [2, 4, 5]
    found = action(context, "k")
    assert (found.status, found.attempts) == ("dispatched", 0)  # no attempt failed, seen from outside


async def test_a_retrying_dispatcher_may_try_any_number_of_times() -> None:
    clock, flaky = JumpingClock(), Flaky(1_100)
    context = Context(RuntimeResources(clock=clock))
    await plan(context, [("k", None)])
    await Runtime(context, dispatcher=RetryingDispatcher(flaky, attempts=1_200, jitter=0, longest=9)).arun()
    assert len(flaky.keys) == 1_101
    assert set(clock.slept[10:]) == {9}
    assert action(context, "k").status == "dispatched"


async def test_a_retrying_dispatcher_gives_up_with_the_last_error() -> None:
    clock, flaky = JumpingClock(), Flaky(9)
    context = Context(RuntimeResources(clock=clock))
    await plan(context, [("k", None)])
    with pytest.raises(ConnectionError) as caught:
        await Runtime(context, dispatcher=RetryingDispatcher(flaky, attempts=3, jitter=0)).arun()
    assert caught.value.__notes__ == ["tried 3 times"]
    assert (len(flaky.keys), clock.slept) == (3, [0.5, 1.0])
    assert (action(context, "k").status, action(context, "k").attempts) == ("failed", 1)


async def test_a_retrying_dispatcher_retries_only_what_it_is_told_to() -> None:
    clock, flaky = JumpingClock(), Flaky(9, lambda: PermissionError("no such account"))
    context = Context(RuntimeResources(clock=clock))
    await plan(context, [("k", None)])
    retrying = RetryingDispatcher(flaky, retry_on=(ConnectionError,))
    with pytest.raises(PermissionError):
        await Runtime(context, dispatcher=retrying).arun()
    assert (len(flaky.keys), clock.slept) == (1, [])


async def test_jitter_shortens_a_wait_by_at_most_its_share() -> None:
    clock, flaky = JumpingClock(), Flaky(2)
    context = Context(RuntimeResources(clock=clock))
    await plan(context, [("k", None)])
    retrying = RetryingDispatcher(flaky, backoff=10, jitter=0.5, random_share=lambda: 1.0)
    await Runtime(context, dispatcher=retrying).arun()
    assert clock.slept == [5, 10]


def test_a_retrying_dispatcher_refuses_options_that_make_no_sense() -> None:
    for options in ({"attempts": 0}, {"backoff": -1}, {"jitter": 2}):
        with pytest.raises(ValueError, match=r"at least 1|seconds"):
            RetryingDispatcher(Flaky(0), **options)  # type: ignore[arg-type]


async def test_a_retrying_dispatcher_is_cut_while_it_waits() -> None:
    context = Context(RuntimeResources(clock=JumpingClock()))
    await plan(context, [("k", None)])
    retrying = RetryingDispatcher(Flaky(9), attempts=9, backoff=100, jitter=0)
    runtime = Runtime(context, dispatcher=retrying, budget=Budget(max_seconds=30))
    await runtime.arun()
    assert runtime.outcome == RunOutcome.BUDGET_TIME_EXCEEDED
    assert (action(context, "k").status, action(context, "k").error) == ("pending", "interrupted")


# -- status -------------------------------------------------------------------------------------------


async def test_outbox_status_counts_ages_and_names_what_failed(place: Place) -> None:
    clock = JumpingClock(datetime(2030, 1, 1, tzinfo=UTC))
    session = await opened(place, [("k0", None), ("k1", "o"), ("k2", "o")], clock=clock)
    runtime = Runtime(session.context, session=session, dispatcher=Outside("k1"), dispatch_errors="record")
    await runtime.arun()
    clock.advance(90)
    for context in (session.context, await place.store().load_session("s", RuntimeResources(clock=clock))):
        assert context is not None
        status = outbox_status(context)
        assert (status.session, status.branch) == ("s", "main")
        assert [found.key for found in status.pending] == ["k2"]
        assert [(found.key, found.error, found.attempts) for found in status.failed] == [
            ("k1", "no route for k1", 1)
        ]
        assert (status.dispatched, status.simulated) == (1, 0)
        assert status.oldest_pending_age == 90
        assert status.to_dict()["counts"] == {
            "pending": 1,
            "failed": 1,
            "parked": 0,
            "dispatched": 1,
            "simulated": 0,
        }
    session.context.retry_action("action:k1")
    await Runtime(session.context, session=session, dispatcher=Outside()).arun()
    status = outbox_status(session.context)
    assert (status.pending, status.failed, status.dispatched) == ((), (), 3)
    assert status.oldest_pending_age is None


async def test_outbox_status_shows_a_simulation_and_an_interruption() -> None:
    clock = JumpingClock()
    context = Context(RuntimeResources(clock=clock))
    context.create(Order(item="x"), id="o")
    context.create(Question(text="why"))
    await Runtime(context, [notifier()]).arun()

    async def hang(context: Context, artifact: Artifact[PendingAction]) -> None:
        await anyio.sleep_forever()

    await Runtime(context, dispatcher=hang, budget=Budget(max_seconds=60)).arun()
    (waiting,) = outbox_status(context).pending
    assert (waiting.attempts, waiting.error, waiting.age) == (1, "interrupted", 60)
    assert waiting.planned_at == (clock.now() - timedelta(seconds=60)).isoformat()
    fork = context.branch()
    await Runtime(fork, dispatcher=hang, simulate=True).arun()
    counts = outbox_status(fork).to_dict()["counts"]
    assert (counts["pending"], counts["simulated"]) in ((1, 0), (0, 1))


# -- actions as a query -------------------------------------------------------------------------------


def keys(context: Context, status: Any = None) -> list[str]:
    return [found.data.idempotency_key for found in actions(context, status)]


async def test_actions_lists_all_of_the_branch_by_how_they_stand(place: Place) -> None:
    session = await opened(place, [("k0", None), ("k1", "o"), ("k2", "o"), ("k3", None)])
    outside = Outside("k1")
    await Runtime(session.context, session=session, dispatcher=outside, dispatch_errors="record").arun()
    session.context.create(Note(text="saves what was settled"))
    await plan(session.context, [("k4", None)])
    await session.save()
    loaded = await place.store().load_session("s")
    assert loaded is not None
    for context in (session.context, loaded):
        found = actions(context)
        assert [(a.data.idempotency_key, a.data.status) for a in found] == [
            ("k0", "dispatched"),
            ("k1", "failed"),
            ("k2", "pending"),
            ("k3", "dispatched"),
            ("k4", "pending"),
        ]
        assert found[1].data.error == "no route for k1"
        assert keys(context, "dispatched") == ["k0", "k3"]
        assert keys(context, "failed") == ["k1"]
        assert keys(context, "pending") == ["k2", "k4"]
        assert keys(context, "simulated") == []
    fork = loaded.branch()
    fork.delete("action:k3")
    await Runtime(fork, dispatcher=outside, simulate=True).arun()
    assert keys(fork, "simulated") == ["k4"]  # k2 waits behind the failed k1
    assert keys(fork) == ["k0", "k1", "k2", "k4"]
    assert keys(loaded, "simulated") == []


async def test_actions_refuses_a_status_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"status='sent' is none of an action.*'dispatched'"):
        actions(Context(), "sent")  # type: ignore[arg-type]


async def test_another_payload_under_a_delivered_key_is_listed_as_failed(git_place: Place) -> None:
    session = await opened(git_place, [])
    fork = session.context.branch(name="fork")
    for context, payload in ((session.context, {"n": 1}), (fork, {"n": 2})):

        def act(call: ProduceCall, payload: dict[str, int] = payload) -> None:
            call.effects.act("mail", key="k", payload=payload)

        await commit(context, act)
    await session.save()
    await git_place.branches().save_branch(fork, session_id="s", name="fork")
    await Runtime(session.context, session=session, dispatcher=Outside()).arun()
    other = await git_place.load("s", "fork")
    assert (keys(other, "failed"), keys(other, "dispatched")) == (["k"], [])
    assert [found.data.status for found in actions(other)] == ["failed"]


async def test_asking_for_what_waits_reads_no_other_artifact_and_no_delivered_one(git_place: Place) -> None:
    session = await opened(git_place, [(f"k{number}", None) for number in range(40)])
    for number in range(40):
        session.context.create(Note(text=f"{number}"), id=f"note:{number}")
    await Runtime(session.context, session=session, dispatcher=Outside()).arun()
    await plan(session.context, [("last", None)])
    await session.save()
    costs = []
    for status in ("pending", "failed", "dispatched"):
        store = git_place.store()
        context = await store.load_session("s")
        assert context is not None
        with counted_reads(store.database) as read:
            assert len(keys(context, status)) == {"pending": 1, "failed": 0, "dispatched": 40}[status]
        costs.append(len(read))
        await store.aclose()
    assert costs[0] < 20
    assert costs[1] < 20
    assert costs[2] > 40  # each delivered one is looked at
