"""Commits as entries of a log: one branch's own line, or several lines interleaved by time.

Owns `Entry`, its dictionary shape, the order of interleaved lines and what a log can be asked for.
Reads only.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .database import Objects
from .objects import CommitObject, Oid
from .printable import plain
from .records import CommitRecord, own_record, subject


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
