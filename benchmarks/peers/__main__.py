"""`scripts/bench --peers`: install the peers, run the same work alternating, write `docs/benchmarks.md`.

Owns the table of peers, their virtual environments, the alternation, and the page with its chart. Those with
files of their own are measured beside each other, then those on a PostgreSQL server, then the same with that
server 2 ms away. A peer that cannot be installed is named in the page and left out, and so are those on a
server where none can be started.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reactifact.cli._shared.terminal import progress

from ..harness import alternate, median, percentile
from ..postgres import databases
from .distance import Distant, at_a_distance

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
PAGE = ROOT / "docs" / "benchmarks.md"
CHART = ROOT / "docs" / "benchmarks.svg"
SIZES = (250, 3_000)
QUICK_SIZES = (20, 60)
AGAINST = (("LangGraph", "langgraph"), ("two SQLite transactions", "floor"))
"""Heading of a column of ratios, and the package or program that the turns are divided by."""
COUNTED_TURNS = (5, 25)
"""After how many turns the syncs of a program are counted: what it does once falls out of the difference."""
BATCH = 10
"""Turns in one measurement of one program, before the next program is asked."""
GROWN_AT_ONCE = 50
"""Turns that a program makes before it says how far it is."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One program that is measured: what it is called, what it needs, what it promises."""

    name: str
    program: str
    kind: str
    durable: str
    package: str = ""  # whose version is printed; empty for this package and for Python's own
    needs: tuple[str, ...] = ()
    longest: int = 10_000  # turns after which it is not measured any more: it grows too slow
    away: float = 0.0  # seconds that each direction to the server takes longer

    @property
    def family(self) -> str:
        """Where its state lies, as a heading says it; those of one family are measured beside each other."""
        if self.kind != "postgres":
            return ""
        return f"PostgreSQL, {2000 * self.away:g} ms away" if self.away else "PostgreSQL"

    @property
    def environment(self) -> Path:
        """The folder of its virtual environment."""
        return ROOT / (f".venv-peer-{self.package}" if self.package else ".venv")


AWAY = 0.001
"""Seconds that each direction takes longer to a server that is 2 ms away."""
LANGGRAPH = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]")
SYNCHRONOUS = "synchronous_commit=on"

PEERS = (
    Peer("reactifact, git store", "ours", "git", "fsync before a turn ends and after each delivery"),
    Peer("reactifact, SQLite store", "ours", "sqlite", "synchronous=FULL, as above"),
    Peer(
        "LangGraph, SQLite saver", "langgraph_saver", "sqlite", "the saver's settings, durability=sync",
        "langgraph", LANGGRAPH,
    ),
    Peer("DBOS, SQLite", "dbos_steps", "sqlite", "its own settings", "dbos", ("dbos",)),
    Peer(
        "published package, SQLite", "published", "sqlite", "its own settings",
        "reactifact", ("reactifact==0.15.3",), longest=500,
    ),
    Peer("two SQLite transactions", "floor", "sqlite", "synchronous=FULL, the floor"),
    Peer("reactifact, PostgreSQL store", "ours", "postgres", SYNCHRONOUS),
    Peer(
        "LangGraph, PostgreSQL saver", "langgraph_saver", "postgres",
        f"{SYNCHRONOUS}, durability=sync", "langgraph", LANGGRAPH,
    ),
    Peer("reactifact, PostgreSQL store 2 ms away", "ours", "postgres", SYNCHRONOUS, away=AWAY),
    Peer(
        "LangGraph, PostgreSQL saver 2 ms away", "langgraph_saver", "postgres",
        f"{SYNCHRONOUS}, durability=sync", "langgraph", LANGGRAPH, away=AWAY,
    ),
)  # fmt: skip


@dataclass(slots=True)
class Running:
    """The process of one peer and the turns it has made. Its place is a path, or a DSN."""

    peer: Peer
    place: str
    process: subprocess.Popen[str]
    turns: int = 0
    times: dict[int, list[float]] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)
    processor: dict[int, list[float]] = field(default_factory=dict)  # seconds a turn, one for each batch
    distant: Distant | None = None
    empty: int = 0  # bytes of a database in which there is nothing yet
    trips: float | None = None  # to the server and back, a turn; counted where it is some way off

    def ask(self, count: int) -> tuple[list[float], float]:
        """Let it make `count` turns; return the seconds each took, and those of the processor a turn.

        Raises `SystemExit` where it ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"{self.peer.name} ended with status {self.process.wait()}; its error stands above"
            )
        self.turns += count
        times, processor = json.loads(line)
        return times, processor / count

    def size(self) -> int:
        """Return the bytes on disk: of the file and those beside it, of the folder, or of the database."""
        if self.peer.kind == "postgres":
            return _database_size(self.place) - self.empty
        files = [path for path in Path(self.place).parent.rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files)

    def end(self) -> None:
        """Close it and check its own count of deliveries. Raises `SystemExit`."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit(f"{self.peer.name} ended with status {self.process.returncode}")


