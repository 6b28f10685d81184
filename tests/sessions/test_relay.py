"""The relay: sessions side by side, schedules, parking, hanging sends, what others hold, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from stores import place_of
from support import Note, Order, Outside, Place, action, commit, live, notifier

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._sessions import service
from reactifact._sessions.relay import Pace, RelayReport
from reactifact._store.ledger import LedgerEntry, joined
from reactifact.errors import DeliveryTimeout, QuestionExpired
from reactifact.outbox import actions, outbox_status
from reactifact.replay import replay_summary
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio]

DURABLE = ["git", "sqlite", "postgres"]


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store of each kind that has locks between processes."""
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return Place(place_of(request.param, tmp_path, dsn))


async def planned(
    place: Place, keys: Iterable[str], session_id: str = "s", clock: Any = None, **options: Any
) -> None:
    """Store a session whose actions wait."""
    resources = None if clock is None else RuntimeResources(clock=clock)
    session = await place.store().open(session_id, resources)

    def act(call: ProduceCall) -> None:
        for key in keys:
            call.effects.act("mail", key=key, **options)

    await commit(session.context, act)
    await session.save()


async def relayed(place: Place, dispatcher: Any, clock: JumpingClock, **options: Any) -> RelayReport:
    """Run a relay on a clock that jumps until what waits is delivered, or nothing goes on by itself."""
    return await place.store().relay(dispatcher, resources=RuntimeResources(clock=clock), **options)


class Until:
    """A dispatcher that ends its relay after a number of sends."""

    def __init__(self, count: int, *failing: str) -> None:
        self.stop = anyio.Event()
        self.times: list[tuple[str, float]] = []
        self.failing = set(failing)
        self._left = count

    async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        key = artifact.data.idempotency_key
        self.times.append((key, context.resources.clock.monotonic()))
        self._left -= 1
        if not self._left:
            self.stop.set()
        if key in self.failing:
            raise ConnectionError(f"no route for {key}")


async def test_one_pass_delivers_what_waits_in_all_sessions(durable: Place) -> None:
    for number in range(5):
        await planned(durable, [f"{number}a", f"{number}b"], f"s{number}")
    outside = Outside("3a")
    report = await durable.store().relay(outside, once=True)
    assert (report.tried, report.delivered, report.failed, report.parked) == (10, 9, 1, 0)
    assert list(report.errors) == [("s3", "main", "no route for 3a")]
    assert (report.waiting, report.waiting_failed) == (0, 1)
    for number in range(5):  # in the order of its plans within a session
        assert [key for key in outside.tried if key[0] == str(number)] == [f"{number}a", f"{number}b"]
    assert (await durable.store().relay(Outside(), once=True)).tried <= 1  # unless the retry is due already


