"""What a runtime is made of is checked when it is made, and hints come once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support import Note, Order

from reactifact import Consume, Context, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.runtime import active_runs

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"session_save_policy": "sometimes"}, "'per_step', 'per_commit' or 'per_turn', not 'sometimes'"),
        ({"session_save_policy": "per_step"}, "needs session="),
        ({"dispatch_errors": "ignore"}, "'raise' or 'record', not 'ignore'"),
        ({"max_concurrency": 0}, "max_concurrency is a number of at least 1, not 0"),
        ({"dispatch_concurrency": -1}, "dispatch_concurrency is a number of at least 1, not -1"),
        ({"max_failures": 0}, "max_failures is a number of at least 1, not 0"),
        ({"max_failures": 1, "isolate_errors": True}, "pass one of them"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Runtime(Context(), agents=[], **options)


def test_what_is_no_agent_is_refused() -> None:
    given: Any = [Note()]
    with pytest.raises(TypeError, match="is not an agent: pass an Agent"):
        Runtime(Context(), agents=given)


async def test_the_hint_at_silence_comes_once_and_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    @produce(Order)
    def never(call: ProduceCall) -> None:
        pytest.fail("nothing wakes it")

    def runtime(**options: Any) -> Runtime:
        agent = create_agent("deaf", consumes=[Consume(Order)], produces=[never])
        return Runtime(Context(), agents=[agent], **options)

    for options, times in ({}, 1), ({"hints": False}, 0):
        caplog.clear()
        made = runtime(**options)
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                made.context.create(Note(), id=f"n{number}")
                await made.arun()
        assert sum("None of the 1 agents ran" in record.getMessage() for record in caplog.records) == times


async def test_a_turn_in_progress_is_listed_with_its_session_and_generation() -> None:
    seen: list[tuple[str, int]] = []

    @produce(Order)
    def look(call: ProduceCall) -> None:
        (info,) = active_runs()
        seen.append((info.session_id, info.generation))

    session = await SessionStore(InMemoryKVBackend()).open("desk")
    agent = create_agent("looker", consumes=[Consume(Note)], produces=[look])
    runtime = Runtime(session.context, agents=[agent], session=session)
    session.context.create(Note())
    await runtime.arun()
    assert seen == [("desk", 1)]
    assert active_runs() == []
    await session.aclose()
