"""Sessions: all of a store, the one written last on top; and one, with its graph, branches and tags."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ..._html import Child, Html, el, facts, table
from ..._store._history.log import Entry, entry
from ..._store._history.revset import DAMAGE, DamagedHead, Head, damage, damaged, damaged_refs, head_at, tags
from ..._store.branch import MAIN, Branch
from ..._store.names import parse_ref
from ..._store.object_db import Database
from ..._store.objects import Oid
from ..._store.protocol import scan_refs
from ...outbox import waiting_actions
from ..asked import Asked, url
from ..frame import Page, cause, chip, counted, empty, moment, pager, says, short, span
from ..graph import Lanes, Row, drawn, width_of
from .questions import unanswered_questions

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


# -- the first page: the sessions of a store, with what waits in each --

SESSIONS_PER_PAGE = 20
BRANCHES_LOOKED_INTO = 6
"""Branches of one session that are looked into on this page, those written last."""


@dataclass
class Listed:
    """A session as far as its refs tell: its branches with their newest commits, the newest first."""

    name: str
    heads: list[tuple[Head, Entry]] = field(default_factory=list)

    @property
    def newest(self) -> Entry:
        """The commit written last."""
        return self.heads[0][1]


def sessions_page(asked: Asked) -> Page:
    """Return the page. It reads one commit a branch, and more only of the sessions it shows."""
    found, broken = listed(asked.database)
    wanted = asked.text("q")
    if wanted is not None:
        found = [one for one in found if wanted.casefold() in one.name.casefold()]
    start = asked.number("from")
    shown = found[start : start + SESSIONS_PER_PAGE]
    rows = [_session_row(asked, one, broken) for one in shown]
    total = counted(len(found), "session") + (f" with “{wanted}” in its name" if wanted else "")
    older = (
        url("/", q=wanted, from_=start + SESSIONS_PER_PAGE)
        if len(found) > start + SESSIONS_PER_PAGE
        else None
    )
    body = [
        el(
            "div",
            el("div", el("h1", "Sessions"), el("p", total, class_="muted")),
            _search(wanted),
            class_="head",
        ),
        table(["Session", "Last commit", "Version", "Outbox", "Questions"], rows, class_="cards sessions")
        if rows
        else empty("No session is stored here yet." if not wanted else "No session has this in its name."),
        pager(asked, older, newest=url("/", q=wanted) if start else None),
        _broken(broken),
    ]
    return Page("Sessions", body, is_live=start == 0)


def listed(database: Database) -> tuple[list[Listed], list[DamagedHead]]:
    """Return all sessions, that written last first, and the refs that cannot be read."""
    refs, unreadable = scan_refs(database.backend, "refs/heads/")
    wanted = {ref: oid for ref, oid in refs.items() if parse_ref(ref) is not None}
    broken = damaged_refs(unreadable)
    with suppress(*DAMAGE):  # told below, of the branch that has it
        database.prefetch(wanted.values())
    sessions: dict[str, Listed] = {}
    for ref, oid in wanted.items():
        try:
            head = head_at(database, ref, oid)
            if head is not None:
                sessions.setdefault(head.session, Listed(head.session)).heads.append(
                    (head, entry(database, oid))
                )
        except DAMAGE as error:
            broken.append(DamagedHead(ref, *(parse_ref(ref) or (None, None)), damage(error)))
    for one in sessions.values():
        one.heads.sort(key=lambda pair: (pair[1].time, pair[0].branch == MAIN), reverse=True)
    ordered = sorted(sessions.values(), key=lambda one: (one.newest.time, one.name), reverse=True)
    return ordered, broken


def _session_row(asked: Asked, one: Listed, broken: list[DamagedHead]) -> list[Html]:
    waiting: dict[str, float] = {}
    failed: set[str] = set()
    parked: set[str] = set()
    asking: set[str] = set()
    more = False
    version = 0
    branches = [head for head, _ in one.heads if not head.is_ledger]
    for head in branches[:BRANCHES_LOOKED_INTO]:
        try:
            line = Branch.load(asked.database, head.session, head.branch)
            if line is None:
                continue
            pending, refused, stuck, _ = waiting_actions(line.state, line.ledger, asked.now)
            waiting.update((action.id, action.age) for action in pending)
            failed.update(action.id for action in refused)
            parked.update(action.id for action in stuck)
            found = unanswered_questions(asked.database, line.state, asked.now)
            asking.update(question.id for question in found.open)
            more = more or found.after is not None
            if head.branch == MAIN or len(branches) == 1:
                version = line.version
        except DAMAGE as error:
            broken.append(damaged(head, error))
    newest = one.newest
    plus = "+" if len(branches) > BRANCHES_LOOKED_INTO else ""
    outbox = [
        chip(f"{len(waiting)}{plus} waiting", "wait") if waiting else None,
        chip(f"{len(failed)}{plus} failed", "bad") if failed else None,
        chip(f"{len(parked)}{plus} parked", "bad") if parked else None,
        el("span", f"oldest {span(max(waiting.values()))}", class_="muted small") if waiting else None,
    ]
    questions = f"{len(asking)}{'+' if more or plus else ''} open"
    session = el("a", one.name, href=url("/session", s=one.name), class_="strong id")
    names = ", ".join(head.branch for head in branches[:4]) + (", …" if len(branches) > 4 else "")
    return [
        el("div", session, el("span", names, class_="muted small block")),
        el(
            "div",
            el("span", says(newest), class_="cut"),
            el("span", newest.author, " · ", moment(newest.time), class_="muted small block"),
        ),
        el("span", f"v{version}", class_="number"),
        el("div", outbox) if any(outbox) else el("span", "—", class_="muted"),
        el("a", chip(questions, "ask"), href=url("/questions", s=one.name))
        if asking
        else el("span", "—", class_="muted"),
    ]


def _search(wanted: str | None) -> Html:
    return el(
        "form",
        el("label", "Name contains", for_="q"),
        el("input", type="search", name="q", id="q", value=wanted or "", maxlength=200),
        el("button", "Find", type="submit"),
        action="/",
        method="get",
        role="search",
        class_="search",
    )


def _broken(broken: list[DamagedHead]) -> Html | None:
    if not broken:
        return None
    rows = [[el("code", one.ref), one.error] for one in broken]
    return el(
        "section",
        el("h2", "Cannot be read"),
        table(["Ref", "Why"], rows, class_="cards"),
        class_="notice bad",
    )