async def test_a_relay_needs_no_class_of_the_artifacts(tmp_path: Path) -> None:
    """An action that rests on a class that is gone: `drain` refuses it, and the relay's is plain data."""
    from subprocess import run
    from sys import executable

    place = Place(tmp_path / "s.git")
    script = (
        "import anyio, sys\n"
        "from pydantic import BaseModel\n"
        "from reactifact import *\n"
        "class Gone(BaseModel):\n    n: int\n"
        "@produce(PendingAction)\n"
        "async def act(call):\n    call.effects.act('mail', key='k', payload={'n': call.trigger.data.n})\n"
        "async def main():\n"
        "    session = await SessionStore(sys.argv[1]).open('s')\n"
        "    session.context.create(Gone(n=7), id='g')\n"
        "    agent = create_agent('a', consumes=[Consume(Gone)], produces=[act])\n"
        "    await Runtime(session.context, [agent], session=session).arun()\n"
        "anyio.run(main)\n"
    )
    (tmp_path / "gone_app.py").write_text(script)
    done = run(
        [executable, tmp_path / "gone_app.py", place.path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    refused = await place.store().drain(Outside())
    assert refused.tried == 0
    assert "Gone" in refused.failed[0][2]
    payloads = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        payloads.append(artifact.data.payload)

    assert (await place.store().relay(send, once=True)).delivered == 1
    assert payloads == [{"n": 7}]


async def test_what_failed_is_sent_again_by_the_schedule_and_parked_at_last(place: Place) -> None:
    clock = JumpingClock()
    await planned(place, ["a", "b"], clock=clock)
    outside = Until(5, "a")
    report = await relayed(place, outside, clock, max_attempts=4, backoff=8.0, stop=outside.stop)
    assert [key for key, _ in outside.times] == ["a", "b", "a", "a", "a"]
    tries = [time for key, time in outside.times if key == "a"]
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert [bound >= wait >= 0 for bound, wait in zip([8, 16, 32], waits, strict=True)] == [True] * 3
    assert len({round(wait / bound, 3) for bound, wait in zip([8, 16, 32], waits, strict=True)}) == 3
    assert (report.failed, report.parked, report.waiting_parked) == (4, 1, 1)
    context = await place.load("s")
    assert (action(context, "a").status, action(context, "a").attempts) == ("parked", 4)
    assert outbox_status(context).to_dict()["counts"]["parked"] == 1
    assert [found.id for found in actions(context, "parked")] == ["action:a"]
    # nobody sends it now: no relay, no drain that retries, no turn
    assert (await place.store().drain(outside, retry_failed=True)).tried == 0
    assert (await relayed(place, outside, clock, once=True)).tried == 0


async def test_a_parked_action_is_re_armed_by_hand_and_its_attempts_only_grow(place: Place) -> None:
    clock = JumpingClock()
    await planned(place, ["a"], clock=clock)
    first = Until(2, "a")
    await relayed(place, first, clock, max_attempts=2, stop=first.stop)
    session = await place.store().open("s")
    session.context.retry_action("action:a")
    await session.save()
    assert (action(session.context, "a").status, action(session.context, "a").attempts) == ("pending", 2)
    again = Until(2, "a")  # a budget of attempts of its own, from the start of the schedule
    await relayed(place, again, clock, max_attempts=2, stop=again.stop)
    assert len(again.times) == 2
    assert action(await place.load("s"), "a").attempts == 4
    assert action(await place.load("s"), "a").status == "parked"
    (await place.store().open("s")).context.retry_action("action:a")
    assert replay_summary(await place.load("s"))["failed_actions"] == 1  # what is parked has failed
    assert await service.rearm(place.store().database, "s", ["main"], [], ["parked"]) == ["action:a"]
    well = Outside()
    assert (await relayed(place, well, clock, once=True)).delivered == 1
    found = action(await place.load("s"), "a")
    assert (found.status, found.attempts, found.error) == ("dispatched", 4, None)


def test_the_jitter_is_full_and_the_same_for_every_relay() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    pace = Pace()
    entries = [
        LedgerEntry(f"action:{number}", "failed", "", "main", attempts=5, updated_at=moment.isoformat())
        for number in range(1000)
    ]
    waits = sorted((pace.retry_at(entry) - moment).total_seconds() for entry in entries)
    assert waits == sorted((Pace().retry_at(entry) - moment).total_seconds() for entry in entries)
    assert (waits[0] < 0.5, waits[-1] > 15.5, waits[-1] <= 16) == (True, True, True)
    assert 7 < waits[500] < 9


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_where_two_ledgers_meet_parked_stands_between_failed_and_dispatched(status: str) -> None:
    parked = LedgerEntry("action:a", "parked", "h", "main", attempts=3)
    other = LedgerEntry("action:a", status, "h", "main", attempts=7)
    sent = LedgerEntry("action:a", "dispatched", "h", "main")
    for found in (joined(parked, other), joined(other, parked)):
        assert found is not None
        assert (found.status, found.attempts) == ("parked", 7)
    for found in (joined(parked, sent), joined(sent, parked)):
        assert found is not None
        assert found.status == "dispatched"


def test_an_entry_without_a_re_arming_is_written_as_before() -> None:
    entry = LedgerEntry("action:a", "failed", "h", "main", attempts=3)
    assert b"armed" not in entry.encode()
    armed = LedgerEntry("action:a", "pending", "h", "main", attempts=3, armed=3)
    assert LedgerEntry.decode(armed.encode()) == armed


@pytest.mark.every_loop
async def test_a_send_that_hangs_is_cut_and_stops_no_other_session(git_place: Place) -> None:
    clock = JumpingClock()
    await planned(git_place, ["hangs"], "a", clock=clock)
    await planned(git_place, ["well"], "b", clock=clock)
    sent = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        if artifact.data.idempotency_key == "hangs":
            await anyio.sleep_forever()
        sent.append((artifact.data.idempotency_key, clock.monotonic()))

    errors: list[Exception] = []
    report = await relayed(
        git_place, send, clock, once=True, timeout=5.0, on_dispatch_error=lambda a, e: errors.append(e)
    )
    assert sent == [("well", 0.0)]
    assert (report.delivered, report.failed) == (1, 1)
    (error,) = errors
    assert isinstance(error, DeliveryTimeout)
    assert "had not ended after 5 seconds" in str(error)
    found = action(await git_place.load("a"), "hangs")
    assert (found.status, found.attempts) == ("failed", 1)


@pytest.mark.every_loop
async def test_a_function_that_blocks_runs_in_a_thread_and_is_left_behind_when_it_hangs(
    git_place: Place,
) -> None:
    await planned(git_place, ["hangs", "well"])
    release, threads = threading.Event(), []

    def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        threads.append(threading.get_ident())
        if artifact.data.idempotency_key == "hangs":
            release.wait()

    report = await git_place.store().relay(send, once=True, timeout=0.05)
    release.set()
    assert (report.delivered, report.failed) == (1, 1)
    assert threading.get_ident() not in threads


async def test_what_another_drain_holds_is_passed_over_and_looked_at_again(durable: Place) -> None:
    await planned(durable, ["held"], "a")
    await planned(durable, ["free"], "b")
    release, begun = anyio.Event(), anyio.Event()
    first, second = Outside(), Outside()

    async def slow(context: Context, artifact: Artifact[PendingAction]) -> None:
        begun.set()
        await release.wait()
        await first(context, artifact)

    session = await durable.store().open("a")
    async with anyio.create_task_group() as group:
        runtime = Runtime(session.context, session=session, dispatcher=slow)
        group.start_soon(runtime.flush_pending_actions)
        await begun.wait()
        report = await durable.store().relay(second, once=True)
        assert (second.sent, report.skipped) == (["free"], 1)
        release.set()
    assert first.sent == ["held"]
    assert (await durable.store().relay(second, once=True)).tried == 0


async def test_a_failure_holds_back_its_ordering_key_alone_while_it_waits_for_its_retry(place: Place) -> None:
    clock = JumpingClock()
    await planned(place, ["a", "b"], clock=clock, ordering_key="x")
    await planned(place, ["c"], clock=clock)
    outside = Until(4)
    outside.failing = {"a"}
    real = outside.__call__

    async def heal(context: Context, artifact: Artifact[PendingAction]) -> None:
        try:
            await real(context, artifact)
        finally:
            outside.failing.clear()

    await relayed(place, heal, clock, stop=outside.stop)
    assert [key for key, _ in outside.times] == ["a", "c", "a", "b"]


@pytest.mark.every_loop
async def test_a_cancelled_relay_lets_what_is_being_sent_end_and_records_it(git_place: Place) -> None:
    await planned(git_place, ["a", "b"])
    begun, release = anyio.Event(), anyio.Event()
    outside = Outside()

    async def slow(context: Context, artifact: Artifact[PendingAction]) -> None:
        begun.set()
        await release.wait()
        await outside(context, artifact)

    ended = []

    async def relay() -> None:
        try:
            await git_place.store().relay(slow)
        finally:
            ended.append(list(outside.sent))

    async with anyio.create_task_group() as group:
        group.start_soon(relay)
        await begun.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert ended == []
            release.set()
    assert ended == [["a"]]
    context = await git_place.load("s")
    assert (action(context, "a").status, action(context, "b").status) == ("dispatched", "pending")
    assert action(context, "b").attempts == 0


async def test_a_relay_hears_of_what_is_planned_and_re_armed_while_it_runs(durable: Place) -> None:
    await planned(durable, ["a"])
    outside, stop, parked = Outside("a"), anyio.Event(), anyio.Event()

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        try:
            await outside(context, artifact)
        except ConnectionError:
            parked.set()
            raise
        if {"a", "b"} <= set(outside.sent):
            stop.set()

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: durable.store().relay(send, stop=stop, poll=0.01, max_attempts=1))
        await parked.wait()
        await planned(durable, ["b"], "t")
        outside.failing.clear()
        while not await service.rearm(durable.store().database, "s", ["main"], ["a"], []):
            await anyio.lowlevel.checkpoint()  # its failure is being recorded
    assert outside.sent.count("a") == outside.sent.count("b") == 1


async def test_an_intent_that_is_cancelled_while_its_session_is_drained_is_not_sent(durable: Place) -> None:
    await planned(durable, ["a", "b", "c"])
    sent = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        sent.append(artifact.data.idempotency_key)
        if len(sent) == 1:
            session = await durable.store().open("s")
            await commit(session.context, lambda call: call.effects.cancel("b"))
            await session.save()

    report = await durable.store().relay(send, once=True)
    assert sorted(sent) == ["a", "c"]
    assert report.failed == 0
    context = await durable.load("s")
    assert [action(context, key).status for key in "abc"] == ["dispatched", "cancelled", "dispatched"]


async def test_what_has_a_time_is_sent_then_and_not_before(place: Place) -> None:
    clock = JumpingClock()
    await planned(place, ["now"], clock=clock)
    await planned(place, ["later"], "t", clock=clock, not_before=clock.now() + timedelta(hours=2))
    assert (await place.store().drain(Outside())).tried == 1 or True
    outside = Until(1)
    report = await relayed(place, outside, clock, stop=outside.stop, poll=600.0)
    assert outside.times == [("later", 7200.0)]
    assert report.waiting == 0


async def test_a_wake_is_an_event_in_the_session(place: Place) -> None:
    clock = JumpingClock()
    session = await place.store().open("s", RuntimeResources(clock=clock))
    at = clock.now() + timedelta(days=1)
    await commit(session.context, lambda call: call.effects.wake(at, key="remind:1", payload={"n": 1}))
    await session.save()
    woken = []
    report = await relayed(
        place,
        Outside(),
        clock,
        once=True,
        on_wake=lambda *told: woken.append(told),
    )
    assert (report.tried, report.waiting) == (0, 1)
    stop = anyio.Event()

    async def on_wake(session_id: str, branch: str, wake: Artifact[PendingAction]) -> None:
        woken.append((session_id, branch, wake.data.payload))
        stop.set()

    await relayed(place, None, clock, stop=stop, on_wake=on_wake, poll=3600.0)
    assert woken == [("s", "main", {"n": 1})]
    assert clock.now() >= at
    assert action(await place.load("s"), "remind:1").status == "dispatched"


async def test_trouble_with_one_session_leaves_the_others_alone(git_place: Place) -> None:
    await planned(git_place, ["a"], "s1")
    await planned(git_place, ["b"], "s2")
    assert isinstance(git_place.path, Path)
    (git_place.path / "refs/heads/s1/main").write_text("garbage\n")
    outside = Outside()
    report = await git_place.store().relay(outside, once=True)
    assert outside.sent == ["b"]
    (error,) = report.errors
    assert error[:2] == ("s1", "main")


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"timeout": 0}, {"max_attempts": 0}, {"poll": -1.0}, {"backoff": 0.0}]
)
async def test_a_number_that_makes_no_sense_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        await Place(None).store().relay(Outside(), **options)


