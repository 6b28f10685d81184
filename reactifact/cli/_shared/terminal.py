"""What a terminal gets and a pipe does not: a pager, lines cut to its width, local times, progress.

Also the graph of commits in characters, and times as people write them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import TextIOWrapper
from typing import IO

import click

from ..common import Cell, duration, echo, text_width

# -- the pager --


_PAGERS = ("REACTIFACT_PAGER", "GIT_PAGER", "PAGER")
_PAGED = "reactifact.paged"
_LESS = "FRX"
"""What git gives to less: leave at once where it fits on a screen, keep colours and what was shown."""


@contextmanager
def paged() -> Iterator[None]:
    """Show what is printed inside through a pager, where a person sits before a terminal.

    The pager is `REACTIFACT_PAGER`, `GIT_PAGER`, `PAGER` or `less`; `cat` or nothing means none. Who
    leaves it early has seen enough: that is no error.
    """
    command = _pager()
    if command is None:
        yield
        return
    context = click.get_current_context()
    if context.color is None:
        context.color = True  # the pager stands before the terminal
    context.meta[_PAGED] = True
    environment = {"LESS": _LESS, "LV": "-c", **os.environ}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    shown = sys.stdout
    sys.stdout = TextIOWrapper(process.stdin, encoding=shown.encoding, errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.close()
    except BrokenPipeError:
        pass
    finally:
        sys.stdout = shown
        process.wait()


def _pager() -> list[str] | None:
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return None
    named = next((os.environ[name] for name in _PAGERS if name in os.environ), "less")
    command = shlex.split(named)
    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        return None
    return command


# -- lines --


def width() -> int | None:
    """Return how many columns a line may have on the terminal; `None` where there is none."""
    context = click.get_current_context(silent=True)
    if not (sys.stdout.isatty() or (context is not None and _PAGED in context.meta)):
        return None
    return shutil.get_terminal_size().columns


def cut(cells: Iterable[Cell | str], columns: int | None) -> str:
    """Return cells in one line, styled, cut to a number of columns with an ellipsis."""
    left, text = columns, ""
    for cell in cells:
        content, colour = (cell.text, cell.colour) if isinstance(cell, Cell) else (cell, None)
        if left is not None and text_width(content) > left:
            content = _shortened(content, left)
            left = 0
        elif left is not None:
            left -= text_width(content)
        text += click.style(content, fg=colour) if colour and content else content
        if left == 0:
            break
    return text


def line_of(cells: Iterable[Cell | str], columns: int | None) -> None:
    """Print cells in one line, cut to a number of columns."""
    echo(cut(cells, columns).rstrip())


def _shortened(text: str, columns: int) -> str:
    if columns <= 0:
        return ""
    kept = ""
    for char in text:
        if text_width(kept + char) > columns - 1:
            break
        kept += char
    return kept + "…"


# -- times --


_AGO = re.compile(r"(\d+)\s*(s|sec|second|m|min|minute|h|hour|d|day|w|week)s?(?:\s+ago)?", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Moment(click.ParamType[datetime]):
    """A moment as people write it: `2026-01-31`, `2026-01-31T23:59`, `2 hours ago`, `yesterday`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return an aware time; one without an offset is local."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        ago = _AGO.fullmatch(text)
        now = datetime.now(UTC)
        if ago is not None:
            return now - timedelta(seconds=int(ago[1]) * _UNITS[ago[2][0].lower()])
        if text.lower() in ("now", "today", "yesterday"):
            midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
            days = {"today": midnight, "yesterday": midnight - timedelta(days=1)}
            return days.get(text.lower(), now)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is not a time: give 2026-01-31, 2026-01-31T23:59 (local), one with an offset, "
                f"'2 hours ago' or yesterday",
                param,
                ctx,
            )
        return found.astimezone() if found.tzinfo is None else found


