"""What differs between two points of a store: states, and what was delivered in between.

Owns `Point` (a commit, with the ledger that belongs to it), `BranchDiff` and its renderings. The
comparison of states is `diff`'s.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..errors import UnknownRevision
from .database import Database, Objects
from .diff import StateDiff, diff_states
from .difftext import lines
from .ledger import LedgerEntry
from .names import ledger_ref
from .objects import Oid
from .printable import plain
from .records import read_roots
from .revisions import Head, find_branch, resolve
from .timeline import Entry, entry
from .trees import compare, subtree


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
    states = (read_roots(database, point.entry.commit) for point in (old, new))
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