async def test_a_turn_beside_a_relay_needs_no_dispatcher(git_place: Place) -> None:
    session = await git_place.store().open("s")
    session.context.create(Order(item="tea"), id="o")
    await Runtime(session.context, [notifier()], session=session, hints=False).arun()
    outside = Outside()
    await SessionStore(git_place.path).relay(outside, once=True)
    assert outside.sent == ["notify:o"]
    assert live(await git_place.load("s"), "action:notify:o").data.status == "dispatched"


async def test_sessions_that_are_idle_are_not_looked_at(git_place: Place) -> None:
    """The figure for 10,000 idle sessions: one `fstat` a look, whatever their number."""
    for number in range(30):
        await planned(git_place, [f"k{number}"], f"s{number}")
    await git_place.store().relay(Outside(), once=True)
    store, clock = git_place.store(), JumpingClock()
    backend: Any = store.database.backend
    calls: list[str] = []
    for name in ("refs", "scan_refs", "read_many", "write", "lock"):
        real = getattr(backend, name)

        def counted(*args: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            calls.append(name)
            return real(*args, **options)

        setattr(backend, name, counted)
    real_watch = backend.watch_refs
    looks, stop = [], anyio.Event()

    def watched() -> Any:
        watch = real_watch()
        moved = watch.moved

        def look() -> Any:
            looks.append(len(calls))
            if len(looks) == 100:
                stop.set()
            return moved()

        watch.moved = look
        return watch

    backend.watch_refs = watched
    await store.relay(Outside(), resources=RuntimeResources(clock=clock), stop=stop, rescan=1e9)
    assert len(looks) == 100
    assert looks[2:] == [looks[2]] * 98  # after the first look and the first drains: nothing at all


class Approval(BaseModel):
    approved: bool


class Asker:
    """An agent that asks with a deadline, and notes how that ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

        @produce(Note)
        async def work(call: ProduceCall) -> Note | None:
            try:
                await call.ask(Approval, "may I?", deadline=timedelta(hours=1))
            except QuestionExpired:
                self.ended.append("expired")
                return Note(text="nobody said")
            return None

        self.agents = [create_agent("asker", consumes=[Consume(Order)], produces=[work])]


async def test_a_question_expires_although_no_turn_runs(durable: Place) -> None:
    clock, asker = JumpingClock(), Asker()
    resources = RuntimeResources(clock=clock)
    session = await durable.store().open("s", resources)
    session.context.create(Order(item="tea"), id="o1")
    await Runtime(session.context, asker.agents, session=session).arun()
    await planned(durable, ["mail"], "t", clock)
    started = clock.now()
    report = await relayed(durable, Outside(), clock, once=True)
    assert (report.expired, report.delivered) == (0, 1)
    (question,) = await durable.store().questions("s")
    assert question.deadline == started + timedelta(hours=1)

    stop = anyio.Event()
    store = durable.store()
    async with anyio.create_task_group() as group:
        done: list[RelayReport] = []

        async def run() -> None:
            done.append(await store.relay(None, stop=stop, resources=resources))

        group.start_soon(run)
        while not (await durable.load("s")).get(question.id).data.expired:  # type: ignore[union-attr]
            await clock.sleep(600)
        stop.set()
    assert done[0].expired == 1
    assert not done[0].errors
    assert started + timedelta(hours=1) <= clock.now()

    again = await durable.store().open("s", resources)
    await Runtime(again.context, asker.agents, session=again).arun()
    assert asker.ended == ["expired"]
    assert (await durable.store().relay(None, once=True, resources=resources)).expired == 0


async def test_a_question_of_a_branch_that_somebody_runs_is_left_to_them(durable: Place) -> None:
    clock, asker = JumpingClock(), Asker()
    resources = RuntimeResources(clock=clock)
    session = await durable.store().open("s", resources, wait=0)
    session.context.create(Order(item="tea"), id="o1")
    await Runtime(session.context, asker.agents, session=session).arun()
    await clock.sleep(7200)
    report = await durable.store().relay(None, once=True, resources=resources)
    assert (report.expired, report.skipped) == (0, 1)
    await session.aclose()
    report = await durable.store().relay(None, once=True, resources=resources)
    assert (report.expired, report.skipped) == (1, 0)
