"""The cost of branches as the state grows: fork, merge and diff with 300 and with 30,000 artifacts.

Each size is one session in a store and a process of its own. A round forks the session's line, makes
ten changes on either side, merges the fork back, makes twenty commits of one change each, and compares
the state before them with that after. Artifacts to be changed are chosen over the whole state. Rounds
are taken from the sizes alternately, and the ratios of the medians are what is quoted.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
from pydantic import BaseModel

from reactifact import SessionStore
from reactifact._store.protocol import Durability
from reactifact.branching import BranchStore

from .harness import Claim, Report, Row, Settings, alternate, median, percentile
from .subject import Subject, requests

NAME = "branches"
SUMMARY = "fork, merge of ten changes a side, diff of twenty commits, by the number of artifacts"
SIZES = (300, 30_000)
SAMPLES = 40
ALLOWED_RATIO = 2.0
CHANGES = 10
COMMITS = 20
BATCH = 1_000
SESSION = "lab"
STEPS = ("fork", "merge", "diff")


class Sheet(BaseModel):
    number: int
    text: str = ""


class Lab:
    """A session with many artifacts, whose line is forked and merged again and again."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self.durability: Durability = durability
        self.branches = BranchStore(path, durability=durability)
        self.size = 0
        self.rounds = 0
        self.chance = random.Random(7)

    async def build(self, size: int) -> int:
        """Fill the session with artifacts."""
        while self.size < size:
            async with self.branches.edit(SESSION) as context:
                for number in range(self.size, min(self.size + BATCH, size)):
                    context.create(Sheet(number=number), id=f"sheet:{number}")
                self.size = number + 1
        return self.size

    async def build_waiting(self, size: int) -> int:
        """Fill the session as an application does: an event waits for agents behind each artifact."""
        store = SessionStore(self.path, durability=self.durability)
        session = await store.open(SESSION)
        while self.size < size:
            for number in range(self.size, min(self.size + BATCH, size)):
                session.context.create(Sheet(number=number), id=f"sheet:{number}")
            self.size = number + 1
            await session.save()
        assert len(session.context.queue.active(frozenset())) == size
        await store.aclose()
        return self.size

    async def change(self, branch: str, ids: list[str]) -> None:
        """Change some artifacts of a branch in one commit."""
        async with self.branches.edit(SESSION, branch) as context:
            for name in ids:
                found = context.get(name)
                assert found is not None
                context.update(name, Sheet(number=found.data.number, text=f"{branch} {self.rounds}"))

    async def round(self) -> dict[str, float]:
        """Fork, change, merge, change, compare; return the seconds of the three that are measured."""
        self.rounds += 1
        branch = f"fork-{self.rounds}"
        ids = [f"sheet:{number}" for number in self.chance.sample(range(self.size), 2 * CHANGES + COMMITS)]
        took: dict[str, float] = {}

        started = time.perf_counter()
        await self.branches.fork(f"{SESSION}/main", f"{SESSION}/{branch}")
        took["fork"] = time.perf_counter() - started

        await self.change("main", ids[:CHANGES])
        await self.change(branch, ids[CHANGES : 2 * CHANGES])
        started = time.perf_counter()
        merged = await self.branches.merge(f"{SESSION}/main", f"{SESSION}/{branch}")
        took["merge"] = time.perf_counter() - started
        assert merged is not None
        assert merged.record is not None
        assert len(merged.record.writes) == CHANGES

        for name in ids[2 * CHANGES :]:
            await self.change("main", [name])
        started = time.perf_counter()
        found = await self.branches.diff(merged.commit, f"{SESSION}/main")
        took["diff"] = time.perf_counter() - started
        assert len(found.state.changed) == COMMITS
        await self.branches.delete_branch(SESSION, branch)
        return took


def serve(connection: Connection, path: str, durability: Durability) -> None:
    """Run a lab in this process, as told over the connection."""
    anyio.run(_serve, connection, Path(path), durability)


async def _serve(connection: Connection, path: Path, durability: Durability) -> None:
    lab = Lab(path, durability)
    for request, *args in requests(connection):
        if request == "build":
            connection.send(await (lab.build_waiting if args[1] else lab.build)(args[0]))
        elif request == "round":
            connection.send(await lab.round())
        else:
            raise ValueError(f"unknown request {request!r}")


def run(settings: Settings) -> Report:
    """Build the stores and measure."""
    return measure(settings, NAME, SUMMARY, "artifacts", is_waiting=False)


def measure(settings: Settings, name: str, summary: str, noun: str, *, is_waiting: bool) -> Report:
    """Build the stores, with an event waiting behind each artifact or none, and measure."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    if min(sizes) < 2 * CHANGES + COMMITS:
        raise ValueError(f"a round changes {2 * CHANGES + COMMITS} artifacts: choose sizes of at least that")
    details = {"durability": settings.durability, "samples": samples, "folder": str(settings.folder)}
    times: list[list[dict[str, float]]] = [[] for _ in sizes]
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(Subject(serve, str(settings.folder / f"{size}.git"), settings.durability))
            for size in sizes
        ]
        settings.progress(f"building sessions of {', '.join(f'{size:,}' for size in sizes)} artifacts")
        for subject, size in zip(subjects, sizes, strict=True):
            subject.send("build", size, is_waiting)
        for subject in subjects:
            subject.answer()
        settings.progress(f"{samples} rounds of each, alternately")

        def measured(place: int) -> float:
            times[place].append(subjects[place].ask("round"))
            return 0.0

        with settings.meter("measuring", "rounds") as told:
            alternate([lambda place=place: measured(place) for place in range(len(sizes))], samples, told)  # type: ignore[misc]
    return Report(name, summary, details, noun, sizes, *_figures(sizes, times, noun))


def _figures(
    sizes: tuple[int, ...], times: list[list[dict[str, float]]], noun: str
) -> tuple[list[Row], list[Claim]]:
    rows, claims = [], []
    for step in STEPS:
        found = [[one[step] * 1e3 for one in of_size] for of_size in times]
        medians = tuple(median(values) for values in found)
        rows.append(Row(f"{step}, median", "ms", medians))
        rows.append(Row(f"{step}, 90th percentile", "ms", tuple(percentile(values, 90) for values in found)))
        text = f"{step} with {sizes[-1]:,} {noun} over {sizes[0]:,}"
        claims.append(Claim(text, medians[-1] / medians[0], ALLOWED_RATIO))
    return rows, claims
