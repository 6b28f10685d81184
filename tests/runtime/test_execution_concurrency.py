"""How many executions run at once, in which order they are committed, and what one costs.

Costs are counted (objects read, models built), not timed; the times stand in `benchmarks`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from pydantic import BaseModel
from support import trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.objects import GitObject, Oid
from reactifact.testing import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


class Job(BaseModel):
    number: int


class Done(BaseModel):
    number: int


class Running:
    """Counts how many executions of each agent are under way, and the most there ever were."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.finished: list[int] = []

    def agent(self, name: str, clock: JumpingClock, seconds: list[float], limit: int | None = None) -> Agent:
        @produce(Done)
        async def work(call: ProduceCall) -> Done:
            number = trigger_of(call).data.number
            for counted in (name, "all"):
                self.now[counted] += 1
                self.most[counted] = max(self.most[counted], self.now[counted])
            await clock.sleep(seconds[number])
            for counted in (name, "all"):
                self.now[counted] -= 1
            self.finished.append(number)
            return Done(number=number)

        return create_agent(name, consumes=[Consume(Job)], produces=[work], concurrency_limit=limit)


def with_jobs(count: int) -> tuple[Context, JumpingClock]:
    clock = JumpingClock()
    context = Context(RuntimeResources(clock=clock))
    for number in range(count):
        context.create(Job(number=number), id=f"job:{number}")
    return context, clock


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_a_thousand_produces_are_committed_in_plan_order_whatever_finishes_first(seed: int) -> None:
    context, clock = with_jobs(1000)
    chance = random.Random(seed)
    seconds = [chance.choice([0.001, 0.002, 0.003]) for _ in range(1000)]
    running = Running()
    runtime = Runtime(context, agents=[running.agent("worker", clock, seconds)], max_concurrency=100)
    assert await runtime.arun() == 1000
    assert running.most["all"] == 100
    assert running.finished != sorted(running.finished)
    triggers = [commit.reads[0].artifact_id for commit in context.history()]
    assert triggers == [f"job:{number}" for number in range(1000)]
    assert runtime.last_stats is not None
    assert runtime.last_stats.iterations == 1


async def test_agents_with_the_same_limit_do_not_share_it() -> None:
    context, clock = with_jobs(12)
    running = Running()
    agents = [running.agent(name, clock, [1.0] * 12, limit=3) for name in ("first", "second")]
    assert await Runtime(context, agents=agents).arun() == 24
    assert running.most == {"first": 3, "second": 3, "all": 6}


async def test_an_agent_without_a_limit_is_not_held_up_by_the_limit_of_another() -> None:
    context, clock = with_jobs(6)
    running = Running()
    agents = [running.agent("narrow", clock, [1.0] * 6, limit=1), running.agent("wide", clock, [1.0] * 6)]
    await Runtime(context, agents=agents).arun()
    assert running.most["narrow"] == 1
    assert running.most["wide"] == 6


async def test_the_common_limit_holds_for_agents_with_limits_of_their_own() -> None:
    context, clock = with_jobs(10)
    running = Running()
    agents = [running.agent(name, clock, [1.0] * 10, limit=3) for name in ("first", "second")]
    await Runtime(context, agents=agents, max_concurrency=4).arun()
    assert running.most["all"] == 4
    assert max(running.most["first"], running.most["second"]) <= 3


async def test_the_limits_of_all_agents_are_used_up_while_there_is_work() -> None:
    context, clock = with_jobs(6)
    running = Running()
    agents = [
        running.agent("narrow", clock, [3.0, 1.0, 1.0, 1.0, 1.0, 1.0], limit=1),
        running.agent("wide", clock, [1.0] * 6, limit=2),
    ]
    await Runtime(context, agents=agents, max_concurrency=3).arun()
    assert running.most == {"narrow": 1, "wide": 2, "all": 3}
    assert clock.monotonic() == 8.0  # of the narrow one's work, one after another


async def test_work_that_waits_for_its_place_is_no_task_yet() -> None:
    context, clock = with_jobs(50)
    before = len(anyio.get_running_tasks())
    tasks: list[int] = []

    @produce(Done)
    async def work(call: ProduceCall) -> None:
        await clock.sleep(1.0)
        tasks.append(len(anyio.get_running_tasks()) - before)

    agent = create_agent("worker", consumes=[Consume(Job)], produces=[work])
    await Runtime(context, agents=[agent], max_concurrency=4).arun()
    assert len(tasks) == 50
    assert max(tasks) <= 4 + 2  # those of the clock beside those of the work


