"""One commit: what it did, read and left to do; and what differs between two commits."""

from __future__ import annotations

from typing import Any

from ..._html import Child, Html, data, el, inline, table
from ..._store import canonical
from ..._store._history.diff import diff_values
from ..._store._history.log import Entry
from ..._store.commits import CommitRecord, operation_payload, read_queue, read_roots
from ..._store.layout import Meta, Roots
from ..._store.objects import Oid
from ...errors import MissingObject
from ..asked import Asked, within
from ..frame import Page, cause, chip, counted, empty, moment, pager, says, short
from ..paging import differing
from .fields import field_table
from .session import commit_facts

OPERATIONS = 50
"""Operations, reads and waiting events of a commit that its page shows."""

PER_PAGE = 20
"""Artifacts of a difference on one page."""


def commit_page(asked: Asked) -> Page:
    """Return a commit with its operations."""
    found = asked.entry(asked.oid("id") or asked.head.commit)
    record = found.record
    body: list[Child] = [
        el("div", el("h1", says(found) or "(no message)"), class_="head"),
        el("div", commit_facts(asked, found), _actions(asked, found), class_="split even"),
    ]
    if record is None:
        body.append(
            el(
                "p",
                "reactifact did not make this commit: what it did stands in its difference alone.",
                class_="notice",
            )
        )
        body.append(el("pre", found.object.message.strip()[:5000]))
    else:
        body += [
            _operations(asked, record, found),
            _reads(asked, record, found),
            _calls(record),
            _queue(asked, found),
        ]
    trail = (("History", asked.url("/session")),)
    return Page(f"Commit {short(found.commit)}", body, tab="/session", trail=trail)


def _actions(asked: Asked, found: Entry) -> Html:
    links: list[Child] = []
    if found.object.parents:
        links.append(
            asked.link("What changed", "/diff", "button", old=found.object.parents[0], new=found.commit)
        )
    if found.record is None or found.record.kind != "ledger":
        links.append(asked.link("Artifacts at this commit", "/artifacts", "button", at=found.commit))
        links.append(asked.link("History from here", "/session", "button", lanes=found.commit))
    return el("div", el("p", links, class_="buttons"))


def _operations(asked: Asked, record: CommitRecord, found: Entry) -> Child:
    if not record.operations:
        return [el("h2", "Operations"), empty("It changed no artifact.")]
    items = [_operation(asked, one, found) for one in record.operations[:OPERATIONS]]
    left = len(record.operations) - OPERATIONS
    return [
        el("h2", counted(len(record.operations), "operation")),
        el("ul", items, class_="stack"),
        el("p", f"and {left} more", class_="muted") if left > 0 else None,
    ]


def _operation(asked: Asked, one: dict[str, Any], found: Entry) -> Html:
    kind = str(one.get("type", ""))
    name = asked.artifact(str(one.get("artifact_id", "")), found.commit)
    if kind in ("link", "unlink"):
        target = one.get("target_id")
        other = asked.artifact(str(target), found.commit) if target else "anything"
        return el(
            "li",
            chip(kind, kind),
            " ",
            name,
            " ",
            el("i", one.get("relation") or "any"),
            " → ",
            other,
            class_="card",
        )
    version = one.get("version")
    payload = _payload(asked, one)
    return el(
        "li",
        el(
            "p",
            chip(kind, kind),
            " ",
            name,
            el("span", f" v{version}", class_="number") if version is not None else None,
            el("span", f" {one.get('data_type') or ''}", class_="muted small"),
        ),
        None if payload is None else el("details", el("summary", "Data"), data(payload)),
        class_="card",
    )


def _payload(asked: Asked, one: dict[str, Any]) -> Any:
    try:
        return canonical.decode(operation_payload(asked.database, one)) if "payload" in one else None
    except MissingObject:
        return "(no longer in the store)"


def _reads(asked: Asked, record: CommitRecord, found: Entry) -> Child:
    if not record.reads and not record.listings:
        return None
    at = found.object.parents[0] if found.object.parents else None
    items = [
        el("li", asked.artifact(str(name), at), " ", _seen(version), class_="chip plain")
        for name, version in record.reads[:OPERATIONS]
    ]
    items += [
        el("li", "all of ", el("code", str(listing[0])), class_="chip plain") for listing in record.listings
    ]
    left = len(record.reads) - OPERATIONS
    return [
        el("h2", "What it read"),
        el("ul", items, class_="chips"),
        el("p", f"and {left} more", class_="muted") if left > 0 else None,
    ]


def _seen(version: int) -> Html:
    return el("span", "not there" if version < 0 else f"v{version}", class_="number muted")


def _calls(record: CommitRecord) -> Child:
    calls = record.details.get("calls") or []
    if not calls:
        return None
    rows = [
        [
            call.get("model") or "unnamed",
            el("code", short(str(call.get("request", "")))),
            el("code", short(str(call.get("response", "")))),
        ]
        for call in calls[:OPERATIONS]
    ]
    return [el("h2", "Model calls"), table(["Model", "Request", "Answer"], rows)]


