"""Opening a session costs the same however many others the store holds: counted, not timed.

Counted is what a kind of store lets one count: calls, refs and objects for all of them; files, folders and
bytes for a bare repository, also with all its refs packed; steps of its machine for SQLite; blocks of
tables and indexes for PostgreSQL. The times stand in `benchmarks`.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from stores import KINDS, OwnBackend, place_of
from support import Note, git

from reactifact import SessionStore

FEW = 10
MANY = [150, pytest.param(10_000, marks=pytest.mark.full)]
STEPS = ("store and session", "one more session", "a new session")

Counts = Counter[str]


async def fill(place: Any, size: int) -> None:
    """Make sessions as an application does, and tidy at the end: what packs are left depends on when."""
    store = SessionStore(place, durability="os", compact_every=None)
    for number in range(size):
        session = await store.open(f"user-{number}")
        session.context.create(Note(count=number), id="note")
        await session.save()
    if store.database.maintained is not None:
        store.database.maintained.maintain()
    await store.aclose()


async def opened(place: Any, size: int, counts: dict[str, Counts], meters: list[Any]) -> None:
    """Open the store, a session, another, and one that is new, each under the meters."""

    @contextmanager
    def step(name: str) -> Iterator[None]:
        with ExitStack() as stack:
            for meter in meters:
                stack.enter_context(meter(counts[name]))
            yield

    with step(STEPS[0]):
        store = SessionStore(place, durability="os")
        calls = count_calls(store)
        assert (await store.open(f"user-{size // 2}")).loaded
    counts[STEPS[0]] += calls
    calls.clear()
    with step(STEPS[1]):
        assert (await store.open(f"user-{size - 1}")).loaded
    counts[STEPS[1]] += calls
    calls.clear()
    with step(STEPS[2]):
        assert not (await store.open("user-new")).loaded
    counts[STEPS[2]] += calls
    await store.aclose()


def count_calls(store: SessionStore) -> Counts:
    """Count what is asked of the backend, and what it returns."""
    counts: Counts = Counter()
    backend: Any = store.database.backend
    names = [name for name in ("refs", "read_many", "read_line") if hasattr(backend, name)]
    inside: list[str] = []  # a call may make another
    for name, method in [(name, getattr(backend, name)) for name in names]:

        def counted(*asked: Any, name: str = name, function: Any = method) -> Any:
            inside.append(name)
            try:
                found = function(*asked)
            finally:
                inside.pop()
            if not inside:
                kind = "refs" if name == "refs" else "read"
                counts[f"{kind} calls"] += 1
                counts[f"{kind} returned"] += len(found)
            return found

        setattr(backend, name, counted)
    return counts


# -- meters ------------------------------------------------------------------------------------------

_watching: list[Counts] = []
_stepping: list[Counts] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir"):
        for counts in _watching:
            counts[event] += 1


@pytest.fixture(scope="module", autouse=True)
def audited() -> None:
    sys.addaudithook(_audit)  # for good: hooks cannot be taken away, and this one idles outside `watched`


@contextmanager
def watched(counts: Counts) -> Iterator[None]:
    """Count the files and folders that Python opens."""
    _watching.append(counts)
    try:
        yield
    finally:
        _watching.clear()


@contextmanager
def machine_steps(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the steps of SQLite's virtual machine."""
    connect = sqlite3.connect

    def step() -> int:
        for counts in _stepping:
            counts["machine steps"] += 1
        return 0

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_progress_handler(step, 1)
        return connection

    _stepping.append(counts)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connected)
        yield
    _stepping.clear()


@contextmanager
def bytes_read(counts: Counts) -> Iterator[None]:
    """Count what the process reads with system calls, libraries in C included."""
    before = _read_so_far()
    try:
        yield
    finally:
        counts["bytes read"] += _read_so_far() - before


def _read_so_far() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


@contextmanager
def queries(counts: Counts, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count queries, and the blocks that the server says each of them touches."""
    asked: list[tuple[Any, Any]] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        asked.append((query, params))
        return execute(self, query, params, **options)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", noted)
        yield
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        for query, params in asked:
            text = query.decode() if isinstance(query, bytes) else query
            if not text.lstrip().startswith("SELECT") or "set_config" in text:
                continue
            plan = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", params).fetchone()
            assert plan is not None
            top = plan[0][0]["Plan"]
            counts["queries"] += 1
            counts["blocks"] += top["Shared Hit Blocks"] + top["Shared Read Blocks"]


@contextmanager
def own_calls(counts: Counts, place: OwnBackend) -> Iterator[None]:
    """Count the documents that are read of a user's own backend, and the listings of its keys."""
    get, keys = place.get, place.keys

    async def counted_get(key: str) -> Any:
        counts["documents"] += 1
        return await get(key)

    async def counted_keys() -> list[str]:
        counts["listings"] += 1
        return await keys()

    place.get, place.keys = counted_get, counted_keys  # type: ignore[method-assign]
    try:
        yield
    finally:
        del place.get, place.keys


# -- tests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", MANY)
@pytest.mark.parametrize("kind", [*KINDS, "packed"])
def test_opening_one_among_many_costs_what_it_costs_among_few(
    kind: str, many: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, dict[str, Counts]] = {}
    few = FEW
    if kind == "postgres":  # what stands beside a commit is read with it: of ten sessions, that is all
        few, many = 4 * FEW, min(4 * many, 10_000)
    for size in (few, many):
        found[size] = {step: Counter() for step in STEPS}
        folder = tmp_path / str(size)
        folder.mkdir()
        with ExitStack() as stack:
            dsn = None
            if kind == "postgres":
                dsn = stack.enter_context(request.getfixturevalue("postgres").database())
            place = place_of("git" if kind == "packed" else kind, folder, dsn)
            meters: list[Any] = []
            if kind == "sqlite":  # its pages stay in its cache as long as they are few: no bytes are counted
                meters = [watched, lambda counts: machine_steps(counts, monkeypatch)]
            elif kind in ("git", "packed"):
                meters = [watched, bytes_read] if sys.platform == "linux" else [watched]
            elif kind == "own":
                meters = [lambda counts, place=place: own_calls(counts, place)]
            elif dsn is not None:
                meters = [lambda counts, dsn=dsn: queries(counts, dsn, monkeypatch)]
            anyio.run(fill, place, size)
            if kind == "packed":
                git(place, "pack-refs", "--all")
            anyio.run(opened, place, size, found[size], meters)
    for step in STEPS:
        little, much = found[few][step], found[many][step]
        assert little["refs calls"] > 0
        assert little["read returned"] > 0 or step == STEPS[2]
        assert little.keys() == much.keys()
        more = {name: (little[name], much[name]) for name in little if much[name] > 2 * little[name]}
        assert not more, f"{step} of a store of kind {kind}"
