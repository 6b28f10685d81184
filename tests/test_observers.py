"""Who is told what the present code does, and that nobody waits for events that nobody is told of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reactifact._observers import Observation, emit, observation, observed
from reactifact.clock import SYSTEM_CLOCK
from reactifact.streaming import LifecycleEvent, TurnFailed, TurnStarted


def test_each_observer_is_told_for_whom_and_when_and_one_that_raises_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[LifecycleEvent] = []

    def broken(event: LifecycleEvent) -> None:
        raise ValueError(f"cannot take {event.kind}")

    with observed(Observation((broken, heard.append), SYSTEM_CLOCK, "s", "b", "r")):
        assert observation() is not None
        emit(TurnFailed, error="why", duration=1.0)
        with observed(None):
            assert observation() is None
            emit(TurnStarted)
    emit(TurnStarted)
    assert observation() is None
    assert heard == [TurnFailed(session_id="s", branch="b", run_id="r", error="why", duration=1.0,
                                timestamp=heard[0].timestamp)]  # fmt: skip
    assert [record.message for record in caplog.records] == ["an observer of the lifecycle failed"]
    assert "cannot take turn_failed" in str(caplog.records[0].__dict__["error"])


def test_a_turn_that_nobody_observes_imports_no_events() -> None:
    code = """
import sys, anyio
from pydantic import BaseModel
from reactifact import Consume, Context, Runtime, create_agent, produce

class Order(BaseModel):
    item: str

ran = []

@produce(Order)
async def answer(call):
    call.context.announce("on it")
    ran.append(call)

async def main():
    context = Context()
    context.create(Order(item="tea"))
    await Runtime(context, [create_agent(name="a", consumes=[Consume(Order)], produces=[answer])]).arun()

anyio.run(main)
assert len(ran) == 1
print(sorted({"reactifact.streaming", "reactifact.otel", "reactifact._runtime.stream"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout
