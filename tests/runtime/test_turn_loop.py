"""The loop of a turn (API §13): order, snapshot, concurrency, commits, entry points, hints."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support import (
    Answer,
    Echo,
    Note,
    Order,
    Outside,
    Place,
    Question,
    answering_agents,
    live,
    notifier,
    trigger_of,
)

from reactifact import (
    Agent,
    Consume,
    Context,
    EventType,
    ProduceCall,
    RunOutcome,
    Runtime,
    create_agent,
    current_request,
    produce,
)

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


def asked(*texts: str) -> Context:
    context = Context()
    for number, text in enumerate(texts):
        context.create(Question(text=text), id=f"q{number}")
    return context


def writer(name: str, log: list[str], **options: Any) -> Agent:
    """Return an agent that notes each execution and writes one answer for it."""

    @produce(Answer)
    async def write(call: ProduceCall) -> Answer:
        log.append(f"{name} {trigger_of(call).id}")
        return Answer(text=f"{name} {trigger_of(call).id}")

    return create_agent(name, consumes=[Consume(Question)], produces=[write], **options)


async def test_a_turn_runs_until_nothing_is_left() -> None:
    context = asked("why")
    runtime = Runtime(context, answering_agents())
    assert runtime.outcome is None
    assert runtime.last_stats is None
    assert await runtime.arun() == 2
    assert runtime.outcome == RunOutcome.COMPLETED
    assert [found.data.text for found in context.list_artifacts(Echo)] == ["RE: WHY"]
    assert context.pending_events() == []
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.COMPLETED


async def test_arun_once_runs_one_generation() -> None:
    context = asked("why", "how")
    runtime = Runtime(context, answering_agents())
    assert await runtime.arun_once() == 2
    assert len(context.list_artifacts(Answer)) == 2
    assert context.list_artifacts(Echo) == []
    assert [event.artifact_type for event in context.pending_events()] == [Answer, Answer]
    assert await runtime.arun_once() == 2
    assert len(context.list_artifacts(Echo)) == 2


def test_the_blocking_forms() -> None:
    context = asked("why")
    runtime = Runtime(context, answering_agents())
    assert runtime.run_once() == 1
    assert runtime.run(max_iterations=5) == 1
    assert len(context.list_artifacts(Echo)) == 1


async def test_the_blocking_forms_name_the_way_out_inside_a_loop() -> None:
    runtime = Runtime(Context())
    with pytest.raises(RuntimeError, match=r"await runtime.arun"):
        runtime.run()
    with pytest.raises(RuntimeError, match=r"await runtime.arun_once"):
        runtime.run_once()


async def test_events_in_order_then_agents_by_priority() -> None:
    log: list[str] = []
    agents = [
        writer("last", log, priority=5),
        writer("b", log),
        writer("a", log),
        writer("first", log, priority=-1),
    ]
    context = asked("x", "y")
    await Runtime(context, agents).arun()
    expected = ["first q0", "first q1", "b q0", "a q0", "b q1", "a q1", "last q0", "last q1"]
    assert log == expected
    assert [found.data.text for found in context.list_artifacts(Answer)] == expected
    assert [found.author for found in context.history()] == [text.split()[0] for text in expected]


@pytest.mark.parametrize("limit", [None, 2])
async def test_all_executions_of_a_generation_see_the_state_before_it(limit: int | None) -> None:
    seen: list[tuple[str, list[str], list[str]]] = []

    def counter(name: str) -> Agent:
        @produce(Answer)
        async def count(call: ProduceCall) -> None:
            answers = [found.id for found in call.context.list_artifacts(Answer)]
            links = [relation.source_id for relation in call.context.incoming("q0")]
            seen.append((name, answers, links))
            call.effects.create(Answer(text="x"), id=f"by {name}").link("answers", "q0")
            call.effects.update("q0", text=f"changed by {name}")

        return create_agent(name, consumes=[Consume(Order)], produces=[count])

    context = asked("why")
    runtime = Runtime(context, [counter("one"), counter("two")], max_concurrency=limit)
    context.create(Order(item="x"), id="first")
    await runtime.arun_once()
    assert sorted(seen) == [("one", [], []), ("two", [], [])]


async def test_commits_are_in_plan_order_not_in_finishing_order() -> None:
    done = {name: anyio.Event() for name in ("a", "b", "c")}
    finished: list[str] = []

    def waiting(name: str, after: str | None) -> Agent:
        @produce(Answer)
        async def wait(call: ProduceCall) -> Answer:
            if after is not None:
                await done[after].wait()
            finished.append(name)
            done[name].set()
            return Answer(text=name)

        return create_agent(name, consumes=[Consume(Question)], produces=[wait])

    context = asked("why")
    agents = [waiting("a", "b"), waiting("b", "c"), waiting("c", None)]
    await Runtime(context, agents, max_concurrency=3).arun()
    assert finished == ["c", "b", "a"]
    assert [found.author for found in context.history()] == ["a", "b", "c"]
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["a", "b", "c"]


class Gauge:
    """Counts how many executions run at the same time."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def __call__(self, call: ProduceCall) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.now -= 1


