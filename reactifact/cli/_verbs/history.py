"""`reactifact blame`, `history` and `bisect`: who wrote what, and when it went wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anyio
import click

from ..._sessions.verbs import bisect as bisected
from ..._store import canonical
from ..._store._history.blame import BlamedField, blame_delivery
from ..._store._history.blame import blame as blamed
from ..._store._history.diff import diff_values
from ..._store.names import plain, value
from ...errors import UnknownRevision
from .._shared.naming import complete_artifact, complete_either, complete_rev, named
from .._shared.terminal import local, paged
from ..common import (
    SHORT,
    Cell,
    branch_options,
    cause,
    json_option,
    line,
    load_attribute,
    opened,
    print_json,
    short,
    store_argument,
    stored_at,
    table,
)
from ..log import print_field

# -- `reactifact blame`, `history` and `bisect`: who wrote what, and when it went wrong --


@click.command(short_help="Show who wrote each field of an artifact.")
@store_argument
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_either)
@click.argument("of", metavar="ARTIFACT", required=False, shell_complete=complete_artifact)
@branch_options
@json_option
def blame(
    store: str, rev: str | None, of: str | None, session: str | None, branch: str | None, as_json: bool
) -> None:
    """Show for every field of ARTIFACT the commit, version, agent and cause that wrote its value.

    What the delivery of an action set comes from the ledger. A time with ~ is that of the oldest version
    kept: the value may be older.

    \b
    --json: {what, artifact, fields: [{path, value, version, commit, change,
      agent, trigger, generation, time, is_exact}]}
    """
    rev, artifact = _one_artifact("blame", rev, of)
    with opened(store) as database:
        found = named(database, rev, session, branch)
        state = found.branch(database)
        if state.state.stored(artifact) is None:
            raise UnknownRevision(f"{state.session}/{state.branch} holds no artifact {artifact!r}")
        fields = blamed(database, found.commit, state.state.roots, artifact)
        ledger = state.ledger.head if found.head is not None else None
        fields += blame_delivery(database, ledger, state.state.roots, artifact)
    if as_json:
        print_json({"artifact": artifact, "fields": [one.to_dict() for one in fields]})
        return
    with paged():
        table([_blame_row(one) for one in fields])


def _one_artifact(verb: str, rev: str | None, of: str | None) -> tuple[str | None, str]:
    """Return revision and artifact of a verb that may be given the artifact alone."""
    if of is not None:
        return rev, of
    if rev is None:
        raise click.UsageError(f"{verb} needs the id of an artifact: {verb} [REV] ARTIFACT")
    return None, rev


def _blame_row(found: BlamedField) -> list[Cell | str]:
    because = cause(found.trigger)
    return [
        Cell(short(found.commit or "-" * SHORT), "yellow"),
        Cell(f"v{found.version}", "green"),
        ("" if found.is_exact else "~") + local(datetime.fromisoformat(found.time)),
        Cell(plain(found.agent), "cyan"),
        Cell(plain(found.path) or "(whole)", "bright_black"),
        value(found.value),
        Cell(f"<- {because}" if because else "", "bright_black"),
    ]


@click.command(short_help="List the versions of an artifact.")
@store_argument
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_either)
@click.argument("of", metavar="ARTIFACT", required=False, shell_complete=complete_artifact)
@branch_options
@click.option("-p", "--patch", is_flag=True, help="Show what each version changed.")
@json_option
def history(
    store: str,
    rev: str | None,
    of: str | None,
    session: str | None,
    branch: str | None,
    patch: bool,
    as_json: bool,
) -> None:
    """List the versions of ARTIFACT that are kept, the newest first: when, by whom, and with -p what changed.

    \b
    --json: {what, artifact, session, branch, versions: [{version, type,
      time, author, change, content_hash, data}]}
    """
    rev, artifact = _one_artifact("history", rev, of)
    with opened(store) as database:
        state = named(database, rev, session, branch).branch(database)
        versions = [
            {
                "version": one.meta.version,
                "type": one.meta.type_id,
                "time": one.meta.updated_at,
                "author": one.meta.author,
                "change": one.meta.commit,
                "content_hash": one.meta.content_hash,
                "data": canonical.decode(state.state.payload(one.meta)),
            }
            for one in state.state.versions(artifact)
        ]
        if not versions:
            raise UnknownRevision(f"{state.session}/{state.branch} holds no artifact {artifact!r}")
    names = {"artifact": artifact, "session": state.session, "branch": state.branch}
    if as_json:
        print_json({**names, "versions": versions})
        return
    with paged():
        if not patch:
            table([_version_row(one) for one in versions])
            return
        for new, old in zip(versions, [*versions[1:], None], strict=True):
            table([_version_row(new)])
            before = {} if old is None else old["data"]
            for field in diff_values(before, new["data"]):
                print_field(field)


def _version_row(one: dict[str, Any]) -> list[Cell | str]:
    return [
        Cell(f"v{one['version']}", "green"),
        local(datetime.fromisoformat(one["time"])),
        Cell(plain(one["author"]), "cyan"),
        Cell("directly" if one["change"] is None else short(one["change"]), "yellow"),
        plain(one["type"]),
    ]


@click.command(short_help="Find the generation in which a state went wrong.")
@store_argument
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_rev)
@click.option(
    "--check", metavar="MODULE:FUNCTION", required=True, help="Takes a context, tells if it is right."
)
@branch_options
@json_option
@click.pass_context
def bisect(
    click_context: click.Context,
    store: str,
    rev: str | None,
    check: str,
    session: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Find the first commit of a branch after which --check is false; no agent runs.

    FUNCTION takes a `Context` and returns whether its state is right; it may be async. MODULE is imported,
    with the current folder on the path. It looks at log2 of the number of generations. Exit code 1 where
    a commit was found, 0 where every state is right.

    \b
    --json: {what, found: null or {the keys of log, agent, agents, before,
      loads}}
    """
    predicate = load_attribute(check, "a function that tells whether a state is right")
    with stored_at(store, "auto", read_only=True) as database:
        head = named(database, rev, session, branch)
        found = anyio.run(bisected, database, head.commit, predicate)
    if as_json:
        print_json({"found": None if found is None else found.to_dict()})
    elif found is None:
        line("every state is right")
    else:
        for text in str(found).splitlines():
            line(text)
    if found is not None:
        click_context.exit(1)
