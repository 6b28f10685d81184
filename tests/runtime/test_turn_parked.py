"""Events on which an agent fails again and again: counted, parked, kept, named, and re-armed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from support import Place

from reactifact import Agent, Consume, Context, ProduceCall, Runtime, create_agent, produce
from reactifact._context.context import ParkedEvent
from reactifact._store.layout import Waiting
from reactifact.cli import main
from reactifact.replay import verify_history
from reactifact.threads import in_thread

pytestmark = pytest.mark.anyio


class Job(BaseModel):
    n: int


class Done(BaseModel):
    n: int


class Worker:
    """Does jobs, but for those on which it fails."""

    def __init__(self, *fails_on: int, name: str = "worker", debounce: bool = False) -> None:
        self.calls: list[int] = []
        self.fails_on = set(fails_on)

        @produce(Done, reacts_to=Job)
        async def work(call: ProduceCall) -> None:
            assert call.trigger is not None
            n = call.trigger.data.n
            self.calls.append(n)
            if n in self.fails_on:
                raise ConnectionError(f"no route for {n}")
            call.effects.upsert(Done(n=n), id=f"{name}:{n}")

        self.agent: Agent = create_agent(name, consumes=[Consume(Job, debounce=debounce)], produces=[work])


async def jobs(place: Place, *numbers: int) -> None:
    session = await place.store().open("s")
    for n in numbers:
        session.context.create(Job(n=n), id=f"job:{n}")
    await session.save()


async def turn(place: Place, *workers: Worker, **options: Any) -> Context:
    session = await place.store().open("s")
    agents = [worker.agent for worker in workers]
    await Runtime(session.context, agents, session=session, **options).arun()
    return session.context


def done(context: Context) -> list[str]:
    return [found.id for found in context.list_artifacts(Done)]


async def test_one_bad_input_does_not_stop_a_session(place: Place) -> None:
    await jobs(place, 0, 1, 2)
    worker = Worker(1)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await turn(place, worker, max_failures=3)
    context = await turn(place, worker, max_failures=3)
    assert done(context) == ["worker:0", "worker:2"]
    assert worker.calls == [0, 1, 2, 1, 1]  # what had finished was kept
    parked = context.parked_events()
    assert parked == [ParkedEvent(parked[0].event, "worker", 3, "ConnectionError: no route for 1")]
    assert parked[0].event.artifact_id == "job:1"
    await jobs(place, 3)
    context = await turn(place, worker, max_failures=3)
    assert worker.calls[5:] == [3]
    assert done(context) == ["worker:0", "worker:2", "worker:3"]
    assert len(context.parked_events()) == 1


async def test_a_parked_event_is_tried_again_when_it_is_re_armed(place: Place) -> None:
    await jobs(place, 0, 1)
    worker = Worker(0, 1)
    context = await turn(place, worker, max_failures=1)
    assert [found.event.artifact_id for found in context.parked_events()] == ["job:0", "job:1"]
    session = await place.store().open("s")
    assert session.context.retry_event("job:0", agent="nobody") == 0
    assert session.context.retry_event("job:0", agent="worker") == 1
    assert session.context.retry_event("job:0") == 0
    await session.save()
    worker.fails_on.clear()
    context = await turn(place, worker, max_failures=1)
    assert done(context) == ["worker:0"]
    assert [found.event.artifact_id for found in context.parked_events()] == ["job:1"]
    assert context.retry_event() == 1
    assert await Runtime(context, [worker.agent], max_failures=1).arun() == 1
    assert context.parked_events() == context.pending_events() == []


async def test_only_the_agent_that_failed_is_parked(place: Place) -> None:
    await jobs(place, 0)
    bad, good = Worker(0, name="bad"), Worker(name="good")
    context = await turn(place, bad, good, max_failures=1)
    assert done(context) == ["good:0"]
    assert [found.agent for found in context.parked_events()] == ["bad"]
    late = Worker(name="late")
    context = await turn(place, bad, good, late, max_failures=1)
    assert (bad.calls, good.calls) == ([0], [0])
    assert [found.agent for found in context.parked_events()] == ["bad"]


async def test_a_success_ends_the_count(place: Place) -> None:
    await jobs(place, 0)
    first, second = Worker(0, name="first"), Worker(0, name="second")
    with pytest.raises(ConnectionError):
        await turn(place, first, second, max_failures=2)
    first.fails_on.clear()
    context = await turn(place, first, second, max_failures=2)
    assert [(found.agent, found.failures) for found in context.parked_events()] == [("second", 2)]
    assert done(context) == ["first:0"]


async def test_every_event_of_debounced_work_is_kept(place: Place) -> None:
    await jobs(place, 0, 1, 2)
    worker = Worker(2, debounce=True)
    context = await turn(place, worker, max_failures=1)
    assert worker.calls == [2]
    assert [found.event.artifact_id for found in context.parked_events()] == ["job:0", "job:1", "job:2"]
    assert context.retry_event() == 3
    worker.fails_on.clear()
    await Runtime(context, [worker.agent], max_failures=1).arun()
    assert worker.calls == [2, 2]
    assert context.parked_events() == []


async def test_the_application_hears_of_an_event_that_is_parked(place: Place) -> None:
    await jobs(place, 0)
    told: list[Any] = []
    with pytest.raises(ConnectionError):
        await turn(
            place,
            Worker(0),
            max_failures=2,
            on_agent_error=lambda agent, event, error: told.append(agent.name),
        )
    assert told == []
    await turn(
        place, Worker(0), max_failures=2, on_agent_error=lambda agent, event, error: told.append(agent.name)
    )
    assert told == ["worker"]


async def test_a_fork_takes_parked_events_along_and_the_history_is_sound(git_place: Place) -> None:
    await jobs(git_place, 0)
    context = await turn(git_place, Worker(0), max_failures=1)
    fork = context.branch(name="fork")
    assert [found.agent for found in fork.parked_events()] == ["worker"]
    await git_place.branches().save_branch(fork, session_id="s", name="fork")
    assert [found.agent for found in (await git_place.load("s", "fork")).parked_events()] == ["worker"]
    assert verify_history(git_place.store().database, "s").ok


async def test_a_renamed_agent_stays_parked(place: Place) -> None:
    await jobs(place, 0)
    await turn(place, Worker(0, name="old"), max_failures=1)
    worker = Worker(0, name="new")
    worker.agent.aliases = ("old",)
    context = await turn(place, worker, max_failures=1)
    assert worker.calls == []
    assert [found.agent for found in context.parked_events()] == ["new"]


@pytest.mark.parametrize("value", [0, -1])
async def test_a_limit_that_makes_no_sense_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="max_failures"):
        Runtime(Context(), max_failures=value)
    with pytest.raises(ValueError, match="pass one of them"):
        Runtime(Context(), max_failures=1, isolate_errors=True)


def test_an_event_without_failures_is_written_as_before() -> None:
    event = {"type": "artifact_created", "artifact_type": "T", "artifact_id": "a"}
    plain = Waiting(event, ["w"], 1)
    assert b"failures" not in plain.encode()
    failed = plain._replace(failures={"w": {"times": 1, "error": "e", "is_parked": True}})
    assert Waiting.decode(failed.encode()) == failed


async def test_the_command_line_shows_and_re_arms_parked_events(
    git_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await jobs(git_place, 0)
    await turn(git_place, Worker(0), max_failures=1)
    path = str(git_place.path)
    assert await in_thread(main, ["sessions", path]) == 0
    assert "s/main: job:0 is parked for agent worker, 1 failure: ConnectionError: no route for 0" in (
        capsys.readouterr().out
    )
    assert await in_thread(main, ["retry", path, "s", "--events"]) == 0
    assert capsys.readouterr().out == "re-armed 1 event of main\n"
    worker = Worker()
    await turn(git_place, worker)
    assert worker.calls == [0]


async def test_an_error_says_where_it_comes_from(place: Place) -> None:
    await jobs(place, 0)
    with pytest.raises(ConnectionError) as raised:
        await turn(place, Worker(0), max_failures=2)
    (note,) = raised.value.__notes__
    for part in ("agent 'worker'", "artifact_created", "'job:0'", "run "):
        assert part in note
