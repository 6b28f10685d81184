"""Bringing a store and another one together: fetch, merge here, push without force, and again when beaten.

Owns the loop over attempts, what is asked of the other store and what is pushed to it, leases, and the
report. How git is called is `remote`'s, what becomes of a session is `converge`'s.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .._store._history.deleted import DELETED, deleted_ref, note_back, read_deleted
from .._store._history.lease import LEASES, MARGIN, Lease, lease_ref, read_lease
from .._store._history.revset import head_at
from .._store._history.tombstones import ERASED, erased_ref
from .._store.graph import not_below
from .._store.names import (
    branch_ref,
    decode_name,
    encode_name,
    is_ledger_ref,
    ledger_ref,
    parse_ref,
    parse_tag_ref,
    tag_ref,
)
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.protocol import FetchesRefs, RefUpdate
from ..errors import (
    Contention,
    ErasedHistory,
    LeaseHeld,
    MissingObject,
    ReactifactError,
    RemoteError,
    UnknownRevision,
    told,
)
from ..merging import Policy
from ..resources import RuntimeResources
from ..threads import in_thread
from .burial import Burial, dead_refs
from .converge import Converging, Outcome, SyncConflict
from .erasing.guard import fetching, heard_stones, refuse_ours, refuse_theirs, remove_fetched
from .remote import Move, Remote, changed, open_remote, tracking_ref

_NOTED = (LEASES, ERASED, DELETED)
"""What is kept of a session beside its branches and tags, and travels with it."""

_ATTEMPTS = 25
_REFUSED = 3  # pushes in a row that were refused although nobody moved anything
_PAUSE = 0.05
_AT_ONCE = 1_000  # refs of one push: a command line has an end

Failure = tuple[str, str, ReactifactError]
"""Session, branch or tag (empty: the session as a whole), and why it did not come together."""


@dataclass(slots=True)
class SyncReport:
    """What a sync did. Lists hold (session, branch); `attempts` counts how often it was begun anew.

    `heard` holds the sessions of which the other store had delivered something that was not known here,
    `erased` those of which it had erased something. A store that still holds that fails with `ErasedHistory`.
    `pushed` the names of the refs that moved in the other store. A session with a conflict or a failure
    keeps its branches and tags here, and only what it delivered is told to the other store.
    """

    remote: str
    attempts: int = 0
    made: list[tuple[str, str]] = field(default_factory=list)
    forwarded: list[tuple[str, str]] = field(default_factory=list)
    merged: list[tuple[str, str]] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    conflicts: list[SyncConflict] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    deleted: list[tuple[str, str]] = field(default_factory=list)  # here, as was done elsewhere
    leases: dict[str, datetime] = field(default_factory=dict)  # that this store has now, with their ends

    @property
    def ok(self) -> bool:
        """Whether everything came together."""
        return not self.conflicts and not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "remote": self.remote,
            "attempts": self.attempts,
            "made": [list(one) for one in self.made],
            "forwarded": [list(one) for one in self.forwarded],
            "merged": [list(one) for one in self.merged],
            "heard": self.heard,
            "erased": self.erased,
            "pushed": self.pushed,
            "deleted": [list(one) for one in self.deleted],
            "conflicts": [
                {
                    "session": one.session,
                    "branch": one.branch,
                    "theirs": one.theirs,
                    "details": [str(detail) for detail in one.details],
                }
                for one in self.conflicts
            ],
            "failed": [
                {"session": session, "branch": branch, "error": told(error)}
                for session, branch, error in self.failed
            ],
            "leases": {session: end.isoformat() for session, end in sorted(self.leases.items())},
        }


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How to sync.

    `sessions`: these alone. `policy` settles conflicts as in `Context.merge`. `wait` is how many seconds a
    branch that somebody runs is waited for. `lease` takes or renews the lease of each session for so many
    seconds, with 0 it is given back; `name` says to people who has it.
    """

    sessions: Sequence[str] | None = None
    policy: Policy | None = None
    wait: float = 30.0
    lease: float | None = None
    name: str = ""
    may_ask: bool = False


