"""The queue of a branch: events that wait, each with the agents that still owe it an execution.

Owns which events wait and in what order, and how that becomes files below `.reactifact/queue/`: one an
event, so that a commit costs what changed in the queue, not what waits there. What is stored is read when
somebody looks at it, not before. Matching events with agents is the runtime's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from .._store.branch import Branch
from .._store.layout import FailureRecord, Waiting, waiting_folder, waiting_path
from .._store.object_db import blob_entry
from .._store.objects import Oid, TreeEntry, damaged
from .._store.trees import Path, subtree, update, walk
from ..events import Event

_revisions = count()
_NO_NAMES: frozenset[str] = frozenset()
_ERROR_TEXT = 1000
"""Characters of an error that are kept of it."""


@dataclass(eq=False, slots=True)
class QueueEntry:
    """An event in the queue and the agents that still owe it an execution.

    `owed` is `None` until the event is matched for the first time. `considered` names the agents
    that were asked (in this process; it is not stored), so that one registered later is asked too.
    """

    event: Event
    owed: list[str] | None = None
    considered: frozenset[str] = frozenset()
    order: int = 0
    behind: int = 0
    path: Path | None = None  # of the file that holds it as it is
    failures: dict[str, FailureRecord] = field(default_factory=dict)  # by agent

    @property
    def parked(self) -> dict[str, FailureRecord]:
        """The agents that failed on the event too often, and are not asked before it is re-armed."""
        failures = self.failures
        return {name: one for name, one in failures.items() if one.is_parked} if failures else {}

    def is_asked(self, name: str) -> bool:
        """Tell whether an agent of that name is still to be asked, or owes the event an execution."""
        if name in self.failures and self.failures[name].is_parked:
            return False
        if self.owed is None or name in self.owed:
            return True
        return bool(self.considered) and name not in self.considered

    def is_asked_of_any(self, names: frozenset[str]) -> bool:
        """Tell whether one of some agents is still to be asked, or owes the event an execution."""
        if self.owed is None or not names.isdisjoint(self.owed):
            return True
        considered = self.considered
        return bool(considered) and considered is not names and not names <= considered


class Queue:
    """The events that wait on a line, over a stored tree and with the changes on top."""

    def __init__(self, line: Branch, root: Oid | None) -> None:
        self.line = line
        self.revision = next(_revisions)  # another one after each change, and of no other queue
        self._root = root
        self._is_read = root is None
        self._entries: dict[int, QueueEntry] = {}  # by the identity of the event
        self._parked: dict[int, QueueEntry] = {}  # those that none of `_present` is to be asked about
        self._present: frozenset[str] = frozenset()
        self._stored: dict[Path, QueueEntry] = {}
        self._unstored: dict[int, QueueEntry] = {}
        self._gone: set[Path] = set()
        self._is_sorted = True
        self._renamed: dict[str, str] = {}
        self._absent: Counter[str] = Counter()  # of the parked ones
        self._undo: list[tuple[QueueEntry, bool]] | None = None

    # -- looking ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueueEntry]:
        self._read()
        if self._parked:
            yield from sorted([*self._entries.values(), *self._parked.values()], key=_place)
        else:
            yield from list(self._entries.values())

    def __len__(self) -> int:
        self._read()
        return len(self._entries) + len(self._parked)

    def __bool__(self) -> bool:
        return bool(self._entries) or len(self) > 0

    def active(self, present: Collection[str]) -> list[QueueEntry]:
        """Return, in order, the events that some of these agents are to be asked about, or that nobody owes.

        The others wait for agents that are not there. They are passed over from then on at no cost.
        """
        if not self._is_read:
            self._read()
        names = frozenset(present)
        if names is not self._present and names != self._present:
            self._unpark()
            self._present = names
        if not self._is_sorted:
            self._sort()
        waiting = list(self._entries.values())
        for entry in waiting:
            if (entry.owed or entry.failures) and not entry.is_asked_of_any(names):
                key = id(entry.event)
                self._parked[key] = self._entries.pop(key)
                self._absent.update(entry.owed or ())
        return list(self._entries.values()) if self._parked else waiting

    @property
    def is_read(self) -> bool:
        """Whether what is stored has been looked at, so that looking again reads nothing."""
        return self._is_read

    # -- changing --------------------------------------------------------------------------------

    def append(self, event: Event, owed: list[str] | None = None) -> None:
        """Put an event at the end."""
        line = self.line
        self._add(QueueEntry(event, owed, _NO_NAMES, line.next_event))
        line.next_event += 1

    def insert_behind(self, entry: QueueEntry, events: Iterable[Event]) -> None:
        """Put events right behind one that waits."""
        for number, event in enumerate(events, entry.behind + 1):
            self._add(QueueEntry(event, order=entry.order, behind=number))
            self._is_sorted = False

    def owe(self, entry: QueueEntry, owed: list[str]) -> None:
        """Note which agents owe an event an execution; what others failed at before counts no more."""
        failures = entry.failures
        if failures:
            failures = {name: one for name, one in failures.items() if name in owed or one.is_parked}
        if entry.owed != owed or entry.failures != failures:
            entry.owed, entry.failures = owed, failures
            self._renew(entry)

    def fail(self, entry: QueueEntry, name: str, error: str, limit: int) -> bool:
        """Note that an agent failed on an event; the `limit`th failure parks it. Return whether it did."""
        known = entry.failures.get(name)
        count = 1 if known is None else known.times + 1
        text = error.encode("utf-8", "backslashreplace").decode()[:_ERROR_TEXT]
        entry.failures = {**entry.failures, name: FailureRecord(count, text, count >= limit)}
        if count >= limit:
            entry.owed = [other for other in entry.owed or () if other != name]
        self._renew(entry)
        return count >= limit

    def rearm(self, entry: QueueEntry, name: str) -> None:
        """Let an agent that is parked on an event be asked again, with no failure counted."""
        entry.failures = {other: one for other, one in entry.failures.items() if other != name}
        entry.owed = [*(entry.owed or ()), name]
        self._renew(entry)
        self._unpark()

    def _renew(self, entry: QueueEntry) -> None:
        key = id(entry.event)
        if self._entries.get(key) is entry or self._parked.get(key) is entry:
            self.revision = next(_revisions)
            if entry.path is not None:
                self._unstore(entry, entry.path)
            self._unstored[key] = entry

    def rename(self, names: Mapping[str, str]) -> None:
        """Let what is owed under earlier names be owed under present ones; costs a look at what waits."""
        if not names or names == self._renamed:
            return
        for entry in self:
            if not names.keys().isdisjoint(entry.failures):
                entry.failures = {names.get(name, name): one for name, one in entry.failures.items()}
                self._renew(entry)
            if entry.owed and not names.keys().isdisjoint(entry.owed):
                self.owe(entry, list(dict.fromkeys(names.get(name, name) for name in entry.owed)))
        self._renamed = dict(names)
        self._unpark()

    def _unpark(self) -> None:
        self._is_sorted = self._is_sorted and not self._parked
        self._entries |= self._parked
        self._parked = {}
        self._absent.clear()

    @property
    def absent(self) -> dict[str, int]:
        """The agents that were not among those last asked about, with how many events wait for each."""
        absent = self._absent
        return {name: count for name, count in sorted(absent.items()) if count} if absent else {}

    def remove(self, events: Iterable[Event]) -> None:
        """Take exactly these event objects off the queue."""
        for event in events:
            entry = self._entries.get(id(event)) or self._parked.get(id(event))
            if entry is not None and entry.event is event:
                self._drop(entry)
                if self._undo is not None:
                    self._undo.append((entry, False))

    def remove_since(self, order: int) -> None:
        """Take off what was appended in this process from a place on."""
        late = [entry.event for entry in self._entries.values() if entry.order >= order]
        self.remove(late)

    def whole(self) -> _Whole:
        """Make all changes inside a `with`, or none where it raises."""
        return _Whole(self)

    # -- storing ---------------------------------------------------------------------------------

    @property
    def root(self) -> Oid | None:
        """The tree that was stored last."""
        return self._root

    @property
    def is_stored(self) -> bool:
        """Whether `store` would change no file."""
        if self._gone:
            return False
        for entry in self._unstored.values():
            if entry.owed is None or entry.owed or (entry.failures and entry.parked):
                return False
        return True

    def store(self) -> Oid | None:
        """Stage the files of what changed and return the tree of all that waits and is owed."""
        if not self._gone and not self._unstored:
            return self._root
        fresh = [e for e in self._unstored.values() if e.owed is None or e.owed or (e.failures and e.parked)]
        if not self.line.is_watched and self.line.ref is not None:
            fresh = self._newest_of_a_kind(fresh)
        edits: dict[Path, TreeEntry | None] = dict.fromkeys(self._gone)
        for entry in fresh:
            failures = {name: dict(one._asdict()) for name, one in entry.failures.items()}
            waiting = Waiting(entry.event.to_dict(), entry.owed, entry.order, entry.behind, failures)
            data = waiting.encode()
            entry.path = waiting_path(waiting, data)
            self._stored[entry.path] = entry
            edits[entry.path] = blob_entry(self.line.objects.put("blob", data))
        self._root = update(self.line.objects, self._root, edits)
        self._unstored, self._gone = {}, set()  # only now: a read may fail, and is tried again
        return self._root

    def folders_to_write(self, events: Iterable[Event]) -> list[Path]:
        """Return the folders that `store` will write to once some events were put at the end too."""
        fresh = [*(entry.event for entry in self._unstored.values()), *events]
        return [waiting_folder(event.to_dict())[0] for event in fresh]

    def _newest_of_a_kind(self, fresh: list[QueueEntry]) -> list[QueueEntry]:
        """Let an event take the place of those of its kind that no agent was ever asked about."""
        newest: dict[tuple[Path, str], QueueEntry] = {}
        for entry in fresh:
            if entry.owed is None:
                kind = waiting_folder(entry.event.to_dict())
                earlier = newest.pop(kind, None)
                newest[kind] = entry
                if earlier is not None:
                    self._drop(earlier)
        for folder, start in newest:
            beside = subtree(self.line.objects, self._root, folder)
            names = [] if beside is None else self.line.objects.tree(beside)
            for path in [(*folder, name) for name in names if name.startswith(start)]:
                known = self._stored.get(path)
                if known is not None:
                    self._drop(known)
                self._gone.add(path)
        return [entry for entry in fresh if id(entry.event) in self._unstored]

    def _add(self, entry: QueueEntry) -> None:
        self._entries[id(entry.event)] = entry
        if entry.path is None:
            self._unstored[id(entry.event)] = entry
        self.revision = next(_revisions)
        if self._undo is not None:
            self._undo.append((entry, True))

    def _drop(self, entry: QueueEntry) -> None:
        key = id(entry.event)
        self._entries.pop(key, None)
        if self._parked.pop(key, None) is not None:
            self._absent.subtract(entry.owed or ())
        self._unstored.pop(key, None)
        self.revision = next(_revisions)
        if entry.path is not None:
            self._unstore(entry, entry.path)

    def _unstore(self, entry: QueueEntry, path: Path) -> None:
        self._gone.add(path)
        self._stored.pop(path, None)
        entry.path = None

    def _sort(self) -> None:
        if not self._is_sorted:
            self._entries = {id(e.event): e for e in sorted(self._entries.values(), key=_place)}
            self._is_sorted = True

    def _read(self) -> None:
        """Read what is stored, before what was put on top of it since."""
        if self._is_read:
            self._sort()
            return
        files = [(path, oid) for path, oid in walk(self.line.objects, self._root) if path not in self._gone]
        found = self.line.objects.read_many(oid for _, oid in files)
        stored = [
            (path, waiting, _event(waiting, oid))
            for path, oid in files
            if path not in self._stored
            for waiting in [Waiting.decode(found[oid].data)]
        ]
        self._is_read = True  # only now: a read may fail, and is tried again
        for path, waiting, event in stored:
            entry = QueueEntry(
                event,
                waiting.owed,
                order=waiting.order,
                behind=waiting.behind,
                path=path,
                failures={name: FailureRecord(**one) for name, one in (waiting.failures or {}).items()},
            )
            self._entries[id(entry.event)] = self._stored[path] = entry
        self._is_sorted = False
        self._sort()


class _Whole:
    """All changes of a queue in a `with`, or none of them."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def __enter__(self) -> None:
        self._queue._undo = []

    def __exit__(self, kind: object, *_: object) -> None:
        queue = self._queue
        changes, queue._undo = queue._undo, None
        for entry, was_added in reversed(changes or []) if kind is not None else ():
            if was_added:
                queue._drop(entry)
            else:
                queue._add(entry)
                queue._is_sorted = False


def _event(waiting: Waiting, oid: Oid) -> Event:
    try:
        return Event.from_dict(waiting.event)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(f"an event of the queue (blob {oid})", error) from error


def _place(entry: QueueEntry) -> tuple[int, int, Path]:
    return entry.order, entry.behind, entry.path or ()
