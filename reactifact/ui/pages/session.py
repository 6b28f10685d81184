"""A session: its commit graph, its branches and its tags."""

from __future__ import annotations

from ..._html import Child, Html, el, facts
from ..._store._history.log import Entry, entry
from ..._store._history.revset import DAMAGE, Head, damage, tags
from ..._store.branch import MAIN
from ..._store.objects import Oid
from ..asked import Asked
from ..frame import Page, cause, chip, counted, empty, moment, pager, says, short
from ..graph import Lanes, Row, drawn, width_of

PER_PAGE = 30
BRANCHES = 16
"""Branches that the graph begins with unless one is named: those written last."""
_LISTED = 40


def session_page(asked: Asked) -> Page:
    """Return the graph of all branches, or of the one that the query names."""
    cursor = asked.text("lanes")
    heads = _by_time(asked)
    only = asked.text("b")
    if cursor is not None:
        lanes = Lanes.parsed(asked.database, cursor)
    else:
        starts = [asked.head] if only is not None else [head for head, _ in heads][:BRANCHES]
        lanes = Lanes.of(asked.database, [head.commit for head in starts])
    rows = list(lanes.rows(PER_PAGE))
    names = _names(asked)
    width = width_of(rows)
    runs = _runs(rows)
    older = None if lanes.is_done or lanes.is_full else asked.url("/session", lanes=str(lanes))
    left = len(heads) - BRANCHES
    body = el(
        "div",
        el(
            "section",
            el("h1", "History", el("span", f" of branch {only}" if only else "", class_="muted")),
            el(
                "p",
                f"{counted(left, 'older branch', 'older branches')} not drawn; choose one beside it.",
                class_="muted",
            )
            if left > 0 and only is None and cursor is None
            else None,
            el("ol", [_row(asked, row, width, names, runs) for row in rows], class_="graph")
            if rows
            else empty("No commit yet."),
            el(
                "p",
                "More lines run side by side here than an address can hold: choose one branch.",
                class_="notice",
            )
            if lanes.is_full
            else None,
            el(
                "p",
                "The history goes on in commits that this store does not hold: it is a shallow clone.",
                class_="notice",
            )
            if lanes.is_cut
            else None,
            pager(asked, older, "Older commits", asked.url("/session") if cursor else None),
        ),
        el(
            "aside",
            _branches(asked, heads, only),
            _tags(asked),
            _compare(asked),
            aria_label="Branches and tags",
        ),
        class_="split",
    )
    return Page(f"{asked.session}: history", body, tab="/session", is_live=cursor is None)


def _by_time(asked: Asked) -> list[tuple[Head, Entry | str]]:
    """Return the branches, `main` first, then those written last; with what is wrong with one."""
    found: list[tuple[Head, Entry | str]] = []
    asked.database.prefetch(head.commit for head in asked.branches)
    for head in asked.branches:
        try:
            found.append((head, entry(asked.database, head.commit)))
        except DAMAGE as error:
            found.append((head, damage(error)))

    def key(pair: tuple[Head, Entry | str]) -> tuple[bool, float]:
        return pair[0].branch != MAIN, 0.0 if isinstance(pair[1], str) else -pair[1].time.timestamp()

    return sorted(found, key=key)


def _names(asked: Asked) -> dict[Oid, list[Html]]:
    names: dict[Oid, list[Html]] = {}
    for head in asked.branches:
        names.setdefault(head.commit, []).append(chip(head.branch, "branch"))
    for tag in tags(asked.database, asked.session):
        names.setdefault(tag.commit, []).append(chip(tag.name, "tag"))
    return names


def _runs(rows: list[Row]) -> dict[str, Oid]:
    """Return the newest commit here of each run."""
    runs: dict[str, Oid] = {}
    for row in rows:
        if row.entry.record is not None and row.entry.record.run_id:
            runs.setdefault(row.entry.record.run_id, row.entry.commit)
    return runs


def _row(asked: Asked, row: Row, width: int, names: dict[Oid, list[Html]], runs: dict[str, Oid]) -> Html:
    found = row.entry
    record = found.record
    version = None if record is None or record.context_version is None else f"v{record.context_version}"
    run = None if record is None else runs.get(record.run_id)
    woke = None if record is None else cause(asked, record.trigger, found.commit)
    return el(
        "li",
        drawn(row, width),
        el(
            "div",
            el(
                "p",
                names.get(found.commit),
                asked.link(says(found) or "(no message)", "/commit", "subject", id=found.commit),
                class_="row-main",
            ),
            el(
                "p",
                el("b", found.author),
                el("span", moment(found.time)),
                el("span", version, class_="number") if version else None,
                asked.link("run", "/run", None, at=run) if run else None,
                el("span", "woken by ", woke, class_="wide cut") if woke else None,
                el("code", short(found.commit), class_="wide muted"),
                class_="row-more",
            ),
            class_="row",
        ),
        class_=f"kind-{'foreign' if record is None else record.kind}",
    )


def _branches(asked: Asked, heads: list[tuple[Head, Entry | str]], only: str | None) -> Child:
    items = []
    for head, newest in heads[:_LISTED]:
        link = el(
            "a",
            head.branch,
            href=asked.url("/session", b=head.branch),
            class_="strong",
            aria_current="true" if head.branch == only else None,
        )
        if isinstance(newest, str):
            more: Child = el("span", newest, class_="small bad-text block")
        else:
            version = "" if newest.record is None else f"v{newest.record.version} · "
            more = el("span", version, moment(newest.time), class_="muted small block")
        items.append(el("li", link, more))
    left = len(heads) - _LISTED
    return [
        el("h2", "Branches"),
        el("p", asked.link("All together", "/session", None, b=None)) if only else None,
        el("ul", items, class_="plain"),
        el("p", f"and {left} more", class_="muted") if left > 0 else None,
    ]


def _tags(asked: Asked) -> Child:
    found = tags(asked.database, asked.session)[:_LISTED]
    if not found:
        return None
    items = [
        el("li", asked.link(tag.name, "/commit", "strong", id=tag.commit), " ", el("code", short(tag.commit)))
        for tag in found
    ]
    return [el("h2", "Tags"), el("ul", items, class_="plain")]


def _compare(asked: Asked) -> Child:
    points = asked.link("Compare two points", "/diff", "button", new=asked.head.branch)
    branches = None
    if len(asked.branches) > 1:
        branches = asked.link("Compare two branches", "/compare", "button")
    return el("p", branches, points, class_="buttons")


def commit_facts(asked: Asked, found: Entry) -> Html:
    """Return the head of a commit as a table."""
    record = found.record
    rows: list[tuple[Child, Child]] = [("author", el("b", found.author)), ("time", moment(found.time))]
    if record is not None:
        rows.append(("branch", [chip(record.branch, "branch"), f" of session {record.session}"]))
        rows.append(("kind", record.kind))
        if record.context_version is not None:
            rows.append(("version", f"v{record.context_version}"))
        if record.trigger:
            rows.append(("woken by", cause(asked, record.trigger, found.commit)))
        if record.run_id:
            rows.append(
                (
                    "run",
                    [
                        asked.link("this run, up to here", "/run", None, at=found.commit),
                        f", generation {record.generation}",
                    ],
                )
            )
        rows.append(("change", el("code", record.change)))
    rows.append(("commit", el("code", found.commit)))
    parents = [
        [asked.link(short(parent), "/commit", "id", id=parent), " "] for parent in found.object.parents
    ]
    if parents:
        rows.append(("parents", parents))
    if record is not None and record.ledger is not None:
        rows.append(("ledger", el("code", short(record.ledger))))
    return facts(rows, class_="facts")
