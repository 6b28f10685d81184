"""What the verbs share: options, opening a store, choosing a branch or a revision, printing."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import click
from pydantic import BaseModel

from .._context.rebase import PayloadReader, load
from .._sessions.service import line_at
from .._sessions.stores import is_dsn, open_database
from .._store._backends.bundle import BundleBackend, is_bundle
from .._store._backends.files import address_kind
from .._store._backends.git.backend import FileKVBackend
from .._store._backends.sql.sqlite import SQLiteKVBackend
from .._store._history.revset import (
    DamagedHead,
    Head,
    find_head,
    latest_head,
    parse_head,
    readable_heads,
    resolve,
)
from .._store.branch import Branch
from .._store.names import case_twins, plain_lines
from .._store.names import plain as plain
from .._store.object_db import Database
from .._store.objects import Oid
from .._store.protocol import scan_refs
from ..agents import Agent
from ..errors import CommitRefused, NotRecovered, StoreError, UnknownRevision, text_of, told
from ..merging import MergeConflict
from ..types.registry import known_model

# -- what a verb is pointed at: a store by its path and kind, agents by the name of a module --


Decorated = TypeVar("Decorated")

BACKENDS = ("auto", "file", "sqlite")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


class NoSessionStore(StoreError):
    """There is no store at the path that a verb was given, or it cannot be opened."""


def backend_option(function: Decorated) -> Decorated:
    """Add `--backend`."""
    endings = ", ".join(SQLITE_SUFFIXES)
    text = f"What the path is; auto: a SQLite file for {endings}, else a bare git repository. Not for a DSN."
    option = click.option("--backend", type=click.Choice(BACKENDS), default="auto", help=text)
    return option(function)  # type: ignore[type-var]  # a function or a command, and the same comes back


def open_store(
    path: str | os.PathLike[str],
    backend: str = "auto",
    *,
    create: bool = True,
    read_only: bool = False,
) -> FileKVBackend | SQLiteKVBackend:
    """Return the backend of a path: SQLite if asked for or the path's ending says so, else files.

    Raises `NotAStore` for a path that is something else, and for one with nothing there when `create`
    is false; `ValueError` for a backend that does not exist.
    """
    if backend not in BACKENDS:
        raise ValueError(f"{backend!r} is not a backend of the command line: use {', '.join(BACKENDS)}")
    is_sqlite = backend == "sqlite" or (backend == "auto" and os.fspath(path).endswith(SQLITE_SUFFIXES))
    if is_sqlite:
        return SQLiteKVBackend(path, create=create, read_only=read_only)
    return FileKVBackend(path, create=create, read_only=read_only)


def without_password(place: str) -> str:
    """Return a path as it is, a DSN without its password and its parameters, which may hold one too.

    Of an address that is not a store's nothing is repeated.
    """
    if not is_dsn(place):
        return place if address_kind(place) is None else "that address"
    scheme, _, rest = place.partition("://")
    user, at, host = rest.partition("?")[0].rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{host}"


def bundle_at(path: str) -> Database | None:
    """Return what a bundle holds, `None` for a path that is none. Raises `NotAStore` for a damaged one."""
    return Database(BundleBackend(path)) if is_bundle(path) else None


@contextmanager
def stored_at(path: str, backend: str, *, read_only: bool) -> Iterator[Database]:
    """Open a store, or a bundle, that is there; nothing is made. Raises `NoSessionStore`."""
    try:
        opened = bundle_at(path) or recovered(path, backend, read_only=read_only)
    except (StoreError, OSError) as error:
        raise NoSessionStore(f"no session store at {without_password(path)}: {error}") from error
    try:
        yield opened
    finally:
        opened.backend.close()


def recovered(path: str, backend: str = "auto", *, read_only: bool) -> Database:
    """Open a store; what a power cut left unfinished is finished first, also for a verb that only reads."""
    try:
        return _opened(path, backend, read_only=read_only)
    except NotRecovered:
        _opened(path, backend, read_only=False).backend.close()
        return _opened(path, backend, read_only=read_only)


def _opened(path: str, backend: str, *, read_only: bool) -> Database:
    if backend == "auto":
        return open_database(path, create=False, read_only=read_only)
    if is_dsn(path):
        raise NoSessionStore(f"a DSN is a PostgreSQL store: leave out --backend {backend}")
    return Database(open_store(path, backend, create=False, read_only=read_only))


# -- models --------------------------------------------------------------------------------------


def models_option(function: Decorated) -> Decorated:
    """Add `--models`."""
    text = "Import a module with models (several times), for their transient fields and merge functions."
    option = click.option("--models", metavar="MODULE", multiple=True, help=text)
    return option(function)  # type: ignore[type-var]  # as above


def find_models(names: Iterable[str]) -> Callable[[str], type[BaseModel] | None]:
    """Import modules, and return what finds the classes of stored types without importing more.

    Raises `SystemExit`, saying why, for a module that cannot be imported.
    """
    for name in names:
        _imported(name)
    return known_model


# -- agents --------------------------------------------------------------------------------------


def load_agents(target: str) -> list[Agent]:
    """Return the agents that `module` or `module:attribute` names.

    The attribute is an agent, a class of agents or several of both; without one it is every agent
    of the module, and every class of agents defined in it of which it holds no agent. The current
    folder is looked in too. Raises `SystemExit`, saying why, when there is nothing of the kind.
    """
    name, _, attribute = target.partition(":")
    module = _imported(name)
    if not attribute:
        found = _agents_of(module)
        if not found:
            raise SystemExit(
                f"reactifact: module {name!r} holds no agents: "
                f"name an agent or a list of agents, as in {name}:ATTRIBUTE"
            )
        return found
    value = _attribute(module, name, attribute)
    items = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not items or not all(_is_agent(item) for item in items):
        raise SystemExit(
            f"reactifact: {target} is {type(value).__name__}: "
            f"name an agent, a class of agents, or a list of them"
        )
    return [_made(item) for item in items]


def load_attribute(target: str, what: str) -> Callable[..., Any]:
    """Return the function that `module:attribute` names; `what` it is to be is said in errors.

    Raises `SystemExit`, saying why, when there is nothing of the kind.
    """
    name, _, attribute = target.partition(":")
    if not attribute:
        raise SystemExit(f"reactifact: {target!r} is not the name of {what}; give it as module:function")
    found = _attribute(_imported(name), name, attribute)
    if not callable(found):
        raise SystemExit(f"reactifact: {target} is {type(found).__name__} and not {what}")
    function: Callable[..., Any] = found() if isinstance(found, type) else found
    return function


def _attribute(module: ModuleType, name: str, attribute: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise SystemExit(
                f"reactifact: module {name!r} has no {attribute!r}: check the name after the colon"
            )
        value = getattr(value, part)
    return value


def _imported(name: str) -> ModuleType:
    if not name or name.startswith("."):
        raise SystemExit(
            f"reactifact: {name!r} names no module: give it as package.module or package.module:ATTRIBUTE"
        )
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:  # as `python -m` does; an installed program has only its own folder there
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:  # a module of the user's may raise anything when it is imported
        raise SystemExit(f"reactifact: module {name!r} cannot be imported: {told(error)}") from error
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def _is_agent(value: object) -> bool:
    return isinstance(value, Agent) or (isinstance(value, type) and issubclass(value, Agent))


def _made(item: Any) -> Agent:
    if isinstance(item, Agent):
        return item
    try:
        made: Agent = item()
    except Exception as error:  # its constructor is the user's
        raise SystemExit(
            f"reactifact: an agent of class {item.__name__} cannot be made: {told(error)}; "
            f"name a ready agent instead"
        ) from error
    return made


def _agents_of(module: ModuleType) -> list[Agent]:
    values = list(vars(module).values())
    listed = [item for value in values if isinstance(value, list | tuple) for item in value]
    agents = {id(item): item for item in [*values, *listed] if isinstance(item, Agent)}
    known = {type(agent) for agent in agents.values()}
    classes = {
        value: None
        for value in values
        if isinstance(value, type) and issubclass(value, Agent) and value.__module__ == module.__name__
    }
    return [*agents.values(), *(_made(kind) for kind in classes if kind not in known)]


# -- what the verbs share --


F = TypeVar("F", bound=Callable[..., Any])

UNREADABLE = 2
"""The exit code after something that cannot be read."""

SHORT = 10
"""How many hex digits of an id are shown to people."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

