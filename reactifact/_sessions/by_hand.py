"""What a store says to a commit made with git: going back from a refused one, and refusing it at the push.

Owns `reject`, and the check that the hook `pre-receive` of a bare repository asks for.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from .._context.rebase import PayloadReader
from .._store._history.adoption.standing import is_by_hand, last_good
from .._store._history.adoption.tree import stand_on
from .._store._history.deleted import DELETED
from .._store._history.oplog import moved
from .._store._history.tombstones import read_stones, require_clean
from .._store.branch import stored_ref
from .._store.commits import nearest_record, require_kind, require_record
from .._store.graph import is_ancestor
from .._store.layout import BOOKKEEPING
from .._store.ledger import Ledger
from .._store.names import is_ledger_ref, parse_ref
from .._store.object_db import Database, Staging
from .._store.objects import GitObject, Kind, Oid
from .._store.protocol import ObjectBackend, ReadOnlyBackend, RefUpdate
from .._store.trees import lookup
from ..artifacts import ACTION_TYPE
from ..errors import MissingObject, ReactifactError, StoreError, UnknownRevision, text_of

NO_COMMIT = "0" * 40
"""What git writes for a ref that is not there."""


class Rejected(NamedTuple):
    """A tip that was set aside: its id, the ref that keeps it, and where the branch stands now."""

    commit: Oid
    kept: str
    back_to: Oid


def reject(database: Database, session: str, branch: str, when: datetime) -> Rejected:
    """Move a branch back to the newest commit of ours below what somebody made with git, which is kept.

    Raises `UnknownRevision` for a branch that is not there, `StoreError` where it stands on a commit of
    ours, or on none, and `Contention` where somebody else moves it meanwhile.
    """
    ref = stored_ref(database, session, branch)
    tip = database.backend.refs(ref).get(ref)
    if tip is None:
        raise UnknownRevision(f"session {session!r} has no branch {branch!r} in {database.backend.location}")
    if not is_by_hand(database, tip):
        raise StoreError(
            f"{session}/{branch} stands on {tip[:12]}, a commit of reactifact's, so nothing is rejected: use "
            f"`reactifact branch undo` to take back what agents did"
        )
    database.protection.require_free("reject", session, branch)
    staged = Staging(database)
    good = last_good(staged, tip)
    if good is None:
        raise StoreError(
            f"no commit of reactifact's is below {tip[:12]}, on which {session}/{branch} stands: move the "
            f"ref with `git update-ref {ref} <commit>` to what it was, or fetch it from a clone"
        )
    kept = f"refs/reactifact/rejected/{ref.removeprefix('refs/heads/')}/{tip[:12]}"
    text = f"reject {tip[:12]}"
    log = moved(staged, session, "reject", {ref: (tip, good)}, when, text)
    aside = [] if kept in database.backend.refs(kept) else [RefUpdate(kept, None, tip)]
    database.write(staged.objects, [*aside, *log, RefUpdate(ref, tip, good)])
    return Rejected(tip, kept, good)


# -- at the push -------------------------------------------------------------------------------------


def refused_push(database: Database, moves: Iterable[tuple[Oid, Oid, str]]) -> list[str]:
    """Return why a push is not taken, a text for each ref; nothing where all is well.

    `moves` are the lines that git hands to `pre-receive`: old id, new id, ref. Refs that are not of a
    session are not looked at.
    """
    found = []
    moves = list(moves)
    told = {
        ref.removeprefix(DELETED) for _, new, ref in moves if ref.startswith(DELETED) and new != NO_COMMIT
    }
    for old, new, ref in moves:
        if new == NO_COMMIT and ref.split("/")[2] in told:
            continue  # a sync brings a deletion that was meant
        try:
            _check_move(database, old, new, ref)
        except ReactifactError as error:
            found.append(text_of(error))
    return found


def _check_move(database: Database, old: Oid, new: Oid, ref: str) -> None:
    if is_ledger_ref(ref):
        _check_ledger(database, old, new, ref)
        return
    if parse_ref(ref) is None or new == NO_COMMIT:
        return
    _check_erased(database, new, ref)
    if old == NO_COMMIT and lookup(database, database.commit(new).tree, (BOOKKEEPING,)) is None:
        return  # a branch of somebody else's
    require_kind(database, new, ref)
    if is_by_hand(database, new):
        names = parse_ref(ref)
        assert names is not None
        ledger = None if names[0] is None else Ledger(database, names[0])
        if ledger is not None:
            ledger.refresh()
        read = PayloadReader(is_strict=False)
        stand_on(Staging(database), new, ref, read=read, ledger=ledger, action_type=ACTION_TYPE)


def _check_erased(database: Database, new: Oid, ref: str) -> None:
    """Refuse what still holds what was erased from the session, from a clone of before that."""
    names = parse_ref(ref)
    record = None if names is None or names[0] is not None else nearest_record(database, new)
    session = names[0] if record is None and names is not None else (record.session if record else None)
    if session is not None:
        way_out = "take a new clone, or erase the same in the store it comes from"
        stones = read_stones(database, session)
        require_clean(database, session, stones, {ref: new}, "what is pushed", way_out)


def _check_ledger(database: Database, old: Oid, new: Oid, ref: str) -> None:
    if new == NO_COMMIT:
        raise StoreError(
            f"{ref} is the record of what was sent, and is not deleted by a push: delete the session with "
            f"SessionStore.delete_session"
        )
    require_kind(database, new, ref, is_ledger=True)
    require_record(database, new, ref)
    _check_erased(database, new, ref)
    if old != NO_COMMIT and not is_ancestor(database, old, new):
        raise StoreError(
            f"{ref} would lose deliveries that are recorded in {old[:12]}: join the two with "
            f"`reactifact sync`"
        )


class PushedObjects(ReadOnlyBackend):
    """A bare repository and, before they are taken in, the objects of a push, which git alone can see."""

    def __init__(self, inner: ObjectBackend, folder: str) -> None:
        super().__init__(inner)
        self._git = subprocess.Popen(
            ["git", "-C", folder, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for. Raises `MissingObject`."""
        return {oid: self._read(oid) for oid in oids}

    def _read(self, oid: Oid) -> GitObject:
        assert self._git.stdin is not None
        assert self._git.stdout is not None
        self._git.stdin.write(f"{oid}\n".encode())
        self._git.stdin.flush()
        _, kind, *size = self._git.stdout.readline().decode().split()
        if not size:
            raise MissingObject(oid, self.location)
        data = self._git.stdout.read(int(size[0]))
        self._git.stdout.read(1)
        kinds: dict[str, Kind] = {"commit": "commit", "tree": "tree", "blob": "blob", "tag": "tag"}
        return GitObject(kinds[kind], data)

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Refuse. Raises `StoreError`."""
        raise StoreError(f"a push to {self.location} is only checked here")

    def close(self) -> None:
        """Close the repository and end git."""
        assert self._git.stdin is not None
        assert self._git.stdout is not None
        self._git.stdin.close()
        self._git.stdout.close()
        self._git.wait()
        super().close()
