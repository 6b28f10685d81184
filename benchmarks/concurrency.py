"""What the loop itself costs: 1,000 produces that each wait a millisecond, 100 at a time.

Measured is a generation without its commits: planning, executing and taking the batch off the queue.
Beside it stands what the bare event loop needs for as many tasks under one limit, to tell the
library's share from the machine's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import anyio
from pydantic import BaseModel

from reactifact import Consume, Context, ProduceCall, Runtime, create_agent, produce
from reactifact._runtime import generation

from .harness import Claim, Report, Row, Settings, median

NAME = "concurrency"
SUMMARY = "a generation of produces that wait 1 ms each, without its commits"
SIZES = (100, 1_000)
SAMPLES = 15
LIMIT = 100
ALLOWED = 100.0
"""Milliseconds."""


class Job(BaseModel):
    number: int


class Done(BaseModel):
    number: int


@produce(Done)
async def wait(call: ProduceCall) -> None:
    assert call.trigger is not None
    number = call.trigger.data.number
    await anyio.sleep(0.001)
    call.effects.create(Done(number=number), id=f"done:{number}")


class Stopwatch:
    """Adds up the seconds spent in a function, which it stands in for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds = 0.0

    def __call__(self, *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return self._function(*args, **options)
        finally:
            self.seconds += time.perf_counter() - started


async def one_generation(jobs: int) -> tuple[float, float]:
    """Return the seconds of a generation without its commits, and those of its commits.

    It begins with a collected heap: the remains of the sample before are not its own.
    """
    gc.collect()
    context = Context()
    for number in range(jobs):
        context.create(Job(number=number), id=f"job:{number}")
    context.commits.commit_direct()
    agent = create_agent("worker", consumes=[Consume(Job)], produces=[wait])
    runtime = Runtime(context, agents=[agent], max_concurrency=LIMIT)
    original = generation.commit_all
    commits = Stopwatch(original)
    generation.commit_all = commits
    try:
        started = time.perf_counter()
        runs = await runtime.arun_once()
        took = time.perf_counter() - started
    finally:
        generation.commit_all = original
    if runs != jobs or context.version != jobs:
        raise RuntimeError(f"{runs} of {jobs} ran, {context.version} were committed")
    return took - commits.seconds, commits.seconds


async def bare(jobs: int) -> float:
    """Return the seconds that as many tasks take on the event loop alone."""
    gc.collect()
    limit = anyio.Semaphore(LIMIT)

    async def one() -> None:
        async with limit:
            await anyio.sleep(0.001)

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(jobs):
            group.start_soon(one)
    return time.perf_counter() - started


def run(settings: Settings) -> Report:
    """Measure; the store is in memory, so durability makes no difference."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    loops, commits, bares = [], [], []
    for size in sizes:
        settings.progress(f"{samples} generations of {size:,} produces")
        found = [anyio.run(one_generation, size) for _ in range(samples)]
        loops.append(median([loop for loop, _ in found]) * 1e3)
        commits.append(median([commit for _, commit in found]) * 1e3)
        bares.append(median([anyio.run(bare, size) for _ in range(samples)]) * 1e3)
    return Report(
        NAME,
        SUMMARY,
        {"max_concurrency": LIMIT, "samples": samples},
        "produces",
        sizes,
        [
            Row("without the commits, median", "ms", tuple(loops)),
            Row("the bare event loop, median", "ms", tuple(bares)),
            Row("the commits, median", "ms", tuple(commits)),
        ],
        [Claim(f"milliseconds without the commits for {sizes[-1]:,} produces", loops[-1], ALLOWED)],
    )