store_argument = click.argument("store", metavar="[STORE]")
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
    database = bundle_at(path) or recovered(path, read_only=True)
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


def load_line(database: Database, head: Head) -> Branch:
    """Return the branch behind a head. Raises `UnknownRevision` for a ledger."""
    try:
        line = (
            None
            if head.is_ledger
            else load(database, head.session, head.branch, read=PayloadReader(is_strict=False))
        )
    except CommitRefused as error:
        to_stderr(f"reactifact: {error}")
        if error.last_good is None:
            raise
        to_stderr(f"what follows is read at {error.last_good[:12]}")
        line = line_at(database, error.last_good)
    if line is None:
        raise UnknownRevision(
            f"{head.name} is not a branch with a state: it is a ledger, or was just deleted"
        )
    return line


def warn_of_folding(database: Database) -> None:
    """Say on stderr which refs a clone on a disk that folds upper and lower case would take for one."""
    refs, _ = scan_refs(database.backend)
    for one, other in case_twins(refs):
        to_stderr(
            f"{plain(one)} and {plain(other)} differ in upper and lower case alone: this store would not "
            f"survive a clone to a disk that takes both for one (macOS, Windows); save one of them under "
            f"another id, or keep clones on disks that tell them apart"
        )


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


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document, in plain ASCII so that no terminal or pipe can break it.

    `what` says what it is: the verb, unless the document says otherwise.
    """
    context = click.get_current_context(silent=True)
    what = {} if context is None else {"what": context.info_name}
    click.echo(json.dumps({**what, **document}, indent=2, sort_keys=True))


def line(text: str = "", colour: str | None = None, *, bold: bool = False) -> None:
    """Print a line, with control characters and what the encoding of stdout lacks written as escapes."""
    text = plain_lines(text)
    echo(click.style(text, fg=colour, bold=bold) if colour or bold else text)


def to_stderr(text: str) -> None:
    """Print a remark or an error, as `line` does."""
    echo(plain_lines(text), err=True)


def echo(text: str, *, err: bool = False) -> None:
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err)


def table(rows: Sequence[Sequence[Cell | str]], indent: str = "") -> None:
    """Print rows in aligned columns; columns that are empty everywhere are left out."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(text_width(cell.text) for cell in column) for column in zip(*cells, strict=True)]
    for row in cells:
        text, padding = indent, ""
        for cell, width in zip(row, widths, strict=True):
            if not width:
                continue
            if cell.text:
                text += padding + (click.style(cell.text, fg=cell.colour) if cell.colour else cell.text)
                padding = ""
            padding += " " * (width - text_width(cell.text) + 2)
        echo(text)


