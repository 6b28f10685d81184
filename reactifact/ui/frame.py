"""The frame of every page: the bar on top, the tabs of a session, the way back; and small pieces of pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .._html import Child, Html, document, el
from .._html import moment as moment
from .._store._history.log import Entry
from .._store.objects import Oid
from .asked import Asked

SHORT = 10
"""How many hex digits of an id are shown to people."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

TABS = (
    ("/session", "History"),
    ("/artifacts", "Artifacts"),
    ("/outbox", "Outbox"),
    ("/questions", "Questions"),
    ("/compare", "Compare"),
)


@dataclass(frozen=True)
class Page:
    """What a page shows. `tab` is the path of its tab, `is_live` whether it is to follow a run."""

    title: str
    body: Child
    tab: str = ""
    is_live: bool = False
    status: int = 200
    trail: tuple[tuple[str, str], ...] = field(default=())
    """Links between the name of the session and the title: (text, address)."""


def rendered(page: Page, asked: Asked | None, store: str, pulse: str | None) -> Html:
    """Return a page in its frame."""
    in_session = asked is not None and page.tab != ""
    title = f"{page.title} · reactifact"
    head = [
        el("link", rel="stylesheet", href="/static/style.css"),
        el("link", rel="icon", href="/static/mark.svg", type="image/svg+xml"),
        el("script", src="/static/live.js", defer=True) if pulse is not None else None,
    ]
    return document(
        title,
        el("a", "Skip to the content", href="#content", class_="skip"),
        _bar(store, asked),
        _session_bar(page, asked) if asked is not None and in_session else None,
        el(
            "main",
            _trail(page),
            page.body,
            id="content",
            tabindex="-1",
            data_pulse=pulse,
            data_session=asked.text("s") if asked is not None and pulse is not None else None,
        ),
        el("p", "", id="live", role="status", class_="live") if pulse is not None else None,
        el("footer", el("p", "Times are UTC. ", _writing(asked), class_="muted")),
        head=head,
    )


def _writing(asked: Asked | None) -> str:
    return "This browser may retry and answer." if asked is not None and asked.secret else "Read-only."


def _bar(store: str, asked: Asked | None) -> Html:
    return el(
        "header",
        el(
            "a",
            MARK,
            el("span", "reactifact"),
            href="/",
            class_="brand",
            aria_label="reactifact: all sessions",
        ),
        el("span", store, class_="store", title=store),
        class_="bar",
    )


def _session_bar(page: Page, asked: Asked) -> Html:
    names = [head.branch for head in asked.branches]
    branch = asked.head.branch
    tabs = [
        el(
            "li",
            el(
                "a",
                text,
                href=asked.url(path),
                aria_current="page" if path == page.tab else None,
            ),
        )
        for path, text in TABS
    ]
    return el(
        "div",
        el("p", el("a", asked.session, href=asked.url("/session", b=None)), class_="session-name"),
        el("p", chip(branch, "branch"), class_="session-branch") if len(names) > 1 else None,
        el("nav", el("ul", tabs), class_="tabs", aria_label="Session"),
        class_="session-bar",
    )


def _trail(page: Page) -> Html | None:
    if not page.trail:
        return None
    items = [el("li", el("a", text, href=address)) for text, address in page.trail]
    return el(
        "nav", el("ol", items, el("li", page.title, aria_current="page")), class_="trail", aria_label="Path"
    )


# -- small pieces --------------------------------------------------------------------------------


def chip(text: Child, kind: str = "") -> Html:
    """Return a short mark, such as the name of a branch or how a delivery stands."""
    return el("span", text, class_=f"chip {kind}".strip())


def short(oid: Oid | str) -> str:
    """Return the first digits of an id."""
    return oid[:SHORT]


def span(seconds: float) -> str:
    """Return a span of time in its two largest units."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds else "0 s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 commit`, `2 branches`."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def says(found: Entry) -> str:
    """Return what a commit did, without the name of its author."""
    return found.subject.removeprefix(f"{found.author}: ")


def cause(asked: Asked, trigger: dict[str, Any] | None, at: Oid | None = None) -> Child:
    """Return what a commit reacted to."""
    if not trigger:
        return None
    kind = str(trigger.get("type", "")).removeprefix("artifact_")
    return [kind, " ", asked.artifact(str(trigger.get("artifact_id", "")), at)]


def status_chip(status: str) -> Html:
    """Return how a delivery stands."""
    known = {
        "dispatched": ("delivered", "ok"),
        "pending": ("waiting", "wait"),
        "simulated": ("simulated", "wait"),
    }
    text, kind = known.get(status, (status, "bad"))
    return chip(text, kind)


def pager(asked: Asked, older: str | None, text: str = "Older", newest: str | None = None) -> Html | None:
    """Return the links below a list that is cut into pages."""
    if older is None and newest is None:
        return None
    links = [
        None if newest is None else el("a", "Newest", href=newest, class_="button"),
        None if older is None else el("a", text, href=older, class_="button", rel="next"),
    ]
    return el("nav", links, class_="pager", aria_label="Pages")


def empty(text: Child) -> Html:
    """Return what stands where there is nothing to list."""
    return el("p", text, class_="empty")


MARK = Html(
    '<svg class="mark" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">'
    '<path d="M7 4v16M7 15c0-5 10-3 10-8" fill="none" stroke="currentColor" stroke-width="2" '
    'stroke-linecap="round"></path><circle cx="7" cy="4" r="2.4" fill="currentColor"></circle>'
    '<circle cx="7" cy="20" r="2.4" fill="currentColor"></circle>'
    '<circle cx="17" cy="6" r="2.4" class="mark-dot"></circle></svg>'
)
