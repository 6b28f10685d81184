"""`python -m benchmarks`: run workloads and print what they measured. The one place here that prints."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from reactifact.cli._shared.terminal import progress

from . import (
    at_once,
    branches,
    concurrency,
    large_type,
    long,
    opening,
    replay,
    service,
    sessions,
    steps,
    stored,
    turn,
    waiting,
)
from .harness import Report, Settings, Workload

WORKLOADS: dict[str, Workload] = {
    module.NAME: module
    for module in (
        turn,
        long,
        opening,
        stored,
        branches,
        waiting,
        concurrency,
        at_once,
        steps,
        large_type,
        service,
        replay,
        sessions,
    )
}


def main(argv: list[str] | None = None) -> int:
    """Run what the arguments name; return 1 where a claim does not hold."""
    options = _parser().parse_args(argv)
    reports: list[Report] = []
    for name in options.workloads or WORKLOADS:
        for durability in ("os", "full") if options.durability == "both" else (options.durability,):
            reports.append(_run(WORKLOADS[name], durability, options))
            if not options.json:
                print(reports[-1].as_table(), flush=True)
    if options.json:
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    return 0 if all(claim.holds for report in reports for claim in report.claims) else 1


def _run(workload: Workload, durability: str, options: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory(prefix="reactifact-bench-", dir=options.folder) as folder:
        settings = Settings(
            Path(folder), durability, options.sizes, options.samples, _begin, progress, options.dsn
        )
        return workload.run(settings)


def _begin(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of sizes such as 500,5000")
    return sizes


def _samples(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of samples; two or more are needed")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Run benchmarks; without a name, all of them.",
        epilog="workloads:\n" + "\n".join(f"  {name:10} {one.SUMMARY}" for name, one in WORKLOADS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # No `choices`: argparse would hold an empty list against them.
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", type=_workload)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--durability", choices=("os", "full", "both"), default="both", help="how stores sync (both)"
    )
    parser.add_argument("--sizes", type=_sizes, metavar="N,N", help="sizes to compare")
    parser.add_argument("--samples", type=_samples, metavar="N", help="measurements at each size")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where stores are made: the disk to measure"
    )
    parser.add_argument("--dsn", metavar="DSN", help="a PostgreSQL database to measure in (sessions)")
    return parser


def _workload(name: str) -> str:
    if name not in WORKLOADS:
        raise argparse.ArgumentTypeError(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