def _queue(asked: Asked, found: Entry) -> Child:
    if found.record is not None and found.record.kind == "ledger":
        return None
    waiting = read_queue(asked.database, found.commit)
    if not waiting:
        return None
    rows = [
        [
            cause(asked, one.event, found.commit),
            "not matched yet" if one.owed is None else ", ".join(one.owed),
        ]
        for one in waiting[:OPERATIONS]
    ]
    return [el("h2", "What waited then"), table(["Event", "Owed to"], rows)]


# -- two commits -----------------------------------------------------------------------------------


def diff_page(asked: Asked) -> Page:
    """Return what differs between two points, artifacts by field, and the form that asks for them."""
    trail = (("History", asked.url("/session")),)
    if asked.text("old") is None or asked.text("new") is None:
        asking: Child = [el("div", el("h1", "What changed"), class_="head"), _points(asked)]
        return Page("Difference", asking, tab="/session", trail=trail)
    old, new = asked.point("old"), asked.point("new")
    before, after = asked.entry(old), asked.entry(new)
    cursor = asked.text("after")
    body = [
        el("div", el("h1", "What changed"), class_="head"),
        _points(asked),
        el(
            "div",
            _point(asked, "Before", before),
            _point(asked, "After", after),
            class_="two",
        ),
        difference(
            asked, read_roots(asked.database, old), read_roots(asked.database, new), old, new, cursor, "/diff"
        ),
    ]
    return Page("Difference", body, tab="/session", trail=trail)


def _points(asked: Asked) -> Html:
    def point(name: str, label: str) -> Html:
        given = asked.text(name) or ""
        field = el("input", type="text", name=name, id=name, value=given, required=True, maxlength=400)
        return el("p", el("label", label, for_=name), field)

    return el(
        "form",
        within(s=asked.session, b=asked.text("b")),
        point("old", "Before"),
        point("new", "After"),
        el("button", "Show", type="submit"),
        el(
            "p",
            "Each is a commit, a version such as v3, a branch or a tag of this session.",
            class_="muted small",
        ),
        action="/diff",
        method="get",
        class_="pair",
    )


def _point(asked: Asked, name: str, found: Entry) -> Html:
    version = None if found.record is None else f"v{found.record.version}"
    return el(
        "section",
        el("h2", name),
        el("p", asked.link(says(found), "/commit", "strong", id=found.commit)),
        el(
            "p",
            version,
            " · ",
            found.author,
            " · ",
            moment(found.time),
            " · ",
            el("code", short(found.commit)),
            class_="muted small",
        ),
        class_="card",
    )


def difference(
    asked: Asked, old: Roots, new: Roots, old_at: Oid, new_at: Oid, cursor: str | None, path: str
) -> Child:
    """Return the artifacts that differ, a page of them."""
    page = differing(asked.database, old.meta, new.meta, cursor, PER_PAGE)
    items = []
    for _, left, right in page.items:
        before, after = _meta(asked, left), _meta(asked, right)
        if (
            before is None
            or after is None
            or (before.payload, before.type_id) != (after.payload, after.type_id)
        ):
            items.append(_changed(asked, before, after, old_at, new_at))
    older = None if page.after is None else asked.url(path, **{**asked.query, "after": page.after})
    if not items and older is None and cursor is None:
        return empty("No artifact differs.")
    return [
        el("h2", counted(len(items), "artifact"), " on this page" if older or cursor else None),
        el("ul", items, class_="stack"),
        pager(asked, older, "More artifacts"),
    ]


def _meta(asked: Asked, oid: Oid | None) -> Meta | None:
    return None if oid is None else Meta.decode(asked.database.read(oid).data)


def _changed(asked: Asked, before: Meta | None, after: Meta | None, old_at: Oid, new_at: Oid) -> Html:
    known = after or before
    assert known is not None
    kind = "added" if before is None else "removed" if after is None else "changed"
    versions = " → ".join(f"v{one.version}" for one in (before, after) if one is not None)
    left, right = _value(asked, before), _value(asked, after)
    if before is None or after is None:
        whole = right if before is None else left
        shown: Child = (
            el("details", el("summary", "Data"), data(whole)) if _is_large(whole) else inline_fields(whole)
        )
    else:
        shown = field_table(diff_values(left, right))
    return el(
        "li",
        el(
            "p",
            chip(kind, kind),
            " ",
            asked.artifact(known.id, new_at if after is not None else old_at),
            " ",
            el("span", versions, class_="number"),
            el("span", f" {known.type_id}", class_="muted small"),
        ),
        shown,
        class_="card",
    )


def inline_fields(value: Any) -> Html:
    """Return an object as a table of its fields."""
    if not isinstance(value, dict) or not value:
        return data(value)
    rows = [
        el("tr", el("th", el("code", name), scope="row"), el("td", inline(one)))
        for name, one in value.items()
    ]
    return el("table", el("tbody", rows), class_="fields whole")


def _is_large(value: Any) -> bool:
    return isinstance(value, dict) and len(value) > 12


def _value(asked: Asked, meta: Meta | None) -> Any:
    return None if meta is None else canonical.decode(asked.database.read(meta.payload).data)
