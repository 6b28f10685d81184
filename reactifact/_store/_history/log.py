"""The log of branches, interleaved in time, and the difference of two branches."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..._html import Child, Html, inline, table
from ...errors import UnknownRevision
from ..commits import CommitRecord, own_record, subject
from ..ledger import LedgerEntry
from ..names import ledger_ref, plain
from ..object_db import Database, Objects
from ..objects import CommitObject, Oid
from ..trees import compare, subtree
from .adoption.tree import roots_at
from .diff import StateDiff, diff_states, lines
from .revset import Head, find_branch, resolve

# -- commits as entries of a log: one branch's own line, or several lines interleaved by time --


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit; `record` is `None` for one that reactifact did not make."""

    commit: Oid
    object: CommitObject
    record: CommitRecord | None

    @property
    def time(self) -> datetime:
        """When it was made, aware, in UTC."""
        if self.record is not None:
            return datetime.fromisoformat(self.record.timestamp).astimezone(UTC)
        return datetime.fromtimestamp(self.object.committer.time, UTC)

    @property
    def author(self) -> str:
        """The agent, or whoever made a direct change."""
        return self.object.author.name if self.record is None else self.record.author

    @property
    def subject(self) -> str:
        """What it did, in a sentence."""
        if self.record is not None:
            return subject(self.record)
        return self.object.message.strip().split("\n")[0]

    def touches(self, artifact_id: str) -> bool:
        """Tell whether it wrote, deleted, linked or delivered an artifact."""
        record = self.record
        if record is None:
            return False
        return (
            any(artifact_id in (op.get("artifact_id"), op.get("target_id")) for op in record.operations)
            or any(write[0] == artifact_id for write in record.writes)
            or artifact_id in record.details.get("actions", ())
        )

    def __str__(self) -> str:
        at = self.time.strftime("%Y-%m-%d %H:%M:%SZ")
        subject = self.subject.removeprefix(f"{self.author}: ")
        return f"{self.commit[:10]} {at} {plain(self.author)}: {plain(subject)}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types; keys that do not apply are `None`."""
        record = self.record
        return {
            "commit": self.commit,
            "change": None if record is None else record.change,
            "kind": "foreign" if record is None else record.kind,
            "session": None if record is None else record.session,
            "branch": None if record is None else record.branch,
            "version": None if record is None else record.context_version,
            "time": self.time.isoformat(),
            "author": self.author,
            "subject": self.subject,
            "trigger": None if record is None else record.trigger,
            "generation": None if record is None else record.generation,
            "run_id": None if record is None else record.run_id or None,
            "parents": list(self.object.parents),
        }


class Log(list[Entry]):
    """Commits in a list that shows as a table in a notebook."""

    SHOWN = 50

    def _repr_html_(self) -> Html:
        """Return the first entries as a table."""
        rows: list[list[Child]] = [
            [one.commit[:10], one.time.isoformat(timespec="seconds"), one.author, one.subject]
            for one in self[: self.SHOWN]
        ]
        caption = f"the first {len(rows)} of {len(self)} commits" if len(self) > len(rows) else None
        return table(["Commit", "Time", "Author", "Subject"], rows, caption=caption)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which commits of a log are wanted: those that fit everything that is not `None`."""

    artifact_id: str | None = None  # it wrote, deleted, linked or delivered this
    agent: str | None = None  # its author
    since: datetime | None = None  # it is not older
    until: datetime | None = None  # it is not newer
    generation: int | None = None  # of the turn it belongs to, counted from 1

    def __post_init__(self) -> None:
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise ValueError(
                    f"{name}={moment.isoformat()} has no time zone: give an aware datetime, "
                    f"such as datetime.now(UTC)"
                )

    def fits(self, found: Entry) -> bool:
        """Tell whether a commit is wanted."""
        return (
            self.agent in (None, found.author)
            and (self.generation is None or self._of_generation(found))
            and (self.since is None or found.time >= self.since)
            and (self.until is None or found.time <= self.until)
            and (self.artifact_id is None or found.touches(self.artifact_id))
        )

    def _of_generation(self, found: Entry) -> bool:
        return found.record is not None and found.record.generation == self.generation


def entry(objects: Objects, commit: Oid) -> Entry:
    """Return one commit as an entry. Raises `MissingObject`."""
    return Entry(commit, objects.commit(commit), own_record(objects, commit))


def own_line(objects: Objects, head: Oid) -> Iterator[Entry]:
    """Yield the commits of a branch's own line (the first parents), the newest first."""
    following: Oid | None = head
    while following is not None:
        found = entry(objects, following)
        yield found
        following = found.object.parents[0] if found.object.parents else None


def interleaved(objects: Objects, starts: Iterable[Oid]) -> Iterator[Entry]:
    """Yield every commit that the heads `starts` reach, once, the newest first.

    Read only as far as it is consumed. Equal times are ordered by depth, so that a commit comes
    before its parents; where a clock ran backwards, it still comes before those it was reached by.
    """
    waiting: list[tuple[float, int, Oid, Entry]] = []
    seen: set[Oid] = set()

    def push(oid: Oid, latest: float) -> None:
        if oid not in seen:
            seen.add(oid)
            found = entry(objects, oid)
            depth = 0 if found.record is None else found.record.depth
            heapq.heappush(waiting, (-min(found.time.timestamp(), latest), -depth, oid, found))

    for start in starts:
        push(start, float("inf"))
    while waiting:
        negative_time, _, _, found = heapq.heappop(waiting)
        yield found
        for parent in found.object.parents:
            push(parent, -negative_time)


# -- what differs between two points of a store: states, and what was delivered in between --


class Point(NamedTuple):
    """A commit, and the commit of the session's ledger that it is seen together with."""

    entry: Entry
    ledger: Oid | None


