"""A produce that is tried again: how often, after which waits, and with nothing left of a failed try."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from support import Note, Order, Question, Receipt, live, trigger_of

from reactifact import (
    Budget,
    Context,
    Create,
    PendingAction,
    Produce,
    ProduceCall,
    RunOutcome,
    Runtime,
    RuntimeResources,
    produce,
)
from reactifact.agents import Agent, create_agent
from reactifact.consume import Consume, JoinConsume
from reactifact.events import EventType

pytestmark = pytest.mark.every_loop


class JumpingClock:
    """A clock whose waits are noted and over at once."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._now = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._now, UTC)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._now += seconds


class Flaky:
    """Fails a number of times, then lets pass."""

    def __init__(self, failures: int, error: Callable[[], BaseException] = lambda: OSError("flaky")) -> None:
        self.left = failures
        self.tries = 0
        self.error = error

    def __call__(self) -> None:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise self.error()


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def context(clock: JumpingClock) -> Context:
    return Context(RuntimeResources(clock=clock))


def buyer(*parts: Any) -> Agent:
    """Return an agent that each new order wakes, and that is fed questions too."""
    wakes = Consume(Order, event_types=[EventType.ARTIFACT_CREATED])
    return create_agent("buyer", consumes=[wakes, Consume(Question, wakes=False)], produces=parts)


async def run(context: Context, *agents: Agent) -> None:
    context.create(Order(item="tea"), id="order")
    await Runtime(context, agents=agents).arun()


def tries_in(error: BaseException) -> list[str]:
    """Return the notes about tries; where the error came from is in another one."""
    return [note for note in getattr(error, "__notes__", []) if "tries" in note]


@pytest.mark.anyio
async def test_it_is_tried_again_with_doubled_waits(context: Context, clock: JumpingClock) -> None:
    flaky = Flaky(3)

    @produce(Receipt, retries=3, backoff=0.25)
    async def buy(call: ProduceCall) -> Receipt:
        flaky()
        return Receipt(order="tea")

    await run(context, buyer(buy))
    assert (flaky.tries, clock.waits) == (4, [0.25, 0.5, 1.0])
    assert len(context.list_artifacts(Receipt)) == 1
    assert len(context.history()) == 1


@pytest.mark.anyio
async def test_the_last_error_is_raised_bare_with_the_number_of_tries(
    context: Context, clock: JumpingClock
) -> None:
    flaky = Flaky(9, lambda: ConnectionError(f"try {flaky.tries}"))

    @produce(Receipt, retries=2)
    async def buy(call: ProduceCall) -> None:
        flaky()

    with pytest.raises(ConnectionError, match="try 3") as caught:
        await run(context, buyer(buy))
    assert tries_in(caught.value) == ["raised by the last of 3 tries (retries=2)"]
    assert caught.value.__context__ is None
    assert clock.waits == [0.5, 1.0]
    assert context.history() == []
    assert [event.artifact_id for event in context.pending_events()] == ["order"]


@pytest.mark.anyio
async def test_other_errors_are_not_tried_again(context: Context, clock: JumpingClock) -> None:
    flaky = Flaky(1, lambda: KeyError("k"))

    @produce(Receipt, retries=5, retry_on=(OSError, ValueError))
    async def buy(call: ProduceCall) -> None:
        flaky()

    with pytest.raises(KeyError) as caught:
        await run(context, buyer(buy))
    assert (flaky.tries, clock.waits) == (1, [])
    assert tries_in(caught.value) == []


@pytest.mark.anyio
async def test_without_retries_there_is_one_try_and_no_note(context: Context) -> None:
    flaky = Flaky(1)

    @produce(Receipt)
    async def buy(call: ProduceCall) -> None:
        flaky()

    with pytest.raises(OSError, match="flaky") as caught:
        await run(context, buyer(buy))
    assert flaky.tries == 1
    assert tries_in(caught.value) == []


