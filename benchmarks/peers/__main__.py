"""`scripts/bench --peers`: install the peers, run the same work alternating, write `docs/benchmarks.md`.

Owns the table of peers, their virtual environments, the alternation, and the page with its chart. A peer
that cannot be installed is named in the page and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass, field
from pathlib import Path

from ..harness import alternate, median, percentile

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
PAGE = ROOT / "docs" / "benchmarks.md"
CHART = ROOT / "docs" / "benchmarks.svg"
SIZES = (250, 3_000)
QUICK_SIZES = (25, 100)
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
        "published package, SQLite", "published", "sqlite", "its own settings; no sync of ours",
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

    def ask(self, count: int) -> list[float]:
        """Let it make `count` turns; return the seconds each took. Raises `SystemExit` where it ended."""
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
        times: list[float] = json.loads(line)
        return times

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


def start(peer: Peer, folder: Path) -> Running:
    """Start the program of a peer on a store of its own."""
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
    command = [python, str(PROGRAMS / f"{peer.program}.py"), peer.kind, str(place)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    return Running(peer, place, process)


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
            one.times[size] = []

        def batch(one: Running, size: int = size) -> float:
            times = one.ask(BATCH)
            one.times[size] += times
            return median(times)

        alternate([lambda one=one: batch(one) for one in active], batches)  # type: ignore[misc]
    for one in running:
        one.end()
    return running


def page(running: list[Running], absent: dict[str, str], sizes: tuple[int, ...]) -> str:
    """Return the Markdown of the page."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `scripts/bench --peers`. One turn: an order comes in, a receipt and an intent to notify",
        "are stored, the notification is delivered, the delivery is stored. All programs ran alternating in",
        f"one run on one machine ({os.cpu_count()} cores, Python {platform.python_version()}); compare the",
        "ratios, not the milliseconds. A ratio over 1 is a loss.",
        "",
        "![milliseconds a turn](benchmarks.svg)",
        "",
        "| what | version | durability |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {one.peer.name} | {version(one.peer)} | {one.peer.durable} |" for one in running]
    lines += [f"| {name} | not measured: {why} | |" for name, why in absent.items()]
    reference = next((one for one in running if one.peer.package == "langgraph"), None)
    for size in sizes:
        lines += ["", f"## After {size:,} turns", ""]
        lines += [
            "| what | median ms | 10 % to 90 % | ÷ LangGraph | bytes a turn |",
            "| --- | --- | --- | --- | --- |",
        ]
        for one in running:
            if size not in one.times:
                lines.append(f"| {one.peer.name} | not measured: grows too slow | | | |")
                continue
            times = [1000 * second for second in one.times[size]]
            ratio = ""
            if reference is not None and size in reference.times:
                ratio = f"{median(times) / (1000 * median(reference.times[size])):.2f}"
            spread = f"{percentile(times, 10):.1f} to {percentile(times, 90):.1f}"
            stored = f"{one.bytes[size] / size:,.0f}"
            lines.append(f"| {one.peer.name} | {median(times):.2f} | {spread} | {ratio} | {stored} |")
    return "\n".join(lines) + "\n"


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
        "--folder", type=Path, metavar="DIR", help="where stores are made: the disk to measure"
    )
    options = parser.parse_args(argv)
    sizes, batches = (QUICK_SIZES, 3) if options.quick else (SIZES, 20)
    absent: dict[str, str] = {}
    for peer in PEERS:
        why = install(peer)
        if why is not None:
            absent[peer.name] = why
    with tempfile.TemporaryDirectory(prefix="reactifact-peers-", dir=options.folder) as folder:
        found = measure([peer for peer in PEERS if peer.name not in absent], Path(folder), sizes, batches)
    text = page(found, absent, sizes)
    print(text)
    if not options.quick:
        PAGE.write_text(text, encoding="utf-8")
        CHART.write_text(chart(found, sizes), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
