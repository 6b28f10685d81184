"""The cost of a turn as history grows: one outbox turn with 500 and with 5,000 turns behind it.

A turn is what the README shows: the application creates an Order, an agent answers it with a Receipt
and a PendingAction, the dispatcher delivers, the delivery is recorded. Each size is one session in a
store and a process of its own; turns are taken from them alternately, and the ratio of the medians is
what is quoted. Counting (objects, bytes, syncs) is done on turns that are not timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import RefUpdate
from reactifact.artifacts import Artifact

from .harness import Claim, Report, Row, Settings, alternate, median, percentile
from .subject import Subject, requests

NAME = "turn"
SUMMARY = "one outbox turn on a session, by the number of turns behind it"
SIZES = (500, 5_000)
SAMPLES = 200
ALLOWED_RATIO = 1.5
COUNTED = 20
REOPENED = 20


class Order(BaseModel):
    id: str
    customer: str


class Receipt(BaseModel):
    order_id: str
    text: str


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process_order(call: ProduceCall) -> None:
    assert call.trigger is not None
    order = call.trigger.data
    call.effects.act("notify", key=f"notify:{order.id}", payload={"to": order.customer})
    call.effects.upsert(Receipt(order_id=order.id, text="confirmed"), id=f"receipt:{order.id}")


class Counting(GitBackend):
    """A bare repository that counts what it is given to write."""

    writes = 0
    objects = 0
    raw_bytes = 0

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        super().write(objects, updates)
        self.writes += 1
        self.objects += len(objects)
        self.raw_bytes += sum(len(item.data) for item in objects.values())


class Shop:
    """A session that takes orders, and the world that hears of them."""

    def __init__(self, path: Path, durability: str) -> None:
        self.path = path
        self.durability = durability
        self.turns = 0
        self.delivered = 0
        self.backend: Counting
        self.runtime: Runtime

    async def open(self) -> float:
        """Open store and session anew, with nothing cached; return the seconds it took."""
        started = time.perf_counter()
        self.backend = Counting(self.path, durability="full" if self.durability == "full" else "os")
        session = await SessionStore(self.backend).open("shop")
        took = time.perf_counter() - started
        agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[process_order])]
        self.runtime = Runtime(session.context, agents=agents, session=session, dispatcher=self.dispatch)
        return took

    async def reopen(self) -> tuple[float, float]:
        """Open anew and take an order; return the seconds of both, apart."""
        self.backend.close()
        return await self.open(), await self.turn()

    async def dispatch(self, context: Context, action: Artifact[PendingAction]) -> None:
        """Deliver, to a world that only counts."""
        self.delivered += 1

    async def turn(self) -> float:
        """Take one order; return the seconds it took."""
        number = self.turns
        context = self.runtime.context
        started = time.perf_counter()
        context.create(Order(id=f"{number:06}", customer=f"c{number}@example.com"), id=f"order:{number:06}")
        await self.runtime.arun()
        took = time.perf_counter() - started
        self.turns += 1
        if self.delivered != self.turns or context.get(f"receipt:{number:06}") is None:
            raise RuntimeError(f"turn {number} did not do its work: {self.delivered} deliveries")
        return took

    async def counted_turns(self, turns: int) -> dict[str, float]:
        """Take orders, and return what one cost in objects, bytes, writes and syncs."""
        syncs = 0
        fsync = os.fsync

        def counting_fsync(fd: Any) -> None:
            nonlocal syncs
            syncs += 1
            fsync(fd)

        backend = self.backend
        before = (backend.writes, backend.objects, backend.raw_bytes, _written_bytes())
        os.fsync = counting_fsync
        try:
            for _ in range(turns):
                await self.turn()
        finally:
            os.fsync = fsync
        after = (backend.writes, backend.objects, backend.raw_bytes, _written_bytes())
        names = ("writes", "objects", "raw_bytes", "written_bytes")
        spent = {name: (new - old) / turns for name, old, new in zip(names, before, after, strict=True)}
        return {**spent, "syncs": syncs / turns}

    def footprint(self) -> dict[str, float]:
        """Return what the store and this process hold."""
        files = [item for item in self.path.rglob("*") if item.is_file()]
        stored = sum(item.stat().st_size for item in files)
        return {
            "files": len(files),
            "packs": sum(item.suffix == ".pack" for item in files),
            "stored_bytes": stored / max(1, self.turns),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "memory": _resident_bytes() / 2**20,
        }


def serve(connection: Connection, path: str, durability: str) -> None:
    """Run a shop in this process, as told over the connection."""
    anyio.run(_serve, connection, Path(path), durability)


async def _serve(connection: Connection, path: Path, durability: str) -> None:
    shop = Shop(path, durability)
    await shop.open()
    answer: Any
    for request, *args in requests(connection):
        if request == "build":
            for _ in range(args[0] - shop.turns):
                await shop.turn()
            answer = shop.turns
        elif request == "turn":
            answer = await shop.turn()
        elif request == "count":
            answer = await shop.counted_turns(args[0])
        elif request == "footprint":
            answer = shop.footprint()
        elif request == "reopen":
            answer = await shop.reopen()
        else:
            raise ValueError(f"unknown request {request!r}")
        connection.send(answer)


def run(settings: Settings) -> Report:
    """Build the stores and measure. Linux only: files and memory are read from /proc."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(Subject(serve, str(settings.folder / f"{size}.git"), settings.durability))
            for size in sizes
        ]
        settings.progress(f"building sessions of {', '.join(f'{size:,}' for size in sizes)} turns")
        for subject, size in zip(subjects, sizes, strict=True):
            subject.send("build", max(1, size - samples // 2))
        for subject in subjects:
            subject.answer()
        settings.progress(f"timing {samples} turns of each, alternately")
        with settings.meter("measuring", "turns") as told:
            times = alternate([lambda subject=s: subject.ask("turn") for s in subjects], samples, told)  # type: ignore[misc]
        settings.progress("counting")
        counts = [subject.ask("count", COUNTED) for subject in subjects]
        footprints = [subject.ask("footprint") for subject in subjects]
        opened = [[subject.ask("reopen") for _ in range(REOPENED)] for subject in subjects]
    medians = [median(values) * 1e3 for values in times]
    return Report(
        NAME,
        SUMMARY,
        {"durability": settings.durability, "samples": samples, "folder": str(settings.folder)},
        "turns behind",
        sizes,
        _rows(times, opened, counts, footprints),
        [
            Claim(
                f"a turn with {sizes[-1]:,} turns behind it over one with {sizes[0]:,}",
                medians[-1] / medians[0],
                ALLOWED_RATIO,
            )
        ],
    )


def _rows(
    times: list[list[float]],
    opened: list[list[tuple[float, float]]],
    counts: list[dict[str, float]],
    footprints: list[dict[str, float]],
) -> list[Row]:
    def of(found: list[dict[str, float]], key: str) -> tuple[float, ...]:
        return tuple(one[key] for one in found)

    return [
        Row("turn, median", "ms", tuple(median(values) * 1e3 for values in times)),
        Row("turn, 90th percentile", "ms", tuple(percentile(values, 90) * 1e3 for values in times)),
        Row("turn, 99th percentile", "ms", tuple(percentile(values, 99) * 1e3 for values in times)),
        Row("opening store and session, median", "ms", tuple(_median_ms(found, 0) for found in opened)),
        Row("first turn after that, median", "ms", tuple(_median_ms(found, 1) for found in opened)),
        Row("publications a turn", "", of(counts, "writes")),
        Row("syncs a turn", "", of(counts, "syncs")),
        Row("objects a turn", "", of(counts, "objects")),
        Row("content a turn, uncompressed", "bytes", of(counts, "raw_bytes")),
        Row("written a turn, with merging of packs", "bytes", of(counts, "written_bytes")),
        Row("on disk, for each turn so far", "bytes", of(footprints, "stored_bytes")),
        Row("files in the store", "", of(footprints, "files")),
        Row("packs", "", of(footprints, "packs")),
        Row("open descriptors", "", of(footprints, "descriptors")),
        Row("resident memory", "MiB", of(footprints, "memory")),
    ]


def _median_ms(found: list[tuple[float, float]], place: int) -> float:
    return median([one[place] for one in found]) * 1e3


def _written_bytes() -> int:
    return int(_proc_field("io", "wchar:"))


def _resident_bytes() -> int:
    return int(_proc_field("status", "VmRSS:")) * 1024


def _proc_field(file: str, name: str) -> str:
    for line in Path(f"/proc/self/{file}").read_text().splitlines():
        if line.startswith(name):
            return line.split()[1]
    raise LookupError(f"/proc/self/{file} has no {name} line")