noticed: ContextVar[int | None] = ContextVar("noticed", default=None)


async def test_what_an_execution_leaves_in_context_variables_is_not_the_next_ones() -> None:
    context, clock = with_jobs(12)
    seen: list[int | None] = []

    @produce(Done)
    async def work(call: ProduceCall) -> None:
        seen.append(noticed.get())
        noticed.set(trigger_of(call).data.number)
        await clock.sleep(1.0)
        assert noticed.get() == trigger_of(call).data.number

    noticed.set(-1)
    agent = create_agent("worker", consumes=[Consume(Job)], produces=[work])
    await Runtime(context, agents=[agent], max_concurrency=3).arun()
    assert seen == [-1] * 12
    assert noticed.get() == -1


async def test_without_limits_executions_run_one_after_another() -> None:
    context, clock = with_jobs(5)
    running = Running()
    await Runtime(context, agents=[running.agent("worker", clock, [1.0] * 5)]).arun()
    assert running.most["all"] == 1
    assert running.finished == [0, 1, 2, 3, 4]


# -- an execution does not pay for what it does not read ----------------------------------------


class Big(BaseModel):
    number: int
    built: ClassVar[Counter[str]] = Counter()

    def model_post_init(self, context: object) -> None:
        self.built["models"] += 1


class Counting(GitBackend):
    """A bare repository that counts the objects that are read from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="os")
        self.asked = 0

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        found = super().read_many(oids)
        self.asked += len(found)
        return found


def indifferent(*, reads_all: bool = False) -> Agent:
    @produce(Done)
    async def work(call: ProduceCall) -> Done:
        return Done(number=len(call.inputs) if reads_all else trigger_of(call).data.number)

    return create_agent("indifferent", consumes=[Consume(Big)], produces=[work])


async def cost_of_a_turn(path: Path, artifacts: int, *, reads_all: bool = False) -> tuple[int, int]:
    """Return how many objects a turn on a newly opened session reads, and how many models it builds."""
    before = await SessionStore(path, durability="os").open("s")
    for number in range(artifacts):
        before.context.create(Big(number=number), id=f"big:{number}")
    before.context.drain_events()
    await before.save()
    backend = Counting(path)
    session = await SessionStore(backend).open("s")
    session.context.update("big:7", Big(number=-7))
    backend.asked = 0
    Big.built.clear()
    runtime = Runtime(session.context, agents=[indifferent(reads_all=reads_all)], session=session)
    assert await runtime.arun() == 1
    return backend.asked, Big.built["models"]


async def test_an_execution_on_a_type_with_many_artifacts_costs_what_it_reads(tmp_path: Path) -> None:
    few = await cost_of_a_turn(tmp_path / "few.git", 50)
    many = await cost_of_a_turn(tmp_path / "many.git", 5_000)
    assert many[1] == few[1]
    assert many[0] <= few[0] + 4  # one more level of folders has files in it


@pytest.mark.full
async def test_an_execution_on_a_type_with_50_000_artifacts_costs_what_it_reads(tmp_path: Path) -> None:
    few = await cost_of_a_turn(tmp_path / "few.git", 50)
    many = await cost_of_a_turn(tmp_path / "many.git", 50_000)
    assert many[1] == few[1]
    assert many[0] <= few[0] + 4


async def test_a_produce_that_looks_at_its_inputs_pays_for_them(tmp_path: Path) -> None:
    indifference = await cost_of_a_turn(tmp_path / "one.git", 200)
    reading = await cost_of_a_turn(tmp_path / "two.git", 200, reads_all=True)
    assert reading[0] > indifference[0] + 200


async def test_the_memory_store_counts_the_same_way() -> None:
    """A context without a store stands over `MemoryBackend`; the cost of planning is the same there."""
    counts = []
    for artifacts in (50, 2_000):
        context = Context()
        assert isinstance(context.line.database.backend, MemoryBackend)
        for number in range(artifacts):
            context.create(Big(number=number), id=f"big:{number}")
        context.drain_events()
        context.commits.commit_direct()
        context.update("big:7", Big(number=-7))
        Big.built.clear()
        assert await Runtime(context, agents=[indifferent()]).arun() == 1
        counts.append(Big.built["models"])
    assert counts[0] == counts[1]
