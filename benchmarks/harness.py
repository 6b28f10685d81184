"""What workloads share: settings, reports, the table they are printed as, paired measuring.

It knows no workload and nothing of reactifact. A workload is a module with `NAME`, `SUMMARY` and
`run(settings) -> Report`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

Progress = Callable[[int, int | None], None]


def _untold(done: int, total: int | None) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run measures. `sizes` and `samples` are `None` where the workload's own are meant."""

    folder: Path
    """An empty folder for the stores of this run, on the disk to be measured."""
    durability: str = "os"
    sizes: tuple[int, ...] | None = None
    samples: int | None = None
    progress: Callable[[str], None] = lambda text: None
    """Told of each step as it begins."""
    meter: Callable[[str, str], AbstractContextManager[Progress]] = lambda label, noun: nullcontext(_untold)
    """Lends what is told how much of a step is done, and of how much; given a label and what is counted."""
    dsn: str | None = None
    """A PostgreSQL database to measure in, where a workload measures one."""


class Workload(Protocol):
    """A module of this package that measures something."""

    NAME: str
    SUMMARY: str

    def run(self, settings: Settings) -> Report: ...


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, measured at each size of the report."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        """The last value over the first; `None` for one size, or nothing to compare with."""
        if len(self.values) < 2 or not self.values[0]:
            return None
        return self.values[-1] / self.values[0]


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of a figure, and whether this run bears it out."""

    text: str
    value: float
    at_most: float

    @property
    def holds(self) -> bool:
        """Whether the value is within the claim."""
        return self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Report:
    """What one workload measured."""

    name: str
    summary: str
    settings: dict[str, Any]
    size_name: str
    sizes: tuple[int, ...]
    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON takes it."""
        return {
            **asdict(self),
            "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows],
            "claims": [{**asdict(claim), "holds": claim.holds} for claim in self.claims],
        }

    def as_table(self) -> str:
        """Return the report as text for people."""
        cells = [["", *(f"{size:,} {self.size_name}" for size in self.sizes), "ratio", ""]]
        for row in self.rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            cells.append([row.name, *(_number(value) for value in row.values), ratio, row.unit])
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        lines = [f"{self.name}: {self.summary}"]
        lines += ["  ".join(f"{key}={value}" for key, value in self.settings.items())]
        for name, *others, unit in cells:
            figures = "  ".join(text.rjust(width) for text, width in zip(others, widths[1:-1], strict=True))
            lines.append(f"  {name.ljust(widths[0])}  {figures}  {unit}".rstrip())
        for claim in self.claims:
            verdict = "holds" if claim.holds else "DOES NOT HOLD"
            lines.append(f"  {verdict}: {claim.text}: {claim.value:.2f} (at most {claim.at_most:g})")
        return "\n".join(lines)


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def alternate(
    subjects: Sequence[Callable[[], float]], samples: int, progress: Progress = _untold
) -> list[list[float]]:
    """Return `samples` measurements of each subject, taken in turns; `progress` is told how many are taken.

    Whatever slows the machine down for a while meets all of them alike, and each goes first as often
    as the others: their medians can be compared where two measurements one after the other cannot.
    """
    found: list[list[float]] = [[] for _ in subjects]
    for number in range(samples):
        for step in range(len(subjects)):
            chosen = (number + step) % len(subjects)
            found[chosen].append(subjects[chosen]())
            progress(number * len(subjects) + step + 1, samples * len(subjects))
    return found


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that `percent` percent of the values stay below."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
