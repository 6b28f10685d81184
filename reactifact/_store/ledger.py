"""The ledger of a session: what was delivered to the world, one line for all its branches.

Owns the entries below `ledger/` on the ref `<session>/%outbox`, one commit a delivery. Only a
delivery, an explicit retry, erasure and pruning change it; no checkout, merge or compaction of a
branch ever does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache, total_ordering
from operator import attrgetter
from typing import Any, NamedTuple

from blake3 import blake3

from ..errors import Contention, MissingObject, StaleSession
from . import canonical, graph
from .canonical import refusing_damage, typed
from .commits import CommitRecord, make_ledger_commit, require_kind, require_record
from .layout import file_path
from .names import ledger_ref
from .object_db import Database, Objects, Staging, blob_entry
from .objects import Hashed, Oid, TreeEntry
from .protocol import RefUpdate
from .trees import Path, compare, read_ahead, subtree, update, walk

LEDGER_AUTHOR = "outbox"
_ATTEMPTS = 8
_LOOKED_AT = 4_096  # entries that are kept as they are at a tip
_EARLIER = 16  # how many commits one names, for those who read back


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the world was told under one action id."""

    action_id: str
    status: str  # pending (an attempt was interrupted, or it was re-armed), dispatched, failed, parked
    intent: str  # content hash of the payload that was sent
    branch: str
    attempts: int = 0
    error: str | None = None
    dispatched_at: str | None = None
    updated_at: str = ""
    changes: int = 0  # how often the delivery state changed: versions of the action beyond its payload
    refused: tuple[str, ...] = ()  # hashes of other payloads that were refused under this id
    rearmed: int = 0  # how often somebody said that it may be sent again
    armed: int = 0  # attempts before it was re-armed last: schedules count from there

    def encode(self) -> bytes:
        """Return the bytes of the ledger file."""
        values = zip(_ENTRY, _ENTRY_VALUES(self), strict=True)
        return canonical.encode_sorted(
            {name: v for name, v in values if v is not None and (v or name not in _LEFT_OUT)}
        )

    @staticmethod
    @lru_cache(maxsize=8192)
    @refusing_damage("an entry of the ledger")
    def decode(data: bytes) -> LedgerEntry:
        """Return the entry in the bytes of a ledger file."""
        record: Any = canonical.decode(data)
        record["refused"] = tuple(record.get("refused", ()))
        return typed(LedgerEntry(**record))


_ENTRY = tuple(sorted(f.name for f in fields(LedgerEntry)))
_ENTRY_VALUES = attrgetter(*_ENTRY)
_LEFT_OUT = ("armed", "rearmed", "refused")  # where they are 0 or empty


def joined(ours: LedgerEntry | None, theirs: LedgerEntry | None) -> LedgerEntry | None:
    """Return what two ledgers know together: `dispatched` over `parked` over `failed` over nothing.

    A failure that was re-armed waits again, unless the other side delivered it, or re-armed it as often and
    it failed again. Counts take the larger. In whatever order ledgers are joined, and however often, the
    result is the same.
    """
    if ours is None or theirs is None:
        return ours or theirs
    return replace(
        max(ours, theirs, key=_weight),
        attempts=max(ours.attempts, theirs.attempts),
        changes=max(ours.changes, theirs.changes),
        rearmed=max(ours.rearmed, theirs.rearmed),
        armed=max(ours.armed, theirs.armed),
        refused=tuple(sorted({*ours.refused, *theirs.refused})),
    )


def _weight(entry: LedgerEntry) -> tuple[Any, ...]:
    """Return the place of an entry among all there can be of its action, but for what is joined apart."""
    told = (entry.updated_at, entry.branch, entry.intent, entry.error or "")
    if entry.status == "dispatched":
        # the first delivery is the one that reached the world
        return (2, _Reversed(entry.dispatched_at or ""), *told)
    return (1, entry.rearmed, {"parked": 2, "failed": 1}.get(entry.status, 0), *told)