def install(peer: Peer) -> str | None:
    """Make the peer's environment when it is absent; return what went wrong, or `None`."""
    python = peer.environment / "bin" / "python"
    made, wanted = peer.environment / "made", "\n".join(peer.needs)
    if not peer.package or (made.exists() and made.read_text() == wanted):
        return None
    _progress(f"installing {', '.join(peer.needs)}")
    venv.create(peer.environment, with_pip=True, clear=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", *peer.needs], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    made.write_text(wanted)
    return None


def version(peer: Peer) -> str:
    """Return the version of what a peer runs on."""
    if not peer.package:
        return "this checkout" if peer.program == "ours" else f"Python {platform.python_version()}"
    code = f"from importlib.metadata import version; print(version({peer.package!r}))"
    return subprocess.check_output([peer.environment / "bin" / "python", "-c", code], text=True).strip()


def start(
    peer: Peer, folder: Path, database: str | Distant | None = None, below: Sequence[str] = ()
) -> Running:
    """Start the program of a peer on a store of its own, run by another program where one is given."""
    if database is None:
        own = folder / peer.name.replace(" ", "-").replace(",", "")
        own.mkdir()
        place = str(own / ("state.git" if peer.kind == "git" else "state.db"))
    else:
        place = database if isinstance(database, str) else database.dsn
    python = sys.executable if not peer.package else str(peer.environment / "bin" / "python")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if not peer.package:
        environment["PYTHONPATH"] = str(ROOT)
    empty = 0 if database is None else _database_size(place)
    command = [*below, python, str(PROGRAMS / f"{peer.program}.py"), peer.kind, place]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    distant = database if isinstance(database, Distant) else None
    return Running(peer, place, process, distant=distant, empty=empty)


@contextmanager
def servers(peers: Sequence[Peer]) -> Iterator[dict[str, str | Distant] | None]:
    """Lend each peer that works on a server a database of its own; `None` where there is no server."""
    remote = [peer for peer in peers if peer.kind == "postgres"]
    if not remote:
        yield {}
        return
    with databases(None, len(remote)) as lent, ExitStack() as stack:
        if lent is None:
            yield None
            return
        found: dict[str, str | Distant] = {}
        for peer, dsn in zip(remote, lent, strict=True):
            found[peer.name] = stack.enter_context(at_a_distance(dsn, peer.away)) if peer.away else dsn
        yield found


def _database_size(dsn: str) -> int:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(b"SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def syncs(peer: Peer, folder: Path) -> str:
    """Return how many times a turn of a peer waits for the disk, counted by strace where there is one."""
    if shutil.which("strace") is None:
        return "not counted: no strace"
    if subprocess.run(("strace", "-o", os.devnull, "true"), capture_output=True).returncode:
        return "not counted: strace may not look on here"
    counts = []
    for turns in COUNTED_TURNS:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            log = Path(own) / "syncs"
            tracer = ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log))
            running = start(peer, Path(own), below=tracer)
            running.ask(turns)
            running.end()
            lines = log.read_text().splitlines()
        counts.append(sum("sync(" in line for line in lines))
    return f"{(counts[1] - counts[0]) / (COUNTED_TURNS[1] - COUNTED_TURNS[0]):.1f}"


def measure(
    peers: list[Peer],
    folder: Path,
    sizes: tuple[int, ...],
    batches: int,
    lent: Mapping[str, str | Distant],
) -> list[Running]:
    """Grow each program to each size, then take its times in turns with the others of its family."""
    found = []
    for family in dict.fromkeys(peer.family for peer in peers):
        members = [peer for peer in peers if peer.family == family]
        found += _measured([start(one, folder, lent.get(one.name)) for one in members], sizes, batches)
    return found


