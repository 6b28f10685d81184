"""`reactifact audit` and `reactifact verify`: a report of what an answer rests on, and its check."""

from __future__ import annotations

import click

from .._store._history.revset import Head, find_head, parse_head
from .._store.names import plain
from .._store.object_db import Database
from ..audit.checking import verify_report
from ..audit.html import report_to_html
from ..audit.report import report_from_json, report_of, report_to_json, report_to_markdown
from ..errors import ReactifactError, UnknownRevision
from ..replay.state import view_of
from ._shared.naming import complete_artifact, complete_rev
from ._shared.terminal import progress
from .common import (
    backend_option,
    chosen_head,
    counted,
    find_models,
    line,
    models_option,
    one_line,
    print_json,
    stored_at,
    to_stderr,
    warn_of_folding,
)

NOT_THERE = 1
DIFFERS = 1


@click.command(short_help="Report what an artifact rests on.")
@click.argument("path", metavar="[STORE]")
@click.argument("session", metavar="[REV]", shell_complete=complete_rev)
@click.argument("artifact", metavar="ARTIFACT", required=False, shell_complete=complete_artifact)
@click.option("--branch", help="The branch, by its name alone; default: main.")
@click.option("--version", type=click.IntRange(min=0), help="The version; default: the newest state.")
@click.option(
    "--relation",
    "relations",
    multiple=True,
    help="Follow relations of this name only (several times: these).",
)
@click.option("--reads", is_flag=True, help="Follow what the commits read, too.")
@click.option("--json", "form", flag_value="json", help="Print JSON, which `verify` checks later.")
@click.option("--html", "form", flag_value="html", help="Print one HTML page that needs nothing else.")
@click.option(
    "--markdown", "form", flag_value="markdown", default="markdown", help="Print Markdown (default)."
)
@backend_option
@models_option
@click.pass_context
def audit(
    click_context: click.Context,
    path: str,
    session: str,
    artifact: str | None,
    branch: str | None,
    version: int | None,
    relations: tuple[str, ...],
    reads: bool,
    form: str,
    backend: str,
    models: tuple[str, ...],
) -> None:
    """Print what ARTIFACT rests on: all that its relations lead to. REV is SESSION[/BRANCH].

    Each artifact comes with its hashes, the commit and the agent that wrote it, the version of the
    agent's code, what it reacted to and read, the model calls behind it, and, of a fact that was put
    there directly, who did. STORE may be a bundle. Exit code 1 for a session, branch, version or artifact
    that is not there, 2 for a store that is not there.
    """
    rev, artifact = (None, session) if artifact is None else (session, artifact)
    find = find_models(models)
    with stored_at(path, backend, read_only=True) as database:
        try:
            view = view_of(database, _head(database, rev, branch), version, find)
            if view.working.state.stored(artifact) is None:
                place = f"{view.line.session}/{view.line.branch}"
                raise UnknownRevision(
                    f"{place} holds no artifact {artifact!r}; `reactifact context` draws all"
                )
            report = report_of(view, artifact, relations=relations or None, reads=reads)
        except (LookupError, ValueError) as error:
            text = error.args[0] if isinstance(error, KeyError) else str(error)
            to_stderr(f"reactifact: {one_line(str(text))}")
            click_context.exit(NOT_THERE)
    if form == "json":
        click.echo(report_to_json(report).encode("utf-8", "surrogatepass"))
    elif form == "html":
        click.echo(report_to_html(report).encode("utf-8", "surrogatepass"), nl=False)
    else:
        for text in report_to_markdown(report).splitlines():
            line(text)


def _head(database: Database, rev: str | None, branch: str | None) -> Head:
    """Return the branch of a session, or that `SESSION/BRANCH` names; without `rev` the one written last."""
    if rev is None:
        return chosen_head(database, None, None, branch)
    try:
        return find_head(database, rev, branch)
    except UnknownRevision:
        if branch is not None or "/" not in rev:
            raise
        return parse_head(database, rev)


@click.command(short_help="Check an audit report against a store.")
@click.argument("path", metavar="[STORE]")
@click.argument("report", metavar="REPORT.json", type=click.Path(exists=True, dir_okay=False))
@backend_option
@models_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def verify(
    click_context: click.Context,
    path: str,
    report: str,
    backend: str,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check every hash, commit and relation of a report that `audit --json` printed.

    Every object read is hashed again. A compaction since then is followed, and what it folded is
    said. Exit code 1 with the first difference, 2 for a file that is not a report.

    \b
    --json: {what: "verify", ok, differences: [...], notes: [...], entries}
    """
    find = find_models(models)
    with stored_at(path, backend, read_only=True) as database, open(report, "rb") as file:
        try:
            with progress("checking") as told:
                found = verify_report(report_from_json(file.read()), database, find=find, progress=told)
            warn_of_folding(database)
        except ValueError as error:
            raise ReactifactError(f"{report}: {error}") from error
    if as_json:
        print_json(
            {
                "what": "verify",
                "ok": found.ok,
                "differences": found.differences,
                "notes": found.notes,
                "entries": found.entries,
            }
        )
    elif found.ok:
        checked = counted(found.entries, "artifact")
        line(f"the store bears the report out: {checked}, every hash, commit and relation")
    else:
        line(plain(f"DIFFERS: {found.differences[0]}"))
        if len(found.differences) > 1:
            line(f"and {len(found.differences) - 1} more")
    if not as_json:
        for note in found.notes:
            to_stderr(plain(note))
    if not found.ok:
        click_context.exit(DIFFERS)
