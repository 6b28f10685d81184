"""`reactifact diff`: what differs between the states of two commits."""

from __future__ import annotations

import click

from ..store.branch_diff import BranchDiff, Point, delivery_text, diff_points, find_point, title
from ..store.database import Database
from ..store.difftext import lines
from .common import branch_options, json_option, line, opened, print_json, store_argument
from .revisions import scope_of

_COLOURS = {"added": "green", "removed": "red", "changed": "yellow"}


@click.command(short_help="Show what changed between two commits.")
@store_argument
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@branch_options
@json_option
def diff(store: str, old: str, new: str, session: str | None, branch: str | None, as_json: bool) -> None:
    """Show what changed from commit A to commit B: artifacts with their fields, relations, deliveries.

    A and B are commit ids or Change-Ids (four digits are enough), SESSION/BRANCH, SESSION/TAG,
    SESSION/BRANCH@vN, or vN: a version of --session (default: the session written last) on
    --branch. v0 is the empty state. A branch counts with its deliveries up to now, any other commit
    with those that it knew.

    \b
    --json: {old, new, artifacts: {added, removed, changed},
             relations: {added, removed}, deliveries}
      old, new:       {commit, change, session, branch, version}
      added, removed: {id, type, version, data}
      changed:        {id, old_type, new_type, old_version, new_version,
                       fields: [{path, kind, old, new}]}
      relations:      {source, relation, target}
      deliveries:     {action_id, old_status, new_status, attempts, error,
                       dispatched_at, branch}
    kind: added, removed, changed. Paths are like address.lines[0].
    """
    with opened(store) as database:
        before = _point(database, old, session, branch)
        after = _point(database, new, session, branch)
        found = diff_points(database, before, after)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)


def _point(database: Database, text: str, session: str | None, branch: str | None) -> Point:
    session, branch = scope_of(database, text, session, branch)
    return find_point(database, text, session=session, branch=branch)


def _print(found: BranchDiff) -> None:
    line(f"{title(found.old)} -> {title(found.new)}", bold=True)
    if found.is_empty:
        line("the states are equal")
    for one in lines(found.state):
        line(one.text, _COLOURS.get(one.kind))
    for delivery in found.deliveries:
        line(delivery_text(delivery), "cyan")