def _measured(running: list[Running], sizes: tuple[int, ...], batches: int) -> list[Running]:
    for size in sizes:
        active = [one for one in running if one.peer.longest >= size]
        for one in active:
            _progress(f"{one.peer.name}: to {size:,} turns")
            with progress(one.peer.name, "turns") as told:
                while one.turns < size:
                    one.ask(min(GROWN_AT_ONCE, size - one.turns))
                    told(one.turns, size)
            one.bytes[size] = one.size()
        _progress(f"measuring at {size:,} turns")
        for one in active:
            one.times[size], one.processor[size] = [], []

        def batch(one: Running, size: int = size) -> float:
            times, processor = one.ask(BATCH)
            one.times[size] += times
            one.processor[size].append(processor)
            return median(times)

        begun = [(one.turns, one.distant.round_trips() if one.distant else 0) for one in active]
        with progress(f"measuring at {size:,} turns", "batches") as told:
            alternate([lambda one=one: batch(one) for one in active], batches, told)  # type: ignore[misc]
        for one, (turns, trips) in zip(active, begun, strict=True):
            if one.distant is not None:
                one.trips = (one.distant.round_trips() - trips) / (one.turns - turns)
    for one in running:
        one.end()
    return running


def page(
    running: list[Running],
    absent: dict[str, str],
    sizes: tuple[int, ...],
    load: str,
    synced: Mapping[str, str],
) -> str:
    """Return the Markdown of the page.

    `load` says what else the machine had to do, `synced` how many syncs a turn of each program makes.
    """
    measured = sum(len(times) for one in running for times in one.times.values())
    lines = [
        "# Benchmarks",
        "",
        "Written by `scripts/bench --peers`. One turn: an order comes in, a receipt and an intent to notify",
        "are stored, the notification is delivered, the delivery is stored. Each program runs in a process",
        f"and an environment of its own; they took turns, {BATCH} orders at a time, {measured:,} in all,",
        f"in one run on one machine: {os.cpu_count()} cores, {platform.system()}, Python",
        f"{platform.python_version()}, {load}. Milliseconds say what that",
        "machine did then; what can be compared are the ratios of one run. A ratio over 1 is a loss against",
        "that program, one under 1 a win. Where other programs want the processor and the disk, the time",
        "that passed is mostly waiting, and longest where a turn syncs often: the milliseconds of the",
        "processor and the syncs a turn do not depend on that.",
        "",
        "![milliseconds a turn](benchmarks.svg)",
        "",
        "| what | version | durability | syncs a turn |",
        "| --- | --- | --- | --- |",
    ]
    for one in running:
        waits = synced.get(one.peer.name, "") if one.trips is None else f"{one.trips:.1f} round trips"
        lines.append(f"| {one.peer.name} | {version(one.peer)} | {one.peer.durable} | {waits} |")
    lines += [f"| {name} | not measured: {why} | | |" for name, why in absent.items()]
    for family in dict.fromkeys(one.peer.family for one in running):
        members = [one for one in running if one.peer.family == family]
        for size in sizes:
            heading = f"After {size:,} turns" + (f", {family}" if family else "")
            lines += ["", f"## {heading}", "", *_table(members, size)]
    lines += ["", "## Wins and losses", "", *verdicts(running, sizes)]
    return "\n".join(lines) + "\n"


def _table(running: list[Running], size: int) -> list[str]:
    """Return the table of the programs of one family at a size."""
    references = {
        heading: one
        for heading, peer in AGAINST
        for one in running
        if peer in (one.peer.package, one.peer.program)
    }
    headings = "".join(f" ÷ {heading} |" for heading in references)
    lines = [
        f"| what | median ms | 10 % to 90 % |{headings} processor ms | bytes a turn |",
        "| --- | --- | --- | --- | --- |" + " --- |" * len(references),
    ]
    for one in running:
        if size not in one.times:
            lines.append(f"| {one.peer.name} | not measured: too slow |" + " |" * (len(references) + 3))
            continue
        times = [1000 * second for second in one.times[size]]
        spread = f"{percentile(times, 10):.1f} to {percentile(times, 90):.1f}"
        ratios = "".join(f" {_ratio(one, other, size)} |" for other in references.values())
        stored = f"{one.bytes[size] / size:,.0f}"
        processor = f"{1000 * median(one.processor[size]):.2f}"
        lines.append(f"| {one.peer.name} | {median(times):.2f} | {spread} |{ratios} {processor} | {stored} |")
    return lines


