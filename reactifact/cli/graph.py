"""`reactifact graph`: what agents are wired to, as a Mermaid flowchart."""

from __future__ import annotations

import click

from ..sessions.diagrams import BLUEPRINT, blueprint
from .common import line
from .loading import load_agents


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
