"""`reactifact graph` and `context`: agents, and a stored context, as Mermaid."""

from __future__ import annotations

import click

from ..errors import ReactifactError
from ..viz import BLUEPRINT, blueprint, state_to_mermaid
from .common import (
    backend_option,
    branch_options,
    chosen_head,
    line,
    load_agents,
    load_line,
    say_error,
    stored_at,
)

# -- `reactifact graph`: what agents are wired to, as a Mermaid flowchart --


@click.command(short_help="Draw the agents of a module.")
@click.argument("target", metavar="MODULE[:ATTRIBUTE]")
@click.option("--title", default=BLUEPRINT, show_default=True, help="The title around the agents.")
@click.option("--stages/--no-stages", default=True, show_default=True, help="Group agents by generation.")
def graph(target: str, title: str, stages: bool) -> None:
    """Print a Mermaid flowchart of agents: what they consume and what they create.

    MODULE is imported, with the current folder on the path. ATTRIBUTE is an agent, a class of agents
    or a list; without it every agent of the module is drawn. Exit code 1 where there is none.
    """
    for text in blueprint(load_agents(target), with_stages=stages, title=title).splitlines():
        line(text)


# -- `reactifact context`: what a session holds, as a Mermaid flowchart --


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
