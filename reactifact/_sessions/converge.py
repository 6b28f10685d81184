"""One session of two stores brought together in ours: its ledger, its branches, its tags.

Owns what becomes of each branch: made, moved forward, merged by our rules, or left with a named conflict.
Objects of the other store are here already; nothing is sent anywhere. Each ref moves by compare-and-swap,
a branch under its run lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .._context import rebase
from .._context.context import Context
from .._context.push import publish, run_lock
from .._store import canonical
from .._store._history.adoption.standing import is_by_hand
from .._store._history.fetched import roots_of
from .._store._history.oplog import moved, operations
from .._store._history.revset import head_at
from .._store.branch import Branch, stored_ref
from .._store.commits import nearest_record, read_queue, require_kind
from .._store.graph import is_ancestor, merge_bases, not_below, share_history
from .._store.ledger import Ledger
from .._store.names import is_ledger_ref
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.protocol import RefUpdate
from ..errors import Contention, MissingObject, NameTaken, ReactifactError, UnrelatedHistories
from ..events import Event, EventType
from ..interrupt import PendingAction
from ..merging import ConflictDetail, MergeConflict, Policy
from ..resources import RuntimeResources
from ..threads import in_thread
from .service import context_at

_TAGS = "refs/tags/"


@dataclass(frozen=True, slots=True)
class SyncConflict:
    """A branch that two stores changed in ways that nobody has decided between; ours is as it was."""

    session: str
    branch: str
    theirs: Oid
    """The commit of the other store, which is here: `BranchStore.merge(into=, source=, policy=)` takes it."""
    details: tuple[ConflictDetail, ...]
    text: str


@dataclass(slots=True)
class Outcome:
    """What became of one session."""

    made: list[str] = field(default_factory=list)  # branches, by name
    forwarded: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    replaced: list[str] = field(
        default_factory=list
    )  # refs that the other store has of a history compacted here
    has_heard: bool = False  # of deliveries
    conflicts: list[SyncConflict] = field(default_factory=list)
    failed: list[tuple[str, ReactifactError]] = field(default_factory=list)  # (branch or tag, error)

    is_whole: bool = True  # whether all branches came together


@dataclass(frozen=True, slots=True)
class Converging:
    """How sessions are brought together: how conflicts are settled, how long a busy branch is waited for."""

    database: Database
    resources: RuntimeResources
    policy: Policy | None
    wait: float
    remote: str  # what the other store is called in messages
    may_replace: bool = True  # whether refs of the other store can be moved otherwise than forward

    async def session(self, session: str, ours: Mapping[str, Oid], theirs: Mapping[str, Oid]) -> Outcome:
        """Bring the refs of a session in the other store into ours, ledger first.

        Raises `UnrelatedHistories` where both hold a session of that id that began apart; nothing moves then.
        Raises `Contention` where somebody else moves a ref at the same time.
        """
        outcome = Outcome()
        if not await in_thread(_is_related, self.database, ours, theirs):
            raise UnrelatedHistories(
                f"session {session!r} of {self.database.backend.location} and that of {self.remote} have no "
                f"commit in common: they were begun apart under one id; save one of them under another id, "
                f"then sync again"
            )
        for ref, oid in theirs.items():
            if is_ledger_ref(ref):
                outcome.has_heard = await in_thread(_join_ledger, self.database, session, oid)
        for ref, oid in theirs.items():
            if is_ledger_ref(ref):
                continue
            name = ref.rpartition("/")[2]
            try:
                if ref.startswith(_TAGS):
                    if await in_thread(self._tag, session, ref, oid):
                        outcome.replaced.append(ref)
                    continue
                head = await in_thread(head_at, self.database, ref, oid)
                if head is not None:  # else a branch that git made, which is no session's
                    name = head.branch
                    await self._branch(session, name, ref, oid, outcome)
            except MergeConflict as error:
                details = tuple(error.details)
                outcome.conflicts.append(SyncConflict(session, name, oid, details, f"{error}"))
                outcome.is_whole = False
            except Contention:
                raise  # somebody else moved it meanwhile
            except ReactifactError as error:
                outcome.failed.append((name, error))
                outcome.is_whole = outcome.is_whole and ref.startswith(_TAGS)
        return outcome

    async def _branch(self, session: str, branch: str, ref: str, theirs: Oid, outcome: Outcome) -> None:
        database, clock = self.database, self.resources.clock
        await in_thread(require_kind, database, theirs, ref)
        async with run_lock(Branch.named(database, session, branch), clock, self.wait):
            ours = (await in_thread(database.backend.refs, ref)).get(ref)
            if ours == theirs:
                return
            if ours is None:
                await in_thread(database.backend.write, {}, [RefUpdate(ref, None, theirs)])
                outcome.made.append(branch)
                return
            if self.may_replace and await in_thread(_is_compacted, database, ours, theirs):
                outcome.replaced.append(ref)
                return
            left = await in_thread(_left_behind, database, session, ref, ours, theirs)
            if left is None and await in_thread(_is_below, database, ours, theirs):
                await in_thread(database.backend.write, {}, [RefUpdate(ref, ours, theirs)])
                outcome.forwarded.append(branch)
                return
            if left is None and await in_thread(_is_below, database, theirs, ours):
                return
            if left is None and await in_thread(_is_rewritten, database, ours, theirs):
                await in_thread(self._follow, session, ref, ours, theirs)
                outcome.forwarded.append(branch)
                return
            await self._merge(session, branch, theirs, left)
            outcome.merged.append(branch)

    def _tag(self, session: str, ref: str, theirs: Oid) -> bool:
        """Bring a tag here; return whether theirs has to follow ours, whose commit was compacted."""
        ours = self.database.backend.refs(ref).get(ref)
        if ours is None:
            self.database.backend.write({}, [RefUpdate(ref, None, theirs)])
        elif ours != theirs and not _is_same_change(self.database, ours, theirs):
            raise NameTaken(
                f"{ref} stands for {ours[:12]} here and for {theirs[:12]} in {self.remote}, and tags do not "
                f"move: delete one of them, or give it another name"
            )
        elif ours != theirs:
            if self.may_replace and _was_compacted(self.database, session, ref, theirs):
                return True
            self._follow(session, ref, ours, theirs)
        return False

    def _follow(self, session: str, ref: str, ours: Oid, theirs: Oid) -> None:
        """Go on from a history that was rewritten here or there, and holds every change of ours."""
        staged = Staging(self.database)
        when = self.resources.clock.now()
        text = f"follow {self.remote}, whose history was rewritten"
        moves = moved(staged, session, "sync", {ref: (ours, theirs)}, when, text)
        self.database.write(staged.objects, [*moves, RefUpdate(ref, ours, theirs)])

    async def _merge(self, session: str, branch: str, theirs: Oid, left: Oid | None) -> None:
        database = self.database
        line = await in_thread(rebase.load, database, session, branch, self.resources)
        assert line is not None
        target = Context.over(line, self.resources)
        if left is not None:
            # what was left behind here, by an undo or a compaction, is part of their history: as it
            # stands below this commit, merging theirs does not bring it back
            target.commits.commit_over(left, f"sync: go on without what was left behind at {left[:12]}")
        tip = line.seal()
        assert tip is not None
        if not await in_thread(_is_below, line.objects, theirs, tip):
            other = await in_thread(self._theirs, session, branch, theirs)
            waiting = await in_thread(_Waiting.read, line, other.line, tip, theirs)
            message = f"Merge {branch} of {self.remote}"
            target.merge(other, message=message, policy=self.policy)
            tip = line.seal()
            assert tip is not None
            if not await in_thread(_is_below, line.objects, theirs, tip):
                target.commits.commit_meeting(other.line)
            waiting.bring_into(target)
        await publish(target)

    def _theirs(self, session: str, branch: str, commit: Oid) -> Context:
        """Return the state of the other side; what somebody made there with git is adopted."""
        if not is_by_hand(self.database, commit):
            return context_at(self.database, commit, self.resources)
        line = Branch.named(self.database, session, branch)
        read = rebase.PayloadReader(is_strict=True)
        adopted = rebase.adopt(line, stored_ref(self.database, session, branch), commit, self.resources, read)
        return Context.over(adopted, self.resources)


def _is_below(objects: Database | Staging, old: Oid, new: Oid) -> bool:
    """Tell whether a commit can be reached from another, as git sees it."""
    return next(not_below(objects, old, new), None) is None


def _is_rewritten(database: Database, ours: Oid, theirs: Oid) -> bool:
    """Tell whether a history was rewritten there, and holds every change of ours all the same."""
    return not share_history(database, ours, theirs) and is_ancestor(database, ours, theirs)


def _is_compacted(database: Database, ours: Oid, theirs: Oid) -> bool:
    """Tell whether our history was compacted further than theirs, and holds every change of theirs."""
    if share_history(database, ours, theirs) or not is_ancestor(database, theirs, ours):
        return False
    mine, others = (nearest_record(database, oid) for oid in (ours, theirs))
    return mine is not None and mine.baseline > (0 if others is None else others.baseline)


def _was_compacted(database: Database, session: str, ref: str, theirs: Oid) -> bool:
    """Tell whether a compaction here moved a ref away from where theirs stands."""
    done = operations(database, session)
    return any(one.kind == "compaction" and one.before.get(ref) == theirs for one in done)


def _is_related(database: Database, ours: Mapping[str, Oid], theirs: Mapping[str, Oid]) -> bool:
    mine, others = (
        {ref: oid for ref, oid in refs.items() if ref.startswith("refs/heads/") and not is_ledger_ref(ref)}
        for refs in (ours, theirs)
    )
    if not mine or not others:
        return True
    both = [ref for ref in mine if ref in others]
    if any(mine[ref] == others[ref] for ref in both):
        return True
    if any(merge_bases(database, mine[ref], others[ref]) for ref in both):
        return True
    return not roots_of(database, mine.values()).isdisjoint(roots_of(database, others.values()))


def _join_ledger(database: Database, session: str, theirs: Oid) -> bool:
    ledger = Ledger(database, session)
    ledger.refresh()
    is_news = ledger.merge(theirs)
    ledger.write()
    return is_news


def _is_same_change(database: Database, ours: Oid, theirs: Oid) -> bool:
    """Tell whether two commits are one that a compaction made anew."""
    return is_ancestor(database, ours, theirs) and is_ancestor(database, theirs, ours)


def _left_behind(database: Database, session: str, ref: str, ours: Oid, theirs: Oid) -> Oid | None:
    """Return the newest commit of theirs that our branch once held and left, going back or compacted."""
    for operation in reversed(operations(database, session)):
        before = operation.before.get(ref)
        if before is None:
            continue
        try:
            common = _common(database, before, theirs)
        except MissingObject:
            continue  # pruned
        for commit in common:
            if not _is_below(database, commit, ours):
                return commit
    return None


def _common(database: Database, ours: Oid, theirs: Oid) -> list[Oid]:
    """Return the newest commits of `ours` that `theirs` holds too, as git sees them."""
    beside = set(not_below(database, ours, theirs))
    if not beside:
        return [ours]
    ends = {parent for oid in beside for parent in database.commit(oid).parents} - beside
    return sorted(oid for oid in ends if all(one == oid or not _is_below(database, oid, one) for one in ends))


# -- two queues ------------------------------------------------------------------------------------

Owed = frozenset[str] | None
"""The agents that owe an event an execution; `None`: whichever there will be."""

_NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What waits on their side, and what waited, or was not heard yet, where both sides parted."""

    theirs: Mapping[bytes, tuple[dict[str, Any], Owed]]
    base: Mapping[bytes, Owed]

    @classmethod
    def read(cls, ours: Branch, other: Branch, tip: Oid, theirs: Oid) -> _Waiting:
        """Read the queues of their side and of the bases, and the deliveries that they have heard of."""
        found = {
            _key(one.event): (one.event, None if one.owed is None else frozenset(one.owed))
            for one in read_queue(other.objects, other.seal() or theirs)
        }
        base: dict[bytes, Owed] = {}
        for oid in merge_bases(ours.objects, tip, theirs):
            for one in read_queue(ours.objects, oid):
                base[_key(one.event)] = None if one.owed is None else frozenset(one.owed)
        record = other.record
        if record is not None and ours.record is not None:
            unheard = {(e.action_id, e.timestamp) for e in ours.ledger.since(record.ledger, record.timestamp)}
            for event in ours.ledger.since(ours.record.ledger, ours.record.timestamp):
                if (event.action_id, event.timestamp) not in unheard:
                    base.setdefault(_delivered(event.action_id, event.timestamp), None)
        return cls(found, base)

    def bring_into(self, target: Context) -> None:
        """Let wait what waits on either side and was not reacted to on the other."""
        queue = target.commits.gather()
        ours = {_key(entry.event.to_dict()): entry for entry in queue}
        for key, entry in ours.items():
            if key not in self.base and key not in self.theirs:
                continue
            owed = None if entry.owed is None else frozenset(entry.owed)
            _, others = self.theirs.get(key, ({}, _NOBODY))
            left = _left(self.base.get(key), owed, others)
            if left is not None and not left:
                queue.remove([entry.event])
            elif left is not None and left != owed:
                queue.owe(entry, sorted(left))
        for key, (event, others) in self.theirs.items():
            if key not in ours and key not in self.base:
                queue.append(Event.from_dict(event), None if others is None else sorted(others))


def _left(base: Owed, ours: Owed, theirs: Owed) -> Owed:
    """Return who still owes an event an execution: neither side has run it."""
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    if base is None:
        return ours & theirs
    return (ours | theirs) - (base - ours) - (base - theirs)


def _key(event: Mapping[str, Any]) -> bytes:
    return canonical.encode(dict(event))


def _delivered(action_id: str, timestamp: str) -> bytes:
    moment = datetime.fromisoformat(timestamp)
    return _key(Event(EventType.ARTIFACT_UPDATED, PendingAction, action_id, moment).to_dict())