def local(when: datetime) -> str:
    """Return a time for people who read a log: local, to the minute."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M")


# -- progress --


_QUIET_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


class Progress:
    """A line on a terminal's stderr about work that takes over a second: how far, how fast, what is left.

    Called with how much is done, and with the total where it is known; safe to call often.
    """

    def __init__(self, label: str, noun: str = "objects", stream: IO[str] | None = None) -> None:
        self._label = label
        self._noun = noun
        self._stream = sys.stderr if stream is None else stream
        self._begun = time.monotonic()
        self._next = self._begun + _QUIET_SECONDS
        self._shown = ""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show that `done` of `total` are done, if it is time to."""
        now = time.monotonic()
        if now < self._next or not self._stream.isatty():
            return
        self._next = now + _PAUSE_SECONDS
        self._show(self.text(done, total, now - self._begun))

    def text(self, done: int, total: int | None, seconds: float) -> str:
        """Return what is said after some seconds of work."""
        rate = done / seconds if seconds > 0 else 0.0
        parts = f"{self._label}: {done}" + ("" if total is None else f" of {total}") + f" {self._noun}"
        parts += f", {rate:.0f} a second"
        if total is not None and rate > 0 and total > done:
            parts += f", {duration((total - done) / rate)} left"
        return parts

    def close(self) -> None:
        """Take the line away."""
        if self._shown:
            self._show("")

    def _show(self, text: str) -> None:
        columns = shutil.get_terminal_size().columns - 1
        self._stream.write(
            "\r" + text[:columns].ljust(min(len(self._shown), columns)) + ("" if text else "\r")
        )
        self._stream.flush()
        self._shown = text


@contextmanager
def progress(label: str, noun: str = "objects") -> Iterator[Progress]:
    """Show progress inside of the block, and nothing of it afterwards."""
    shown = Progress(label, noun)
    try:
        yield shown
    finally:
        shown.close()


# -- the graph of commits --


_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")


class Graph:
    """Commits in lanes, the newest first, as `git log --graph` draws them.

    `add` takes a commit after all of its children and returns its row and the rows below it.
    """

    def __init__(self) -> None:
        self._lanes: list[str] = []

    def add(self, commit: str, parents: Sequence[str]) -> tuple[list[Cell], list[list[Cell]]]:
        """Return the cells before a commit's text, and the rows that lead to the next commit."""
        lanes = self._lanes
        if commit not in lanes:
            lanes.append(commit)
        at = lanes.index(commit)
        row = _cells({2 * lane: "*" if lane == at else "|" for lane in range(len(lanes))})
        below: list[list[Cell]] = []
        if parents:
            lanes[at] = parents[0]
            for place, parent in enumerate(parents[1:], at + 1):
                below.append(self._opened(place))
                lanes.insert(place, parent)
        else:
            del lanes[at]
            if len(lanes) > at:
                below.append(self._closed(at))
        while (pair := self._meeting()) is not None:
            below.append(self._joined(*pair))
            del lanes[pair[1]]
        return row, below

    def _opened(self, place: int) -> list[Cell]:
        marks = {2 * lane: "|" for lane in range(place)} | {2 * place - 1: "\\"}
        return _cells(marks | {2 * lane + 1: "\\" for lane in range(place, len(self._lanes))})

    def _closed(self, place: int) -> list[Cell]:
        marks = {2 * lane: "|" for lane in range(place)}
        return _cells(marks | {2 * lane + 1: "/" for lane in range(place, len(self._lanes))})

    def _meeting(self) -> tuple[int, int] | None:
        for right, commit in enumerate(self._lanes):
            left = self._lanes.index(commit)
            if left < right:
                return left, right
        return None

    def _joined(self, left: int, right: int) -> list[Cell]:
        marks = {2 * lane: "|" for lane in range(right)}
        marks |= dict.fromkeys(range(2 * left + 1, 2 * right - 2, 2), "_")
        return _cells(marks | {2 * lane - 1: "/" for lane in range(right, len(self._lanes))})


def _cells(marks: dict[int, str]) -> list[Cell]:
    """Return characters at their columns as cells, coloured by lane; the `*` of a commit has no colour."""
    found = []
    for place in range(max(marks, default=-1) + 1):
        mark = marks.get(place, " ")
        plain = mark in " *"
        found.append(Cell(mark, None if plain else _COLOURS[(place + 1) // 2 % len(_COLOURS)]))
    return found
