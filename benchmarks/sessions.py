"""The cost of opening a session by how many there are in the store: among 10 and among 10,000.

For each kind of store: a bare repository, the same with all refs packed by git, a SQLite file, and
PostgreSQL where `--dsn` names a database or a server is installed. Each store is in a process of its
own, and rounds are taken from the sizes alternately. A round opens the store anew, so that what it
reads is in no cache of ours: one session, one more through the same handle, that one again, and one that
is not there yet. Then new sessions are saved (and deleted again), and all are listed.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
from pydantic import BaseModel

from reactifact import SessionStore
from reactifact._sessions.stores import StoreLike
from reactifact._store._backends.sql.postgres import PostgreSQLKVBackend
from reactifact._store.protocol import Durability

from .harness import Claim, Progress, Report, Row, Settings, alternate, median
from .postgres import databases
from .subject import Subject, requests

NAME = "sessions"
SUMMARY = "opening a session by the number of sessions in the store"
SIZES = (10, 10_000)
SAMPLES = 100
LISTINGS = 10
ALLOWED_RATIO = 2.0
OPENING = ("store and session", "one more session", "that one again", "a new session")
SAVING = ("save a new session",)
LISTING = ("list all",)
KINDS = {"git": "bare", "packed": "bare, refs packed", "sqlite": "SQLite", "postgres": "PostgreSQL"}


class Sheet(BaseModel):
    """What each session holds."""

    number: int


class Hall:
    """A store with many sessions, opened anew for each round."""

    def __init__(self, kind: str, place: str, schema: str, durability: Durability) -> None:
        self.kind = kind
        self.place = place
        self.schema = schema
        self.durability: Durability = durability
        self.size = 0
        self.rounds = 0
        self.chance = random.Random(7)

    def store(self, durability: Durability) -> SessionStore:
        """Open the store as another process would."""
        found: StoreLike = self.place
        if self.kind == "postgres":
            found = PostgreSQLKVBackend(self.place, schema=self.schema, durability=durability)
        return SessionStore(found, durability=durability)

    async def build(self, size: int) -> float:
        """Make the sessions, each as an application makes one; return the seconds it took."""
        started = time.perf_counter()
        store = self.store("os")  # what a build syncs says nothing about opening
        for number in range(size):
            await _save_new(store, f"user-{number}", number)
        await store.aclose()
        self.size = size
        return time.perf_counter() - started

    def pack(self, source: str, size: int) -> int:
        """Take over the sessions of a bare repository, with all refs in one file; return their number."""
        shutil.copytree(source, self.place)
        subprocess.run(["git", "-C", self.place, "pack-refs", "--all"], check=True)
        self.size = size
        return size

    async def open(self) -> dict[str, float]:
        """Open sessions through a handle of its own; return the seconds of each."""
        self.rounds += 1
        first, second = self.chance.sample(range(self.size), 2)
        took: dict[str, float] = {}

        started = time.perf_counter()
        store = self.store(self.durability)
        session = await store.open(f"user-{first}")
        took["store and session"] = time.perf_counter() - started
        assert session.loaded
        for step in ("one more session", "that one again"):
            started = time.perf_counter()
            session = await store.open(f"user-{second}")
            took[step] = time.perf_counter() - started
            assert session.loaded
        started = time.perf_counter()
        session = await store.open(f"new-{self.rounds}")
        took["a new session"] = time.perf_counter() - started
        assert not session.loaded
        await store.aclose()
        return took

    async def save(self) -> dict[str, float]:
        """Save a new session, and delete it again; return the seconds of the save."""
        self.rounds += 1
        name = f"new-{self.rounds}"
        store = self.store(self.durability)
        await store.open("user-0")
        started = time.perf_counter()
        await _save_new(store, name, self.rounds)
        took = {"save a new session": time.perf_counter() - started}
        await store.delete_session(name)
        await store.aclose()
        return took

    async def list(self) -> dict[str, float]:
        """List all sessions; return the seconds."""
        store = self.store(self.durability)
        started = time.perf_counter()
        found = await store.list_sessions()
        took = {"list all": time.perf_counter() - started}
        assert len(found) == self.size
        await store.aclose()
        return took


async def _save_new(store: SessionStore, session_id: str, number: int) -> None:
    session = await store.open(session_id)
    session.context.create(Sheet(number=number), id="sheet")
    await session.save()


def serve(connection: Connection, kind: str, place: str, schema: str, durability: Durability) -> None:
    """Run a hall in this process, as told over the connection."""
    anyio.run(_serve, connection, Hall(kind, place, schema, durability))


async def _serve(connection: Connection, hall: Hall) -> None:
    rounds = {"open": hall.open, "save": hall.save, "list": hall.list}
    for request, *args in requests(connection):
        if request == "build":
            connection.send(await hall.build(*args))
        elif request == "pack":
            connection.send(hall.pack(*args))
        elif request in rounds:
            connection.send(await rounds[request]())
        else:
            raise ValueError(f"unknown request {request!r}")


def run(settings: Settings) -> Report:
    """Build the stores and measure, one kind after the other."""
    sizes = settings.sizes or SIZES
    samples = settings.samples or SAMPLES
    if min(sizes) < 2:
        raise ValueError("a round opens two sessions: choose sizes of at least 2")
    details = {"durability": settings.durability, "samples": samples, "folder": str(settings.folder)}
    report = Report(NAME, SUMMARY, details, "sessions", sizes)
    with databases(settings.dsn) as lent:
        dsn = lent[0] if lent else None
        for kind in KINDS:
            if kind == "postgres" and dsn is None:
                settings.progress("no PostgreSQL: neither --dsn nor an installed server")
            else:
                _measure(settings, kind, dsn, samples, report)
    return report


def _measure(settings: Settings, kind: str, dsn: str | None, samples: int, report: Report) -> None:
    sizes = report.sizes
    with ExitStack() as stack:
        subjects = []
        for size in sizes:
            place, schema = _place(settings.folder, kind, size, dsn), f"reactifact_bench_{size}"
            if kind == "postgres":
                stack.callback(_drop, place, schema)
            subject = Subject(serve, kind, place, schema, settings.durability)
            subjects.append(stack.enter_context(subject))
        took: list[float] = []
        for subject, size in zip(subjects, sizes, strict=True):
            settings.progress(f"{KINDS[kind]}: {size:,} sessions")
            if kind == "packed":
                subject.ask("pack", _place(settings.folder, "git", size, dsn), size)
            else:
                took.append(subject.ask("build", size))
        if took:
            each = tuple(seconds * 1e3 / size for seconds, size in zip(took, sizes, strict=True))
            report.rows.append(Row(f"{KINDS[kind]}: building, each session", "ms", each))
        for request, steps, count in (
            ("open", OPENING, samples),
            ("save", SAVING, samples),
            ("list", LISTING, min(samples, LISTINGS)),
        ):
            with settings.meter(f"{KINDS[kind]}: {request}", "rounds") as told:
                found = _rounds(subjects, request, count, told)
            for step in steps:
                _report(report, kind, step, [[one[step] * 1e3 for one in of_size] for of_size in found])


def _rounds(
    subjects: list[Subject], request: str, samples: int, told: Progress
) -> list[list[dict[str, float]]]:
    found: list[list[dict[str, float]]] = [[] for _ in subjects]

    def measured(place: int) -> Callable[[], float]:
        def one() -> float:
            found[place].append(subjects[place].ask(request))
            return 0.0

        return one

    alternate([measured(place) for place in range(len(subjects))], samples, told)
    return found


def _report(report: Report, kind: str, step: str, times: list[list[float]]) -> None:
    name = f"{KINDS[kind]}: {step}"
    medians = tuple(median(values) for values in times)
    report.rows.append(Row(name, "ms", medians))
    if step in LISTING:  # costs what it lists
        return
    text = f"{name}, with {report.sizes[-1]:,} sessions over {report.sizes[0]:,}"
    report.claims.append(Claim(text, medians[-1] / medians[0], ALLOWED_RATIO))


def _place(folder: Path, kind: str, size: int, dsn: str | None) -> str:
    if kind == "postgres":
        assert dsn is not None
        return dsn
    return str(folder / {"git": f"{size}.git", "packed": f"{size}-packed.git", "sqlite": f"{size}.db"}[kind])


def _drop(dsn: str, schema: str) -> None:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
