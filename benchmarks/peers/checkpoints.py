"""`scripts/bench --checkpoints`: LangGraph's SQLite saver and ours on the same checkpoints, as a table.

Owns which savers are measured and how the figures are shown; `programs/checkpoints.py` makes the checkpoints.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .__main__ import PEERS, PROGRAMS, ROOT, install

SAVERS = (
    ("LangGraph, SQLite saver", "langgraph", "lg.db"),
    ("ours, git, synced", "reactifact", "ours.git"),
    ("ours, git, not synced", "reactifact-os", "os.git"),
    ("ours, SQLite, synced", "reactifact", "ours.db"),
    ("ours, SQLite, not synced", "reactifact-os", "os.db"),
)
FIGURES = (
    ("MB on disk", "bytes"),
    ("put, first 50, ms", "put_first_ms"),
    ("put, last 50, ms", "put_last_ms"),
    ("put_writes, ms", "writes_ms"),
    ("newest, saver just opened, ms", "get_cold_ms"),
    ("newest again, ms", "get_warm_ms"),
    ("list of 10, ms", "list_10_ms"),
    ("one of before, ms", "get_old_ms"),
)


def measure(count: int, states: list[str]) -> int:
    """Measure every saver with every state and print a table for each state."""
    peer = next(one for one in PEERS if one.package == "langgraph")
    failed = install(peer)
    if failed is not None:
        print(f"LangGraph's saver cannot be installed: {failed}", file=sys.stderr)
        return 1
    for state in states:
        found: dict[str, dict[str, Any]] = {}
        for title, saver, name in SAVERS:
            python = str(peer.environment / "bin" / "python") if saver == "langgraph" else sys.executable
            print(f"  ... {state}: {title}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
                command = [python, str(PROGRAMS / "checkpoints.py"), saver, str(Path(folder) / name)]
                done = subprocess.run(
                    [*command, state, str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
                )
            found[title] = json.loads(done.stdout)
        print(table(state, count, found))
    return 0


def table(state: str, count: int, found: dict[str, dict[str, Any]]) -> str:
    """Return the figures of one state as a table in Markdown."""
    lines = [f"| {state}, {count} checkpoints | {' | '.join(found)} |", "| --- |" + " --- |" * len(found)]
    for title, name in FIGURES:
        values = [one[name] for one in found.values()]
        shown = [f"{one / 1e6:.1f}" if name == "bytes" else f"{one[0]:.1f} ({one[1]:.1f})" for one in values]
        lines.append(f"| {title} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="checkpoints (default: 3000)")
    parser.add_argument("--state", choices=("form", "chat"), action="append", help="default: both")
    options = parser.parse_args()
    return measure(options.count, options.state or ["form", "chat"])


if __name__ == "__main__":
    raise SystemExit(main())
