"""The records of a turn (API §26): messages, levels and fields, and what is bound for everybody else's."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from support import Answer, Echo, Order, Outside, Place, Question, notifier, trigger_of

from reactifact import (
    Budget,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    RuntimeResources,
    configure_logging,
    create_agent,
    get_logger,
    produce,
)
from reactifact.logging import current_context
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio

BOUND = {"run_id", "session_id", "agent", "generation", "request_id"}


def answerer(fails: bool = False) -> Any:
    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        await call.context.resources.clock.sleep(0.25)
        if fails:
            raise ConnectionError("no route")
        return Answer(text="42")

    return create_agent("answerer", consumes=[Consume(Question)], produces=[answer])


def asked() -> Context:
    context = Context(RuntimeResources(clock=JumpingClock()))
    context.create(Question(text="why"), id="q")
    return context


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Return the runtime's records so far as (level, message, fields)."""

    def read() -> list[tuple[str, str, dict[str, Any]]]:
        known = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
        return [
            (
                record.levelname,
                record.getMessage(),
                {name: value for name, value in vars(record).items() if name not in known},
            )
            for record in caplog.records
            if record.name == "reactifact.runtime"
        ]

    with caplog.at_level(logging.DEBUG, logger="reactifact.runtime"):
        yield read


def pick(found: list[tuple[str, str, dict[str, Any]]], message: str) -> list[tuple[str, dict[str, Any]]]:
    return [(level, fields) for level, text, fields in found if text == message]


async def test_a_turn_writes_its_start_its_executions_its_generations_and_its_end(records: Any) -> None:
    runtime = Runtime(asked(), [answerer()])
    await runtime.arun(7)
    found = records()
    run_id = found[0][2]["run_id"]
    assert isinstance(run_id, str)
    assert run_id
    everywhere = {"run_id": run_id, "session_id": ""}
    assert found == [
        ("INFO", "run started", {"max_iterations": 7, **everywhere}),
        ("DEBUG", "agent finished", {"agent": "answerer", "generation": 1, "latency_ms": 250.0} | everywhere),
        ("DEBUG", "generation committed", {"generation": 1, "runs": 1, **everywhere}),
        (
            "INFO",
            "run finished",
            {"outcome": "completed", "runs": 1, "errors": 0, "duration_ms": 250.0, **everywhere},
        ),
    ]


async def test_a_session_and_a_request_are_on_every_record(records: Any, place: Place) -> None:
    session = await place.store().open("session 7", RuntimeResources(clock=JumpingClock()))
    session.context.create(Question(text="why"), id="q")
    runtime = Runtime(session.context, [answerer()], session=session)
    await runtime.arun(request={"request_id": "r-9", "user": "ada"})
    found = records()
    assert len(found) == 4
    assert {fields["session_id"] for _, _, fields in found} == {"session 7"}
    assert {fields["request_id"] for _, _, fields in found} == {"r-9"}
    assert len({fields["run_id"] for _, _, fields in found}) == 1


async def test_each_turn_has_an_id_of_its_own(records: Any) -> None:
    runtime = Runtime(asked(), [answerer()])
    await runtime.arun()
    await runtime.arun()
    assert len({fields["run_id"] for _, fields in pick(records(), "run started")}) == 2


async def test_a_failing_agent_is_a_warning_and_the_turn_says_so(records: Any) -> None:
    with pytest.raises(ConnectionError):
        await Runtime(asked(), [answerer(fails=True)]).arun()
    found = records()
    ((level, fields),) = pick(found, "agent failed")
    assert level == "WARNING"
    assert fields["agent"] == "answerer"
    assert fields["latency_ms"] == 250.0
    assert fields["error"] == "ConnectionError: no route"
    ((level, fields),) = pick(found, "run finished")
    assert (level, fields["outcome"], fields["runs"], fields["errors"]) == ("INFO", "stopped", 1, 1)
    assert pick(found, "generation committed") == []


async def test_a_condition_that_fails_is_a_failing_agent(records: Any) -> None:
    def condition(artifact: Any) -> bool:
        raise LookupError("the condition itself")

    agent = create_agent("picky", consumes=[Consume(Question, condition)], produces=[])
    await Runtime(asked(), [agent], isolate_errors=True).arun()
    ((level, fields),) = pick(records(), "agent failed")
    assert (level, fields["agent"], fields["generation"]) == ("WARNING", "picky", 1)
    assert fields["error"] == "LookupError: the condition itself"


