"""`isolate_errors=True` isolates every error of one execution, wherever it comes from (BETTER 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import Answer, Echo, Order, Outside, Place, Question, action, trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    Event,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    create_agent,
    produce,
)
from reactifact.consume import JoinConsume

pytestmark = pytest.mark.anyio


def asked(*names: str) -> Context:
    context = Context()
    for name in names or ("q",):
        context.create(Question(text=name), id=name)
    return context


def good() -> Agent:
    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        return Answer(text=f"re: {trigger_of(call).id}")

    return create_agent("good", consumes=[Consume(Question)], produces=[answer])


def acting(work: Callable[[ProduceCall], Any], consumes: Any = None) -> Agent:
    @produce(Answer, also_creates=PendingAction)
    async def act(call: ProduceCall) -> None:
        work(call)

    return create_agent("bad", consumes=[consumes or Consume(Question)], produces=[act])


def fail(*arguments: Any) -> Any:
    raise LookupError("on purpose")


class Overridden(Agent):
    name = "bad"
    consumes = (Consume(Question),)

    async def run(self, event: Event | None, context: Context) -> None:
        fail()


class StrangeResult(Agent):
    name = "bad"
    consumes = (Consume(Question),)

    async def run(self, event: Event | None, context: Context) -> Any:
        return ["no patch"]


def bad_agents() -> dict[str, Agent]:
    def group(*errors: Exception) -> Any:
        raise ExceptionGroup("several", list(errors))

    return {
        "an exception": acting(fail),
        "a group of exceptions": acting(lambda call: group(ValueError("a"), TypeError("b"))),
        "an undeclared output": acting(lambda call: call.effects.create(Echo(text="x"))),
        "a payload that is refused": acting(lambda call: call.effects.create(Answer(text="\ud800"), id="b")),
        "an id that cannot be stored": acting(lambda call: call.effects.create(Answer(text="x"), id="")),
        "a direct change that is refused": acting(lambda call: call.context.create(Answer(text="\ud800"))),
        "a misspelt field": acting(lambda call: call.effects.update("q", txet="x")),
        "data changed in place": acting(lambda call: setattr(trigger_of(call).data, "text", "sneaked in")),
        "a condition": acting(lambda call: None, Consume(Question, fail)),
        "a key of a join": acting(lambda call: None, JoinConsume(Question, Order, key=fail)),
        "an overridden run": Overridden(),
        "a result that is not a patch": StrangeResult(),
    }


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("kind", list(bad_agents()))
async def test_better_5_one_execution_fails_and_the_rest_goes_on(kind: str, limit: int | None) -> None:
    reported: list[tuple[str, str]] = []
    context = asked("q", "q2")
    runtime = Runtime(
        context,
        [bad_agents()[kind], good()],
        limit,
        isolate_errors=True,
        on_agent_error=lambda agent, event, error: reported.append((agent.name, event.artifact_id)),
    )
    await runtime.arun()
    assert runtime.outcome == RunOutcome.COMPLETED
    assert ("bad", "q") in reported
    assert {name for name, _ in reported} == {"bad"}
    assert runtime.last_stats is not None
    assert runtime.last_stats.errors == len(reported)
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["re: q", "re: q2"]
    assert {commit.author for commit in context.history()} == {"good"}
    assert context.pending_events() == []  # the event counts as handled
    assert await runtime.arun() == 0


async def test_better_5_a_refused_payload_of_one_trigger_leaves_the_agents_other_triggers() -> None:
    def odd(call: ProduceCall) -> None:
        text = "\ud800" if trigger_of(call).id == "q1" else "fine"
        call.effects.create(Answer(text=text))

    context = asked("q0", "q1", "q2")
    runtime = Runtime(context, [acting(odd)], isolate_errors=True)
    assert await runtime.arun() == 3
    assert runtime.last_stats is not None
    assert runtime.last_stats.errors == 1
    assert [commit.reads[0].artifact_id for commit in context.history()] == ["q0", "q2"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_better_5_an_exception_in_the_callback_is_isolated_and_noted(is_async: bool) -> None:
    kept: list[BaseException] = []

    def report(agent: Agent, event: Event, error: BaseException) -> Any:
        kept.append(error)
        if not is_async:
            raise RuntimeError("the callback too")

        async def later() -> None:
            raise RuntimeError("the callback too")

        return later()

    context = asked()
    runtime = Runtime(context, [acting(fail), good()], isolate_errors=True, on_agent_error=report)
    await runtime.arun()
    (error,) = kept
    assert str(error) == "'on purpose'" or "on purpose" in str(error)
    assert error.__notes__[1:] == ["on_agent_error failed: RuntimeError: the callback too"]
    assert error.__notes__[0].startswith("reactifact: raised by agent")
    assert len(context.list_artifacts(Answer)) == 1


async def test_better_5_the_later_of_two_unequal_actions_under_one_key_is_the_one_that_fails(
    place: Place,
) -> None:
    def agent(name: str) -> Agent:
        @produce(PendingAction)
        async def act(call: ProduceCall) -> None:
            call.effects.act("mail", key="k", payload={"from": name})

        return create_agent(name, consumes=[Consume(Question)], produces=[act])

    failed: list[str] = []
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    outside = Outside()
    runtime = Runtime(
        session.context,
        [agent("one"), agent("two")],
        session=session,
        isolate_errors=True,
        on_agent_error=lambda agent, event, error: failed.append(agent.name),
        dispatcher=outside,
    )
    await runtime.arun()
    assert failed == ["two"]
    assert outside.sent == ["k"]
    assert action(await place.load("s"), "k").payload == {"from": "one"}


async def test_a_failed_delivery_is_no_agents_error_and_is_raised_all_the_same() -> None:
    context = asked()
    outside = Outside("k")
    agents = [acting(lambda call: call.effects.act("mail", key="k"))]
    runtime = Runtime(context, agents, isolate_errors=True, dispatcher=outside)
    with pytest.raises(ConnectionError, match="no route for k"):
        await runtime.arun()
    assert runtime.last_stats is not None
    assert runtime.last_stats.errors == 0


@pytest.mark.parametrize("limit", [None, 3])
async def test_without_isolation_the_first_failure_in_plan_order_is_raised_bare(limit: int | None) -> None:
    def agent(name: str, error: Exception) -> Agent:
        def work(call: ProduceCall) -> None:
            raise error

        made = acting(work)
        made.name = name
        return made

    first, second = KeyError("first"), ConnectionError("second")
    runtime = Runtime(asked(), [agent("one", first), good(), agent("two", second)], limit)
    with pytest.raises(KeyError) as caught:
        await runtime.arun()
    assert caught.value is first
    assert runtime.last_stats is not None
    assert runtime.last_stats.errors == 2