@pytest.mark.parametrize(("limit", "most"), [(None, 1), (1, 1), (2, 2), (4, 4)])
async def test_max_concurrency_bounds_what_runs_at_once(limit: int | None, most: int) -> None:
    gauge = Gauge()
    agent = create_agent("x", consumes=[Consume(Question)], produces=[produce(Answer)(gauge)])
    assert await Runtime(asked(*"abcdef"), [agent], max_concurrency=limit).arun() == 6
    assert gauge.most == most


async def test_better_43_agents_with_the_same_limit_do_not_share_it() -> None:
    one, two, together = Gauge(), Gauge(), Gauge()

    def limited(name: str, own: Gauge) -> Agent:
        async def run(call: ProduceCall) -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(own, call)
                group.start_soon(together, call)

        return create_agent(
            name, consumes=[Consume(Question)], produces=[produce(Answer)(run)], concurrency_limit=2
        )

    await Runtime(asked(*"abcdef"), [limited("one", one), limited("two", two)]).arun()
    assert (one.most, two.most, together.most) == (2, 2, 4)


async def test_a_limit_of_one_agent_makes_the_generation_concurrent() -> None:
    gauge = Gauge()
    free = create_agent("free", consumes=[Consume(Question)], produces=[produce(Answer)(gauge)])
    bound = create_agent(
        "bound",
        consumes=[Consume(Order)],
        produces=[produce(Answer)(lambda call: None)],
        concurrency_limit=1,
    )
    context = asked(*"abc")
    context.create(Order(item="x"))
    await Runtime(context, [free, bound]).arun()
    assert gauge.most == 3


async def test_a_generation_consumes_exactly_its_batch() -> None:
    @produce(Answer)
    async def write(call: ProduceCall) -> Answer:
        return Answer(text="a")

    context = asked("why")
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[write])])
    await runtime.arun_once()
    assert [event.artifact_type for event in context.pending_events()] == [Answer]


async def test_what_the_application_does_during_a_turn_waits_for_the_next_generation() -> None:
    started, go_on = anyio.Event(), anyio.Event()
    log: list[str] = []

    @produce(Answer)
    async def wait(call: ProduceCall) -> None:
        log.append(trigger_of(call).id)
        started.set()
        await go_on.wait()

    context = asked("why")
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[wait])])
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        await started.wait()
        context.create(Question(text="from a web handler"), id="late")
        go_on.set()
    assert log == ["q0", "late"]
    assert live(context, "late").created_by_commit is None


async def test_an_execution_that_yields_nothing_counts_and_makes_no_commit() -> None:
    context = asked("a", "b")
    agent = create_agent("x", consumes=[Consume(Question)], produces=[produce(Answer)(lambda call: None)])
    runtime = Runtime(context, [agent])
    assert await runtime.arun() == 2
    assert (context.version, context.head_id) == (0, None)
    assert context.pending_events() == []
    assert runtime.last_stats is not None
    assert runtime.last_stats.runs == 2


async def test_a_turn_without_work_is_completed() -> None:
    runtime = Runtime(Context(), [])
    assert await runtime.arun() == 0
    assert runtime.outcome == RunOutcome.COMPLETED
    assert await runtime.arun_once() == 0


async def test_events_nobody_reacts_to_are_gone_after_the_turn() -> None:
    context = Context()
    context.create(Note(), id="n")
    await Runtime(context, answering_agents()).arun()
    assert context.pending_events() == []


@pytest.mark.parametrize("verb", ["arun", "arun_once", "flush_pending_actions"])
async def test_a_runtime_is_not_reentrant(verb: str) -> None:
    errors: list[str] = []

    async def never(context: Context, artifact: Any) -> None:
        raise AssertionError("nothing is sent here")

    @produce(Answer)
    async def again(call: ProduceCall) -> None:
        assert runtime.in_flight
        with pytest.raises(RuntimeError, match="not reentrant") as caught:
            await getattr(runtime, verb)()
        errors.append(str(caught.value))

    context = asked("why")
    agents = [create_agent("x", consumes=[Consume(Question)], produces=[again])]
    runtime = Runtime(context, agents, dispatcher=never)
    assert not runtime.in_flight
    assert await runtime.arun() == 1
    assert len(errors) == 1
    assert not runtime.in_flight


async def test_a_hint_on_stderr_when_nobody_ran(capsys: pytest.CaptureFixture[str]) -> None:
    context = Context()
    context.create(Note(), id="n")
    runtime = Runtime(context, answering_agents())
    await runtime.arun()
    context.create(Note(), id="m")
    await runtime.arun()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("None of the 2 agents ran") == 1
    assert "consume" in err