async def test_an_execution_whose_action_is_refused_is_a_failing_agent(records: Any) -> None:
    def agent(name: str) -> Any:
        @produce(PendingAction)
        async def act(call: ProduceCall) -> None:
            call.effects.act("mail", key="k", payload={"from": name})

        return create_agent(name, consumes=[Consume(Question)], produces=[act])

    await Runtime(asked(), [agent("one"), agent("two")], isolate_errors=True).arun()
    ((level, fields),) = pick(records(), "agent failed")
    assert (level, fields["agent"], fields["generation"]) == ("WARNING", "two", 1)
    assert fields["error"].startswith("IntentConflict: ")


async def test_deliveries_are_logged_with_kind_and_key(records: Any) -> None:
    context = Context()
    for name in "ab":
        context.create(Order(item="x"), id=name)
    runtime = Runtime(context, [notifier()], dispatcher=Outside("notify:a"))
    with pytest.raises(ConnectionError):
        await runtime.arun()
    found = records()
    ((level, fields),) = pick(found, "action dispatch failed")
    assert (level, fields["action_kind"], fields["action_key"]) == ("WARNING", "mail", "notify:a")
    assert fields["error"] == "ConnectionError: no route for notify:a"
    assert fields["run_id"]
    ((level, fields),) = pick(found, "action dispatched")
    assert (level, fields["action_kind"], fields["action_key"]) == ("INFO", "mail", "notify:b")


@pytest.mark.parametrize("limit", [None, 3])
async def test_better_44_agent_and_generation_are_bound_inside_an_agent(limit: int | None) -> None:
    seen: list[dict[str, Any]] = []

    async def note() -> None:
        seen.append(dict(current_context()))

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        async with anyio.create_task_group() as group:  # what is bound follows into tasks
            group.start_soon(note)
        return Answer(text="42")

    @produce(Echo)
    async def echo(call: ProduceCall) -> Echo:
        await note()
        return Echo(text=trigger_of(call).data.text)

    agents = [
        create_agent("answerer", consumes=[Consume(Question)], produces=[answer]),
        create_agent("echoer", consumes=[Consume(Answer)], produces=[echo]),
    ]
    await Runtime(asked(), agents, limit).arun(request={"request_id": "r-9"})
    assert [set(fields) for fields in seen] == [BOUND, BOUND]
    assert [(fields["agent"], fields["generation"]) for fields in seen] == [("answerer", 1), ("echoer", 2)]
    assert current_context() == {}


@pytest.fixture
def quiet_loggers() -> Iterator[None]:
    """Give the library's logger back as it was."""
    logger = logging.getLogger("reactifact")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.level, logger.propagate, logger.handlers[:] = before[0], before[1], before[2]


async def test_better_44_the_applications_own_records_carry_the_fields_too(quiet_loggers: None) -> None:
    stream = io.StringIO()
    configure_logging("DEBUG", json=True, stream=stream)
    own = logging.getLogger("shop.billing")  # a logger that knows nothing of us
    handler = logging.getLogger("reactifact").handlers[-1]
    own.addHandler(handler)
    own.setLevel("INFO")

    @produce(Answer)
    async def answer(call: ProduceCall) -> Answer:
        own.info("plain")
        get_logger("reactifact.shop").info("through the adapter")
        return Answer(text="42")

    agent = create_agent("biller", consumes=[Consume(Question)], produces=[answer])
    try:
        await Runtime(asked(), [agent]).arun(request={"request_id": "r-9"})
        own.info("outside")
    finally:
        own.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    inside = [line for line in lines if line["message"] in ("plain", "through the adapter")]
    assert [line["agent"] for line in inside] == ["biller", "biller"]
    assert all(set(line) >= BOUND for line in inside)
    (outside,) = [line for line in lines if line["message"] == "outside"]
    assert not set(outside) & BOUND


async def test_nothing_is_printed_until_it_is_configured(capsys: pytest.CaptureFixture[str]) -> None:
    context = asked()
    with pytest.raises(ConnectionError):
        await Runtime(context, [answerer(fails=True)], budget=Budget(max_seconds=9)).arun()
    assert capsys.readouterr() == ("", "")
