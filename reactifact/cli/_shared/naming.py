"""How a command names things: the store of every verb, a revision, an artifact; and what a shell offers.

Owns the rule by which a verb finds its store (`-C`, the first argument, `REACTIFACT_STORE`, the folders
above) and what `REV` and `ARTIFACT` mean. A verb only declares its arguments, the store as `STORE`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from ..._sessions.service import line_at
from ..._sessions.stores import is_dsn, open_database
from ..._store._backends.bundle import is_bundle
from ..._store._backends.files import address_kind
from ..._store._history.revset import Head, find_branch, find_head, parse_head, readable_heads, resolve, tags
from ..._store.branch import Branch
from ..._store.object_db import Database
from ...errors import ReactifactError, StoreError, UnknownRevision
from ..common import bundle_at, chosen_head, load_line, scope_of

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


# -- completion: the sessions, branches, tags and ids that a shell offers while a command is typed --
#
# The scripts for zsh and fish are click's. The one for bash is ours: bash takes a colon for the end of a
# word, and most ids have one.

_BASH = r"""
%(complete_func)s() {
    local IFS=$'\n' words=() cword=0 index word response type value last
    for index in "${!COMP_WORDS[@]}"; do
        word="${COMP_WORDS[index]}"
        last=$((${#words[@]} - 1))
        if ((last >= 0)) && [[ ($word == :* || ${words[last]} == *:) && -n $word ]]; then
            words[last]+="$word"
        else
            words+=("$word")
        fi
        ((index == COMP_CWORD)) && cword=$((${#words[@]} - 1))
    done
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$cword %(complete_var)s=bash_complete $1)
    local typed="${words[cword]}"
    local before="${typed%%"${typed##*:}"}"
    for word in $response; do
        IFS=',' read -r type value <<< "$word"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            printf -v value '%%q' "${value#"$before"}"
            COMPREPLY+=("$value")
        fi
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """The script for bash, which puts words together again that bash cut at a colon."""

    source_template = _BASH

    @staticmethod
    def _check_version() -> None:
        """Ask nothing: the script needs bash 4, as click's does."""


add_completion_class(Bash, "bash")

_MOST = 200


def complete_rev(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return sessions, branches and tags that begin as the text does."""
    return _from_store(ctx, incomplete, _revisions)


def complete_session(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sessions that begin as the text does."""
    return _from_store(ctx, incomplete, lambda database, start: [h.session for h in _heads(database)])


def complete_artifact(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of artifacts on the branch that is meant that begin as the text does."""

    def ids(database: Database, start: str) -> list[str]:
        text = ctx.params.get("rev")
        text = text if isinstance(text, str) else None
        found = named(database, text, ctx.params.get("session"), None, quiet=True)
        state = found.branch(database).state
        return state.ids_of(state.type_ids())

    return _from_store(ctx, incomplete, ids)


def complete_either(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return revisions and the ids of artifacts that begin as the text does."""
    found = complete_rev(ctx, param, incomplete) + complete_artifact(ctx, param, incomplete)
    return list({one.value: one for one in found}.values())


def _heads(database: Database) -> list[Head]:
    return [head for head in readable_heads(database)[0] if not head.is_ledger]


def _revisions(database: Database, start: str) -> list[str]:
    heads = _heads(database)
    names = [head.session for head in heads] + [head.name for head in heads]
    return [*names, *(f"{tag.session}/{tag.name}" for tag in tags(database))]


def _from_store(
    ctx: click.Context, incomplete: str, names: Callable[[Database, str], list[str]]
) -> list[CompletionItem]:
    """Return names of the store of a command line that is not complete; nothing where it cannot be read."""
    place = next(
        (found for name in ("store", "path") if isinstance(found := ctx.params.get(name), str)), None
    )
    if place is None:
        return [CompletionItem(incomplete, type="file")]
    try:
        database = bundle_at(place) or open_database(place, create=False, read_only=True)
    except (ReactifactError, OSError, ImportError):
        return []
    try:
        found = [name for name in names(database, incomplete) if name.startswith(incomplete)]
    except ReactifactError:
        return []
    finally:
        database.backend.close()
    return [CompletionItem(name) for name in dict.fromkeys(found) if name.isprintable()][:_MOST]