@pytest.mark.anyio
async def test_effects_of_a_failed_try_are_dropped(context: Context) -> None:
    flaky = Flaky(1)

    @produce(Receipt, also_creates=Note)
    async def before(call: ProduceCall) -> None:
        call.effects.create(Note(text="before"), id="before")

    @produce(Receipt, retries=1)
    async def buy(call: ProduceCall) -> None:
        assert call.effects.create_once(Receipt(order=f"try {flaky.tries}"), id="receipt") is not None
        assert call.effects.act("mail", key="k", payload={"try": flaky.tries}) is not None
        call.effects.update("order", status=f"try {flaky.tries}")
        call.effects.update("before", count=len(call.effects.operations))
        call.effects.link("order", "paid", "receipt")
        flaky()

    await run(context, buyer(before, buy, Produce(PendingAction)))
    (commit,) = context.history()
    kinds = [type(operation).__name__ for operation in commit.operations]
    assert kinds == ["Create", "Create", "Create", "Update", "Update", "Link"]
    assert live(context, "receipt").data.order == "try 1"
    assert live(context, "order").data.status == "try 1"
    assert live(context, "before").data == Note(text="before", count=4)
    assert live(context, "action:k").data.payload == {"try": 1}


@pytest.mark.anyio
async def test_direct_changes_of_a_failed_try_are_dropped(context: Context) -> None:
    flaky = Flaky(1)
    seen: list[list[str]] = []
    context.create(Note(text="old"), id="gone")
    context.create(Note(text="old"), id="kept")
    context.link("kept", "about", "gone")
    linked: list[int] = []

    @produce(Receipt, retries=1)
    async def buy(call: ProduceCall) -> None:
        mine = call.context
        seen.append([artifact.id for artifact in mine.list_artifacts(Note)])
        linked.append(len(mine.relations("kept")))
        assert live(mine, "kept").data.text == "old"
        mine.create(Note(text=f"try {flaky.tries}"), id=f"note {flaky.tries}")
        mine.update("kept", Note(text="new"))
        mine.delete("gone")
        mine.unlink("kept")
        flaky()

    await run(context, buyer(buy))
    assert seen == [["gone", "kept"]] * 2
    assert linked == [1, 1]
    assert {a.id: a.data.text for a in context.list_artifacts(Note)} == {"kept": "new", "note 1": "try 1"}
    assert live(context, "kept").version == 1
    assert context.relations() == []


@pytest.mark.anyio
async def test_inputs_and_artifacts_show_the_snapshot_again(context: Context) -> None:
    flaky = Flaky(1)
    inputs: list[list[str]] = []
    trigger: list[str] = []

    @produce(Receipt, retries=1)
    async def buy(call: ProduceCall) -> None:
        call.context.create(Question(text="why"), id=f"question {flaky.tries}")
        call.context.update("order", Order(item="tea", status="touched"))
        inputs.append([artifact.id for artifact in call.inputs])
        trigger.append(trigger_of(call).data.status)
        if flaky.left:
            trigger_of(call).data.item = "changed in place"
            call.context.delete("order")
            call.context.create(Question(text="how"), id="third")
        flaky()
        assert trigger_of(call).data.item == "tea"
        assert trigger_of(call) is call.context.get("order")

    await run(context, buyer(buy))
    assert inputs == [["order", "question 0"], ["order", "question 1"]]
    assert trigger == ["touched"] * 2


@pytest.mark.anyio
async def test_what_a_failed_try_read_stays_read(context: Context) -> None:
    flaky = Flaky(1)
    context.create(Note(text="a"), id="a")
    context.create(Note(text="b"), id="b")

    @produce(Receipt, retries=1)
    async def buy(call: ProduceCall) -> Receipt:
        mine = call.context
        if flaky.left:
            mine.create(Note(text="gone"), id="made by the failed try")
            assert mine.get("made by the failed try") is not None
            mine.update("a", Note(text="gone"))
            assert live(mine, "a").version == 1
        else:
            live(mine, "b")
        flaky()
        return Receipt(order="o")

    await run(context, buyer(buy))
    (commit,) = context.history()
    read = [(read.artifact_id, read.version) for read in commit.reads]
    assert read == [("order", 0), ("made by the failed try", -1), ("a", 0), ("b", 0)]


@pytest.mark.anyio
async def test_correlated_inputs_forget_a_failed_try(context: Context) -> None:
    flaky = Flaky(1)
    consume = JoinConsume(Order, Receipt, key=lambda d: d.order if isinstance(d, Receipt) else d.item)
    found: list[list[str]] = []

    @produce(Receipt, retries=1)
    async def buy(call: ProduceCall) -> None:
        found.append([artifact.id for artifact in consume.collect(call.context)])
        call.context.create(Receipt(order="tea"), id="receipt")
        found.append([artifact.id for artifact in consume.collect(call.context)])
        flaky()

    await run(context, buyer(buy))
    assert found == [[], ["order", "receipt"]] * 2


