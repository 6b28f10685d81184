"""Orders from a CSV file, row by row: a row that cannot be used costs nothing but itself.

Owns the format of the file and the reporting of bad rows by line number. The file is UTF-8 (a byte
order mark is fine), separated by commas, quoted as in RFC 4180, with the columns of `Order` in any
order under its header. It is held in memory as a whole.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from .models import Order

REQUIRED = ("order_id", "customer", "email", "product", "quantity", "unit_price")
OPTIONAL = ("phone", "note")


class OrdersFileError(Exception):
    """The file as a whole cannot be used; the text names it, the cause and the way out."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was skipped: the number of its first line, and why."""

    line: int
    reason: str


@dataclass(slots=True)
class OrdersFile:
    """What a file holds: its orders in the order of the file, and the rows that are none."""

    orders: list[Order] = field(default_factory=list)
    bad_rows: list[BadRow] = field(default_factory=list)


def read_orders(path: Path) -> OrdersFile:
    """Read a file. Raises `OrdersFileError` when it is absent, empty, or has another header."""
    lines = _lines(path)
    header = _header(path, lines)
    found = OrdersFile()
    known: dict[str, tuple[int, Order]] = {}
    for line, fields in _records(lines, 1, len(header)):
        order = fields if isinstance(fields, str) else _order(dict(zip(header, fields, strict=True)))
        if isinstance(order, str):
            found.bad_rows.append(BadRow(line, order))
            continue
        first_line, first = known.setdefault(order.order_id, (line, order))
        if first_line == line:
            found.orders.append(order)
        elif first != order:
            reason = f"order {order.order_id} stands in line {first_line} already, with other content"
            found.bad_rows.append(BadRow(line, reason))
    return found


def _lines(path: Path) -> list[str]:
    try:
        # a byte that is no UTF-8 spoils its own row, not the file
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return file.readlines()
    except OSError as error:
        raise OrdersFileError(
            f"{path} cannot be read: {error.strerror or error}; give a CSV file with --orders"
        ) from error


def _header(path: Path, lines: list[str]) -> list[str]:
    if not any(line.strip() for line in lines):
        raise OrdersFileError(f"{path} is empty: its first line must be {_expected()}")
    try:
        header = [name.strip() for name in next(csv.reader(lines[:1], strict=True), [])]
    except csv.Error as error:
        raise OrdersFileError(
            f"{path}, line 1: {error}; the line must name the columns: {_expected()}"
        ) from error
    problems = [f"{name!r} is missing" for name in REQUIRED if name not in header]
    problems += [f"{_shown(name)} is unknown" for name in header if name not in REQUIRED + OPTIONAL]
    problems += [f"{name!r} stands there twice" for name in sorted(set(header)) if header.count(name) > 1]
    if problems:
        raise OrdersFileError(
            f"{path}, line 1 does not name the columns of orders: {', '.join(problems)}; "
            f"it must be {_expected()}, separated by commas"
        )
    return header


def _expected() -> str:
    return ",".join(REQUIRED) + "".join(f"[,{name}]" for name in OPTIONAL)


def _records(lines: list[str], at: int, width: int) -> Iterator[tuple[int, list[str] | str]]:
    """Yield each record with the number of its first line: its fields, or why it is not a record.

    A quote that is never closed swallows the rows behind it. So reading goes on at the line after
    the one where a broken record began, and the others are found again.
    """
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        reader = csv.reader((lines[index] for index in range(at, len(lines))), strict=True)
        try:
            fields = next(reader)
        except csv.Error as error:
            yield at + 1, f"the quotes do not fit: {error}"
            at += 1
            continue
        if len(fields) != width:
            yield at + 1, f"it has {len(fields)} fields, and the header has {width}"
            at += 1
            continue
        yield at + 1, fields
        at += reader.line_num


def _order(row: dict[str, str]) -> Order | str:
    """Return the order of a row, or why it is none."""
    for name, text in row.items():
        if not _is_text(text):
            return f"{name} {_shown(text)} is not UTF-8"
    try:
        return Order.model_validate(row)
    except ValidationError as error:
        return "; ".join(
            f"{'.'.join(map(str, found['loc']))} {_shown(str(found['input']))}: {found['msg']}"
            for found in error.errors(include_url=False)
        )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    """Return a text from the file so that a terminal can show it, and not too long."""
    return ascii(text) if not _is_text(text) else repr(text if len(text) <= 60 else text[:57] + "...")
