"""`scripts/bench --peers`: install the peers, run the same work alternating, write `docs/benchmarks.md`.

Owns the table of peers, their virtual environments, the alternation, and the page with its chart. A peer
that cannot be installed is named in the page and left out.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..harness import alternate, median, percentile

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

    @property
    def environment(self) -> Path:
        """The folder of its virtual environment."""
        return ROOT / (f".venv-peer-{self.package}" if self.package else ".venv")


PEERS = (
    Peer("reactifact, git store", "ours", "git", "fsync before a turn ends and after each delivery"),
    Peer("reactifact, SQLite store", "ours", "sqlite", "synchronous=FULL, as above"),
    Peer(
        "LangGraph, SQLite saver", "langgraph_saver", "sqlite", "the saver's settings, durability=sync",
        "langgraph", ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Peer("DBOS, SQLite", "dbos_steps", "sqlite", "its own settings", "dbos", ("dbos",)),
    Peer(
        "published package, SQLite", "published", "sqlite", "its own settings",
        "reactifact", ("reactifact==0.15.3",), longest=500,
    ),
    Peer("two SQLite transactions", "floor", "sqlite", "synchronous=FULL, the floor"),
)  # fmt: skip


@dataclass(slots=True)
class Running:
    """The process of one peer and the turns it has made."""

    peer: Peer
    place: Path
    process: subprocess.Popen[str]
    turns: int = 0
    times: dict[int, list[float]] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)
    processor: dict[int, list[float]] = field(default_factory=dict)  # seconds a turn, one for each batch

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
        """Return the bytes on disk: of the file and those beside it, or of the folder."""
        files = [path for path in self.place.parent.rglob("*") if path.is_file()]
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
    if not peer.package or (peer.environment / "made").exists():
        return None
    _progress(f"installing {', '.join(peer.needs)}")
    venv.create(peer.environment, with_pip=True, clear=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", *peer.needs], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    (peer.environment / "made").write_text("\n".join(peer.needs))
    return None


def version(peer: Peer) -> str:
    """Return the version of what a peer runs on."""
    if not peer.package:
        return "this checkout" if peer.program == "ours" else f"Python {platform.python_version()}"
    code = f"from importlib.metadata import version; print(version({peer.package!r}))"
    return subprocess.check_output([peer.environment / "bin" / "python", "-c", code], text=True).strip()


def start(peer: Peer, folder: Path, below: Sequence[str] = ()) -> Running:
    """Start the program of a peer on a store of its own, run by another program where one is given."""
    place = (
        folder
        / peer.name.replace(" ", "-").replace(",", "")
        / ("state.git" if peer.kind == "git" else "state.db")
    )
    place.parent.mkdir()
    python = sys.executable if not peer.package else str(peer.environment / "bin" / "python")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if not peer.package:
        environment["PYTHONPATH"] = str(ROOT)
    command = [*below, python, str(PROGRAMS / f"{peer.program}.py"), peer.kind, str(place)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    return Running(peer, place, process)


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
            running = start(peer, Path(own), tracer)
            running.ask(turns)
            running.end()
            lines = log.read_text().splitlines()
        counts.append(sum("sync(" in line for line in lines))
    return f"{(counts[1] - counts[0]) / (COUNTED_TURNS[1] - COUNTED_TURNS[0]):.1f}"


def measure(peers: list[Peer], folder: Path, sizes: tuple[int, ...], batches: int) -> list[Running]:
    """Grow each program to each size, then take its times in turns with the others."""
    running = [start(peer, folder) for peer in peers]
    for size in sizes:
        active = [one for one in running if one.peer.longest >= size]
        for one in active:
            _progress(f"{one.peer.name}: to {size:,} turns")
            while one.turns < size:
                one.ask(min(100, size - one.turns))
            one.bytes[size] = one.size()
        _progress(f"measuring at {size:,} turns")
        for one in active:
            one.times[size], one.processor[size] = [], []

        def batch(one: Running, size: int = size) -> float:
            times, processor = one.ask(BATCH)
            one.times[size] += times
            one.processor[size].append(processor)
            return median(times)

        alternate([lambda one=one: batch(one) for one in active], batches)  # type: ignore[misc]
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
    for peer in (one.peer for one in running):
        lines.append(f"| {peer.name} | {version(peer)} | {peer.durable} | {synced.get(peer.name, '')} |")
    lines += [f"| {name} | not measured: {why} | | |" for name, why in absent.items()]
    references = {
        heading: one
        for heading, peer in AGAINST
        for one in running
        if peer in (one.peer.package, one.peer.program)
    }
    for size in sizes:
        lines += ["", f"## After {size:,} turns", ""]
        headings = "".join(f" ÷ {heading} |" for heading in references)
        lines += [
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
            lines.append(
                f"| {one.peer.name} | {median(times):.2f} | {spread} |{ratios} {processor} | {stored} |"
            )
    lines += ["", "## Wins and losses", "", *verdicts(running, sizes)]
    return "\n".join(lines) + "\n"


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
            for other in (one for one in at_size if one.peer.program != "ours"):
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
        peers = [peer for peer in PEERS if peer.name not in absent]
        synced = {} if options.quick else {peer.name: syncs(peer, Path(folder)) for peer in peers}
        found = measure(peers, Path(folder), sizes, batches)
    text, drawn = page(found, absent, sizes, load, synced), chart(found, sizes)
    print(text)
    if not options.quick:
        PAGE.write_text(text, encoding="utf-8")
        CHART.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
