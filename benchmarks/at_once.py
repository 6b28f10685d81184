"""Many sessions at once in one process beside one alone: turns a second, and how long the loop is kept.

Each of N sessions of one store takes orders one after another, all N at the same time; a task on the loop
asks to be woken every two milliseconds and notes how late it was. The two sizes take turns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from reactifact import Consume, Context, PendingAction, Runtime, SessionStore, create_agent
from reactifact.artifacts import Artifact

from .harness import Claim, Report, Row, Settings, median, percentile
from .service import Stall
from .turn import Order, process_order

NAME = "at_once"
SUMMARY = "sessions that run at once beside one alone: turns a second, stall of the loop"
SIZES = (1, 100)
SAMPLES = 5
TURNS = 200
"""Turns of all sessions together in one sample."""
AT_LEAST = 4.0
ALLOWED_STALL = 2.0


async def dispatch(context: Context, action: Artifact[PendingAction]) -> None:
    """Deliver to a world that answers at once."""


@dataclass
class Crowd:
    """Sessions of one store, each with its runtime."""

    runtimes: list[Runtime]
    orders: int = 0
    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)

    @staticmethod
    async def of(store: SessionStore, size: int) -> Crowd:
        """Open the sessions."""
        runtimes = []
        for number in range(size):
            session = await store.open(f"user-{size}-{number}")
            agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[process_order])]
            runtimes.append(Runtime(session.context, agents=agents, session=session, dispatcher=dispatch))
        return Crowd(runtimes)

    async def turn(self, runtime: Runtime) -> None:
        """Take one order."""
        self.orders += 1
        name = f"{self.orders:06}"
        started = time.perf_counter()
        runtime.context.create(Order(id=name, customer=f"c{name}@example.com"), id=f"order:{name}")
        await runtime.arun()
        self.times.append(time.perf_counter() - started)

    async def sample(self, turns: int) -> None:
        """Let every session take its share of the orders, all at once."""
        stall = Stall()

        async def take(runtime: Runtime) -> None:
            for _ in range(max(1, turns // len(self.runtimes))):
                await self.turn(runtime)

        before = self.orders
        async with anyio.create_task_group() as watching:
            watching.start_soon(stall.watch)
            started = time.perf_counter()
            async with anyio.create_task_group() as group:
                for runtime in self.runtimes:
                    group.start_soon(take, runtime)
            self.rates.append((self.orders - before) / (time.perf_counter() - started))
            stall.end()
        self.stalls += stall.late


async def measure(path: Path, sizes: tuple[int, ...], samples: int, settings: Settings) -> list[Crowd]:
    """Take samples of each size in turns."""
    durability: Any = settings.durability
    store = SessionStore(path, durability=durability)
    crowds = [await Crowd.of(store, size) for size in sizes]
    for crowd in crowds:  # the first turn of a session makes its refs
        await crowd.sample(len(crowd.runtimes))
        crowd.rates, crowd.times, crowd.stalls = [], [], []
    with settings.meter("measuring", "samples") as told:
        for number in range(samples):
            for place in range(len(crowds)):
                await crowds[(number + place) % len(crowds)].sample(TURNS)
            told(number + 1, samples)
    await store.aclose()
    return crowds


def run(settings: Settings) -> Report:
    """Measure on a store of git's."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    crowds = anyio.run(measure, settings.folder / "store.git", sizes, samples, settings)
    rates = tuple(median(crowd.rates) for crowd in crowds)
    alone = median(crowds[0].times)
    stalls = tuple(percentile(crowd.stalls, 99) for crowd in crowds)
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "samples": samples, "folder": str(settings.folder)},
        "sessions",
        sizes,
        [
            Row("turns a second, all together", "", rates),
            Row("a turn, median", "ms", tuple(median(crowd.times) * 1e3 for crowd in crowds)),
            Row("lateness of the loop, 99th percentile", "ms", tuple(stall * 1e3 for stall in stalls)),
        ],
        [
            Claim(f"turns a second alone over {sizes[-1]} at once", rates[0] / rates[-1], 1 / AT_LEAST),
            Claim("99th percentile of the lateness over a turn alone", stalls[-1] / alone, ALLOWED_STALL),
        ],
    )
