"""Completion: the sessions, branches, tags and ids that a shell offers while a command is typed.

The scripts for zsh and fish are click's. The one for bash is ours: bash takes a colon for the end of a word,
and most ids have one.
"""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from ..._sessions.stores import open_database
from ..._store._history.revset import Head, readable_heads, tags
from ..._store.object_db import Database
from ...errors import ReactifactError
from ..common import bundle_at
from .naming import named

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


def complete_branch(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the branches, of `--session` where it is given, that begin as the text does."""
    session = ctx.params.get("session")
    return _from_store(ctx, incomplete, lambda database, start: [h.branch for h in _heads(database, session)])


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


def _heads(database: Database, session: str | None = None) -> list[Head]:
    return [head for head in readable_heads(database, session)[0] if not head.is_ledger]


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