async def sync(
    database: Database,
    remote: str | None,
    options: SyncOptions,
    *,
    resources: RuntimeResources | None = None,
) -> SyncReport:
    """Bring a store and another one together.

    Raises `SyncUnsupported`, `RemoteError`, `UnknownRevision` for a session that neither holds, `Contention`
    after many lost races; nothing is half pushed then.
    """
    if options.lease is not None and not options.lease >= 0:
        raise ValueError(f"lease={options.lease}: give seconds, or 0 to give the lease back")
    other = await open_remote(database.backend, remote, may_ask=options.may_ask)
    return await _Sync(database, other, options, resources or RuntimeResources()).run()


class _Sync:
    """One sync in progress."""

    def __init__(
        self, database: Database, remote: Remote, options: SyncOptions, resources: RuntimeResources
    ) -> None:
        self._database = database
        self._remote = remote
        self._options = options
        self._resources = resources
        self._report = SyncReport(remote.shown)
        self._unclean: dict[str, ErasedHistory] = {}  # by folder: what is not taken in, and why
        self._may_replace = True
        self._no_deletes: str | None = None  # why the other store does not let refs be deleted
        self._left_out: set[str] = set()  # sessions that could not be deleted here, by their part of a ref
        self._folders = None if options.sessions is None else [encode_name(one) for one in options.sessions]

    async def run(self) -> SyncReport:
        """Try until nobody was faster."""
        refused = 0
        report = self._report
        for attempt in range(_ATTEMPTS):
            report.attempts += 1
            report.conflicts, report.failed, report.leases = [], [], {}
            seen = self._chosen(await self._remote.list(self._patterns()))
            self._unclean = {}
            try:
                async with fetching(self._database, self._resources.clock):
                    await self._fetch(seen)
                moves, kept = await self._together(seen)
            except (Contention, MissingObject):
                if attempt == _ATTEMPTS - 1:
                    raise
                continue  # somebody wrote here, or moved there what was listed
            why = await self._push(moves)
            if why is None:
                await in_thread(self._note_pushed, moves)
                await self._keep_leases(kept)
                return report
            refused = 0 if changed(seen, await self._remote.list(self._patterns()), moves) else refused + 1
            if refused and not all(move.is_forward for move in moves):
                refused = self._do_without(moves, why, refused)
            if refused >= _REFUSED:
                raise RemoteError(
                    f"{self._remote.shown} refuses what is pushed, and nobody else moved it: {why}; what is "
                    f"here has been brought together and is not lost: sync again when that is mended"
                )
            pause = _PAUSE * 2 ** min(attempt, 5)
            await self._resources.clock.sleep(pause * (0.5 + random.random()))
        raise Contention(
            f"{self._remote.shown} was moved by others in each of {_ATTEMPTS} attempts to push; what is here "
            f"has been brought together: sync again"
        )

    def _do_without(self, moves: Iterable[Move], why: str, refused: int) -> int:
        """Give up what a store may be set up to refuse: refs that do not go forward, or go."""
        if self._may_replace and any(move.new and not move.is_forward for move in moves):
            self._may_replace = False
        elif self._no_deletes is None:
            self._no_deletes = why
        else:
            return refused
        return 0

    def _undeletable(self, ref: str) -> RemoteError:
        return RemoteError(
            f"{ref} was deleted here, and {self._remote.shown} refuses to let it go ({self._no_deletes}); it "
            f"is left out of syncs: delete it there, with `git update-ref -d {ref}`"
        )

    # -- what the other store holds ----------------------------------------------------------------

    def _patterns(self) -> list[str]:
        if self._folders is None:
            return ["refs/heads/*", "refs/tags/*", *(f"{noted}*" for noted in _NOTED)]
        found = []
        for folder in self._folders:
            found += [
                f"refs/heads/{folder}/*",
                f"refs/tags/{folder}/*",
                *(noted + folder for noted in _NOTED),
            ]
        return found

    def _chosen(self, refs: Mapping[str, Oid]) -> dict[str, Oid]:
        """Return the refs that are sessions', and wanted."""
        found = {}
        for ref, oid in refs.items():
            is_ours = parse_ref(ref) or parse_tag_ref(ref) or ref.startswith(_NOTED)
            if is_ours and (self._folders is None or _folder(ref) in self._folders):
                found[ref] = oid
        return found

    async def _fetch(self, seen: Mapping[str, Oid]) -> None:
        """Bring what the other store holds here, and name it below `refs/remotes/`."""
        refs = await in_thread(self._database.backend.refs)
        noted = {tracking_ref(self._remote.name, ref): oid for ref, oid in seen.items() if _is_head(ref)}
        wanted = [
            ref
            for ref, oid in seen.items()
            if refs.get(ref) != oid and (not _is_head(ref) or refs.get(self._noted(ref)) != oid)
        ]
        if wanted or (seen and self._remote.is_shallow):
            await self._remote.fetch(wanted or seen)
        self._unclean = await in_thread(self._look_for_erased, seen)
        noted = {name: oid for name, oid in noted.items() if name.split("/")[3] not in self._unclean}
        self._left_out = await self._delete(seen, refs)
        folder = tracking_ref(self._remote.name, "")
        known = {ref: oid for ref, oid in refs.items() if ref.startswith(folder)}
        if self._folders is not None:
            known = {ref: oid for ref, oid in known.items() if _part(ref, folder) in self._folders}
        moves = [RefUpdate(ref, known.get(ref), oid) for ref, oid in noted.items() if known.get(ref) != oid]
        gone = [RefUpdate(ref, oid, None) for ref, oid in known.items() if ref not in noted]
        if gone or moves:
            await in_thread(self._database.backend.write, {}, [*gone, *moves])
        if self._unclean:
            await in_thread(remove_fetched, self._database)

    def _look_for_erased(self, seen: Mapping[str, Oid]) -> dict[str, ErasedHistory]:
        """Take over what the other store says was erased, and find what it still holds of that."""
        database, found = self._database, {}
        here = self._chosen(database.backend.refs())
        for folder, session in _sessions(database, {**here, **seen}).items():
            theirs = {ref: oid for ref, oid in seen.items() if _folder(ref) == folder}
            ours = {ref: oid for ref, oid in here.items() if _folder(ref) == folder}
            if heard_stones(database, session, theirs) and session not in self._report.erased:
                self._report.erased.append(session)
            refused = refuse_theirs(database, session, ours, theirs, self._remote.shown)
            if refused is not None:
                found[folder] = refused
        return found

    def _noted(self, ref: str) -> str:
        return tracking_ref(self._remote.name, ref)

    async def _delete(self, seen: Mapping[str, Oid], refs: Mapping[str, Oid]) -> set[str]:
        """Delete here what was deleted elsewhere; return the sessions for which that has to wait."""
        left = set()
        for ref, oid in seen.items():
            if not ref.startswith(DELETED) or refs.get(ref) == oid:
                continue
            burial = Burial(self._database, self._resources, self._options.wait, self._remote.shown)
            bases = {name: base for name in refs if (base := refs.get(self._noted(name))) is not None}
            try:
                gone = await burial.take(ref, oid, seen, bases)
            except Contention:
                raise
            except ReactifactError as error:
                folder = _folder(ref)
                self._report.failed.append((decode_name(folder) or folder, "", error))
                left.add(folder)
            else:
                self._report.deleted += gone
        return left

    # -- bringing together here --------------------------------------------------------------------

    async def _together(self, seen: Mapping[str, Oid]) -> tuple[list[Move], list[RefUpdate]]:
        """Bring all sessions together here; return what to push, and the leases to note when that went."""
        report, options = self._report, self._options
        converging = Converging(
            self._database,
            self._resources,
            options.policy,
            options.wait,
            self._remote.shown,
            self._may_replace,
        )
        here = self._chosen(await in_thread(self._database.backend.refs))
        names = await in_thread(_sessions, self._database, {**seen, **here})
        self._require_known(names)
        moves: list[Move] = []
        kept: list[RefUpdate] = []
        for folder, session in sorted(names.items()):
            if folder in self._left_out:
                continue
            theirs = {ref: oid for ref, oid in seen.items() if _folder(ref) == folder}
            ours = {ref: oid for ref, oid in here.items() if _folder(ref) == folder}
            states = {ref: oid for ref, oid in theirs.items() if not ref.startswith(_NOTED)}
            moves += await in_thread(self._told_erased, session, theirs)
            refused = self._unclean.get(folder) or await in_thread(
                refuse_ours, self._database, session, ours, theirs
            )
            if refused is not None:
                report.failed.append((session, "", refused))
                continue
            dead = await in_thread(dead_refs, self._database, session, ours, states)
            states = {ref: oid for ref, oid in states.items() if ref not in dead}
            try:
                outcome = await converging.session(session, ours, states)
            except Contention:
                raise
            except ReactifactError as error:
                report.failed.append((session, "", error))
                continue
            for mine, branches in (
                (report.made, outcome.made),
                (report.forwarded, outcome.forwarded),
                (report.merged, outcome.merged),
            ):
                mine += [(session, one) for one in branches if (session, one) not in mine]
            if outcome.has_heard and session not in report.heard:
                report.heard.append(session)
            report.conflicts += outcome.conflicts
            report.failed += [(session, name, error) for name, error in outcome.failed]
            if dead and self._no_deletes is not None:
                report.failed += [(session, ref.rpartition("/")[2], self._undeletable(ref)) for ref in dead]
                dead = {}
            outcome.replaced += dead
            moves += await in_thread(self._moves, session, theirs, outcome)
            if outcome.is_whole:
                moves += [Move(ref, oid, "", False) for ref, oid in dead.items() if ref not in ours]
            lease = await in_thread(self._lease, session, theirs, ours)
            moves += (
                []
                if lease is None or lease.new == theirs.get(lease.name)
                else [Move(lease.name, theirs.get(lease.name), lease.new or "")]
            )
            kept += [] if lease is None else [lease]
        return moves, kept

    def _told_erased(self, session: str, theirs: Mapping[str, Oid]) -> list[Move]:
        """Return the move that tells the other store what was erased here."""
        ref = erased_ref(session)
        ours = self._database.backend.refs(ref).get(ref)
        return [] if ours in (None, theirs.get(ref)) else [Move(ref, theirs.get(ref), ours or "")]

    def _require_known(self, names: Mapping[str, str]) -> None:
        for session in self._options.sessions or ():
            if encode_name(session) not in names:
                raise UnknownRevision(
                    f"neither {self._database.backend.location} nor {self._remote.shown} holds a session "
                    f"{session!r}"
                )

    def _moves(self, session: str, theirs: Mapping[str, Oid], outcome: Outcome) -> list[Move]:
        """Return what to push of a session; the ledger as it is after its branches were looked at."""
        backend = self._database.backend
        wanted: dict[str, Oid] = {}
        for ref in (branch_ref(session, "x"), tag_ref(session, "x")) if outcome.is_whole else ():
            folder = backend.refs(ref.rpartition("/")[0] + "/")
            wanted |= {name: oid for name, oid in folder.items() if parse_ref(name) or parse_tag_ref(name)}
        ledger = ledger_ref(session)
        wanted.pop(ledger, None)
        wanted |= backend.refs(ledger)
        wanted |= self._deleted(session, wanted)
        moves = [
            Move(ref, theirs.get(ref), oid, ref not in outcome.replaced)
            for ref, oid in wanted.items()
            if theirs.get(ref) != oid
        ]
        able = [move for move in moves if not move.is_forward or _is_forward(self._database, move)]
        return [move for move in able if _is_of_session(self._database, move)]

    def _deleted(self, session: str, wanted: Mapping[str, Oid]) -> dict[str, Oid]:
        """Return the ref that says what was deleted, once it says that refs of ours stand there again."""
        ref, staged = deleted_ref(session), Staging(self._database)
        if note := note_back(staged, session, wanted):
            self._database.write(staged.objects, note)
        return self._database.backend.refs(ref)

    async def _push(self, moves: Sequence[Move]) -> str | None:
        """Push, a ledger never after its branches; return why not where it was refused."""
        for start in range(0, len(moves), _AT_ONCE):
            some = moves[start : start + _AT_ONCE]
            why = await self._remote.push(some)
            if why is not None:
                return why
            self._report.pushed += [move.name for move in some]
        return None

    def _note_pushed(self, moves: Iterable[Move]) -> None:
        """Note what the other store holds by now, as a fetch would."""
        backend = self._database.backend
        noted = {self._noted(move.name): move.new or None for move in moves if _is_head(move.name)}
        known = backend.refs(tracking_ref(self._remote.name, "")) if noted else {}
        backend.write(
            {}, [RefUpdate(r, known.get(r), oid) for r, oid in noted.items() if known.get(r) != oid]
        )

    # -- leases ------------------------------------------------------------------------------------

    def _lease(self, session: str, theirs: Mapping[str, Oid], ours: Mapping[str, Oid]) -> RefUpdate | None:
        """Return the move of our note of a session's lease, which is made when the hub agrees."""
        ref, backend = lease_ref(session), self._database.backend
        assert isinstance(backend, FetchesRefs)
        held = theirs.get(ref)
        note = None if held is None else RefUpdate(ref, ours.get(ref), held)
        asked = self._options.lease
        now = self._resources.clock.now()
        current = None if held is None else read_lease(self._database, held)
        own = backend.identity(create=asked is not None)
        if asked is None or (asked == 0 and (current is None or not current.holder)):
            if current is not None and current.holder == own and own and now < current.end:
                self._report.leases[session] = current.end
            return note
        if current is not None and current.holder not in ("", own) and now < current.end + MARGIN:
            error = LeaseHeld(
                f"session {session!r} is delivered by {current.name}, which has its lease until "
                f"{current.until}: wait for that end, or let it be given back there with "
                f"`reactifact sync --release`"
            )
            self._report.failed.append((session, "", error))
            return note
        if asked == 0 and current is not None and current.holder != own:
            return note
        end = now + timedelta(seconds=asked)
        name = self._options.name or backend_name(self._database)
        lease = Lease(session, own if asked else "", name, end.isoformat())
        staged = Staging(self._database)
        made = lease.stage(staged, held, now)
        self._database.write(staged.objects, [])
        if asked:
            self._report.leases[session] = end
        return RefUpdate(ref, ours.get(ref), made)

    async def _keep_leases(self, kept: Iterable[RefUpdate]) -> None:
        moves = [move for move in kept if move.expected != move.new]
        if moves:
            await in_thread(self._database.backend.write, {}, moves)


