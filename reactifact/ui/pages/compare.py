"""Two branches side by side, and what merging one into the other would do."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import Any

from ..._context.context import Context
from ..._html import Child, Html, el, inline, table
from ..._store._history.log import Entry, own_line
from ..._store._history.revset import Head
from ..._store.branch import Branch
from ..._store.commits import read_roots
from ..._store.graph import merge_bases
from ..._store.objects import Oid
from ...errors import MissingObject, UnknownRevision
from ...merging import ConflictDetail, MergePreview
from ..asked import Asked, within
from ..frame import Page, chip, counted, empty, moment, says, short
from .commits import difference

COMMITS = 15
"""Commits of each side that are shown, down to where the two parted."""

_SHOWN = 60


def compare_page(asked: Asked) -> Page:
    """Return the two branches that the query names, or the form that asks for them."""
    names = [head.branch for head in asked.branches]
    into = asked.text("into") or asked.head.branch
    source = asked.text("from") or next((name for name in names if name != into), None)
    body: list[Child] = [
        el("div", el("h1", "Compare"), class_="head"),
        _form(asked, names, into, source),
    ]
    if source is None:
        body.append(empty("The session has one branch: there is nothing to compare it with."))
    elif source == into:
        body.append(empty("Choose two branches."))
    else:
        body += _sides(asked, _head(asked, into), _head(asked, source))
    return Page("Compare", body, tab="/compare", is_live=asked.text("after") is None)


def _head(asked: Asked, name: str) -> Head:
    for head in asked.branches:
        if head.branch == name:
            return head
    raise UnknownRevision(f"session {asked.session!r} has no branch {name!r}")


def _form(asked: Asked, names: list[str], into: str, source: str | None) -> Html:
    def choice(name: str, label: str, chosen: str | None) -> Html:
        options = [el("option", one, value=one, selected=one == chosen) for one in names]
        return el("p", el("label", label, for_=name), el("select", options, name=name, id=name))

    return el(
        "form",
        within(s=asked.session, b=asked.text("b")),
        choice("from", "Merge", source),
        choice("into", "into", into),
        el("button", "Show", type="submit"),
        action="/compare",
        method="get",
        class_="pair",
    )


def _sides(asked: Asked, into: Head, source: Head) -> list[Child]:
    bases = merge_bases(asked.database, into.commit, source.commit)
    return [
        el(
            "div",
            _side(asked, into, set(bases)),
            _side(asked, source, set(bases)),
            class_="two",
        ),
        _preview(asked, into, source),
        el(
            "section",
            el(
                "h2",
                "What differs, ",
                chip(into.branch, "branch"),
                " before and ",
                chip(source.branch, "branch"),
                " after",
            ),
            difference(
                asked,
                read_roots(asked.database, into.commit),
                read_roots(asked.database, source.commit),
                into.commit,
                source.commit,
                asked.text("after"),
                "/compare",
            ),
        ),
    ]


def _side(asked: Asked, head: Head, bases: set[Oid]) -> Html:
    found: list[Entry] = []
    base: Entry | None = None
    with suppress(MissingObject):  # of a shallow clone
        for one in islice(own_line(asked.database, head.commit), COMMITS + 1):
            if one.commit in bases:
                base = one
                break
            found.append(one)
    items = [
        el(
            "li",
            el("p", asked.link(says(one), "/commit", "subject", id=one.commit)),
            el("p", el("b", one.author), " · ", moment(one.time), class_="muted small"),
        )
        for one in found[:COMMITS]
    ]
    end: Child = None
    if base is not None:
        end = el(
            "p",
            "parted at ",
            asked.link(says(base) or short(base.commit), "/commit", None, id=base.commit),
            class_="muted small",
        )
    elif len(found) > COMMITS:
        end = el("p", "and more before these", class_="muted small")
    return el(
        "section",
        el("h2", chip(head.branch, "branch")),
        el("ol", items, class_="plain commits") if items else empty("Nothing since the two parted."),
        end,
        class_="card",
    )


def _preview(asked: Asked, into: Head, source: Head) -> Html:
    lines = [Branch.load(asked.database, one.session, one.branch) for one in (into, source)]
    if lines[0] is None or lines[1] is None:
        raise UnknownRevision(f"{into.name} or {source.name} was deleted just now")
    found = Context.over(lines[0]).merge(Context.over(lines[1]), dry_run=True)
    assert found is not None
    return el(
        "section",
        el("h2", "Merging ", chip(source.branch, "branch"), " into ", chip(into.branch, "branch")),
        _verdict(found),
        _listed(asked, found, into, source),
        el("ul", [_conflict(one) for one in found.details[:_SHOWN]], class_="stack")
        if found.details
        else None,
        class_="card wide-card",
    )


def _verdict(found: MergePreview) -> Html:
    if found.details:
        text = ": nothing would be applied until a policy or a person decides."
        return el("p", chip("conflict", "bad"), " ", counted(len(found.details), "conflict"), text)
    if found.is_empty:
        return el("p", chip("nothing to do", "ok"), " Nothing would be taken over.")
    return el("p", chip("clean", "ok"), " It would go through.")


def _listed(asked: Asked, found: MergePreview, into: Head, source: Head) -> Child:
    rows: list[list[Child]] = []
    for kind, names, at in (
        ("adopt", found.adopted, source.commit),
        ("combine", found.combined, source.commit),
        ("delete", found.deleted, into.commit),
    ):
        rows += [[chip(kind, kind), asked.artifact(name, at)] for name in names[:_SHOWN]]
        rows += [["", f"and {len(names) - _SHOWN} more"]] if len(names) > _SHOWN else []
    for kind, relations in (("link", found.linked), ("unlink", found.unlinked)):
        rows += [
            [
                chip(kind, kind),
                [
                    asked.artifact(r.source_id, source.commit),
                    " ",
                    el("i", r.relation),
                    " → ",
                    asked.artifact(r.target_id, source.commit),
                ],
            ]
            for r in relations[:_SHOWN]
        ]
        rows += [["", f"and {len(relations) - _SHOWN} more"]] if len(relations) > _SHOWN else []
    return table(["What", "Artifact"], rows, class_="preview") if rows else None


def _conflict(one: ConflictDetail) -> Html:
    rows = []
    for name in one.fields:
        sides = [_side_value(data, name) for data in one.stored]
        rows.append(
            el(
                "tr",
                el("th", el("code", name or "(whole)"), scope="row"),
                *(el("td", side) for side in sides),
            )
        )
    return el(
        "li",
        el("p", chip("conflict", "bad"), " ", el("b", one.summary)),
        el(
            "table",
            el(
                "thead",
                el("tr", *(el("th", name, scope="col") for name in ("Field", "Base", "Ours", "Theirs"))),
            ),
            el("tbody", rows),
            class_="fields",
        )
        if rows
        else None,
        class_="card",
    )


def _side_value(data: dict[str, Any] | None, name: str) -> Child:
    if data is None:
        return el("span", "(not there)", class_="muted")
    if name not in data:
        return el("span", "(none)", class_="muted")
    text = json.dumps(data[name])
    return inline(data[name]) if len(text) < 2000 else el("code", f"{text[:2000]}...")
