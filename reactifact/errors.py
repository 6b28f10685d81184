"""The one tree of exceptions that reactifact raises for its own reasons.

Each message names the thing, the cause and the next step. Errors of user code (a produce, a
condition, a dispatcher) are never wrapped: they reach the caller as they were raised.

    ReactifactError
        StoreError
            NotAStore
                LinkInStore
            NoCheckpoint (also FileNotFoundError, ValueError)
            FormatTooNew
            ObjectTooLarge
            MissingObject (also LookupError)
            NotRecovered
            DamagedIndex
            DamagedRef
            NotAdopted
            CommitRefused
            LedgerMissing
            RemoteError
            SyncUnsupported
            UnrelatedHistories
            ErasedHistory
            ErasureRefused
            LeaseHeld
            UnknownRevision (also LookupError)
            NameTaken (also ValueError)
            Contention
                StaleSession
            ReadOnlyContext
            ProtectedBranch
            StoreBusy
                SessionBusy
            LockLost
        InvalidName (also ValueError)
        PayloadError (also ValueError)
        UnreadablePayload (also ValueError)
        WrongType (also TypeError)
        TypeNotFoundError (also LookupError)
        ArtifactMutated (also RuntimeError)
        IntentConflict (also ValueError)
        DeliveryTimeout (also TimeoutError)
        AnswerConflict (also ValueError)
        AnswerInvalid (also ValueError)
        QuestionExpired
        UnknownQuestion (also LookupError)
        NotAuthorized (also PermissionError)
        GuardrailViolation (also ValueError)
        QuotaExceeded
        BudgetExceeded
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from pydantic import ValidationError


class ReactifactError(Exception):
    """Base of every error that reactifact raises for its own reasons."""


class StoreError(ReactifactError):
    """A store cannot be opened, read or written."""


class NotAStore(StoreError):
    """The path holds something that is not a store this version can use."""


class LinkInStore(NotAStore):
    """A symbolic link stands where a store keeps its own files; it was not followed."""


class NoCheckpoint(StoreError, FileNotFoundError, ValueError):
    """Nothing was saved yet where a checkpoint is to be loaded from."""


class FormatTooNew(StoreError):
    """The store was written by a newer reactifact than this one."""


class ObjectTooLarge(StoreError):
    """An object, or a bundle, says that it is larger than the store was told to take (`max_object`)."""


class MissingObject(StoreError, LookupError):
    """An object that the history names is not in the store."""

    def __init__(self, oid: str, where: str) -> None:
        super().__init__(
            f"object {oid} is missing from {where}: the store is damaged or was cloned in part; "
            f"run `git fsck` on it and fetch the object from a clone or a backup. Where something was erased "
            f"or pruned since what you hold was read, open it anew"
        )
        self.oid = oid


class NotRecovered(StoreError):
    """A power cut took files of a store, and they may not be put back from its journal: it is read-only."""


class DamagedIndex(StoreError):
    """An index of a pack is damaged, so that nothing may be looked up through it."""


class DamagedRef(StoreError):
    """A ref that is there and cannot be read; it is never taken for one that is absent.

    `ref` is its full name, or `packed-refs` where what is damaged is not a single line of that file.
    """

    def __init__(self, ref: str, where: str, what: str, way_out: str) -> None:
        super().__init__(f"{ref} is damaged: {where} {what}; {way_out}")
        self.ref = ref


class NotAdopted(StoreError):
    """A branch stands on a commit that somebody made with git, and was not adopted; `commit` is its id."""

    def __init__(self, message: str, commit: str) -> None:
        super().__init__(message)
        self.commit = commit


class Problem(NamedTuple):
    """A file of a commit made with git that cannot be taken: the commit that changed it, its path, the line
    (from 1) and the field where they are known, and why."""

    commit: str
    path: str
    line: int | None
    field: str
    reason: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {f'{self.field}: ' if self.field else ''}{self.reason} (commit {self.commit[:12]})"


class CommitRefused(StoreError):
    """A commit that somebody made with git is not a state; nothing of it was taken.

    `ref` and `commit` are what stands there, `problems` what is wrong with it, `last_good` the newest commit
    of ours below it, which can still be read; `None` where there is none.
    """

    def __init__(self, ref: str, commit: str, problems: tuple[Problem, ...], last_good: str | None) -> None:
        name = ref.removeprefix("refs/heads/")
        good = (
            "there is no commit of reactifact's below it"
            if last_good is None
            else f"the last good commit is {last_good[:12]}, which can be read (`reactifact show STORE "
            f"{last_good[:12]}`), and `reactifact reject STORE {name}` goes back to it"
        )
        listed = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"{name} stands on {commit[:12]}, made with git, and that is not a valid state:\n{listed}\n"
            f"Nothing of it was taken. Mend the files and push once more; {good}"
        )
        self.ref = ref
        self.commit = commit
        self.problems = problems
        self.last_good = last_good


class LedgerMissing(StoreError):
    """What was delivered is recorded elsewhere: nothing is sent until that is fetched or rebuilt."""


class RemoteError(StoreError):
    """Another store cannot be reached, or refuses what is brought to it."""


class SyncUnsupported(StoreError):
    """A store of this kind cannot be brought together with another one."""


class UnrelatedHistories(StoreError):
    """Two stores hold sessions of one id that began apart; nothing of them was brought together."""


class ErasedHistory(StoreError):
    """A history still holds what was erased from its session; nothing of it was taken in or brought away.

    `session` is its id, `commit` the first commit that shows it.
    """

    def __init__(self, message: str, session: str, commit: str) -> None:
        super().__init__(message)
        self.session = session
        self.commit = commit


class ErasureRefused(StoreError):
    """What was to be erased cannot be, as it was asked for; nothing was changed."""


class LeaseHeld(StoreError):
    """Another store has the lease of this session, or ours has run out: nothing is delivered from here."""


class UnknownRevision(StoreError, LookupError):
    """A commit, a session, a branch or an artifact that the store does not hold, or names twice."""


class NameTaken(StoreError, ValueError):
    """A branch or a tag of that name exists already; nothing was written."""


class Contention(StoreError):
    """A ref was moved by somebody else between our read and our write."""


class StaleSession(Contention):
    """The branch moved in the store since this context was loaded; nothing was written."""


class ReadOnlyContext(StoreError):
    """A context that shows a stored commit was to be changed or run; it is only looked at."""


class ProtectedBranch(StoreError):
    """A verb would take history from a branch that the store protects; nothing was done."""


class StoreBusy(StoreError):
    """Somebody else has held a lock of the store for too long; try again when they are done."""


class SessionBusy(StoreBusy):
    """Another runner or drain holds the lock of this session."""


class LockLost(StoreError):
    """A lock of the store was lost while its holder relied on it; what it guards may be done by another."""


class InvalidName(ReactifactError, ValueError):
    """An id or a name that cannot be stored (empty, too long, or not encodable as UTF-8)."""


class PayloadError(ReactifactError, ValueError):
    """A payload that would not come back equal from storage; nothing was written."""


class UnreadablePayload(ReactifactError, ValueError):
    """A stored payload does not fit its model (any more), and no migrate hook made it fit."""


class WrongType(ReactifactError, TypeError):
    """An artifact is of another type than the one that was asked for."""


class TypeNotFoundError(ReactifactError, LookupError):
    """A type id for which this process has no model; the data stays as it is in the store."""


class ReactifactWarning(UserWarning):
    """Something works now and will not later; the text says what to do about it."""


class ArtifactMutated(ReactifactError, RuntimeError):
    """The data of an artifact was changed in place instead of through an effect or `update`."""


class IntentConflict(ReactifactError, ValueError):
    """Two different actions were planned under one idempotency key."""


class DeliveryTimeout(ReactifactError, TimeoutError):
    """A send had not ended in its time and was cut: whether it went out is not known."""


class AnswerConflict(ReactifactError, ValueError):
    """A question that is answered was answered otherwise; the first answer stands."""


class AnswerInvalid(ReactifactError, ValueError):
    """An answer is not what its question asks for; the question stays open.

    `faults` says what is wrong field by field, for a form: (the way to the field, what is wrong), without the
    values that were given. It is empty where the answer is none of the question's options.
    """

    def __init__(self, message: str, faults: Iterable[tuple[tuple[str | int, ...], str]] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class QuestionExpired(ReactifactError):
    """The deadline of a question has passed: it takes no answer any more."""


class UnknownQuestion(ReactifactError, LookupError):
    """There is no question of that id, or it is open on several branches and none was named."""


class NotAuthorized(ReactifactError, PermissionError):
    """The authorizer of the resources did not allow a write or a send; nothing of it was done."""


class GuardrailViolation(ReactifactError, ValueError):
    """A guardrail of the resources refused what was to be written or sent; nothing of it was done."""


class QuotaExceeded(ReactifactError):
    """What the quota of the resources allows in a span of time is used up; nothing more is done."""


class BudgetExceeded(ReactifactError):
    """What the budget of the turn allows is used up; the call was not made."""


def text_of(error: BaseException) -> str:
    """Return what an exception says. An exception of a user may raise from its own `str`; this never does.

    Of a validation error the values are left out: they may be secrets, or somebody's data.
    """
    if isinstance(error, ValidationError):
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        said = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the value'}: {one['msg']}" for one in faults)
        return f"{len(faults)} validation error{'s' * (len(faults) != 1)} for {error.title}: {said}"
    for text in (str, repr):
        with suppress(Exception):
            return str.__str__(text(error))
    return f"{type(error).__name__}, whose text cannot be had: its __str__ and __repr__ raise"


def told(error: BaseException) -> str:
    """Return an exception as one line of text: its type and what it says. Never raises."""
    return f"{type(error).__name__}: {text_of(error)}"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception; one that takes none stays as it is. Never raises."""
    with suppress(Exception):
        error.add_note(note)
