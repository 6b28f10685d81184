"""Events that wait for agents which are not registered, because they were renamed or left out."""

from __future__ import annotations

import json
import logging

import pytest
from pydantic import BaseModel
from support import Place

from reactifact import Agent, Consume, ProduceCall, Runtime, create_agent, produce, step
from reactifact.cli import main

pytestmark = pytest.mark.anyio


class Job(BaseModel):
    n: int


class Done(BaseModel):
    n: int


class Worker:
    """Answers jobs, but for one on which it fails; counts its calls."""

    def __init__(self, name: str, *, fails_on: int | None = None, aliases: tuple[str, ...] = ()) -> None:
        self.calls = 0
        self.fails_on = fails_on

        @produce(Done, reacts_to=Job)
        async def work(call: ProduceCall) -> None:
            assert call.trigger is not None
            self.calls += 1
            if call.trigger.data.n == self.fails_on:
                raise ConnectionError("no route")
            call.effects.upsert(Done(n=call.trigger.data.n), id=f"done:{call.trigger.data.n}")

        self.agent: Agent = create_agent(name, consumes=[Consume(Job)], produces=[work], aliases=aliases)


async def left_behind(place: Place, jobs: int = 3) -> Worker:
    """Leave jobs that an agent named `confirm` owes, all of them but the last one finished and kept."""
    session = await place.store().open("s")
    for n in range(jobs):
        session.context.create(Job(n=n), id=f"job:{n}")
    worker = Worker("confirm", fails_on=jobs - 1)
    with pytest.raises(ConnectionError):
        await Runtime(session.context, [worker.agent], session=session, max_concurrency=jobs).arun()
    assert worker.calls == jobs
    return worker


async def test_a_turn_names_the_agents_that_events_wait_for(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await left_behind(place)
    session = await place.store().open("s")
    renamed = Worker("confirmation")
    runtime = Runtime(session.context, [renamed.agent], session=session)
    with caplog.at_level(logging.INFO, logger="reactifact.runtime"):
        assert await runtime.arun() == 0
        assert await runtime.arun() == 0
    assert renamed.calls == 0
    assert runtime.last_stats is not None
    assert runtime.last_stats.absent == {"confirm": 3}
    told = [
        record for record in caplog.records if record.levelno == logging.WARNING and hasattr(record, "absent")
    ]
    assert len(told) == 1  # once, not in each turn
    assert "not registered: confirm (3)" in told[0].getMessage()
    finished = [record for record in caplog.records if record.getMessage() == "run finished"]
    assert [getattr(record, "absent", None) for record in finished] == [{"confirm": 3}] * 2


async def test_a_renamed_agent_takes_over_what_its_earlier_name_is_owed(place: Place) -> None:
    await left_behind(place)
    session = await place.store().open("s")
    renamed = Worker("confirmation", aliases=("confirm",))
    runtime = Runtime(session.context, [renamed.agent], session=session)
    assert await runtime.arun() == 1
    assert renamed.calls == 1  # two results were finished under the earlier name, and are kept
    assert runtime.last_stats is not None
    assert runtime.last_stats.absent == {}
    again = await place.store().open("s")
    assert {done.data.n for done in again.context.list_artifacts(Done)} == {0, 1, 2}
    assert again.context.pending_events() == []


async def test_an_alias_that_is_registered_later_counts(place: Place) -> None:
    await left_behind(place)
    session = await place.store().open("s")
    runtime = Runtime(session.context, [Worker("other").agent], session=session)
    assert await runtime.arun() == 0
    renamed = Worker("confirmation", aliases=("confirm",))
    runtime.register(renamed.agent)
    assert await runtime.arun() == 1
    assert runtime.last_stats is not None
    assert runtime.last_stats.absent == {}


def test_two_agents_cannot_claim_one_name() -> None:
    from reactifact import Context

    with pytest.raises(ValueError, match="'confirm' and 'new' both claim 'confirm'"):
        Runtime(Context(), [Worker("confirm").agent, Worker("new", aliases=("confirm",)).agent])
    with pytest.raises(ValueError, match="'a' and 'b' both claim 'old'"):
        Runtime(Context(), [Worker("a", aliases=("old",)).agent, Worker("b", aliases=("old",)).agent])
    with pytest.raises(TypeError, match=r"aliases are names.*\('old',\)"):
        create_agent("a", aliases="old")


def test_a_step_carries_aliases() -> None:
    @step(produces=Done, consumes=Job, aliases=["old"])
    async def new(call: ProduceCall) -> None:
        call.effects.upsert(Done(n=1), id="done")

    assert tuple(new.aliases) == ("old",)


async def test_the_command_line_names_them(git_place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    await left_behind(git_place)
    assert main(["sessions", str(git_place.path)]) == 0
    assert "s/main: 3 events wait for agent confirm" in capsys.readouterr().out
    assert main(["sessions", str(git_place.path), "--json"]) == 0
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert [branch["waiting"] for branch in session["branches"]] == [{"confirm": 3}]