@total_ordering
class _Reversed:
    """A text that is the larger, the earlier it comes."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # it is compared and never kept

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text


@dataclass(slots=True)
class LedgerEvent:
    """A delivery another process or an earlier run recorded, with the agents still owed it."""

    branch: str
    action_id: str
    owed: list[str] | None
    timestamp: str


class _Call(NamedTuple):
    """One commit that is staged, so that it can be made again on top of what others wrote."""

    entries: Mapping[str, LedgerEntry]
    before: Mapping[str, LedgerEntry | None]  # what was known of them
    change: str
    when: datetime
    message: str
    branch: str
    owed: list[str] | None
    replaces: tuple[Oid, ...] = ()  # commits that stand in no history, and that this one stands for
    merges: Oid | None = None  # the tip of another ledger of the session, which it takes in


class _Recorded(NamedTuple):
    """A commit that was made here: the one before it, and what it says."""

    parent: Oid | None
    call: _Call
    depth: int | None  # of the commit, where it is known


@dataclass(slots=True)
class Ledger:
    """The ledger of one session as last read, and the entries staged on top of it.

    Deliveries are recorded on the event loop while a worker thread writes those before. `_lock` keeps
    what both touch together and is held for moments; `_writing` lets one thread at a time speak to the
    store, and is taken first.
    """

    database: Database
    session: str
    head: Oid | None = None
    ref: str = field(init=False)
    """The name of the ledger's ref."""
    staged: Staging = field(init=False)
    _writing: threading.Lock = field(init=False, default_factory=threading.Lock)
    _lock: threading.RLock = field(init=False, default_factory=threading.RLock)
    tip: Oid | None = field(init=False, default=None)
    """The newest commit, staged or stored."""
    _calls: list[_Call] = field(init=False, default_factory=list)
    _staged_tips: list[Oid] = field(init=False, default_factory=list)  # of the calls
    _contained: set[Oid] = field(init=False, default_factory=set)  # known to be in its history
    _missing: dict[Oid, Oid | None] = field(
        init=False, default_factory=dict
    )  # looked for in vain, from which tip
    _looked_at: tuple[Oid | None, dict[str, LedgerEntry | None]] = field(
        init=False, default_factory=lambda: (None, {})
    )
    _rooted: tuple[Oid | None, Oid | None] = field(init=False, default=(None, None))  # a tip and its entries
    _recorded: dict[Oid, _Recorded] = field(init=False, default_factory=dict)  # the commits made here last
    _joined: list[Ledger] = field(init=False, default_factory=list)  # whose entries were taken over

    def __post_init__(self) -> None:
        self.ref = ledger_ref(self.session)
        self.staged = Staging(self.database)
        self.tip = self.head

    def refresh(self) -> None:
        """Read the ref again; entries that are staged go on top of what it holds now."""
        with self._writing:
            self._refresh()

    def hear(self) -> list[LedgerEvent]:
        """Read the ref again, and return what others recorded since it was read last, the oldest first."""
        with self._writing:
            known = self.head
            self._refresh()
            return [] if self.head == known else self._between(self.head, known)

    def _refresh(self) -> None:
        head = self.database.backend.refs(self.ref).get(self.ref)
        with self._lock:
            if head == self.head:
                return
            calls, self._calls = self._calls, []
            lost, self._staged_tips = self._staged_tips, []
            self._contained.clear()
            # what goes on top needs nothing of what was staged below it
            self.staged.clear()
            self.head = self.tip = head
            for call, tip in zip(calls, lost, strict=True):
                entries = {i: self._again(i, call) for i in call.entries}
                # a branch may have named the commit that lost the race
                replaces = (*call.replaces, *([] if tip == call.merges else [tip]))
                self._record(call._replace(entries=entries, replaces=replaces))

    def _again(self, action_id: str, call: _Call) -> LedgerEntry:
        """Return an entry of a staged commit as it is on top of what others wrote."""
        now, ours = self.entry(action_id), call.entries[action_id]
        if now == call.before[action_id]:
            return ours  # nobody else touched it, so a retry stays one
        return joined(now, ours) or ours

    def entry(self, action_id: str) -> LedgerEntry | None:
        """Return what is known of an action, or `None`."""
        with self._lock:
            if self._looked_at[0] != self.tip:
                self._looked_at = self.tip, {}
            known = self._looked_at[1]
            if action_id not in known:
                found = self.staged.find(self._root(), file_path(action_id))
                entry = None if found is None else LedgerEntry.decode(self.staged.read(found.oid).data)
                if len(known) >= _LOOKED_AT:
                    known.clear()
                known[action_id] = entry
            return known[action_id]

    def entries(self) -> Iterator[LedgerEntry]:
        """Yield every entry, as they are when the first is asked for."""
        with self._lock:
            files = list(walk(self.staged, self._root()))
        for _, oid in files:
            yield LedgerEntry.decode(self.staged.read(oid).data)

    def record(
        self,
        entries: Mapping[str, LedgerEntry],
        *,
        change: str,
        when: datetime,
        message: str,
        branch: str,
        owed: list[str] | None = None,
        replaces: Sequence[Oid] = (),
    ) -> None:
        """Stage one commit that sets `entries`, and stands for commits of a ledger that is lost."""
        with self._lock:
            before = {action_id: self.entry(action_id) for action_id in entries}
            self._record(_Call(entries, before, change, when, message, branch, owed, tuple(replaces)))

    def merge(self, other: Oid) -> bool:
        """Stage that all another ledger of the session knows, in this store, is known here too.

        Two that went apart become one commit with both as parents, and the same one wherever those two meet.
        Returns false where nothing is new. Raises `MissingObject`, and `DamagedRef` for a commit of a branch.
        """
        require_kind(self.staged, other, self.ref, is_ledger=True)
        with self._lock:
            if self.contains(other):
                return False
            merged = _Call({}, {}, "", datetime.min, "", "", None, merges=other)
            self._record(merged)
            return True

    def _record(self, call: _Call) -> None:
        if call.merges is not None:
            if self.tip is None or not self._holds(call.merges):
                self._merge(call)
                return
            if not call.replaces:
                return  # somebody else has merged it
            known = require_record(self.staged, call.merges, self.ref)
            call = call._replace(
                merges=None,
                change=_change_of(call.replaces),
                when=datetime.fromisoformat(known.timestamp),
                message="outbox: stand for a merge that lost a race",
                branch=known.branch,
                owed=[],
            )
        edits = {
            file_path(action_id): blob_entry(self.staged.put("blob", entry.encode()))
            for action_id, entry in call.entries.items()
        }
        parent = self.tip
        depth = 0
        if parent is not None:
            made = self._recorded.get(parent)
            known_depth = None if made is None else made.depth
            if known_depth is None:
                known_depth = require_record(self.staged, parent, self.ref).depth
            depth = known_depth + 1
        details: dict[str, Any] = {"actions": sorted(call.entries)}
        if call.owed is not None:
            details["owed"] = call.owed
        if call.replaces:
            details["replaces"] = list(call.replaces)
        if parent is not None and (earlier := self._earlier(parent, depth)):
            details["earlier"] = earlier
        record = CommitRecord(
            change=call.change,
            kind="ledger",
            session=self.session,
            branch=call.branch,
            author=LEDGER_AUTHOR,
            timestamp=call.when.isoformat(),
            message=call.message,
            depth=depth,
            details=details,
        )
        root = update(self.staged, self._root(), edits)
        tip = make_ledger_commit(self.staged, record, root, [parent] if parent else [])
        self._stand_on(call, tip, depth)
        self._rooted = tip, root
        if self._looked_at[0] == parent:  # what was known of other actions still holds
            self._looked_at[1].update(call.entries)
            self._looked_at = tip, self._looked_at[1]

    def _stand_on(self, call: _Call, tip: Oid, depth: int | None = None) -> None:
        before, self.tip = self.tip, tip
        self._recorded[tip] = _Recorded(before, call, depth)
        if len(self._recorded) > _EARLIER:
            del self._recorded[next(iter(self._recorded))]
        self._calls.append(call)
        self._staged_tips.append(tip)
        self._contained |= {tip, *call.replaces, *([before] if before else [])}

    def _merge(self, call: _Call) -> None:
        ours, theirs = self.tip, call.merges
        assert theirs is not None
        if (ours is None or self._is_below(theirs, ours)) and not call.replaces:
            self._stand_on(call, theirs)
            return
        if ours is None:
            ours = theirs
        both = sorted({ours, theirs})
        records = [require_record(self.staged, oid, self.ref) for oid in both]
        details: dict[str, Any] = {"replaces": sorted(call.replaces)} if call.replaces else {}
        record = CommitRecord(
            change=_change_of([*both, *call.replaces]),
            kind="ledger",
            session=self.session,
            branch=records[0].branch,
            author=LEDGER_AUTHOR,
            timestamp=max(records, key=lambda one: datetime.fromisoformat(one.timestamp)).timestamp,
            message="outbox: join what two stores delivered",
            depth=1 + max(one.depth for one in records),
            details=details,
        )
        root = joined_trees(self.staged, *(entries_of(self.staged, oid) for oid in (ours, theirs)))
        self._stand_on(call, make_ledger_commit(self.staged, record, root, both))
        self._contained.add(theirs)

    def _holds(self, known: Oid) -> bool:
        return known in self._contained or known == self.tip or self._is_in_history(known)

    def _is_below(self, tip: Oid, known: Oid) -> bool:
        return next(graph.not_below(self.staged, known, tip), None) is None

    def contains(self, known: Oid) -> bool:
        """Tell whether a commit of the ledger is in its history, or one there stands for it.

        What was found or not is remembered. Costs the commits since then, the first time, and all of them
        for one that is missing, once for each tip.
        """
        with self._lock:
            if known == self.tip or known in self._contained:
                return True
            if known not in self._missing or self._missing[known] != self.tip:
                try:
                    if self._is_in_history(known):
                        self._contained.add(known)
                        return True
                    self._missing[known] = self.tip
                except MissingObject:
                    pass  # a shallow clone, which may be deepened: what came before is not there to be seen
        return any(other.contains(known) for other in self._joined)

    def _is_in_history(self, known: Oid) -> bool:
        if self.tip is None:
            return False
        missing: MissingObject | None = None
        seen = {self.tip}
        waiting = [self.tip]
        while waiting:
            oid = waiting.pop()
            try:
                replaced = require_record(self.staged, oid, self.ref).details.get("replaces", ())
                parents = self.staged.commit(oid).parents
            except MissingObject as error:
                missing = error
                continue
            if known == oid or known in replaced or known in parents:
                return True
            waiting += [parent for parent in parents if parent not in seen]
            seen.update(parents)
        if missing is not None:
            raise missing
        return False

    def read_ahead(self, ids: Iterable[str]) -> None:
        """Bring what is known of some actions into the cache, and what recording of them needs. Blocks."""
        tip = self.tip
        if tip is not None:
            require_kind(self.staged, tip, self.ref, is_ledger=True)
            paths = [("ledger", *file_path(action_id)) for action_id in ids]
            read_ahead(self.staged, (self.staged.commit(tip).tree, [("",), *paths]))

    def read_back(self, known: Oid | None) -> None:
        """Bring the commits since one into the cache, several in one read where one names them. Blocks."""
        tip = self.tip
        with suppress(MissingObject):  # whoever asks for what a shallow clone lacks is told
            for oid in () if tip is None else graph.not_below(self.staged, tip, known):
                self.staged.prefetch(require_record(self.staged, oid, self.ref).details.get("earlier", ()))

    def _earlier(self, parent: Oid, depth: int) -> list[Oid]:
        """Return the commits that one at a depth names, for `read_back`: those since the last that did."""
        found: list[Oid] = []
        oid: Oid | None = parent
        while depth % _EARLIER == 0 and oid in self._recorded and len(found) < _EARLIER:
            found.append(oid)
            oid = self._recorded[oid].parent
        return found

    def join(self, other: Ledger) -> None:
        """Know what `other` knows as well: its entries were taken over."""
        if other is not self:
            self._joined.append(other)

    @property
    def is_published(self) -> bool:
        """Whether the store holds everything that was recorded here."""
        return self.tip == self.head

    def write(self) -> None:
        """Write what is staged, going on top of what others wrote meanwhile.

        Runs in worker threads, one at a time. Raises `Contention` after several lost races.
        """
        with self._writing:
            is_ours = False
            for attempt in range(_ATTEMPTS):
                with self._lock:
                    tip, calls = self.tip, len(self._calls)
                    if tip == self.head and not is_ours:
                        return
                    update = RefUpdate(self.ref, self.head, tip)
                    objects, trees = Hashed(self.staged.objects), dict(self.staged.trees)
                try:
                    self.database.write(objects, [update], trees)
                except Contention as error:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    self._refuse_deleted(error)
                    is_ours = self._got_through()
                    if not is_ours:
                        self._refresh()
                    continue
                with self._lock:
                    self.head = tip
                    del self._calls[:calls]
                    del self._staged_tips[:calls]
                    self.staged.forget(objects)  # what was recorded since stays
                return

    def _got_through(self) -> bool:
        """Go on from a commit of ours that the ref holds, whose write moved it and failed afterwards."""
        held = self.database.backend.refs(self.ref).get(self.ref)
        with self._lock:
            if held not in self._staged_tips:
                return False
            done = self._staged_tips.index(held) + 1
            self.head = held
            del self._calls[:done]
            del self._staged_tips[:done]
            return True

    def _refuse_deleted(self, error: Contention) -> None:
        """A ledger that is gone was deleted with its session, and stays deleted."""
        if self.head is not None and self.ref not in self.database.backend.refs(self.ref):
            raise StaleSession(
                f"session {self.session!r} was deleted meanwhile; what was just delivered is not "
                f"recorded anywhere: open the session anew if that was not meant"
            ) from error

    def owes_nothing_since(self, known: Oid | None) -> bool:
        """Tell whether all since a commit was recorded here just now, and no agent is owed any of it."""
        with self._lock:
            oid = self.tip
            while oid != known:
                found = None if oid is None else self._recorded.get(oid)
                if found is None or found.call.merges is not None or found.call.owed != []:
                    return False
                oid = found.parent
            return True

    def since(self, known: Oid | None, moment: str = "", *, upto: Oid | None = None) -> list[LedgerEvent]:
        """Return the deliveries recorded after commit `known`, the oldest first; `upto` an earlier tip.

        Where the ledger does not hold `known` (it was staged, and lost a race), those after `moment`.
        """
        with self._lock:
            return self._between(upto or self.tip, known, moment)

    def _between(self, oid: Oid | None, known: Oid | None, moment: str = "") -> list[LedgerEvent]:
        events: list[LedgerEvent] = []
        if oid is None:
            return events
        try:
            fresh = list(graph.not_below(self.staged, oid, known))
        except MissingObject:
            if known is None:
                raise
            # it lost a race and was never written: all that came later counts
            fresh = list(graph.not_below(self.staged, oid, None, is_complete=False))
            is_lost = True
        else:
            is_lost = False
        for commit in fresh:
            record = require_record(self.staged, commit, self.ref)
            for action_id in reversed(record.details.get("actions", [])):
                owed = record.details.get("owed")
                events.append(LedgerEvent(record.branch, action_id, owed, record.timestamp))
        if is_lost:
            events = [event for event in events if event.timestamp > moment]
        return events[::-1]

    def _root(self) -> Oid | None:
        tip = self.tip
        if tip is not None and self._rooted[0] != tip:
            require_kind(self.staged, tip, self.ref, is_ledger=True)
            self._rooted = tip, entries_of(self.staged, tip)
        return None if tip is None else self._rooted[1]


# -- two ledgers of one session as one --


def entries_of(objects: Objects, commit: Oid) -> Oid | None:
    """Return the tree of the entries at a commit of a ledger."""
    return subtree(objects, objects.commit(commit).tree, ("ledger",))


def joined_trees(objects: Staging, ours: Oid | None, theirs: Oid | None) -> Oid | None:
    """Stage the entries that two ledgers know together. Costs what differs between them."""
    edits: dict[Path, TreeEntry | None] = {}
    for path, left, right in compare(objects, ours, theirs):
        if left is None and right is not None:
            edits[path] = blob_entry(right)
        elif left is not None and right is not None:
            both = joined(_entry(objects, left), _entry(objects, right))
            assert both is not None
            edits[path] = blob_entry(objects.put("blob", both.encode()))
    return update(objects, ours, edits)


def _entry(objects: Objects, blob: Oid) -> LedgerEntry:
    return LedgerEntry.decode(objects.read(blob).data)


def _change_of(commits: Iterable[Oid]) -> str:
    """Return the Change-Id of a commit that follows from others, the same in every store."""
    return blake3("\n".join(commits).encode()).hexdigest()[:32]
