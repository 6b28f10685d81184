"""What one execution reads and builds does not grow with what there is of its type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel
from support import trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.objects import GitObject, Oid

pytestmark = pytest.mark.anyio


class Done(BaseModel):
    number: int


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
