"""The first page: the sessions of a store, the one written last on top, with what waits in each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ..._html import Html, el, table
from ..._store._history.log import Entry, entry
from ..._store._history.revset import DAMAGE, DamagedHead, Head, damage, damaged, damaged_refs, head_at
from ..._store.branch import MAIN, Branch
from ..._store.names import parse_ref
from ..._store.object_db import Database
from ..._store.protocol import scan_refs
from ...outbox import waiting_actions
from ..asked import Asked, url
from ..frame import Page, chip, counted, empty, moment, pager, says, span
from .questions import unanswered_questions

PER_PAGE = 20
BRANCHES = 6
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
    shown = found[start : start + PER_PAGE]
    rows = [_row(asked, one, broken) for one in shown]
    total = counted(len(found), "session") + (f" with “{wanted}” in its name" if wanted else "")
    older = url("/", q=wanted, from_=start + PER_PAGE) if len(found) > start + PER_PAGE else None
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


def _row(asked: Asked, one: Listed, broken: list[DamagedHead]) -> list[Html]:
    waiting: dict[str, float] = {}
    failed: set[str] = set()
    parked: set[str] = set()
    asking: set[str] = set()
    more = False
    version = 0
    branches = [head for head, _ in one.heads if not head.is_ledger]
    for head in branches[:BRANCHES]:
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
    plus = "+" if len(branches) > BRANCHES else ""
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
