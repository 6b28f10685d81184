"""`reactifact context`: what a session holds, as a Mermaid flowchart."""

from __future__ import annotations

import click

from ..errors import ReactifactError
from ..sessions.diagrams import state_to_mermaid
from .common import branch_options, chosen_head, line, load_line, say_error
from .loading import backend_option, stored_at

NOT_THERE = 1


@click.command(short_help="Draw what a session holds.")
@click.argument("path", metavar="STORE")
@branch_options
@backend_option
@click.option("--limit", type=click.IntRange(min=0), help="Draw only the first N artifacts.")
@click.option("--relations/--no-relations", default=True, show_default=True, help="Draw relations.")
@click.pass_context
def context(
    click_context: click.Context,
    path: str,
    session: str | None,
    branch: str | None,
    backend: str,
    limit: int | None,
    relations: bool,
) -> None:
    """Print a Mermaid flowchart of the artifacts of a session and the relations among them.

    It is drawn from what is stored; the classes of the artifacts are not needed. Exit code 1 for a
    store, session or branch that is not there.
    """
    try:
        with stored_at(path, backend, read_only=True) as database:
            state = load_line(database, chosen_head(database, None, session, branch)).state
            diagram = state_to_mermaid(state, relate=relations, limit=limit)
    except ReactifactError as error:
        say_error(error)
        click_context.exit(NOT_THERE)
    for text in diagram.splitlines():
        line(text)