def _ratio(one: Running, other: Running, size: int) -> str:
    """Return how often longer a turn of one program takes, empty where one of them was not measured."""
    if one is other or size not in one.times or size not in other.times:
        return ""
    return f"{median(one.times[size]) / median(other.times[size]):.2f}"


def verdicts(running: list[Running], sizes: tuple[int, ...]) -> list[str]:
    """Return a sentence for each of ours at each size: against whom it won and lost, and by how much."""
    lines = []
    for size in sizes:
        at_size = [one for one in running if size in one.times]
        for ours in (one for one in at_size if one.peer.program == "ours"):
            won: list[str] = []
            lost: list[str] = []
            others = [one for one in at_size if one.peer.family == ours.peer.family]
            for other in (one for one in others if one.peer.program != "ours"):
                ratio = median(ours.times[size]) / median(other.times[size])
                (lost if ratio >= 1 else won).append(
                    f"{other.peer.name} ({ratio if ratio >= 1 else 1 / ratio:.1f} times)"
                )
            lines.append(
                f"- {ours.peer.name}, {size:,} turns: slower than {', '.join(lost) or 'none'}; "
                f"faster than {', '.join(won) or 'none'}."
            )
    return lines


def chart(running: list[Running], sizes: tuple[int, ...]) -> str:
    """Return a bar chart of the medians as SVG: one group of bars a size."""
    bars = [
        (one, size, 1000 * median(one.times[size])) for size in sizes for one in running if size in one.times
    ]
    longest = max(value for _, _, value in bars)
    colours = ("#1f6feb", "#54aeff", "#cf222e", "#bf8700", "#8250df", "#6e7781")
    height = 22 * len(bars) + 34 * len(sizes) + 10
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="Milliseconds a turn">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    y = 0
    for size in sizes:
        y += 24
        rows.append(f'<text x="8" y="{y}" font-weight="bold">median ms a turn after {size:,} turns</text>')
        y += 10
        for one, at, value in bars:
            if at != size:
                continue
            width = max(1.0, 400 * value / longest)
            colour = colours[running.index(one) % len(colours)]
            rows.append(f'<text x="8" y="{y + 14}">{one.peer.name}</text>')
            rows.append(f'<rect x="230" y="{y + 2}" width="{width:.1f}" height="16" fill="{colour}"/>')
            rows.append(f'<text x="{236 + width:.1f}" y="{y + 14}">{value:.1f}</text>')
            y += 22
    return "\n".join([*rows, "</svg>"]) + "\n"


def _progress(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Measure, print the page, and write it with its chart unless `--quick`; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench --peers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns, a smoke test; writes no page")
    parser.add_argument(
        "--postgres", action="store_true", help="those on a PostgreSQL server alone; writes no page"
    )
    parser.add_argument("--sizes", metavar="N,N", help="turns before a measurement (250,3000)")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where stores are made: the disk to measure"
    )
    options = parser.parse_args(argv)
    sizes: tuple[int, ...] = QUICK_SIZES if options.quick else SIZES
    batches = 3 if options.quick else 20
    if options.sizes:
        sizes = tuple(int(size) for size in options.sizes.split(","))
    load = f"with a load of {os.getloadavg()[2]:.1f} before" if hasattr(os, "getloadavg") else "load unknown"
    absent: dict[str, str] = {}
    for peer in PEERS:
        why = install(peer)
        if why is not None:
            absent[peer.name] = why
    with tempfile.TemporaryDirectory(prefix="reactifact-peers-", dir=options.folder) as folder:
        peers = [peer for peer in PEERS if peer.name not in absent and (peer.family or not options.postgres)]
        with servers(peers) as lent:
            if lent is None:
                remote = [peer for peer in peers if peer.family]
                absent |= {peer.name: "neither a PostgreSQL server nor its driver is here" for peer in remote}
                peers = [peer for peer in peers if not peer.family]
            local = [peer for peer in peers if not peer.family and not options.quick]
            synced = {peer.name: syncs(peer, Path(folder)) for peer in local}
            found = measure(peers, Path(folder), sizes, batches, lent or {})
    text, drawn = page(found, absent, sizes, load, synced), chart(found, sizes)
    print(text)
    if not options.quick and not options.postgres:
        PAGE.write_text(text, encoding="utf-8")
        CHART.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
