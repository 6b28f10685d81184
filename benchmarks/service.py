"""How long the event loop is kept from its other work while many sessions run a turn at once.

A task on the loop asks to be woken every few milliseconds and notes how late it was, while each of N
sessions runs one outbox turn: create, react, deliver (one delivery in ten fails), record. What is
claimed is the 99th percentile of the lateness. The same with sessions that only sleep shows what the
machine itself does to such a task.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio

from reactifact import Consume, Context, PendingAction, Runtime, SessionStore, create_agent
from reactifact.artifacts import Artifact

from .harness import Claim, Report, Row, Settings, median, percentile
from .turn import Order, process_order

NAME = "service"
SUMMARY = "the loop's stall while sessions run a turn each, all at once"
SIZES = (100, 500)
ALLOWED_STALL = 20.0
"""Milliseconds, for the 99th percentile."""
TICK = 0.002
FAILS_EACH = 10


class Stall:
    """A task on the loop that measures how late it is woken."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._is_over = False

    async def watch(self) -> None:
        """Measure until told that it is over."""
        while not self._is_over:
            asked = time.perf_counter()
            await anyio.sleep(TICK)
            self.late.append(max(0.0, time.perf_counter() - asked - TICK))

    def end(self) -> None:
        """Let `watch` return."""
        self._is_over = True


class Undelivered(Exception):
    """A delivery that failed, as some do."""


async def dispatch(context: Context, action: Artifact[PendingAction]) -> None:
    """Deliver over a network that takes a millisecond and fails one time in ten."""
    await anyio.sleep(0.001)
    if int(action.data.idempotency_key.rpartition(":")[2]) % FAILS_EACH == 0:
        raise Undelivered(action.id)


async def one_turn(store: SessionStore, number: int) -> float:
    """Open a session and run one turn of it; return the seconds it took."""
    started = time.perf_counter()
    session = await store.open(f"user-{number}")
    session.context.create(Order(id=f"{number}", customer=f"c{number}@example.com"), id="order")
    agent = create_agent("clerk", consumes=[Consume(Order)], produces=[process_order])
    runtime = Runtime(
        session.context, agents=[agent], session=session, dispatcher=dispatch, dispatch_errors="record"
    )
    if await runtime.arun() != 1:
        raise RuntimeError(f"the turn of session {number} did not do its work")
    return time.perf_counter() - started


async def measure(folder: Path, sessions: int, durability: Any) -> tuple[list[float], list[float], float]:
    """Return the stalls, the seconds of each turn, and the seconds all of them took together."""
    store = SessionStore(folder / f"{sessions}.git", durability=durability)
    await one_turn(store, 1_000_000)  # what the first use of everything costs is not what is asked
    stall, turns = Stall(), []

    async def run(number: int) -> None:
        turns.append(await one_turn(store, number))

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        group.start_soon(stall.watch)
        async with anyio.create_task_group() as requests:
            for number in range(sessions):
                requests.start_soon(run, number)
        stall.end()
    took = time.perf_counter() - started
    await store.aclose()
    return stall.late, turns, took


def run(settings: Settings) -> Report:
    """Measure each number of sessions."""
    sizes = settings.sizes or SIZES
    found = []
    for size in sizes:
        settings.progress(f"{size} sessions at once")
        found.append(anyio.run(measure, settings.folder, size, settings.durability))
    stalls = [[value * 1e3 for value in late] for late, _, _ in found]

    def row(name: str, values: list[float], unit: str = "ms") -> Row:
        return Row(name, unit, tuple(values))

    worst = [percentile(values, 99) for values in stalls]
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "folder": str(settings.folder)},
        "sessions",
        sizes,
        [
            row("stall of the loop, median", [median(values) for values in stalls]),
            row("stall, 99th percentile", worst),
            row("stall, longest", [max(values) for values in stalls]),
            row("measurements", [float(len(values)) for values in stalls], ""),
            row("turn, median", [median(turns) * 1e3 for _, turns, _ in found]),
            row("turns a second", [len(turns) / took for _, turns, took in found], ""),
        ],
        [Claim(f"the 99th percentile of the stall with {sizes[-1]:,} sessions", worst[-1], ALLOWED_STALL)],
    )
