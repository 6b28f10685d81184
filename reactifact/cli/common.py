"""What the verbs share: opening a store, choosing a branch, printing for people and for programs.

Owns the arguments and options that several verbs have. Whatever comes from a store is made safe for
a terminal before it is printed.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import click

from ..context.conflicts import MergeConflict
from ..errors import UnknownRevision
from ..sessions.stores import open_database
from ..store.database import Database
from ..store.line import Line
from ..store.objects import Oid
from ..store.printable import plain as plain  # the verbs take it from here
from ..store.printable import plain_lines
from ..store.revisions import DamagedHead, Head, find_head, latest_head, parse_head, readable_heads
from .loading import bundle_at
from .loading import load_agents as load_agents  # and their public path
from .loading import open_store as open_store

F = TypeVar("F", bound=Callable[..., Any])

UNREADABLE = 2
"""The exit code after something that cannot be read."""

SHORT = 10
"""How many hex digits of an id are shown to people."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

store_argument = click.argument("store", metavar="STORE")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def branch_options(function: F) -> F:
    """Add `--session` and `--branch`."""
    text = "The branch, by its name alone; default: main, or the only one there is."
    function = click.option("--branch", help=text)(function)
    return click.option("--session", help="The session, by its id alone; default: the one written last.")(
        function
    )


@contextmanager
def opened(path: str) -> Iterator[Database]:
    """Open a store, or a bundle, for reading. Raises `NotAStore`."""
    database = bundle_at(path) or open_database(path, read_only=True)
    try:
        yield database
    finally:
        database.backend.close()


# -- choosing ------------------------------------------------------------------------------------


def chosen_head(
    database: Database,
    text: str | None,
    session: str | None,
    branch: str | None,
    *,
    quiet: bool = False,
) -> Head:
    """Return the branch that the arguments of a verb mean.

    Without any session it is the one written last, and without a branch its own line, main, or the only
    branch it has; what was taken is said on stderr unless `quiet`.
    """
    if text is not None and session is not None:
        raise click.UsageError(f"give the session once: as {text!r}, or with --session")
    if text is not None:
        return parse_head(database, text) if branch is None else find_head(database, text, branch)
    if session is not None:
        return find_head(database, session, branch)
    head = find_head(database, latest_head(database).session, branch)
    if not quiet:
        note_default(database, head)
    return head


def note_default(database: Database, head: Head) -> None:
    """Say on stderr which session was taken, where there are others, and what could not be looked at."""
    found, broken = readable_heads(database)
    count = len({one.session for one in found})
    if count > 1 or broken:
        lost = f"; {counted(len(broken), 'ref')} cannot be read, see `reactifact sessions`" if broken else ""
        taken = f"session {plain(head.session)}, branch {plain(head.branch)}"
        to_stderr(f"{taken} (written last of {counted(count, 'session')}{lost})")


def load_line(database: Database, head: Head) -> Line:
    """Return the branch behind a head. Raises `UnknownRevision` for a ledger."""
    line = None if head.is_ledger else Line.load(database, head.session, head.branch)
    if line is None:
        raise UnknownRevision(f"{head.name} is no branch with a state: it is a ledger, or was just deleted")
    return line


# -- damage ------------------------------------------------------------------------------------


def fail_for(broken: Sequence[DamagedHead]) -> None:
    """Say on stderr what could not be read, a line each, and end with `UNREADABLE`; nothing for none."""
    for one in broken:
        known = one.session is not None and one.branch is not None
        name = f"{one.session}/{one.branch}" if known else one.ref
        to_stderr(f"reactifact: {plain(name)} cannot be read: {one_line(one.error)}")
    if broken:
        click.get_current_context().exit(UNREADABLE)


# -- printing ------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A text in a column, and its colour."""

    text: str
    colour: str | None = None


def print_json(document: Any) -> None:
    """Print one JSON document, in plain ASCII so that no terminal or pipe can break it."""
    click.echo(json.dumps(document, indent=2, sort_keys=True))


def line(text: str = "", colour: str | None = None, *, bold: bool = False) -> None:
    """Print a line, with control characters and what the encoding of stdout lacks written as escapes."""
    text = plain_lines(text)
    _echo(click.style(text, fg=colour, bold=bold) if colour or bold else text)


def to_stderr(text: str) -> None:
    """Print a remark or an error, as `line` does."""
    _echo(plain_lines(text), err=True)


def _echo(text: str, *, err: bool = False) -> None:
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err)


def table(rows: Sequence[Sequence[Cell | str]], indent: str = "") -> None:
    """Print rows in aligned columns; columns that are empty everywhere are left out."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(_width(cell.text) for cell in column) for column in zip(*cells, strict=True)]
    for row in cells:
        text, padding = indent, ""
        for cell, width in zip(row, widths, strict=True):
            if not width:
                continue
            if cell.text:
                text += padding + (click.style(cell.text, fg=cell.colour) if cell.colour else cell.text)
                padding = ""
            padding += " " * (width - _width(cell.text) + 2)
        _echo(text)


def _cell(cell: Cell | str) -> Cell:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    return cell._replace(text=plain_lines(cell.text))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def one_line(text: str) -> str:
    """Return a message in one line."""
    return plain(" ".join(text.split()))


def say_error(error: BaseException) -> None:
    """Print an error on stderr: in one line, a merge conflict with a line for each field."""
    lines = f"{error}".splitlines() if isinstance(error, MergeConflict) else [one_line(f"{error}")]
    to_stderr("reactifact: " + "\n".join(map(plain, lines)))


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 commit`, `2 commits`, `2 branches`."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"


def short(oid: Oid | str) -> str:
    """Return the first digits of an id."""
    return oid[:SHORT]


def moment(when: datetime | str) -> str:
    """Return a time for people: UTC, to the second."""
    at = datetime.fromisoformat(when) if isinstance(when, str) else when
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: float) -> str:
    """Return a span of time for people, in its two largest units."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR}h"


def cause(trigger: dict[str, Any] | None) -> str:
    """Return what a commit reacted to: `created order:42`."""
    if not trigger:
        return ""
    kind = str(trigger.get("type", "")).removeprefix("artifact_")
    return plain(f"{kind} {trigger.get('artifact_id', '')}".strip())
