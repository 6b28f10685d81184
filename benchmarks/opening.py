"""Opening a session and reading one artifact, by the number of turns behind it.

Each size is a store of its own, opened anew for each measurement, with nothing of ours cached; they are
opened alternately. Processor time is what is claimed of: it says the same on a machine that has other work.
"""

from __future__ import annotations

import gc
import random
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio

from reactifact import SessionStore

from .harness import Claim, Report, Row, Settings, alternate, median
from .subject import Subject, requests
from .turn import Shop

NAME = "opening"
SUMMARY = "opening a session and reading one artifact, by the number of turns behind it"
SIZES = (100, 10_000)
SAMPLES = 40
CHUNK = 100
ALLOWED_RATIO = 1.2


def serve(connection: Connection, path: str, durability: str) -> None:
    """Build a session and open it again and again, as told over the connection."""
    anyio.run(_serve, connection, Path(path), durability)


async def _serve(connection: Connection, path: Path, durability: Any) -> None:
    first = Shop(path, durability)
    await first.open()
    shop: Shop | None = first
    del first
    turns = 0
    chance = random.Random(7)
    for request, *args in requests(connection):
        if request == "build":
            assert shop is not None
            for _ in range(args[0]):
                await shop.turn()
            turns = shop.turns
            connection.send(turns)
        elif request == "open":
            if shop is not None:
                shop.backend.close()
            shop = None  # its memory would be looked through for garbage while others are measured
            gc.collect()
            started = time.perf_counter(), time.process_time()
            store = SessionStore(path, durability=durability)
            session = await store.open("shop")
            found = session.context.get(f"receipt:{chance.randrange(turns):06}")
            took = time.perf_counter() - started[0], time.process_time() - started[1]
            assert found is not None
            await store.aclose()
            connection.send(took)
        elif request == "packs":
            connection.send(len(list(path.glob("objects/pack/*.pack"))))
        else:
            raise ValueError(f"unknown request {request!r}")


def run(settings: Settings) -> Report:
    """Build the stores and measure."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(Subject(serve, str(settings.folder / f"{size}.git"), settings.durability))
            for size in sizes
        ]
        for subject, size in zip(subjects, sizes, strict=True):
            with settings.meter(f"building the session of {size:,}", "turns") as told:
                for built in range(0, size, CHUNK):
                    told(subject.ask("build", min(CHUNK, size - built)), size)
        found: list[list[tuple[float, float]]] = [[] for _ in sizes]

        def opened(place: int) -> float:
            found[place].append(subjects[place].ask("open"))
            return 0.0

        settings.progress(f"opening each {samples} times, alternately")
        with settings.meter("measuring", "openings") as told:
            alternate([lambda place=place: opened(place) for place in range(len(sizes))], samples, told)  # type: ignore[misc]
        packs = tuple(float(subject.ask("packs")) for subject in subjects)
    passed = tuple(median([wall * 1e3 for wall, _ in of_size]) for of_size in found)
    processor = tuple(median([used * 1e3 for _, used in of_size]) for of_size in found)
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "samples": samples, "folder": str(settings.folder)},
        "turns behind",
        sizes,
        [
            Row("open and read one, median", "ms", passed),
            Row("of the processor, median", "ms", processor),
            Row("packs that happened to be there", "", packs),
        ],
        [
            Claim(
                f"processor time with {sizes[-1]:,} turns over {sizes[0]:,}",
                processor[-1] / processor[0],
                ALLOWED_RATIO,
            )
        ],
    )
