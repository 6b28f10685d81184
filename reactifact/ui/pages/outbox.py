"""The outbox of a branch as a board: what waits, what failed, what was delivered."""

from __future__ import annotations

from datetime import datetime

from ..._html import Child, Html, el, lines
from ..._store.commits import read_record
from ..._store.objects import Oid
from ...errors import MissingObject
from ...outbox import ActionStatus, waiting_actions
from ..asked import Asked, BadQuery
from ..frame import Page, chip, counted, empty, moment, pager, short, span

SHOWN = 50
"""Actions that wait, and that failed, on one page."""

PER_PAGE = 20
"""Entries of the ledger on one page."""


def outbox_page(asked: Asked) -> Page:
    """Return the board. It costs what waits and one page of the ledger."""
    state = asked.state(asked.head.commit)
    pending, failed, parked, simulated = waiting_actions(state, asked.ledger, asked.now)
    cursor = asked.oid("ledger")
    tip = asked.ledger_tip if cursor is None else cursor
    records, older = _delivered(asked, tip)
    here = asked.url("/outbox")
    next_page = None if older is None else asked.url("/outbox", ledger=older)
    body = [
        el(
            "div",
            el("div", el("h1", "Outbox"), _which(asked)),
            class_="head",
        ),
        el(
            "div",
            _column(
                "Waiting",
                "wait",
                len(pending),
                [_action(asked, one) for one in pending[:SHOWN]],
                "Nothing waits.",
            ),
            el(
                "div",
                _column(
                    "Failed",
                    "bad",
                    len(failed),
                    [_action(asked, one) for one in failed[:SHOWN]],
                    "Nothing failed.",
                ),
                _column(
                    "Parked",
                    "bad",
                    len(parked),
                    [_action(asked, one) for one in parked[:SHOWN]],
                    "",
                    "They failed too often: nobody sends them before they are armed anew.",
                )
                if parked
                else None,
                class_="stack",
            ),
            el(
                "section",
                el("h2", chip("Delivered", "ok"), " the session's ledger", class_="column-head"),
                el("ol", records, class_="plain card") if records else empty("Nothing was delivered yet."),
                pager(asked, next_page, "Older deliveries", here if cursor else None),
            ),
            class_="board",
        ),
        el("p", f"{simulated} simulated on this branch.", class_="muted") if simulated else None,
    ]
    return Page("Outbox", body, tab="/outbox", is_live=cursor is None)


def _which(asked: Asked) -> Child:
    if len(asked.branches) == 1:
        return el("p", "of branch ", chip(asked.head.branch, "branch"), class_="muted")
    links = [
        el(
            "li",
            el(
                "a",
                head.branch,
                href=asked.url("/outbox", b=head.branch),
                aria_current="true" if head == asked.head else None,
            ),
        )
        for head in asked.branches[:40]
    ]
    return el("nav", el("ul", links), class_="pills", aria_label="Branch")


def _column(
    name: str, kind: str, count: int, items: list[Html], nothing: str, about: str | None = None
) -> Html:
    left = count - len(items)
    return el(
        "section",
        el("h2", chip(name, kind), f" {count}", class_="column-head"),
        el("p", about, class_="muted small") if about else None,
        el("ol", items, class_="stack") if items else empty(nothing),
        el("p", f"and {left} more", class_="muted") if left > 0 else None,
    )


def _action(asked: Asked, one: ActionStatus) -> Html:
    return el(
        "li",
        el("p", el("b", one.kind), " ", asked.artifact(one.id)),
        el(
            "p",
            f"planned {span(one.age)} ago",
            f" · {counted(one.attempts, 'attempt')}" if one.attempts else None,
            f" · in order of {one.ordering_key}" if one.ordering_key else None,
            class_="muted small",
        ),
        _later(asked, one),
        el("pre", lines(one.error[:2000]), class_="bad-text") if one.error else None,
        _retry(asked, one) if one.status not in ("pending", "dispatched", "simulated") else None,
        class_="card",
    )


def _later(asked: Asked, one: ActionStatus) -> Html | None:
    """Return when an action may be sent, where that is still to come."""
    if one.not_before is None:
        return None
    wait = (datetime.fromisoformat(one.not_before) - asked.now).total_seconds()
    if wait <= 0:
        return None
    return el("p", chip(f"in {span(wait)}", "wait"), " not before ", moment(one.not_before), class_="small")


def _retry(asked: Asked, one: ActionStatus) -> Html | None:
    if asked.secret is None:
        return None
    return el(
        "form",
        el("input", type="hidden", name="secret", value=asked.secret),
        el("button", "Retry", type="submit", class_="primary", aria_label=f"Retry {one.key}"),
        method="post",
        action=asked.url("/retry", b=asked.head.branch, id=one.id),
    )


def _delivered(asked: Asked, oid: Oid | None) -> tuple[list[Html], Oid | None]:
    """Return what the ledger recorded, the newest first, and the commit that the next page begins with."""
    found: list[Html] = []
    while oid is not None and len(found) < PER_PAGE:
        try:
            record = read_record(asked.database, oid)
        except MissingObject:
            if not found:
                raise
            return found, None  # of a shallow clone
        if record is None or record.kind != "ledger":
            raise BadQuery(f"{short(oid)} is not a commit of the ledger of {asked.session!r}.")
        found.append(
            el(
                "li",
                el("p", _outcome(record.message), asked.link(_told(record.message), "/commit", None, id=oid)),
                el("p", moment(record.timestamp), " · from branch ", record.branch, class_="muted small"),
            )
        )
        parents = asked.database.commit(oid).parents
        oid = parents[0] if parents else None
    return found, oid


_OUTCOMES = {"delivered": "ok", "failed": "bad", "refused": "bad", "interrupted": "wait", "retry": "wait"}
"""The first word of what the ledger records, and how it looks."""


def _outcome(message: str) -> Child:
    word = message.partition(" ")[0]
    return [chip(word, _OUTCOMES[word]), " "] if word in _OUTCOMES else None


def _told(message: str) -> str:
    word, _, rest = message.partition(" ")
    return rest if word in _OUTCOMES else message