def backend_name(database: Database) -> str:
    """Return what a store is called where nobody gave it a name."""
    return f"the store at {database.backend.location}"


def _is_head(ref: str) -> bool:
    return ref.startswith("refs/heads/")


def _part(ref: str, folder: str) -> str:
    return ref.removeprefix(folder).partition("/")[0]


def _folder(ref: str) -> str:
    """Return the part of a ref that names its session."""
    return ref.split("/")[3 if ref.startswith(_NOTED) else 2]


def _is_forward(database: Database, move: Move) -> bool:
    """Tell whether a ref of the other store may be moved without force; tags are never moved."""
    if move.seen is None:
        return True
    is_line = _is_head(move.name) or move.name.startswith(DELETED)
    return is_line and next(not_below(database, move.seen, move.new), None) is None


def _is_of_session(database: Database, move: Move) -> bool:
    """Tell whether what is to be pushed is a session's, and not a branch that git made."""
    return not _is_head(move.name) or head_at(database, move.name, move.new) is not None


def _sessions(database: Database, refs: Mapping[str, Oid]) -> dict[str, str]:
    """Return the ids of the sessions that some refs belong to, by their part of the name of a ref."""
    found: dict[str, str] = {}
    for ref, oid in refs.items():
        folder = _folder(ref)
        if folder in found or ref.startswith((LEASES, ERASED)):
            continue
        if ref.startswith(DELETED):
            with suppress(ReactifactError):  # one that is damaged names nothing
                said = read_deleted(database, oid).session
                found |= {folder: said} if encode_name(said) == folder else {}
            continue
        parsed = (parse_ref(ref) or (None, None))[0] if _is_head(ref) else (parse_tag_ref(ref) or ("", ""))[0]
        if parsed is None and not is_ledger_ref(ref):
            head = head_at(database, ref, oid) if _is_head(ref) else None
            parsed = None if head is None else head.session
        if parsed:
            found[folder] = parsed
    return found
