"""One session over many turns: whether time and memory stay flat.

The turns of one session in one process, in fifths: what a turn takes in each, the longest of all, and the
process's peak memory after each. Claimed are the last fifth over the second (the first warms up), the longest
turn over the median, and the memory that the last three fifths add.
"""

from __future__ import annotations

import resource
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import anyio

from .harness import Claim, Report, Row, Settings, median, percentile
from .subject import Subject, requests
from .turn import Shop

NAME = "long"
SUMMARY = "turns of one session in fifths: time, the longest turn, peak memory"
TURNS = 10_000
FIFTHS = 5
CHUNK = 100
ALLOWED_GROWTH = 1.1
ALLOWED_LONGEST = 10.0
ALLOWED_MEMORY = 1.1


def serve(connection: Connection, path: str, durability: str) -> None:
    """Take orders in this process, as many as each request says."""
    anyio.run(_serve, connection, Path(path), durability)


async def _serve(connection: Connection, path: Path, durability: str) -> None:
    shop = Shop(path, durability)
    await shop.open()
    for _, count in requests(connection):
        times = [await shop.turn() for _ in range(count)]
        connection.send((times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def run(settings: Settings) -> Report:
    """Take the turns; `sizes` gives their number."""
    turns = (settings.sizes or (TURNS,))[-1]
    fifth = max(1, turns // FIFTHS)
    times: list[list[float]] = []
    memory: list[float] = []
    peak = 0.0
    with ExitStack() as stack:
        place = str(settings.folder / "long.git")
        subject = stack.enter_context(Subject(serve, place, settings.durability))
        told = stack.enter_context(settings.meter("taking orders", "turns"))
        for _ in range(FIFTHS):
            times.append([])
            while len(times[-1]) < fifth:
                found, peak = subject.ask("turns", min(CHUNK, fifth - len(times[-1])))
                times[-1] += [seconds * 1e3 for seconds in found]
                told(sum(map(len, times)), fifth * FIFTHS)
            memory.append(peak)
    medians = tuple(median(values) for values in times)
    later = [value for values in times[1:] for value in values]
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "folder": str(settings.folder)},
        "turns",
        tuple(fifth * number for number in range(1, FIFTHS + 1)),
        [
            Row("turn, median of the fifth", "ms", medians),
            Row("turn, 99th percentile", "ms", tuple(percentile(values, 99) for values in times)),
            Row("turn, longest", "ms", tuple(max(values) for values in times)),
            Row("peak memory so far", "MiB", tuple(memory)),
        ],
        [
            Claim("the last fifth over the second", medians[-1] / medians[1], ALLOWED_GROWTH),
            Claim(
                "the longest turn over the median, after the first fifth",
                max(later) / median(later),
                ALLOWED_LONGEST,
            ),
            Claim("peak memory after the last fifth over the second", memory[-1] / memory[1], ALLOWED_MEMORY),
        ],
    )
