"""`reactifact log` and `diff`: the commits of branches, and what changed between two states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain, islice

import click

from .._store._history.diff import lines
from .._store._history.log import (
    BranchDiff,
    Entry,
    Filter,
    Point,
    delivery_text,
    diff_points,
    find_point,
    interleaved,
    own_line,
    title,
)
from .._store._history.revset import DamagedHead, Head, Tag, find_tag, heads, readable_heads, readable_tags
from .._store.names import plain
from .._store.object_db import Database
from .._store.objects import Oid
from ..errors import UnknownRevision
from .common import (
    Cell,
    branch_options,
    cause,
    chosen_head,
    fail_for,
    json_option,
    line,
    moment,
    one_line,
    opened,
    print_json,
    scope_of,
    short,
    store_argument,
    table,
    to_stderr,
)

# -- `reactifact log`: the commits of a branch, or of a session with its ledger --


_CHUNK = 200  # entries that are aligned together; a long log starts to print before it is read
_FORMS = "2026-01-31 or 2026-01-31T23:59:00, in UTC"


@click.command(short_help="List the commits of a branch or a session.")
@store_argument
@click.argument("target", metavar="[SESSION[/BRANCH-or-TAG]]", required=False)
@branch_options
@click.option("--all", "everything", is_flag=True, help="All branches and the ledger, interleaved by time.")
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="The newest N that fit.")
@click.option("--agent", metavar="NAME", help="Only commits of this author.")
@click.option("--artifact", metavar="ID", help="Only commits that wrote, linked or delivered it.")
@click.option("--since", type=click.DateTime(), metavar="TIME", help=f"Not older than this: {_FORMS}.")
@click.option("--until", type=click.DateTime(), metavar="TIME", help=f"Not newer than this: {_FORMS}.")
@click.option("--generation", type=click.IntRange(min=1), metavar="N", help="Only the Nth of each turn.")
@click.option("--reverse", is_flag=True, help="The oldest first (of those that --limit chose).")
@json_option
def log(
    store: str,
    target: str | None,
    session: str | None,
    branch: str | None,
    everything: bool,
    limit: int | None,
    agent: str | None,
    artifact: str | None,
    since: datetime | None,
    until: datetime | None,
    generation: int | None,
    reverse: bool,
    as_json: bool,
) -> None:
    """List commits, the newest first: id, version, time, author, what was done, what caused it.

    It follows the branch's own line; what merges brought in is listed with --all. The ledger, the
    record of deliveries, is the branch %outbox. Without SESSION: the session written last. Where a
    session id contains slashes and SESSION/BRANCH is unclear, use --session and --branch. With --all,
    a branch that cannot be read is left out and named on stderr; the exit code is 2 then.

    \b
    --json: {session, branch, all, commits: [{
      commit, change, kind, session, branch, version, time, author,
      subject, trigger, generation, run_id, parents, heads, tags}]}
    branch: where it was made; heads, tags: the branches that stand on it
    and its tags.
    kind: root, direct, agent, merge, queue, edit, ledger, foreign. Keys
    that do not apply are null; version is null for unversioned commits.
    """
    with opened(store) as database:
        head = _start(database, target, session, branch)
        wanted = Filter(artifact, agent, _aware(since), _aware(until), generation)
        begins, broken = _begins(database, head, everything)
        is_whole = everything or head.is_ledger  # two ledgers that met are one line
        entries = filter(
            wanted.fits, interleaved(database, begins) if is_whole else own_line(database, *begins)
        )
        chosen: Iterator[Entry] = islice(entries, limit)
        if reverse:
            chosen = iter(list(chosen)[::-1])
        standing = _names(heads(database, head.session))
        tags, lost = readable_tags(database, head.session)
        tagged = _names(tags)
        for one in lost:
            to_stderr(f"reactifact: tag {plain(one.ref)} cannot be read: {one_line(one.error)}")
        if as_json:
            commits = [
                {
                    **found.to_dict(),
                    "heads": standing.get(found.commit, []),
                    "tags": tagged.get(found.commit, []),
                }
                for found in chosen
            ]
            names = {"session": head.session, "branch": head.branch, "all": everything}
            print_json({**names, "commits": commits})
        else:
            first = list(islice(chosen, 1))
            if not first and limit != 0:
                to_stderr(f"no commit of {plain(head.session if everything else head.name)} fits")
            chosen = chain(first, chosen)
            while chunk := list(islice(chosen, _CHUNK)):
                table([_row(found, standing if everything else None, tagged) for found in chunk])
    fail_for(broken)


def _start(database: Database, target: str | None, session: str | None, branch: str | None) -> Head:
    """Return the branch, or the tag as if it were one, that the log begins at."""
    try:
        return chosen_head(database, target, session, branch)
    except UnknownRevision:
        name = target if session is None else branch
        tag = None if name is None else find_tag(database, name, session=session)
        if tag is None:
            raise
        return Head(tag.session, tag.name, tag.commit, is_ledger=False)


def _aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


def _names(found: Iterable[Head | Tag]) -> dict[str, list[str]]:
    """Return the names of the branches, or of the tags, that stand on each commit."""
    names: dict[str, list[str]] = {}
    for one in found:
        names.setdefault(one.commit, []).append(one.branch if isinstance(one, Head) else one.name)
    return names


def _begins(database: Database, head: Head, everything: bool) -> tuple[list[Oid], list[DamagedHead]]:
    """Return the commits that a log begins at, and the refs of the session that cannot be read."""
    if not everything:
        return [head.commit], []
    found, broken = readable_heads(database, head.session)
    return [one.commit for one in found], broken


def _row(
    found: Entry, standing: dict[str, list[str]] | None, tagged: dict[str, list[str]]
) -> list[Cell | str]:
    record = found.record
    version = "" if record is None or record.context_version is None else f"v{record.context_version}"
    branch = "" if record is None else "%outbox" if record.kind == "ledger" else record.branch
    names = [] if standing is None else standing.get(found.commit, [])
    names = names + [f"tag {name}" for name in tagged.get(found.commit, [])]
    trigger = cause(None if record is None else record.trigger)
    return [
        Cell(short(found.commit), "yellow"),
        Cell("" if standing is None else plain(branch), "cyan"),
        Cell(version, "green"),
        moment(found.time),
        plain(found.author),
        plain(found.subject.removeprefix(f"{found.author}: ")),
        Cell(f"<- {trigger}" if trigger else "", "bright_black"),
        Cell(f"[{', '.join(map(plain, names))}]" if names else "", "cyan"),
    ]


# -- `reactifact diff`: what differs between the states of two commits --


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
