"""How a command names things: the store of every verb, a revision, an artifact.

Owns the rule by which a verb finds its store (`-C`, the first argument, `REACTIFACT_STORE`, the folders
above) and what `REV` and `ARTIFACT` mean. A verb only declares its arguments, the store as `STORE`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click

from ..._sessions.service import line_at
from ..._sessions.stores import is_dsn
from ..._store._backends.bundle import is_bundle
from ..._store._backends.files import address_kind
from ..._store._history.revset import Head, find_branch, find_head, parse_head, resolve
from ..._store.branch import Branch
from ..._store.object_db import Database
from ...errors import StoreError, UnknownRevision
from ..common import chosen_head, load_line, scope_of

# -- the store that a verb is about --


STORE_VARIABLE = "REACTIFACT_STORE"
"""The environment variable that names the store where an argument does not."""

DEFAULT_NAMES = ("state.git", "state.db")
"""What a store is called that is found in a folder without being named."""

_STORE = ("STORE", "[STORE]")
_SUFFIXES = (".git", ".db", ".sqlite", ".sqlite3", ".bundle")
_SQLITE = b"SQLite format 3\0"


class NoStore(StoreError):
    """No store was named, and none was found in the current folder or above."""


class Verbs(click.Group):
    """A group whose verbs find their store: a verb with an argument `STORE` may be called without it."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a verb; one about a store gets the option `-C`."""
        if _store_place(cmd) is not None and not any("-C" in found.opts for found in cmd.params):
            cmd.params.append(
                click.Option(
                    ["-C", "--store", "_store"],
                    metavar="STORE",
                    expose_value=False,
                    help=f"The store; default: ${STORE_VARIABLE}, else found from the current folder upward.",
                )
            )
        super().add_command(cmd, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb and its arguments, the store among them."""
        name, verb, rest = super().resolve_command(ctx, args)
        if verb is not None and not {"-h", "--help"} & set(rest):
            rest = with_store(ctx, verb, rest)
        return name, verb, rest


def with_store(ctx: click.Context, verb: click.Command, args: list[str]) -> list[str]:
    """Return the arguments of a verb with its store put where the verb expects it.

    Raises `NoStore` where none is named and none is found.
    """
    place = _store_place(verb)
    if place is None:
        return args
    own, args = _taken(args)
    named = ctx.params.get("store") if own is None else own
    given = _given(ctx, verb, args)
    if given is None:
        return args  # wrong options: the verb says which
    if named is None and place == 0 and _is_meant(verb, given):
        return args
    if named is None and place > 0 and given.values[place] is not None:
        return args
    if named is None:
        named = found_store()
    if named is None:
        if ctx.resilient_parsing:
            return args
        raise NoStore(
            f"no store: name it with -C STORE or {STORE_VARIABLE}, or go to a folder that is one or holds "
            f"{' or '.join(DEFAULT_NAMES)} (`reactifact init` makes one)"
        )
    return [named, *args] if place == 0 else [*args, named]


def found_store(folder: str | None = None) -> str | None:
    """Return the store that the environment names, else the nearest one from a folder upward, or `None`.

    A folder counts when it is a store itself or holds one under a name of `DEFAULT_NAMES`.
    """
    if os.environ.get(STORE_VARIABLE):
        return os.environ[STORE_VARIABLE]
    at = os.path.abspath(folder or os.curdir)
    while True:
        for candidate in (at, *(os.path.join(at, name) for name in DEFAULT_NAMES)):
            if is_store(candidate):
                return os.path.relpath(candidate) if folder is None else candidate
        above = os.path.dirname(at)
        if above == at:
            return None
        at = above


def is_store(path: str) -> bool:
    """Tell whether a path is a bare repository, a SQLite file or a bundle."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "HEAD")) and os.path.isdir(os.path.join(path, "objects"))
    if is_bundle(path):
        return True
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE
    return False


def looks_like_store(text: str) -> bool:
    """Tell whether an argument names a store, and not a session or a revision."""
    is_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..") or text.endswith(_SUFFIXES)
    return not text or is_path or is_dsn(text) or address_kind(text) is not None or is_store(text)


def _store_place(verb: click.Command) -> int | None:
    arguments = [found for found in verb.params if isinstance(found, click.Argument)]
    return next((place for place, found in enumerate(arguments) if found.metavar in _STORE), None)


class _Given(NamedTuple):
    values: list[Any]
    """The value of each argument of the verb, in order; `None` for one that is not there."""
    total: int
    """How many there are, with those that the verb does not take."""


def _given(ctx: click.Context, verb: click.Command, args: Sequence[str]) -> _Given | None:
    inner = click.Context(verb, info_name=verb.name, parent=ctx, resilient_parsing=True)
    try:
        values, left, _ = verb.make_parser(inner).parse_args(list(args))
    except click.UsageError:
        return None
    arguments = [found for found in verb.params if isinstance(found, click.Argument)]
    found = [values.get(str(one.name)) for one in arguments]
    known = [one if isinstance(one, str) or (isinstance(one, tuple) and one) else None for one in found]
    total = sum(len(one) if isinstance(one, tuple) else one is not None for one in known)
    return _Given(known, total + len(left))


def _is_meant(verb: click.Command, given: _Given) -> bool:
    """Tell whether the first argument that was given is the store."""
    first = given.values[0]
    if first is None:
        return False
    others = [found for found in verb.params if isinstance(found, click.Argument)][1:]
    if all(found.nargs == 1 for found in others) and given.total > len(others):
        return True  # there is no room for it otherwise
    required = sum(found.required for found in others)
    return looks_like_store(first) and not (given.total - 1 < required and found_store() is not None)


def _taken(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """Take `-C STORE`, `--store STORE` and `--store=STORE` out of arguments."""
    store, rest, waiting = None, list[str](), list(args)
    while waiting:
        one = waiting.pop(0)
        if one == "--":
            return store, [*rest, one, *waiting]
        if one in ("-C", "--store") and waiting:
            store = waiting.pop(0)
        elif one.startswith("--store="):
            store = one.partition("=")[2]
        elif one.startswith("-C") and len(one) > 2:
            store = one[2:]
        else:
            rest.append(one)
    return store, rest


# -- revisions and artifacts --


_REVISION = re.compile(r"[~^@]|[0-9a-f]{4,40}$|HEAD")


class Named(NamedTuple):
    """What `REV` means: a commit, and the branch where it is one."""

    head: Head | None
    commit: str

    def branch(self, database: Database) -> Branch:
        """Return the state behind it. Raises `UnknownRevision` for a ledger, `StoreError`."""
        if self.head is not None:
            return load_line(database, self.head)
        return line_at(database, self.commit)


def named(
    database: Database, text: str | None, session: str | None, branch: str | None, *, quiet: bool = False
) -> Named:
    """Return what a text names: a session, a session/branch, or any revision; `None`: the default.

    Raises `UnknownRevision`.
    """
    if text is None:
        head = chosen_head(database, None, session, branch, quiet=quiet)
        return Named(head, head.commit)
    session, branch = scope_of(database, text, session, branch)
    lost: UnknownRevision | None = None
    try:
        if session is None:
            head = parse_head(database, text) if branch is None else find_head(database, text, branch)
            return Named(head, head.commit)
        found = find_branch(database, text, session=session)
        if found is not None:
            return Named(found, found.commit)
    except UnknownRevision as error:
        lost = error
    try:
        return Named(None, resolve(database, text, session=session, branch=branch))
    except UnknownRevision as error:
        if lost is None or _REVISION.search(text):
            raise
        raise lost from error
