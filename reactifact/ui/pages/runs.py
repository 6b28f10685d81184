"""A run as a timeline: who woke whom, what each step read and wrote, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..._html import Child, Html, el
from ..._store._history.log import Entry
from ..._store.commits import CommitRecord
from ..._store.objects import Oid
from ...errors import MissingObject, UnknownRevision
from ..asked import Asked, BadQuery
from ..frame import Page, chip, counted, moment, pager, says, short, span, status_chip
from ..graph import COLOURS, Lanes

STEPS = 40
"""Steps of a run on one page, the last ones first looked for."""

LOOKED_AT = 300
"""Commits that one look for a Change-Id goes through."""

_SHOWN = 12


@dataclass(frozen=True)
class Step:
    """One commit of a run. `woken_by` is the place, among these, of the step that wrote its trigger."""

    entry: Entry
    record: CommitRecord
    woken_by: int | None
    seconds: float
    """Since the commit before it."""


def run_page(asked: Asked) -> Page:
    """Return the run that a commit belongs to, up to that commit, the first step on top."""
    last = asked.entry(asked.oid("at") or asked.head.commit)
    if last.record is None or not last.record.run_id:
        raise UnknownRevision(f"commit {short(last.commit)} belongs to no run: nothing was run to make it")
    found, before = _commits(asked, last)
    steps = _steps(found, before)
    run = last.record.run_id
    goes_on = before is not None and before.record is not None and before.record.run_id == run
    calls = sum(len(step.record.details.get("calls") or ()) for step in steps)
    whole = (last.time - (steps[0].entry.time if goes_on or before is None else before.time)).total_seconds()
    agents = list(dict.fromkeys(step.entry.author for step in steps))
    numbers = [
        ("Steps", str(len(steps)) + ("+" if goes_on else "")),
        ("Generations", str(len({step.record.generation for step in steps}))),
        ("Agents", str(len(agents))),
        ("Took", span(max(0.0, whole))),
        ("Model calls", str(calls)),
    ]
    earlier = asked.url("/run", at=before.commit) if goes_on and before is not None else None
    body = [
        el("div", el("div", el("h1", "Run"), el("p", el("code", run), class_="muted")), class_="head"),
        el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in numbers], class_="numbers"),
        _map(steps, agents),
        el("nav", el("a", "Earlier steps of this run", href=earlier, class_="button"), class_="pager")
        if earlier
        else None,
        _begin(asked, before) if not goes_on and before is not None else None,
        _timeline(asked, steps),
    ]
    trail = (("History", asked.url("/session")),)
    return Page(f"Run {short(run)}", body, tab="/session", trail=trail, is_live=asked.text("at") is None)


def _commits(asked: Asked, last: Entry) -> tuple[list[Entry], Entry | None]:
    """Return the last commits of a run, the oldest first, and the commit before them."""
    assert last.record is not None
    found = [last]
    while True:
        parents = found[-1].object.parents
        if not parents:
            return found[::-1], None
        try:
            before = asked.entry(parents[0])
        except MissingObject:  # of a shallow clone
            return found[::-1], None
        is_same = before.record is not None and before.record.run_id == last.record.run_id
        if not is_same or len(found) == STEPS:
            return found[::-1], before
        found.append(before)


def _steps(found: list[Entry], before: Entry | None) -> list[Step]:
    wrote: dict[str, int] = {}
    steps: list[Step] = []
    known = before
    for place, one in enumerate(found):
        record = one.record
        assert record is not None
        trigger = record.trigger or {}
        seconds = 0.0 if known is None else max(0.0, (one.time - known.time).total_seconds())
        steps.append(Step(one, record, wrote.get(str(trigger.get("artifact_id"))), seconds))
        wrote.update((str(write[0]), place) for write in record.writes)
        known = one
    return steps


# -- the map: agents as lines, steps as points, from waker to woken --

_LEFT, _TOP, _LANE = 14, 18, 34
_NEAREST, _FARTHEST, _WIDE = 34, 140, 560


def _map(steps: list[Step], agents: list[str]) -> Html:
    """Return the picture of who woke whom."""
    place = {agent: number for number, agent in enumerate(agents)}
    gap = max(_NEAREST, min(_FARTHEST, _WIDE // max(1, len(steps) - 1)))
    width = _LEFT * 2 + gap * max(1, len(steps) - 1)
    height = _TOP * 2 + _LANE * (len(agents) - 1)
    shapes: list[Child] = [
        el("path", d=f"M{_LEFT} {_y(number)}H{width - _LEFT}", class_="rail") for number in range(len(agents))
    ]
    for number, step in enumerate(steps):
        if step.woken_by is not None:
            x, y = _x(step.woken_by, gap), _y(place[steps[step.woken_by].entry.author])
            end, bottom = _x(number, gap), _y(place[step.entry.author])
            way = f"M{x} {y}C{(x + end) / 2} {y} {(x + end) / 2} {bottom} {end} {bottom}"
            shapes.append(el("path", d=way, class_=f"edge lane-{place[step.entry.author] % COLOURS}"))
    for number, step in enumerate(steps):
        lane = place[step.entry.author]
        shapes.append(
            el(
                "a",
                el("circle", cx=_x(number, gap), cy=_y(lane), r=6, class_=f"dot lane-{lane % COLOURS}"),
                el("title", f"{number + 1}. {step.entry.author}: {says(step.entry)}"),
                href=f"#step-{number + 1}",
                aria_label=f"Step {number + 1}, {step.entry.author}",
            )
        )
    names = [el("li", agent, class_=f"lane-{number % COLOURS}") for number, agent in enumerate(agents)]
    return el(
        "figure",
        el("ol", names, class_="agents"),
        el(
            "div",
            el(
                "svg",
                shapes,
                width=width,
                height=height,
                viewBox=f"0 0 {width} {height}",
                role="group",
                aria_label="Steps",
            ),
            class_="scroll",
            tabindex="0",
            role="group",
            aria_label="Who woke whom",
        ),
        class_="map",
    )


def _x(number: int, gap: int) -> int:
    return _LEFT + number * gap


def _y(lane: int) -> int:
    return _TOP + lane * _LANE


# -- the steps -------------------------------------------------------------------------------------


def _begin(asked: Asked, before: Entry) -> Html:
    return el(
        "p",
        "Began after ",
        asked.link(says(before) or short(before.commit), "/commit", None, id=before.commit),
        " by ",
        el("b", before.author),
        " at ",
        moment(before.time),
        class_="begin muted",
    )


def _timeline(asked: Asked, steps: list[Step]) -> Html:
    items: list[Child] = []
    generation: int | None = None
    for number, step in enumerate(steps):
        if step.record.generation != generation:
            generation = step.record.generation
            items.append(el("li", el("h2", f"Generation {generation}"), class_="generation"))
        items.append(_step(asked, steps, number))
    return el("ol", items, class_="timeline")


def _step(asked: Asked, steps: list[Step], number: int) -> Html:
    step = steps[number]
    record, at = step.record, step.entry.commit
    calls = record.details.get("calls") or []
    models = ", ".join(dict.fromkeys(str(call.get("model") or "unnamed") for call in calls))
    cost: list[Child] = [span(step.seconds)]
    if calls:
        cost.append(f" · {counted(len(calls), 'model call')} ({models})")
    return el(
        "li",
        el(
            "p",
            el("span", f"{number + 1}", class_="step-number"),
            el("b", step.entry.author),
            " ",
            asked.link(says(step.entry), "/commit", "subject", id=at),
        ),
        el(
            "table",
            el(
                "tbody",
                _line("Woken by", _waker(asked, steps, step)),
                _line("Read", _reads(asked, record, at)),
                _line("Wrote", _writes(asked, record, at)),
                _line("Cost", cost),
            ),
            class_="facts",
        ),
        id=f"step-{number + 1}",
        class_="card step",
    )


def _line(name: str, value: Child) -> Html | None:
    return None if not value else el("tr", el("th", name, scope="row"), el("td", value))


def _waker(asked: Asked, steps: list[Step], step: Step) -> Child:
    trigger: dict[str, Any] | None = step.record.trigger
    if not trigger:
        return None
    kind = str(trigger.get("type", "")).removeprefix("artifact_")
    said: list[Child] = [asked.artifact(str(trigger.get("artifact_id", "")), step.entry.commit), f" {kind}"]
    if step.woken_by is not None:
        waker = steps[step.woken_by].entry.author
        said += [
            ", by ",
            el("a", f"step {step.woken_by + 1}", href=f"#step-{step.woken_by + 1}"),
            f" ({waker})",
        ]
    elif trigger.get("timestamp"):
        said += [" at ", moment(datetime.fromisoformat(str(trigger["timestamp"])))]
    return said


def _reads(asked: Asked, record: CommitRecord, at: Oid) -> Child:
    shown: list[Child] = [
        el(
            "li",
            asked.artifact(str(name), at),
            " ",
            "not there" if version < 0 else f"v{version}",
            class_="chip plain",
        )
        for name, version in record.reads[:_SHOWN]
    ]
    shown += [el("li", "all of ", el("code", str(one[0])), class_="chip plain") for one in record.listings]
    left = len(record.reads) - _SHOWN
    shown += [el("li", f"and {left} more", class_="muted")] if left > 0 else []
    return el("ul", shown, class_="chips") if shown else None


def _writes(asked: Asked, record: CommitRecord, at: Oid) -> Child:
    actions = {str(one.get("artifact_id")) for one in record.operations if one.get("action")}
    shown: list[Child] = []
    for name, version, kind in record.writes[:_SHOWN]:
        delivered = _delivery(asked, str(name)) if name in actions else None
        shown.append(
            el(
                "li",
                chip(str(kind), str(kind)),
                " ",
                asked.artifact(str(name), at),
                f" v{version} ",
                delivered,
                class_="chip plain",
            )
        )
    left = len(record.writes) - _SHOWN
    shown += [el("li", f"and {left} more", class_="muted")] if left > 0 else []
    return el("ul", shown, class_="chips") if shown else None


def _delivery(asked: Asked, action_id: str) -> Html:
    entry = asked.ledger.entry(action_id)
    return status_chip("pending" if entry is None else entry.status)


# -- from a Change-Id to its commit ------------------------------------------------------------------


def change_page(asked: Asked) -> Page | str:
    """Return the address of the commit that a Change-Id names, or the page that looks on.

    One look goes through `LOOKED_AT` commits, the newest first.
    """
    change = asked.required("change", "change")
    cursor = asked.text("lanes")
    lanes = Lanes.parsed(asked.database, cursor) if cursor else Lanes.of(asked.database, [asked.head.commit])
    for row in lanes.rows(LOOKED_AT):
        if row.entry.record is not None and row.entry.record.change == change:
            return asked.url("/commit", id=row.entry.commit)
    if lanes.is_done or lanes.is_full:
        raise BadQuery(
            f"No commit of {asked.head.name} carries the change {short(change)}: it was compacted away."
        )
    on = asked.url("/change", change=change, lanes=str(lanes))
    body = [
        el("div", el("h1", "Looking for a change"), class_="head"),
        el("p", f"It is not among the {LOOKED_AT} commits looked at last."),
        pager(asked, on, "Look further back"),
    ]
    return Page(f"Change {short(change)}", body, tab="/session")