@dataclass(frozen=True, slots=True)
class DeliveryChange:
    """An action whose delivery stands otherwise at the second point; `None`: nothing was tried."""

    action_id: str
    old_status: str | None
    new_status: str | None
    attempts: int
    error: str | None
    dispatched_at: str | None
    branch: str | None  # from which it was delivered, or tried last


@dataclass(frozen=True, slots=True)
class BranchDiff:
    """The difference between two points; prints as text."""

    old: Entry
    new: Entry
    state: StateDiff
    deliveries: tuple[DeliveryChange, ...]

    @property
    def is_empty(self) -> bool:
        """Whether states and deliveries are equal."""
        return self.state.is_empty and not self.deliveries

    @property
    def artifact_ids(self) -> tuple[str, ...]:
        """The ids of the artifacts that differ, sorted: those that `git diff --stat` names."""
        whole = [found.id for found in self.state.added + self.state.removed]
        return tuple(sorted(whole + [found.id for found in self.state.changed]))

    def text(self) -> str:
        """Return it for people."""
        shown = [f"{title(self.old)} -> {title(self.new)}"]
        shown += [line.text for line in lines(self.state)]
        shown += [delivery_text(found) for found in self.deliveries]
        if self.is_empty:
            shown.append("the states are equal")
        return "\n".join(shown)

    __str__ = text

    def _repr_html_(self) -> Html:
        """Return the difference as tables, for a notebook."""
        rows: list[list[Child]] = []
        for kind, whole in (("added", self.state.added), ("removed", self.state.removed)):
            for one in whole:
                data = inline(one.data)
                rows.append([kind, one.id, None, *((None, data) if kind == "added" else (data, None))])
        for changed in self.state.changed:
            for field in changed.fields:
                old = None if field.kind == "added" else inline(field.old)
                new = None if field.kind == "removed" else inline(field.new)
                rows.append(["changed", changed.id, field.path, old, new])
        for kind, links in (("link", self.state.relations_added), ("unlink", self.state.relations_removed)):
            rows += [[kind, f"{one.source} {one.relation} {one.target}", None, None, None] for one in links]
        rows += [
            ["delivery", one.action_id, None, one.old_status or "not sent", one.new_status or "not sent"]
            for one in self.deliveries
        ]
        caption = f"{title(self.old)} -> {title(self.new)}"
        return table(["What", "Artifact", "Field", "Before", "After"], rows, caption=caption)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "old": _side(self.old),
            "new": _side(self.new),
            **self.state.to_dict(),
            "deliveries": [asdict(found) for found in self.deliveries],
        }


def find_point(
    database: Database, text: str, *, session: str | None = None, branch: str | None = None
) -> Point:
    """Return the point that a text names (see `revisions.resolve`).

    A branch is seen together with the ledger as it is now, any other commit with the ledger that it
    knew. Raises `UnknownRevision`, also for a commit of a ledger, which holds no state.
    """
    head = find_branch(database, text, session=session)
    commit = resolve(database, text, session=session, branch=branch)
    found = entry(database, commit)
    if found.record is not None and found.record.kind == "ledger":
        raise UnknownRevision(
            f"{text!r} is a commit of a ledger, which holds deliveries and no state: "
            f"compare commits of branches, or see one delivery with show"
        )
    return Point(found, _ledger(database, head, found))


def _ledger(database: Database, head: Head | None, found: Entry) -> Oid | None:
    if head is None or head.commit != found.commit:
        return None if found.record is None else found.record.ledger
    ref = ledger_ref(head.session)
    return database.backend.refs(ref).get(ref)


def diff_points(database: Database, old: Point, new: Point) -> BranchDiff:
    """Compare two points. Costs what differs between them. Raises `MissingObject`."""
    states = (roots_at(database, point.entry.commit) for point in (old, new))
    return BranchDiff(
        old.entry,
        new.entry,
        diff_states(database, *states),
        tuple(_deliveries(database, old.ledger, new.ledger)),
    )


def _deliveries(objects: Objects, old: Oid | None, new: Oid | None) -> list[DeliveryChange]:
    found = []
    for _, left, right in compare(objects, _entries(objects, old), _entries(objects, new)):
        was, now = _decode(objects, left), _decode(objects, right)
        known = now or was
        assert known is not None
        found.append(
            DeliveryChange(
                known.action_id,
                None if was is None else was.status,
                None if now is None else now.status,
                known.attempts,
                known.error,
                known.dispatched_at,
                known.branch,
            )
        )
    return sorted(found, key=lambda change: change.action_id)


def _entries(objects: Objects, ledger: Oid | None) -> Oid | None:
    return None if ledger is None else subtree(objects, objects.commit(ledger).tree, ("ledger",))


def _decode(objects: Objects, oid: Oid | None) -> LedgerEntry | None:
    return None if oid is None else LedgerEntry.decode(objects.read(oid).data)


def title(found: Entry) -> str:
    """Return a commit for people: its id, branch and version."""
    record = found.record
    if record is None:
        return found.commit[:10]
    return f"{found.commit[:10]} ({plain(record.session)}/{plain(record.branch)} v{record.version})"


def delivery_text(found: DeliveryChange) -> str:
    """Return what happened to an action, in a line for people."""
    text = f"> {plain(found.action_id)}  {found.old_status or 'not sent'} -> {found.new_status or 'not sent'}"
    if found.branch:
        text += f"  from branch {plain(found.branch)}"
    if found.error:
        text += f"  ({plain(found.error)})"
    return text


def _side(found: Entry) -> dict[str, Any]:
    whole = found.to_dict()
    version = None if found.record is None else found.record.version
    return {**{name: whole[name] for name in ("commit", "change", "session", "branch")}, "version": version}
