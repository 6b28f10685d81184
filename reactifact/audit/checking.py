"""Checking a report against a store, long after it was made.

Owns the way back to the commit of the report, also through compactions, and the comparison: the
report is made again there and each of its statements compared. Every object read is hashed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from .._sessions.service import line_at
from .._store._history.revset import heads
from .._store.canonical import content_hash
from .._store.commits import own_record
from .._store.graph import find_change
from .._store.ledger import Ledger
from .._store.object_db import Database
from .._store.objects import Oid
from .._store.protocol import Progress
from ..errors import MissingObject, ReactifactError
from ..replay.hashes import Finder, View, importing
from ..replay.history import CheckedBackend
from .report import AuditReport, ProvenanceEntry, report_of

_OF_THE_CLASS = frozenset({"data_type"})
_OF_THE_COMMIT = frozenset({"commit", "change", "committed_at", "code", "trigger", "calls"})
_APART = frozenset({"answer", "provenance", "commit", "ledger", "branch", "format"})


@dataclass(frozen=True, slots=True)
class CheckedReport:
    """What the check of a report found: what differs, the first first, and what could not be checked."""

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    entries: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


class _Differs(Exception):
    """The check cannot go on; the text says what differs."""


def verify_report(
    report: AuditReport,
    database: Database,
    *,
    find: Finder = importing,
    progress: Progress | None = None,
) -> CheckedReport:
    """Hold every hash, commit, link and name of a report against a store.

    `progress` is called with how many objects were read and hashed; how many there will be is not known.
    Raises `ValueError` for a report of a context that stood alone or was not committed: no store can
    bear it out.
    """
    if not report.session_id or not report.commit or not report.state:
        raise ValueError(
            "this report was made of a context that was not in a store, or not saved: open the session, "
            "save it, and make the report again"
        )
    check = _Check(report, Database(CheckedBackend(database.backend, progress)), find)
    try:
        check.run()
    except (_Differs, ReactifactError, LookupError, ValueError) as error:
        check.differences.append(str(error) if not isinstance(error, KeyError) else str(error.args[0]))
    return CheckedReport(check.differences, check.notes, len(report.entries))


class _Check:
    """One report against one store."""

    def __init__(self, report: AuditReport, database: Database, find: Finder) -> None:
        self.find = find
        self.report = report
        self.database = database
        self.differences: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        """Compare everything."""
        commit = self._commit()
        record = own_record(self.database, commit)
        assert record is not None
        self.is_rewritten = bool(record.compactions)
        if commit != self.report.commit:
            self._rewritten(f"commit {self.report.commit}", commit)
        view = View.at(line_at(self.database, commit, ledger=self._ledger()), self.find)
        self.unknown = view.unknown_types()
        again = report_of(
            view,
            self.report.answer.artifact_id,
            relations=self.report.followed,
            session_id=self.report.session_id,
            reads=self.report.followed_reads,
        )
        for name in (one.name for one in fields(AuditReport) if one.name not in _APART):
            self._field("", name, getattr(self.report, name), getattr(again, name))
        known = {entry.artifact_id: entry for entry in again.entries}
        for entry in self.report.entries:
            if entry.artifact_id not in known:
                raise _Differs(f"{entry.artifact_id}: the store has no such artifact behind the answer")
            self._entry(entry, known.pop(entry.artifact_id))
            stored = view.working.state.stored(entry.artifact_id)
            assert stored is not None
            actual = content_hash(view.working.state.payload(stored.meta))
            if actual != entry.content_hash:
                self._add(f"{entry.artifact_id}.content_hash", entry.content_hash, actual)
        for artifact_id in known:
            self.differences.append(
                f"{artifact_id}: the answer rests on it too, and the report leaves it out"
            )

    def _commit(self) -> Oid:
        """Return the commit of the report, or the one that a compaction made of it."""
        report = self.report
        assert report.commit is not None
        try:
            if self.database.read(report.commit).kind == "commit" and self._is_reached(report.commit):
                return report.commit
        except MissingObject:
            pass
        for head in heads(self.database, report.session_id):
            found = None if head.is_ledger else find_change(self.database, head.commit, report.change)
            if found is not None:
                return found
        raise _Differs(
            f"commit {report.commit} of session {report.session_id!r} is not in "
            f"{self.database.backend.location}"
        )

    def _is_reached(self, commit: Oid) -> bool:
        """Whether a branch of the session holds a commit; what nothing holds proves nothing."""
        seen: set[Oid] = set()
        waiting = [head.commit for head in heads(self.database, self.report.session_id)]
        while waiting:
            oid = waiting.pop()
            if oid == commit:
                return True
            if oid not in seen:
                seen.add(oid)
                waiting += self.database.commit(oid).parents
        return False

    def _ledger(self) -> Oid | None:
        """Return the commit of the ledger that the report saw. It must be in the ledger still."""
        if self.report.ledger is None:
            return None
        ledger = Ledger(self.database, self.report.session_id)
        ledger.refresh()
        if not ledger.contains(self.report.ledger):
            raise _Differs(f"commit {self.report.ledger} is not in the ledger of the session any more")
        return self.report.ledger

    def _entry(self, said: ProvenanceEntry, now: ProvenanceEntry) -> None:
        is_folded = now.commit is None and said.commit is not None and self.is_rewritten
        if is_folded:
            self.notes.append(
                f"{said.artifact_id}: commit {said.commit} was folded by a compaction; author, data and what "
                f"it read were checked, code, trigger and calls could not be"
            )
        for name in (one.name for one in fields(ProvenanceEntry) if one.name not in _OF_THE_CLASS):
            if is_folded and name in _OF_THE_COMMIT:
                continue
            left, right = getattr(said, name), getattr(now, name)
            if name == "commit" and left != right and self.is_rewritten and left and right:
                self._rewritten(f"{said.artifact_id}: commit {left}", right)
            elif name == "sha256" and left != right and self.find(said.type_id) is None:
                self._unchecked(f"{said.artifact_id}.sha256", [said.type_id])
            else:
                self._field(f"{said.artifact_id}.", name, left, right)

    def _field(self, where: str, name: str, said: Any, now: Any) -> None:
        if said == now:
            return
        if name == "context_sha256" and self.unknown:
            self._unchecked(name, self.unknown)
            return
        for text, left, right in _parts(f"{where}{name}", said, now):
            self._add(text, left, right)

    def _add(self, where: str, said: Any, now: Any) -> None:
        self.differences.append(f"{where}: the report says {said!r}, the store {now!r}")

    def _unchecked(self, what: str, types: list[str]) -> None:
        self.notes.append(
            f"{what} was not checked: it leaves out the transient fields of {', '.join(types)}, which cannot "
            f"be imported here"
        )

    def _rewritten(self, what: str, now: Oid) -> None:
        note = f"{what} was rewritten by a compaction and is {now} now; what it did is the same"
        if note not in self.notes:
            self.notes.append(note)


def _parts(where: str, said: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs in two values; of lists each item that one side lacks."""
    if isinstance(said, list) and isinstance(now, list):
        for item in said:
            if item not in now:
                yield where, item, None
        for item in now:
            if item not in said:
                yield where, None, item
        if all(item in now for item in said) and all(item in said for item in now):
            yield where, said, now  # the same in another order, or repeated
        return
    yield where, said, now
