"""What an execution costs that consumes a type with many artifacts and reads none but its trigger.

One session with 50 and one with 50,000 artifacts of the type; an update of one wakes the agent. Turns
are taken from both alternately, and the ratio of the medians is what is claimed.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from reactifact import Consume, ProduceCall, Runtime, SessionStore, create_agent, produce

from .harness import Claim, Report, Row, Settings, alternate, median, percentile
from .subject import Subject, requests

NAME = "large_type"
SUMMARY = "a turn of an agent that consumes a type, by the number of its artifacts"
SIZES = (50, 50_000)
SAMPLES = 200
ALLOWED_RATIO = 1.5


class Item(BaseModel):
    count: int


class Seen(BaseModel):
    count: int


@produce(Seen)
async def note(call: ProduceCall) -> None:
    assert call.trigger is not None
    call.effects.upsert(Seen(count=call.trigger.data.count), id="seen")


async def build(path: Path, items: int, durability: Any) -> None:
    """Fill a session with items that nobody has to react to."""
    store = SessionStore(path, durability=durability)
    session = await store.open("items")
    for number in range(items):
        session.context.create(Item(count=0), id=f"item:{number}")
    session.context.drain_events()
    await session.save()
    await store.aclose()


def serve(connection: Connection, path: str, items: int, durability: str) -> None:
    """Run one session in this process, as told over the connection."""
    anyio.run(_serve, connection, Path(path), items, durability)


async def _serve(connection: Connection, path: Path, items: int, durability: Any) -> None:
    await build(path, items, durability)
    session = await SessionStore(path, durability=durability).open("items")
    agent = create_agent("noter", consumes=[Consume(Item)], produces=[note])
    runtime = Runtime(session.context, agents=[agent], session=session)
    for number, _ in enumerate(requests(connection), 1):
        started = time.perf_counter()
        session.context.update(f"item:{number % items}", Item(count=number))
        if await runtime.arun() != 1:
            raise RuntimeError("the agent did not run")
        connection.send(time.perf_counter() - started)


def run(settings: Settings) -> Report:
    """Build the sessions and measure."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    with ExitStack() as stack:
        settings.progress(f"building sessions of {', '.join(f'{size:,}' for size in sizes)} artifacts")
        subjects = [
            stack.enter_context(
                Subject(serve, str(settings.folder / f"{size}.git"), size, settings.durability)
            )
            for size in sizes
        ]
        for _ in range(5):  # what the first turns of a process cost is not what is asked
            for subject in subjects:
                subject.ask("turn")
        settings.progress(f"timing {samples} turns of each, alternately")
        with settings.meter("measuring", "turns") as told:
            times = alternate([lambda subject=s: subject.ask("turn") for s in subjects], samples, told)  # type: ignore[misc]
    medians = [median(values) * 1e3 for values in times]
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "samples": samples, "folder": str(settings.folder)},
        "artifacts",
        sizes,
        [
            Row("turn, median", "ms", tuple(medians)),
            Row("turn, 90th percentile", "ms", tuple(percentile(values, 90) * 1e3 for values in times)),
        ],
        [
            Claim(
                f"a turn with {sizes[-1]:,} artifacts of the type over one with {sizes[0]:,}",
                medians[-1] / medians[0],
                ALLOWED_RATIO,
            )
        ],
    )
