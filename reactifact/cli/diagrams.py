"""`reactifact graph` and `context`: agents, and a stored context, as Mermaid."""

from __future__ import annotations

import click

from ..errors import ReactifactError
from ..viz import BLUEPRINT, blueprint, state_to_mermaid
from ._shared.naming import complete_rev, named
from .common import (
    backend_option,
    branch_options,
    json_option,
    line,
    load_agents,
    print_json,
    say_error,
    stored_at,
)

# -- `reactifact graph`: what agents are wired to, as a Mermaid flowchart --


@click.command(short_help="Draw the agents of a module.")
@click.argument("target", metavar="MODULE[:ATTRIBUTE]")
@click.option("--title", default=BLUEPRINT, show_default=True, help="The title around the agents.")
@click.option("--stages/--no-stages", default=True, show_default=True, help="Group agents by generation.")
@json_option
def graph(target: str, title: str, stages: bool, as_json: bool) -> None:
    """Print a Mermaid flowchart of agents: what they consume and what they create.

    MODULE is imported, with the current folder on the path. ATTRIBUTE is an agent, a class of agents
    or a list; without it every agent of the module is drawn. Exit code 1 where there is none.

    \b
    --json: {what, diagram}
    """
    _show(blueprint(load_agents(target), with_stages=stages, title=title), as_json)


# -- `reactifact context`: what a session holds, as a Mermaid flowchart --


NOT_THERE = 1


@click.command(short_help="Draw what a session holds.")
@click.argument("path", metavar="[STORE]")
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_rev)
@branch_options
@backend_option
@click.option("--limit", type=click.IntRange(min=0), help="Draw only the first N artifacts.")
@click.option("--relations/--no-relations", default=True, show_default=True, help="Draw relations.")
@json_option
@click.pass_context
def context(
    click_context: click.Context,
    path: str,
    rev: str | None,
    session: str | None,
    branch: str | None,
    backend: str,
    limit: int | None,
    relations: bool,
    as_json: bool,
) -> None:
    """Print a Mermaid flowchart of the artifacts of REV and the relations among them.

    It is drawn from what is stored; the classes of the artifacts are not needed. Exit code 1 for a
    store, session or branch that is not there.

    \b
    --json: {what, diagram}
    """
    try:
        with stored_at(path, backend, read_only=True) as database:
            state = named(database, rev, session, branch).branch(database).state
            diagram = state_to_mermaid(state, relate=relations, limit=limit)
    except ReactifactError as error:
        say_error(error)
        click_context.exit(NOT_THERE)
    _show(diagram, as_json)


def _show(diagram: str, as_json: bool) -> None:
    if as_json:
        print_json({"diagram": diagram})
        return
    for text in diagram.splitlines():
        line(text)