def _cell(cell: Cell | str) -> Cell:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    return cell._replace(text=plain_lines(cell.text))


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def one_line(text: str) -> str:
    """Return a message in one line."""
    return plain(" ".join(text.split()))


def say_error(error: BaseException) -> None:
    """Print an error on stderr: in one line, a merge conflict with a line for each field."""
    said = text_of(error)
    lines = said.splitlines() if isinstance(error, MergeConflict) else [one_line(said)]
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


# -- from the names in a command to a commit: what the verbs with commits share --


_OF_A_BRANCH = re.compile(r"v\d+([~^].*)?|[~^].*")


def commit_named(database: Database, text: str, session: str | None, branch: str | None) -> Oid:
    """Return the commit that `text` names; a version counts on the branch that is meant.

    Raises `UnknownRevision`.
    """
    session, branch = scope_of(database, text, session, branch)
    return resolve(database, text, session=session, branch=branch)


def scope_of(
    database: Database, text: str, session: str | None, branch: str | None
) -> tuple[str | None, str | None]:
    """Return the session and the branch in which a text counts: `vN`, and steps alone (`~2`), need both."""
    if not _OF_A_BRANCH.fullmatch(text):
        return session, branch
    head = chosen_head(database, None, session, branch)
    return head.session, head.branch
