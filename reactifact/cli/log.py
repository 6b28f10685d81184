"""`reactifact log` and `diff`: the commits of branches, and what changed between two states."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from difflib import SequenceMatcher
from itertools import chain, islice, pairwise
from typing import NamedTuple

import click

from .._store._history.diff import FieldChange, StateDiff, field_line, lines
from .._store._history.log import (
    BranchDiff,
    Entry,
    Filter,
    Point,
    delivery_text,
    diff_points,
    entry,
    find_point,
    interleaved,
    own_line,
    title,
)
from .._store._history.revset import DamagedHead, Head, Tag, find_tag, heads, readable_heads, readable_tags
from .._store.branch import Branch
from .._store.names import branch_ref, plain, plain_lines
from .._store.object_db import Database
from .._store.objects import Oid
from ..errors import UnknownRevision
from ._shared.naming import complete_artifact, complete_rev, named
from ._shared.terminal import Graph, Moment, cut, line_of, local, paged, width
from .common import (
    Cell,
    branch_options,
    cause,
    chosen_head,
    echo,
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
_FORMS = "2026-01-31, 2026-01-31T23:59 (local), '2 hours ago'"


@click.command(short_help="List the commits of a branch or a session.")
@store_argument
@click.argument("rev", metavar="[REV]", required=False, shell_complete=complete_rev)
@click.argument("of", metavar="[ARTIFACT]", required=False, shell_complete=complete_artifact)
@branch_options
@click.option("--all", "everything", is_flag=True, help="All branches and the ledger, interleaved by time.")
@click.option("--graph", is_flag=True, help="Draw how the commits hang together, a line a commit.")
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="The newest N that fit.")
@click.option("--agent", metavar="NAME", help="Only commits of this author.")
@click.option(
    "--artifact",
    metavar="ID",
    help="Only commits that wrote, linked or delivered it.",
    shell_complete=complete_artifact,
)
@click.option("--since", type=Moment(), metavar="TIME", help=f"Not older than this: {_FORMS}.")
@click.option("--until", type=Moment(), metavar="TIME", help="Not newer than this.")
@click.option("--generation", type=click.IntRange(min=1), metavar="N", help="Only the Nth of each turn.")
@click.option("--reverse", is_flag=True, help="The oldest first (of those that --limit chose).")
@json_option
def log(
    store: str,
    rev: str | None,
    of: str | None,
    session: str | None,
    branch: str | None,
    everything: bool,
    graph: bool,
    limit: int | None,
    agent: str | None,
    artifact: str | None,
    since: datetime | None,
    until: datetime | None,
    generation: int | None,
    reverse: bool,
    as_json: bool,
) -> None:
    """List commits, the newest first: id, version, local time, author, what was done, what caused it.

    It follows the branch's own line; what merges brought in is listed with --all, and drawn with --graph.
    The ledger, the record of deliveries, is the branch %outbox. With ARTIFACT, or --artifact, only what
    wrote it. Without REV: the session written last. Where a session id contains slashes and
    SESSION/BRANCH is unclear, use --session and --branch. With --all, a branch that cannot be read is
    left out and named on stderr; the exit code is 2 then.

    \b
    --json: {what, session, branch, all, commits: [{
      commit, change, kind, session, branch, version, time, author,
      subject, trigger, generation, run_id, parents, heads, tags}]}
    branch: where it was made; heads, tags: the branches that stand on it
    and its tags.
    kind: root, direct, agent, merge, queue, edit, ledger, foreign. Keys
    that do not apply are null; version is null for unversioned commits.
    """
    if of is not None and artifact is not None:
        raise click.UsageError(f"give the artifact once: as {of!r}, or with --artifact")
    if graph and (reverse or as_json):
        raise click.UsageError("--graph draws for people, the newest first: leave out --reverse and --json")
    with opened(store) as database:
        head = _start(database, rev, session, branch)
        wanted = Filter(artifact or of, agent, since, until, generation)
        begins, broken = _begins(database, head, everything)
        is_whole = everything or graph or head.is_ledger  # two ledgers that met are one line
        walked = interleaved(database, begins) if is_whole else own_line(database, *begins)
        standing = _names(heads(database, head.session))
        tags, lost = readable_tags(database, head.session)
        tagged = _names(tags)
        for one in lost:
            to_stderr(f"reactifact: tag {plain(one.ref)} cannot be read: {one_line(one.error)}")
        if graph:
            with paged():
                _draw(walked, wanted, limit, _Refs(standing, tagged, head.branch))
            fail_for(broken)
            return
        chosen: Iterator[Entry] = islice(filter(wanted.fits, walked), limit)
        if reverse:
            chosen = iter(list(chosen)[::-1])
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
            with paged():
                while chunk := list(islice(chosen, _CHUNK)):
                    table([_row(found, standing if everything else None, tagged) for found in chunk])
    fail_for(broken)


def _start(database: Database, rev: str | None, session: str | None, branch: str | None) -> Head:
    """Return the branch that the log begins at, a tag or a commit as if it were one."""
    if rev is not None and session is not None:
        raise click.UsageError(f"give the session once: as {rev!r}, or with --session")
    try:
        found = named(database, rev, session, branch)
    except UnknownRevision:
        tag = None if session is None or branch is None else find_tag(database, branch, session=session)
        if tag is None:
            raise
        return Head(tag.session, tag.name, tag.commit, is_ledger=False)
    if found.head is not None:
        return found.head
    record = entry(database, found.commit).record
    owner = session or ("" if record is None else record.session)
    return Head(owner, rev or "", found.commit, is_ledger=False)


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


class _Refs(NamedTuple):
    """What stands on commits: the names of branches and of tags, and the branch that is looked at."""

    branches: dict[str, list[str]]
    tags: dict[str, list[str]]
    looked_at: str

    def cells(self, commit: Oid) -> list[Cell]:
        """Return ` (HEAD -> main, tag: good)` as git shows it, nothing for a commit without names."""
        found = [Cell(f"tag: {plain(name)}", "yellow") for name in self.tags.get(commit, [])]
        for name in self.branches.get(commit, []):
            if name == self.looked_at:
                found = [Cell("HEAD -> ", "cyan"), Cell(plain(name), "green"), *found]
            else:
                found.append(Cell(plain(name), "green"))
        if not found:
            return []
        shown = [Cell(" (", "yellow"), found[0]]
        for before, one in pairwise(found):
            shown += [one] if before.text == "HEAD -> " else [Cell(", ", "yellow"), one]
        return [*shown, Cell(")", "yellow")]


def _draw(walked: Iterator[Entry], wanted: Filter, limit: int | None, refs: _Refs) -> None:
    """Print the graph: a line a commit that fits, and what leads from one to the next."""
    graph, columns, left = Graph(), width(), limit
    for found in walked:
        row, below = graph.add(found.commit, found.object.parents)
        is_shown = wanted.fits(found)
        if left is not None and is_shown:
            if left == 0:
                return
            left -= 1
        if is_shown:
            line_of([*row, *_graph_cells(found, refs)], columns)
        for cells in below:
            if is_shown or len(found.object.parents) > 1:
                line_of(cells, columns)


def _graph_cells(found: Entry, refs: _Refs) -> list[Cell | str]:
    record = found.record
    version = "" if record is None or record.context_version is None else f" v{record.context_version}"
    trigger = cause(None if record is None else record.trigger)
    return [
        " ",
        Cell(short(found.commit), "yellow"),
        *refs.cells(found.commit),
        Cell(version, "green"),
        Cell(f" {local(found.time)}", "bright_black"),
        Cell(f" {plain(found.author)}", "cyan"),
        f" {plain(found.subject.removeprefix(f'{found.author}: '))}",
        Cell(f" <- {trigger}" if trigger else "", "bright_black"),
    ]


# -- `reactifact diff`: what differs between the states of two commits --


_COLOURS = {"added": "green", "removed": "red", "changed": "yellow"}
_LONG = 60
"""From how many characters on a text is compared by line and word."""


@click.command(short_help="Show what changed between two commits.")
@store_argument
@click.argument("old", metavar="[A]", required=False, shell_complete=complete_rev)
@click.argument("new", metavar="[B]", required=False, shell_complete=complete_rev)
@click.argument("of", metavar="[ARTIFACT]", required=False, shell_complete=complete_artifact)
@branch_options
@click.option("--artifact", metavar="ID", help="Only this artifact.", shell_complete=complete_artifact)
@json_option
def diff(
    store: str,
    old: str | None,
    new: str | None,
    of: str | None,
    session: str | None,
    branch: str | None,
    artifact: str | None,
    as_json: bool,
) -> None:
    """Show what changed from commit A to commit B: artifacts by field, relations, deliveries.

    A and B are revisions (`reactifact --help`), A..B stands for both. Without B it is the branch that A is
    on; without both, what the newest commit changed. Long texts are compared by line, and within a line by
    word: [-gone-]{+new+}. v0 is the empty state. A branch counts with its deliveries up to now, any other
    commit with those that it knew.

    \b
    --json: {what, old, new, artifacts: {added, removed, changed},
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
    if old is not None and new is None and ".." in old:
        old, _, new = old.partition("..")
        old, new = old or None, new or None
    with opened(store) as database:
        if old is None:
            head = chosen_head(database, None, session, branch)
            new = new or head.commit
            old, session, branch = f"{new}~1", None, None
        elif new is None:
            found = named(database, old, session, branch)
            state = found.branch(database)
            new = head_name(state) if found.head is None else f"{found.commit}"
            old = old if found.head is None else f"{found.commit}~1"
        before = _point(database, old, session, branch)
        after = _point(database, new, session, branch)
        compared = only(diff_points(database, before, after), artifact or of)
    if as_json:
        print_json(compared.to_dict())
        return
    with paged():
        _print(compared)


def head_name(branch: Branch) -> str:
    """Return the full name of the ref of a branch, which nothing else goes by."""
    return branch_ref(branch.session, branch.branch)


def only(found: BranchDiff, artifact: str | None) -> BranchDiff:
    """Return what a diff says of one artifact; `None` means of all."""
    if artifact is None:
        return found
    state = found.state
    kept = StateDiff(
        added=tuple(one for one in state.added if one.id == artifact),
        removed=tuple(one for one in state.removed if one.id == artifact),
        changed=tuple(one for one in state.changed if one.id == artifact),
        relations_added=tuple(one for one in state.relations_added if artifact in (one.source, one.target)),
        relations_removed=tuple(
            one for one in state.relations_removed if artifact in (one.source, one.target)
        ),
    )
    deliveries = tuple(one for one in found.deliveries if one.action_id == artifact)
    return replace(found, state=kept, deliveries=deliveries)


def _point(database: Database, text: str, session: str | None, branch: str | None) -> Point:
    session, branch = scope_of(database, text, session, branch)
    return find_point(database, text, session=session, branch=branch)


def _print(found: BranchDiff) -> None:
    line(f"{title(found.old)} -> {title(found.new)}", bold=True)
    if found.is_empty:
        line("the states are equal")
    for one in lines(found.state):
        if one.field is not None and is_long(one.field):
            print_field(one.field)
        else:
            line(one.text, _COLOURS.get(one.kind))
    for delivery in found.deliveries:
        line(delivery_text(delivery), "cyan")


def is_long(field: FieldChange) -> bool:
    """Tell whether a field is a text that is compared by line and word."""
    if not (isinstance(field.old, str) and isinstance(field.new, str)):
        return False
    return max(len(field.old), len(field.new)) > _LONG or "\n" in field.old + field.new


def print_field(field: FieldChange) -> None:
    """Print what became of a field, a long text by line and word."""
    if not is_long(field):
        one = field_line(field)
        line(one.text, _COLOURS.get(one.kind))
        return
    line(f"    {plain(field.path) or '(whole)'}:")
    for cells in text_diff(str(field.old), str(field.new)):
        echo(
            "      "
            + cut([c if isinstance(c, str) else c._replace(text=plain_lines(c.text)) for c in cells], None)
        )


def text_diff(old: str, new: str) -> Iterator[list[Cell | str]]:
    """Yield the lines in which two texts differ, with a line around them, changed ones by word."""
    before, after = old.split("\n"), new.split("\n")
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(1)
    for number, group in enumerate(blocks):
        if number:
            yield [Cell("...", "bright_black")]
        for kind, a, b, c, d in group:
            if kind == "equal":
                for text in before[a:b]:
                    yield ["  ", plain_lines(text)]
            elif kind == "replace" and b - a == d - c:
                yield from (_words(one, other) for one, other in zip(before[a:b], after[c:d], strict=True))
            else:
                for text in before[a:b]:
                    yield [Cell(plain_lines(f"- {text}"), "red")]
                for text in after[c:d]:
                    yield [Cell(plain_lines(f"+ {text}"), "green")]


def _words(old: str, new: str) -> list[Cell | str]:
    """Return one line of two, the words that went as `[-gone-]` and those that came as `{+new+}`."""
    before, after = re.findall(r"\s+|\w+|[^\w\s]", old), re.findall(r"\s+|\w+|[^\w\s]", new)
    cells: list[Cell | str] = [Cell("~ ", "yellow")]
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            cells.append(plain_lines("".join(before[a:b])))
            continue
        if b > a:
            cells.append(Cell(plain_lines(f"[-{''.join(before[a:b])}-]"), "red"))
        if d > c:
            cells.append(Cell(plain_lines(f"{{+{''.join(after[c:d])}+}}"), "green"))
    return cells
