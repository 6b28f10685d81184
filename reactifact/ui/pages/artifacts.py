"""Artifacts: those of a branch by type, and one with its data, its history, its blame and its relations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from ..._html import Child, Html, data, el, facts, inline, lines, table
from ..._store import canonical
from ..._store._history.blame import writers
from ..._store.index import meta_at
from ..._store.layout import Meta
from ..._store.names import encode_name
from ..._store.objects import Oid
from ..._store.state import State, Stored
from ..._store.trees import subtree
from ...errors import MissingObject, UnknownRevision
from ...outbox import delivery_of
from ...viz import type_name
from ..asked import Asked, BadQuery, within
from ..frame import Page, chip, empty, moment, pager, short, status_chip
from ..paging import files
from .commits import inline_fields
from .fields import data_difference

PER_PAGE = 25
VERSIONS = 15
BLAMED = 30
"""Versions that blame looks back through; a field that none of them wrote is older."""


def artifacts_page(asked: Asked) -> Page:
    """Return the artifacts of one type, and the types there are."""
    state = asked.state()
    types = state.type_ids()
    wanted = asked.text("type") or (types[0] if types else None)
    links = [
        el(
            "li",
            el(
                "a",
                type_name(one),
                href=asked.url("/artifacts", type=one, at=asked.text("at")),
                aria_current="true" if one == wanted else None,
                title=one,
            ),
        )
        for one in types
    ]
    body = [
        el(
            "div",
            el("div", el("h1", "Artifacts"), _where(asked)),
            _find(asked),
            class_="head",
        ),
        el("nav", el("ul", links), class_="pills", aria_label="Types") if links else None,
        _of_type(asked, state, wanted) if wanted else empty("No artifact is stored here yet."),
    ]
    return Page(
        "Artifacts", body, tab="/artifacts", is_live=asked.text("after") is None and asked.text("at") is None
    )


def _where(asked: Asked) -> Html:
    at = asked.text("at")
    if at is None:
        return el("p", "on branch ", chip(asked.head.branch, "branch"), class_="muted")
    return el("p", "at commit ", asked.link(short(at), "/commit", "id", id=at), class_="muted")


def _find(asked: Asked) -> Html:
    return el(
        "form",
        within(s=asked.session, b=asked.text("b"), at=asked.text("at")),
        el("label", "Id", for_="id"),
        el("input", type="search", name="id", id="id", required=True),
        el("button", "Open", type="submit"),
        action="/artifact",
        method="get",
        class_="search",
    )


def _of_type(asked: Asked, state: State, type_id: str) -> Child:
    root = subtree(asked.database, state.roots.artifacts, (encode_name(type_id),))
    page = files(asked.database, root, asked.text("after"), PER_PAGE)
    rows = []
    for path, _, _ in page.items:
        meta = meta_at(asked.database, state.roots, path)
        rows.append(
            [
                asked.artifact(meta.id),
                el("span", f"v{meta.version}", class_="number"),
                moment(meta.updated_at),
                el("b", meta.author),
            ]
        )
    if not rows:
        return empty(f"There is no artifact of the type {type_id}.")
    older = None
    if page.after is not None:
        older = asked.url("/artifacts", type=type_id, at=asked.text("at"), after=page.after)
    return [
        el("h2", type_name(type_id), el("span", f" {type_id}", class_="muted small")),
        table(["Artifact", "Version", "Written", "By"], rows, class_="cards"),
        pager(asked, older, "More"),
    ]


# -- one artifact ----------------------------------------------------------------------------------


def artifact_page(asked: Asked) -> Page:
    """Return an artifact as it is, or as it was at a commit."""
    artifact_id = asked.required("id", "artifact")
    state = asked.state()
    stored = state.stored(artifact_id)
    if stored is None:
        place = f"commit {short(asked.commit)}" if asked.text("at") else asked.head.name
        raise UnknownRevision(
            f"{place} holds no artifact {artifact_id!r}: it was deleted, or is on another branch"
        )
    meta = stored.meta
    value = canonical.decode(state.payload(meta))
    compared = _compared(asked, artifact_id)
    body = [
        el(
            "div",
            el("div", el("h1", artifact_id, class_="id"), el("p", meta.type_id, class_="muted")),
            class_="head",
        ),
        compared,
        el(
            "div",
            el("section", el("h2", "Data"), _shown(value), _relations(asked, state, artifact_id)),
            el("section", _facts(asked, state, meta), _history(asked, state, stored)),
            class_="split even",
        ),
        _blame(asked, state, artifact_id),
    ]
    trail = (("Artifacts", asked.url("/artifacts", type=meta.type_id, at=asked.text("at"))),)
    is_newest = not any(asked.text(name) for name in ("at", "from", "old"))
    return Page(artifact_id, body, tab="/artifacts", trail=trail, is_live=is_newest)


def _shown(value: Any) -> Html:
    if isinstance(value, dict):
        return el("div", inline_fields(value), el("details", el("summary", "As JSON"), data(value)))
    return data(value)


def _facts(asked: Asked, state: State, meta: Meta) -> Child:
    how: Child = "directly"
    if meta.commit is not None:
        how = ["in ", _change(asked, meta)]
    rows: list[tuple[Child, Child]] = [
        ("version", f"v{meta.version}"),
        ("created", moment(meta.created_at)),
        ("written", [moment(meta.updated_at), " by ", el("b", meta.author), ", ", how]),
    ]
    if meta.reads or meta.listings:
        reads = [
            [
                asked.artifact(read.artifact_id),
                f" v{read.version}, " if read.version >= 0 else " (not there), ",
            ]
            for read in meta.reads[:20]
        ]
        reads += [["all of ", el("code", listing.type_id), " "] for listing in meta.listings[:20]]
        rows.append((f"read by {meta.writer_author or 'its writer'}", reads))
    rows.append(("hash", el("code", short(meta.content_hash))))
    found = delivery_of(state, asked.ledger, meta.id)
    if found is not None:
        said: list[Child] = [status_chip(found.status)]
        if found.dispatched_at:
            said += [" ", moment(found.dispatched_at)]
        if found.attempts:
            said += [f", attempts: {found.attempts}"]
        if found.error:
            said += [el("pre", lines(found.error[:2000]), class_="bad-text")]
        rows.append(("delivery", said))
    return [el("h2", "Facts"), facts(rows, class_="facts")]


def _change(asked: Asked, meta: Meta) -> Html:
    """Return a link that looks the commit of a version up by its Change-Id."""
    assert meta.commit is not None
    return asked.link(short(meta.commit), "/change", "id", change=meta.commit)


def _history(asked: Asked, state: State, newest: Stored) -> Child:
    """Return a page of the versions, each to be chosen as one of two that are compared."""
    start = asked.oid("from")
    first = newest if start is None else _version(asked, newest.meta.id, start)
    oldest = state.oldest_version(newest.meta.id)
    rows: list[Html] = []
    stored: Stored | None = first
    while stored is not None and len(rows) < VERSIONS:
        rows.append(_version_row(asked, stored, len(rows)))
        previous = stored.meta.previous
        ends = previous is None or stored.meta.version <= oldest
        stored = None if ends or previous is None else _earlier(state, previous)
    here = {"id": newest.meta.id, "at": asked.text("at")}
    older = (
        None if stored is None else asked.url("/artifact", **here, from_=stored.oid, old=asked.text("old"))
    )
    form = el(
        "form",
        within(s=asked.session, b=asked.text("b"), **here, **{"from": start}),
        el(
            "table",
            el(
                "thead",
                el(
                    "tr",
                    *(el("th", name, scope="col") for name in ("Old", "New", "Version", "Written", "By")),
                ),
            ),
            el("tbody", rows),
            class_="versions",
        ),
        el("button", "Compare the two", type="submit") if len(rows) > 1 or asked.text("old") else None,
        action="/artifact",
        method="get",
    )
    return [
        el("h2", "History"),
        form,
        pager(asked, older, "Older versions", asked.url("/artifact", **here) if start else None),
    ]


def _earlier(state: State, oid: Oid) -> Stored | None:
    try:
        return state.stored_at(oid)
    except MissingObject:  # a shallow clone holds no versions from before its commits
        return None


def _held(state: State, artifact_id: str) -> Iterator[Stored]:
    """Yield the versions of an artifact that the store holds, the newest first."""
    with suppress(MissingObject):
        yield from state.versions(artifact_id)


def _version_row(asked: Asked, stored: Stored, place: int) -> Html:
    meta = stored.meta

    def choice(name: str, is_chosen: bool) -> Html:
        return el(
            "td",
            el(
                "input",
                type="radio",
                name=name,
                value=stored.oid,
                checked=is_chosen,
                aria_label=f"{name}: version {meta.version}",
            ),
        )

    chosen_old, chosen_new = asked.text("old"), asked.text("new")
    commit: Child = el("span", "directly", class_="muted small")
    if meta.commit is not None:
        commit = el("span", _change(asked, meta), class_="small")
    return el(
        "tr",
        choice("old", stored.oid == chosen_old if chosen_old else place == 1),
        choice("new", stored.oid == chosen_new if chosen_new else place == 0),
        el("th", f"v{meta.version}", scope="row", class_="number"),
        el("td", moment(meta.updated_at)),
        el("td", el("b", meta.author), " ", commit),
    )


def _version(asked: Asked, artifact_id: str, oid: Oid) -> Stored:
    """Return the version of an artifact that an id of its bookkeeping stands for. Raises `BadQuery`."""
    found = asked.database.read(oid)
    meta = Meta.decode(found.data) if found.kind == "blob" else None
    if meta is None or meta.id != artifact_id:
        raise BadQuery(f"{oid} is not a version of {artifact_id!r}.")
    return Stored(oid, meta)


def _compared(asked: Asked, artifact_id: str) -> Child:
    old, new = asked.oid("old"), asked.oid("new")
    if old is None or new is None:
        return None
    before, after = _version(asked, artifact_id, old).meta, _version(asked, artifact_id, new).meta
    values = [canonical.decode(asked.database.read(meta.payload).data) for meta in (before, after)]
    return el(
        "section",
        el("h2", f"v{before.version} → v{after.version}"),
        data_difference(*values),
        class_="card",
    )


def _relations(asked: Asked, state: State, artifact_id: str) -> Child:
    outgoing = state.outgoing(artifact_id)[:100]
    rows: list[list[Child]] = [
        ["→", el("i", edge.relation), asked.artifact(edge.target)] for edge in outgoing
    ]
    is_whole = asked.text("incoming") is not None
    if is_whole:
        rows += [
            ["←", el("i", edge.relation), asked.artifact(source)]
            for source in state.incoming_sources(artifact_id)
            for edge in state.outgoing(source)
            if edge.target == artifact_id
        ]
    more = asked.url("/artifact", id=artifact_id, at=asked.text("at"), incoming="1")
    return [
        el("h2", "Relations"),
        table(["", "Relation", "Artifact"], rows) if rows else empty("It points at nothing."),
        None
        if is_whole
        else el(
            "p",
            el("a", "Look for what points at it", href=more),
            el("span", " (reads every relation of the branch)", class_="muted"),
        ),
    ]


def _blame(asked: Asked, state: State, artifact_id: str) -> Child:
    found = writers(asked.database, islice(_held(state, artifact_id), BLAMED), artifact_id)
    rows = []
    for path, (value, meta, is_exact) in sorted(found.items())[:200]:
        version = f"v{meta.version}" if is_exact else f"v{meta.version} or before"
        by: Child = [
            el("b", meta.author),
            " ",
            _change(asked, meta) if meta.commit else el("span", "directly", class_="muted small"),
        ]
        rows.append(
            [
                el("code", path or "(whole)"),
                inline(value),
                el("span", version, class_="number"),
                by,
                moment(meta.updated_at),
            ]
        )
    return el(
        "section",
        el("h2", "Blame"),
        el("p", "Which version wrote the present value of each field.", class_="muted"),
        table(["Field", "Value", "Version", "By", "Time"], rows, class_="cards blame"),
    )