@pytest.mark.anyio
async def test_each_produce_of_an_agent_has_its_own_tries(context: Context) -> None:
    first, second = Flaky(1), Flaky(1)

    class Buys(Produce[Receipt]):
        retries = 1
        retry_on = (OSError,)
        backoff = 3

        async def produce(self, call: ProduceCall) -> Receipt:
            first()
            return Receipt(order="first")

    @produce(Receipt, retries=1)
    def also(call: ProduceCall) -> Receipt:
        second()
        return Receipt(order="second")

    await run(context, buyer(Buys(), also))
    assert (first.tries, second.tries) == (2, 2)
    assert [found.data.order for found in context.list_artifacts(Receipt)] == ["first", "second"]


@pytest.mark.anyio
async def test_a_cancellation_is_never_tried_again(context: Context, clock: JumpingClock) -> None:
    tries = 0

    @produce(Receipt, retries=5)
    async def buy(call: ProduceCall) -> None:
        nonlocal tries
        tries += 1
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await run(context, buyer(buy))
    assert scope.cancelled_caught
    assert (tries, clock.waits) == (1, [])


@pytest.mark.anyio
async def test_an_error_made_of_a_cancellation_is_not_tried_again(
    context: Context, clock: JumpingClock
) -> None:
    tries = 0

    @produce(Receipt, retries=5)
    async def buy(call: ProduceCall) -> None:
        nonlocal tries
        tries += 1
        scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("while it was being cancelled")

    with anyio.CancelScope() as scope:
        await run(context, buyer(buy))
    assert scope.cancelled_caught
    assert (tries, clock.waits) == (1, [])


@pytest.mark.anyio
async def test_tries_are_one_run_of_the_budget(context: Context) -> None:
    flaky = Flaky(2)

    @produce(Receipt, retries=2)
    async def buy(call: ProduceCall) -> None:
        flaky()

    context.create(Order(item="tea"), id="order")
    runtime = Runtime(context, agents=[buyer(buy)], budget=Budget(max_runs=1))
    await runtime.arun()
    assert runtime.last_stats is not None
    assert (runtime.last_stats.runs, runtime.last_stats.errors) == (1, 0)
    assert runtime.last_stats.outcome == RunOutcome.COMPLETED


@pytest.mark.anyio
async def test_run_by_hand_it_drops_effects_but_not_what_others_see(context: Context) -> None:
    flaky = Flaky(1)

    @produce(Receipt, retries=1)
    async def buy(call: ProduceCall) -> Receipt:
        call.context.create(Question(text=f"try {flaky.tries}"))
        call.effects.create(Receipt(order=f"try {flaky.tries}"))
        flaky()
        return Receipt(order="done")

    patch = await buyer(buy).execute(context)
    assert [o.data for o in patch.operations if isinstance(o, Create)] == [
        Receipt(order="try 1"),
        Receipt(order="done"),
    ]
    assert len(patch.operations) == 2
    assert [found.data.text for found in context.list_artifacts(Question)] == ["try 0", "try 1"]


@pytest.mark.anyio
async def test_jitter_shortens_a_wait_by_at_most_its_share(context: Context, clock: JumpingClock) -> None:
    flaky = Flaky(40)

    @produce(Receipt, retries=40, backoff=1, jitter=0.5)
    async def buy(call: ProduceCall) -> None:
        flaky()

    await run(context, buyer(buy))
    plain = [min(2.0**number, 60.0) for number in range(40)]
    assert all(0.5 * most <= wait <= most for most, wait in zip(plain, clock.waits, strict=True))
    assert clock.waits != plain


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"retries": -1}, ValueError, "below 0"),
        ({"retries": "3"}, TypeError, "not a number"),
        ({"retries": 1, "backoff": -1}, ValueError, "backoff"),
        ({"retries": 1, "jitter": 2}, ValueError, "jitter"),
        ({"retries": 1, "retry_on": BaseException}, TypeError, "cancellation"),
        ({"retries": 1, "retry_on": ["OSError"]}, TypeError, "not a class of Exception"),
    ],
)
def test_wrong_options_are_refused_at_once(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Produce(Receipt, **options)