@pytest.mark.parametrize("agents", [0, 2])
async def test_no_hint_without_agents_or_when_one_ran(
    agents: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await Runtime(asked("why"), answering_agents()[:agents]).arun()
    assert capsys.readouterr() == ("", "")


async def test_no_hint_after_a_turn_that_delivered(capsys: pytest.CaptureFixture[str]) -> None:
    context = Context()
    context.create(Order(item="x"), id="o")
    await Runtime(context, [notifier()], dispatcher=Outside("notify:o"), dispatch_errors="record").arun()
    context.retry_action("action:notify:o")
    context.create(Note(), id="wakes nobody")
    outside = Outside()
    runtime = Runtime(context, [notifier()], dispatcher=outside)
    assert await runtime.arun() == 0
    assert outside.sent == ["notify:o"]
    assert capsys.readouterr() == ("", "")


async def test_no_hint_after_a_turn_that_committed_what_was_held(capsys: pytest.CaptureFixture[str]) -> None:
    fails = [True]

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        return Answer(text="42")

    @produce(Answer)
    async def fail(call: ProduceCall) -> None:
        if fails[0]:
            raise ConnectionError("no route")

    def agent(name: str, part: Any) -> Any:
        return create_agent(name, consumes=[Consume(Question)], produces=[part])

    context = asked("why")
    with pytest.raises(ConnectionError):
        await Runtime(context, [agent("one", answer), agent("two", fail)]).arun()
    runtime = Runtime(context, [agent("one", answer)])
    assert await runtime.arun() == 0
    assert len(context.list_artifacts(Answer)) == 1
    assert capsys.readouterr() == ("", "")


async def test_the_request_reaches_the_call_and_its_tasks() -> None:
    seen: list[Any] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        seen.append(dict(call.request))

        async def inner() -> None:
            seen.append(dict(current_request()))

        async with anyio.create_task_group() as group:
            group.start_soon(inner)

    context = asked("why")
    runtime = Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[look])])
    await runtime.arun(request={"user": "ada"})
    context.create(Question(text="again"))
    await runtime.arun()
    assert seen == [{"user": "ada"}, {"user": "ada"}, {}, {}]
    assert dict(current_request()) == {}


def test_what_the_runtime_does_not_support_is_refused() -> None:
    with pytest.raises(ValueError, match="tracer"):
        Runtime(Context(), tracer=object())
    with pytest.raises(ValueError, match="per_hour"):
        Runtime(Context(), session_save_policy="per_hour")  # type: ignore[arg-type]


def test_one_runtime_over_several_event_loops() -> None:
    context = asked("why")
    runtime = Runtime(context, answering_agents(), max_concurrency=2)
    for backend in ("asyncio", "trio", "asyncio"):
        context.create(Question(text=backend))
        anyio.run(runtime.arun, backend=backend)
    assert len(context.list_artifacts(Echo)) == 4


async def test_a_stored_turn_is_the_same_as_one_in_memory(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    assert await Runtime(session.context, answering_agents(), session=session).arun() == 2
    context = await place.load("s")
    assert [found.data.text for found in context.list_artifacts(Echo)] == ["RE: WHY"]
    assert [found.author for found in context.history()] == ["answerer", "echoer"]
    assert context.history()[0].reads[0].artifact_id == "q"
    assert EventType.ARTIFACT_CREATED not in [event.type for event in context.pending_events()]


async def test_a_scheduler_reorders_and_drops_work() -> None:
    log: list[str] = []

    async def later_first(context: Context, work: list[Any]) -> list[Any]:
        return [work[2], work[0]]

    context = asked("a", "b", "c")
    runtime = Runtime(context, [writer("w", log)], scheduler=later_first)
    assert await runtime.arun() == 2
    assert log == ["w q2", "w q0"]
    assert context.pending_events() == []


async def test_a_scheduler_may_return_items_of_its_own_that_mean_the_same_work() -> None:
    log: list[str] = []
    twin = writer("w", log)

    async def anew(context: Context, work: list[Any]) -> list[Any]:
        return [(agent, event, []) for agent, event, reads in reversed(work)]

    context = asked("a")
    assert await Runtime(context, [twin, twin], scheduler=anew).arun() == 2
    assert log == ["w q0", "w q0"]
    assert [found.author for found in context.history()] == ["w", "w"]


@pytest.mark.parametrize(
    "answer", [lambda work: [*work, work[0]], lambda work: [(*work[0][:2], []), work[0]]]
)
async def test_work_that_a_scheduler_returns_twice_is_refused(answer: Any) -> None:
    log: list[str] = []

    async def doubling(context: Context, work: list[Any]) -> list[Any]:
        found: list[Any] = answer(work)
        return found

    context = asked("a")
    with pytest.raises(ValueError, match="twice"):
        await Runtime(context, [writer("w", log)], scheduler=doubling).arun()
    assert log == []
    assert len(context.pending_events()) == 1
