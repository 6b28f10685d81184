"""The commit graph of a session, drawn row by row: lanes for branches, lines that meet at forks and merges.

Owns the lanes, and the cut into pages: the address of the next page holds the commits that its lanes begin
with, so that it costs what the first one did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .._html import Html, el
from .._store._history.log import Entry, entry
from .._store.object_db import Database
from .._store.objects import Oid
from ..errors import MissingObject
from .asked import BadQuery

LANES = 60
"""How many lines may run side by side: what an address can hold."""

_LANE_TEXT = r"(?:_?[0-9a-f]{40}|-)"
_FRONTIER = re.compile(rf"{_LANE_TEXT}(?:\.{_LANE_TEXT})*")
_FREE = "-"
_AHEAD = "_"

ROW = 60  # pixels; the style gives rows this height
LANE = 18
_MARGIN = 14
COLOURS = 8


@dataclass(frozen=True)
class Row:
    """A commit in the graph: its lane, the lanes that come from above, and those of its parents below."""

    entry: Entry
    lane: int
    above: tuple[Oid | None, ...]
    parents: tuple[int, ...]


class Lanes:
    """What runs down the page: for each lane the commit it leads to, `None` where it is free."""

    def __init__(self, database: Database, lanes: Iterable[Oid | None], ahead: Iterable[int] = ()) -> None:
        self._database = database
        self._entries: dict[Oid, Entry] = {}
        self.lanes = list(lanes)
        self._ahead = set(ahead)  # lanes of branches whose newest commit is still to come
        self.is_cut = False
        """Whether a line led to a commit that the store does not hold: that of a shallow clone ends there."""

    @classmethod
    def of(cls, database: Database, starts: Iterable[Oid]) -> Lanes:
        """Begin at some commits, in the order of the lanes that they are to have."""
        lanes = list(dict.fromkeys(starts))
        return cls(database, lanes, range(len(lanes)))

    @classmethod
    def parsed(cls, database: Database, text: str) -> Lanes:
        """Go on from where a page ended. Raises `BadQuery` for another text."""
        if not _FRONTIER.fullmatch(text) or text.count(".") >= LANES:
            raise BadQuery(
                "The address of this page of the graph is not complete: begin at the newest commits."
            )
        parts = text.split(".")
        lanes = [None if one == _FREE else one.removeprefix(_AHEAD) for one in parts]
        return cls(database, lanes, (n for n, one in enumerate(parts) if one.startswith(_AHEAD)))

    def __str__(self) -> str:
        marks = (_AHEAD if number in self._ahead else "" for number in range(len(self.lanes)))
        return ".".join(mark + (lane or _FREE) for mark, lane in zip(marks, self.lanes, strict=True))

    @property
    def is_done(self) -> bool:
        """Whether no commit is left."""
        return not any(self.lanes)

    @property
    def is_full(self) -> bool:
        """Whether there are more lanes than an address holds."""
        return len(self.lanes) > LANES

    def rows(self, limit: int) -> Iterator[Row]:
        """Yield the next commits, the newest first, each before its parents."""
        for _ in range(limit):
            waiting = [found for oid in set(self.lanes) if oid and (found := self._entry(oid)) is not None]
            if not waiting:
                return
            yield self._take(max(waiting, key=_age))

    def _entry(self, oid: Oid) -> Entry | None:
        """Return a commit; one that is not there ends its lanes."""
        if oid not in self._entries:
            try:
                if self._database.read(oid).kind != "commit":
                    raise BadQuery(f"{oid} is not a commit.")
                self._entries[oid] = entry(self._database, oid)
            except MissingObject:
                self.is_cut = True
                self._free(oid)
                return None
        return self._entries[oid]

    def _free(self, oid: Oid) -> None:
        for index, one in enumerate(self.lanes):
            if one == oid:
                self.lanes[index] = None
                self._ahead.discard(index)

    def _take(self, found: Entry) -> Row:
        above = tuple(None if n in self._ahead else oid for n, oid in enumerate(self.lanes))
        lane = self.lanes.index(found.commit)
        self._free(found.commit)
        below = []
        for number, parent in enumerate(found.object.parents):
            below.append(lane if number == 0 else self._lane_for(parent))
            self.lanes[below[-1]] = parent
            self._ahead.discard(below[-1])
        while self.lanes and self.lanes[-1] is None:
            self.lanes.pop()
        return Row(found, lane, above, tuple(below))

    def _lane_for(self, oid: Oid) -> int:
        if oid in self.lanes:
            return self.lanes.index(oid)
        if None in self.lanes:
            return self.lanes.index(None)
        self.lanes.append(None)
        return len(self.lanes) - 1


def _age(found: Entry) -> tuple[float, int, Oid]:
    depth = 0 if found.record is None else found.record.depth
    return found.time.timestamp(), depth, found.commit


# -- drawing -------------------------------------------------------------------------------------


def width_of(rows: Sequence[Row]) -> int:
    """Return the pixels that the lanes of some rows take."""
    lanes = max((max(len(row.above), row.lane + 1, *(p + 1 for p in row.parents)) for row in rows), default=1)
    return _MARGIN * 2 + (lanes - 1) * LANE


def drawn(row: Row, width: int) -> Html:
    """Return the piece of the graph beside a row."""
    middle = ROW // 2
    lines = []
    for lane, oid in enumerate(row.above):
        if oid == row.entry.commit:
            lines.append(_line(lane, 0, row.lane, middle, lane))
        elif oid is not None:
            lines.append(_line(lane, 0, lane, ROW, lane))
    lines += [_line(row.lane, middle, lane, ROW, max(lane, row.lane)) for lane in row.parents]
    is_merge = len(row.parents) > 1
    dot = el(
        "circle",
        cx=_x(row.lane),
        cy=middle,
        r=6 if is_merge else 5,
        class_=f"dot lane-{row.lane % COLOURS}" + (" merge" if is_merge else ""),
    )
    return el(
        "svg",
        lines,
        dot,
        width=width,
        height=ROW,
        viewBox=f"0 0 {width} {ROW}",
        aria_hidden="true",
        focusable="false",
    )


def _line(lane: int, top: int, to: int, bottom: int, colour: int) -> Html:
    x, end = _x(lane), _x(to)
    if x == end:
        way = f"M{x} {top}V{bottom}"
    else:
        middle = (top + bottom) / 2
        way = f"M{x} {top}C{x} {middle} {end} {middle} {end} {bottom}"
    return el("path", d=way, class_=f"edge lane-{colour % COLOURS}")


def _x(lane: int) -> int:
    return _MARGIN + lane * LANE
