"""What it costs to keep every finished execution at once: `per_step` beside `per_commit`.

A generation of produces, all side by side. They end in the same moment (where they share their barriers),
or one millisecond after another (where each comes alone). A bare repository, one session a sample.
"""

from __future__ import annotations

import gc
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from reactifact import Consume, ProduceCall, Runtime, SessionStore, create_agent, produce

from .harness import Report, Row, Settings, alternate, median

NAME = "steps"
SUMMARY = "a generation of produces side by side, each kept when it has finished (per_step)"
SIZES = (20, 200)
SAMPLES = 9
POLICIES = ("per_commit", "per_step")


class Job(BaseModel):
    number: int


class Done(BaseModel):
    number: int


async def one_generation(store: SessionStore, jobs: int, apart: float, policy: Any) -> float:
    """Return the seconds of a generation, its commits and its barriers included."""
    gc.collect()
    session = await store.open(f"{policy}-{time.monotonic_ns()}")

    @produce(Done)
    async def work(call: ProduceCall) -> None:
        assert call.trigger is not None
        number = call.trigger.data.number
        await anyio.sleep(0.001 + number * apart)
        call.effects.create(Done(number=number), id=f"done:{number}")

    for number in range(jobs):
        session.context.create(Job(number=number), id=f"job:{number}")
    await session.save()
    agent = create_agent("worker", consumes=[Consume(Job)], produces=[work])
    runtime = Runtime(session.context, [agent], jobs, session=session, session_save_policy=policy)
    started = time.perf_counter()
    runs = await runtime.arun_once()
    took = time.perf_counter() - started
    if runs != jobs:
        raise RuntimeError(f"{runs} of {jobs} ran")
    return took


def measured(folder: Path, durability: Any, jobs: int, apart: float, samples: int) -> list[float]:
    """Return the median milliseconds of a generation under each policy."""
    store = SessionStore(folder, durability=durability)
    subjects = [partial(anyio.run, one_generation, store, jobs, apart, policy) for policy in POLICIES]
    return [median(found) * 1e3 for found in alternate(subjects, samples)]


def run(settings: Settings) -> Report:
    """Measure; the rows are milliseconds a generation, and what one step costs on top."""
    sizes, samples = settings.sizes or SIZES, settings.samples or SAMPLES
    rows: list[Row] = []
    for name, apart in (("ending together", 0.0), ("ending 1 ms apart", 0.001)):
        found = []
        for size in sizes:
            settings.progress(f"{size} produces {name}")
            place = settings.folder / f"{size}-{apart}.git"
            found.append(measured(place, settings.durability, size, apart, samples))
        plain = tuple(pair[0] for pair in found)
        kept = tuple(pair[1] for pair in found)
        rows += [
            Row(f"{name}, per_commit", "ms", plain),
            Row(f"{name}, per_step", "ms", kept),
            Row(f"{name}, per_step / per_commit", "", tuple(b / a for a, b in found)),
            Row(
                f"{name}, on top for a step",
                "ms",
                tuple((b - a) / size for (a, b), size in zip(found, sizes, strict=True)),
            ),
        ]
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "samples": samples},
        "side by side",
        sizes,
        rows,
    )
