"""Revisions as people write them (`session/branch~2`, tags, versions), heads, and tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ...errors import (
    Contention,
    DamagedRef,
    InvalidName,
    MissingObject,
    NameTaken,
    ReactifactError,
    StoreError,
    UnknownRevision,
)
from ..branch import MAIN, stored_ref
from ..commits import CommitRecord, nearest_record, own_record, read_record, said_change
from ..graph import first_parents
from ..names import (
    LEDGER_BRANCH,
    MAX_REF_BYTES,
    branch_ref,
    is_cut,
    is_ledger_ref,
    ledger_ref,
    parse_ref,
    parse_tag_ref,
    tag_ref,
)
from ..object_db import Database, Objects
from ..objects import Oid, tag_target
from ..protocol import RefUpdate, scan_refs

# -- tags: names for commits of a session that never move --


_TAGS = "refs/tags/"


class Tag(NamedTuple):
    """A name of a session and the commit that it stands for."""

    session: str
    name: str
    commit: Oid

    @property
    def ref(self) -> str:
        """The full name of its ref, which git and every verb understand."""
        return tag_ref(self.session, self.name)


def tags(database: Database, session: str | None = None) -> list[Tag]:
    """Return the tags of one session or of all, sorted; tags that others made are left out.

    Raises `InvalidName` for a session id that cannot be stored, and the error of a tag that is damaged.
    """
    found = (_tag(database, ref, oid) for ref, oid in database.backend.refs(_tags_below(session)).items())
    return sorted(tag for tag in found if tag is not None)


class DamagedTag(NamedTuple):
    """The ref of a tag that cannot be read, and why."""

    ref: str
    error: str


def readable_tags(database: Database, session: str | None = None) -> tuple[list[Tag], list[DamagedTag]]:
    """Return the tags that can be read, and apart from them those that cannot be, both sorted.

    Raises `InvalidName` for a session id that cannot be stored.
    """
    found: list[Tag] = []
    broken: list[DamagedTag] = []
    refs, damaged = scan_refs(database.backend, _tags_below(session))
    for ref, oid in refs.items():
        try:
            tag = _tag(database, ref, oid)
        except DAMAGE as error:
            broken.append(DamagedTag(ref, damage(error)))
        else:
            found += [] if tag is None else [tag]
    broken += [DamagedTag(error.ref, f"{error}") for error in damaged]
    return sorted(found), sorted(broken)


def _tags_below(session: str | None) -> str:
    return _TAGS if session is None else tag_ref(session, "x").rpartition("/")[0] + "/"


def _tag(database: Database, ref: str, oid: Oid) -> Tag | None:
    parsed = parse_tag_ref(ref)
    commit = None if parsed is None else peeled(database, oid)
    if parsed is None or commit is None:
        return None
    oid = commit
    record = own_record(database, oid)
    if record is None:
        return None
    session, name = parsed  # a session that was cut is whole in the record
    return Tag(record.session if session is None else session, name, oid)


def peeled(database: Database, oid: Oid) -> Oid | None:
    """Return the commit that an object is, or that an annotated tag leads to; `None` for another thing."""
    seen = {oid}
    item = database.read(oid)
    while item.kind == "tag":
        oid = tag_target(item.data)
        if oid in seen:
            return None
        seen.add(oid)
        item = database.read(oid)
    return oid if item.kind == "commit" else None


def make_tag(database: Database, session: str, name: str, commit: Oid) -> Tag:
    """Name a commit of a session; naming it so again changes nothing.

    Raises `NameTaken` where the name stands for another commit or for a branch, `InvalidName` for
    one that cannot be stored.
    """
    ref = tag_ref(session, name)
    if is_cut(ref.rpartition("/")[2]):
        raise InvalidName(f"{name[:50]!r}... is too long for a tag: its name must be readable from its ref")
    branch = stored_ref(database, session, name)
    if branch in database.backend.refs(branch):
        raise NameTaken(f"session {session!r} has a branch {name!r}: choose another name for the tag")
    try:
        if len(ref) > MAX_REF_BYTES and ref not in database.backend.refs(ref):
            raise InvalidName(
                f"{name[:50]!r}... is too long for a tag of this session: its ref would have "
                f"{len(ref)} bytes, and at most {MAX_REF_BYTES} are allowed; choose a shorter name"
            )
        database.backend.write({}, [RefUpdate(ref, None, commit)])
    except Contention:
        held = database.backend.refs(ref).get(ref)
        if held is None:
            raise
        if held != commit:
            raise NameTaken(
                f"tag {name!r} of session {session!r} stands for {held[:12]}, and tags do not move: "
                f"choose another name"
            ) from None
    return Tag(session, name, commit)


# -- from what a person types to a commit: names of branches and tags, versions, short ids --


MIN_DIGITS = 4
"""How many hex digits a shortened id has at least, as in git."""

_HEADS = "refs/heads/"
_VERSION = re.compile(r"v(\d+)")
_AT_VERSION = re.compile(r"(.+)@v(\d+)", re.DOTALL)
_SHORT_ID = re.compile(rf"[0-9a-f]{{{MIN_DIGITS},40}}")
_FULL_ID = re.compile(r"[0-9a-f]{40}")
_STEPS = re.compile(r"(.*?)((?:~\d*|\^\d*|\^\{commit\})+)", re.DOTALL)
_STEP = re.compile(r"([~^])(\d*)(\{commit\})?")
_HEAD_NAMES = ("HEAD", "@")
_GIT_PLACES = ("refs/", "refs/tags/", "refs/heads/", "refs/remotes/")
"""Where git looks for a ref whose name is not written out, in this order."""
_SHOWN = 5


class Head(NamedTuple):
    """A branch, or the ledger, of a session and the commit it stands on."""

    session: str
    branch: str
    commit: Oid
    is_ledger: bool

    @property
    def name(self) -> str:
        """`session/branch`; the ledger is `session/%outbox`."""
        return f"{self.session}/{self.branch}"


def heads(database: Database, session: str | None = None) -> list[Head]:
    """Return the branches and ledgers of one session or of all, sorted; refs of others are left out.

    One whose commit cannot be read is among them where its ref has its names whole: reading it raises,
    and it keeps nobody from the others. One whose names only its commit has whole is left out then
    (`readable_heads` names it). Raises `InvalidName` for a session id that cannot be stored, and
    `DamagedRef` for a ref among them.
    """
    return _listed(database, database.backend.refs(_prefix(session)))


def _listed(database: Database, refs: Mapping[str, Oid]) -> list[Head]:
    found = (_head_by_ref(database, ref, oid) for ref, oid in refs.items())
    return sorted(head for head in found if head is not None)


def _head_by_ref(database: Database, ref: str, oid: Oid) -> Head | None:
    try:
        return head_at(database, ref, oid)
    except DAMAGE:
        session, branch = parse_ref(ref) or (None, None)
        if session is None or branch is None:
            return None
        return Head(session, branch, oid, is_ledger_ref(ref))


class DamagedHead(NamedTuple):
    """A ref that cannot be read as a branch; session and branch are `None` where the ref cuts them."""

    ref: str
    session: str | None
    branch: str | None
    error: str


DAMAGE = (ReactifactError, OSError, LookupError, ValueError, TypeError, AttributeError)
"""What reading a damaged commit raises: ours, the system's, or that of a record of another shape."""


class StrayRef(NamedTuple):
    """A branch of git's own that stands where branches of sessions do, and is not one; `why` is in words."""

    ref: str
    commit: Oid
    why: str


class ScannedHeads(NamedTuple):
    """The refs below `refs/heads/`: branches and ledgers, those that cannot be read, those of git's own."""

    heads: list[Head]
    damaged: list[DamagedHead]
    strays: list[StrayRef]


def scan_heads(database: Database, session: str | None = None) -> ScannedHeads:
    """Return the refs of one session or of all, told apart and sorted.

    Raises `InvalidName` for a session id that cannot be stored.
    """
    scanned = ScannedHeads([], [], [])
    refs, damaged = scan_refs(database.backend, _prefix(session))
    for ref, oid in refs.items():
        try:
            head = head_at(database, ref, oid)
            if head is None:
                scanned.strays.append(StrayRef(ref, oid, _why_stray(database, ref, oid)))
            else:
                scanned.heads.append(head)
        except DAMAGE as error:
            scanned.damaged.append(damaged_ref(ref, error))
    scanned.damaged.extend(damaged_refs(damaged))
    return ScannedHeads(
        sorted(scanned.heads), sorted(scanned.damaged, key=lambda one: one.ref), sorted(scanned.strays)
    )


def readable_heads(database: Database, session: str | None = None) -> tuple[list[Head], list[DamagedHead]]:
    """Return the heads whose commits can be read, and apart from them the refs that cannot be, sorted.

    Raises `InvalidName` for a session id that cannot be stored.
    """
    found, broken, _ = scan_heads(database, session)
    return found, broken


def _why_stray(database: Database, ref: str, oid: Oid) -> str:
    if parse_ref(ref) is None:
        return "its name is not that of a session and a branch"
    record = nearest_record(database, oid)
    if record is None:
        return "no commit of its history is one of reactifact's"
    return f"it stands on a commit of session {record.session!r}"


def damaged_refs(errors: Iterable[DamagedRef]) -> list[DamagedHead]:
    """Return those of the damaged refs that are, or may hide, branches of a session."""
    return [
        damaged_ref(error.ref, error)
        for error in errors
        if parse_ref(error.ref) is not None or not error.ref.startswith("refs/")
    ]


def damaged_ref(ref: str, error: BaseException) -> DamagedHead:
    """Return a ref, and why it cannot be read as a branch."""
    return DamagedHead(ref, *(parse_ref(ref) or (None, None)), damage(error))


def damaged(head: Head, error: BaseException) -> DamagedHead:
    """Return a head, and why what it stands on cannot be read."""
    ref = branch_ref_of(head)
    return DamagedHead(ref, head.session, head.branch, damage(error))


def damage(error: BaseException) -> str:
    """Return what an error of `DAMAGE` says; one that is not ours does not name the thing."""
    if isinstance(error, ReactifactError):
        return f"{error}"
    return f"the commit or its bookkeeping cannot be read ({type(error).__name__}: {error}): run `git fsck`"


def _prefix(session: str | None) -> str:
    return _HEADS if session is None else branch_ref(session, MAIN).rpartition("/")[0] + "/"


def head_at(database: Database, ref: str, oid: Oid) -> Head | None:
    """Return the head that a ref is, `None` for one of others. Raises what reading its commit raises."""
    parsed = parse_ref(ref)
    record = None if parsed is None else nearest_record(database, oid)
    if parsed is None or record is None:
        return None
    is_ledger = is_ledger_ref(ref)
    session, branch = parsed  # a name that was cut is whole in the record
    if session not in (None, record.session):
        return None  # made with git on another session's commit: a session that is saved names itself
    return Head(
        record.session if session is None else session,
        record.branch if branch is None else branch,
        oid,
        is_ledger,
    )


def find_head(database: Database, session: str, branch: str | None = None) -> Head:
    """Return a branch of a session: by name, else its own line, else the only one it has.

    Raises `UnknownRevision`, naming what there is instead.
    """
    name = MAIN if branch is None else branch
    found, damaged = _stored_heads(database, session)
    wanted = [head for head in found if head.branch == name]
    if damaged and not wanted:
        raise _first_of(damaged, branch_ref(session, name))
    if not found:
        raise UnknownRevision(
            f"{database.backend.location} holds no session {session!r}; "
            f"{_listing('sessions', _readable_sessions(database))}"
        )
    usable = [head for head in found if not head.is_ledger]
    if branch is None and not wanted and len(usable) == 1:
        wanted = usable
    if not wanted:
        _read_by_ref(database, session, MAIN if branch is None else branch)
        name = "line of its own" if branch is None else f"branch {branch!r}"
        raise UnknownRevision(
            f"session {session!r} has no {name}; {_listing('branches', [h.branch for h in found])}"
        )
    return wanted[0]


def _read_by_ref(database: Database, session: str, branch: str) -> None:
    """Raise what reading a branch raises whose commit is damaged, and which `heads` cannot name."""
    try:
        ref = stored_ref(database, session, branch)
    except InvalidName:
        return
    held = database.backend.refs(ref).get(ref)
    if held is not None:
        read_record(database, held)


def parse_head(database: Database, text: str) -> Head:
    """Return the branch that `session` or `session/branch` names; both may contain slashes.

    Raises `UnknownRevision` when there is none, or when the text can be read in two ways.
    """
    found = _named(database, text)
    if not found:
        raise UnknownRevision(
            f"{database.backend.location} holds no session {text!r} and no branch of that name; "
            f"{_listing('sessions', _readable_sessions(database))}"
        )
    return found[0]


def _named(database: Database, text: str) -> list[Head]:
    """Return the one head that a text names, or none. Raises `UnknownRevision` for two, `DamagedRef`."""
    found: list[Head] = []
    own, damaged = _stored_heads(database, text)
    if own or damaged:
        found.append(find_head(database, text))
    for index, char in enumerate(text):
        if char == "/":
            found += _stored_branch(database, text[:index], text[index + 1 :])
    if len(found) > 1:
        ways = " or ".join(f"session {h.session!r} branch {h.branch!r}" for h in found)
        raise UnknownRevision(f"{text!r} can be read as {ways}; name session and branch apart")
    return found


def _stored_heads(database: Database, session: str) -> tuple[list[Head], tuple[DamagedRef, ...]]:
    try:
        refs, damaged = scan_refs(database.backend, _prefix(session))
    except InvalidName:
        return [], ()
    return _listed(database, refs), damaged


def _stored_branch(database: Database, session: str, branch: str) -> list[Head]:
    """Return the branch of that name, if there is one. Raises `DamagedRef` where that is not known."""
    found, damaged = _stored_heads(database, session)
    named = [head for head in found if head.branch == branch]
    if damaged and not named:
        ref = ledger_ref(session) if branch == LEDGER_BRANCH else branch_ref(session, branch)
        for error in damaged:
            if error.ref == ref or not error.ref.startswith(_HEADS):
                raise error
    return named


def _first_of(damaged: Sequence[DamagedRef], ref: str) -> DamagedRef:
    return next((error for error in damaged if error.ref == ref), damaged[0])


def _readable_sessions(database: Database) -> list[str]:
    refs, _ = scan_refs(database.backend, _HEADS)
    return sorted({head.session for head in _listed(database, refs)})


def latest_head(database: Database) -> Head:
    """Return the branch written last, by the time in its newest commit, of those that can be read.

    Raises `UnknownRevision` for a store without sessions, `StoreError` where none can be read.
    """
    found, broken = readable_heads(database)
    usable = [head for head in found if not head.is_ledger]
    if not usable and broken:
        raise StoreError(
            f"no session of {database.backend.location} can be read; {broken[0].ref}: {broken[0].error}"
        )
    if not usable:
        raise UnknownRevision(f"{database.backend.location} holds no session yet")
    return max(usable, key=lambda head: (_written(database, head), head))


def _written(database: Database, head: Head) -> datetime:
    record = nearest_record(database, head.commit)
    assert record is not None  # a head without a record is not listed
    return datetime.fromisoformat(record.timestamp)


def find_tag(database: Database, text: str, *, session: str | None = None) -> Tag | None:
    """Return the tag that `session/name` names (with `session`: its name alone), or `None`.

    Raises `UnknownRevision` when the text can be read in two ways.
    """
    if session is not None:
        found = _stored_tags(database, session, text)
    else:
        found = [
            tag
            for index, char in enumerate(text)
            if char == "/"
            for tag in _stored_tags(database, text[:index], text[index + 1 :])
        ]
    if len(found) > 1:
        ways = " or ".join(f"tag {tag.name!r} of session {tag.session!r}" for tag in found)
        raise UnknownRevision(f"{text!r} can be read as {ways}; name session and tag apart")
    return found[0] if found else None


def _stored_tags(database: Database, session: str, name: str) -> list[Tag]:
    """Return the tag of that name, if there is one; what another tag holds does not matter."""
    try:
        ref = tag_ref(session, name)
    except InvalidName:
        return []
    held = database.backend.refs(ref).get(ref)
    tag = None if held is None else _tag(database, ref, held)
    return [] if tag is None else [tag]


def find_branch(database: Database, text: str, *, session: str | None = None) -> Head | None:
    """Return the branch (or ledger) that a text names, `None` when it names none.

    With `session` the text is the name of a branch of it, or the whole `session/branch`. Raises
    `UnknownRevision` when it can be read in two ways.
    """
    if text.startswith(_HEADS):
        refs = database.backend.refs(text)
        return _head_by_ref(database, text, refs[text]) if text in refs else None
    if session is not None:
        own = _stored_branch(database, session, text)
        if own:
            return own[0]
    named = _named(database, text)
    return named[0] if named else None


def branch_ref_of(head: Head) -> str:
    """Return the full name of the ref of a branch or a ledger."""
    return ledger_ref(head.session) if head.is_ledger else branch_ref(head.session, head.branch)


def resolve(database: Database, text: str, *, session: str | None = None, branch: str | None = None) -> Oid:
    """Return the commit that `text` names.

    In this order: `vN`, the commit with that context version on the branch (with `session`; 0 is
    the empty state it began with); a branch, as `session/branch`, or by its own name with
    `session`; a tag, likewise, annotated or not; a full ref name (`refs/tags/...`); a version of a
    branch, as `session/branch@vN`; `HEAD` or `@`, the branch that is meant; a name of git's own
    (`v1` for `refs/tags/v1`); a commit id or a Change-Id, of which the first four digits or more are
    enough. After any of these `~N` is its Nth ancestor on its own line and `^N` its Nth parent, as in
    git. Raises `UnknownRevision` when nothing or more than one commit fits.
    """
    found = _resolved(database, text, session, branch)
    if found is not None:
        return found
    steps = _STEPS.fullmatch(text)
    if steps is not None:
        start = resolve(database, steps[1] or "HEAD", session=session, branch=branch)
        return _walked(database, text, start, steps[2])
    if _VERSION.fullmatch(text):
        raise UnknownRevision(f"{text} is a version of a session; say of which one")
    if _SHORT_ID.fullmatch(text):
        raise UnknownRevision(
            f"no commit in {database.backend.location} has an id or a Change-Id that starts with {text}"
        )
    raise UnknownRevision(
        f"{text!r} names no commit in {database.backend.location}: give a commit id or a Change-Id "
        f"(at least {MIN_DIGITS} hex digits), session/branch, session/tag, session/branch@vN, vN "
        f"with a session, or HEAD, and ~N or ^N after it"
    )


def _resolved(database: Database, text: str, session: str | None, branch: str | None) -> Oid | None:
    """Return the commit that a text without steps names, or `None`."""
    version = _VERSION.fullmatch(text)
    if session is not None and version is not None:
        return _of_version(database, find_head(database, session, branch), int(version[1]))
    named = _of_name(database, text, session)
    if named is not None:
        return named
    at = _AT_VERSION.fullmatch(text)
    if at is not None:
        head = find_branch(database, at[1], session=session)
        if head is not None:
            return _of_version(database, head, int(at[2]))
    if text in _HEAD_NAMES:
        return meant_head(database, session, branch).commit
    by_git = _of_git(database, text)
    if by_git is not None:
        return by_git
    if _SHORT_ID.fullmatch(text):
        starts = [head.commit for head in readable_heads(database, session)[0]]
        starts += [tag.commit for tag in readable_tags(database, session)[0]]
        return _of_digits(database, starts, text)
    return None


def meant_head(database: Database, session: str | None = None, branch: str | None = None) -> Head:
    """Return the branch that `HEAD` means: of a session its own line, else where git's `HEAD` points.

    Where the store has no `HEAD`, or it points at no branch of a session, it is the one written last.
    Raises `UnknownRevision`.
    """
    if session is not None:
        return find_head(database, session, branch)
    ref = getattr(database.backend, "head", None)
    held = database.backend.refs(ref) if isinstance(ref, str) else {}
    found = _head_by_ref(database, ref, held[ref]) if isinstance(ref, str) and ref in held else None
    return latest_head(database) if found is None else found


def _of_git(database: Database, text: str) -> Oid | None:
    """Return the commit of a ref under the name that git takes for it, or `None`."""
    for place in _GIT_PLACES:
        ref = place + text
        found = database.backend.refs(ref).get(ref)
        if found is not None:
            return peeled(database, found)
    return None


def _walked(database: Database, text: str, start: Oid, steps: str) -> Oid:
    """Return the commit that `~N` and `^N` lead to. Raises `UnknownRevision` beyond the first commit."""
    oid = start
    for kind, digits, peel in _STEP.findall(steps):
        if peel:
            continue
        count = int(digits) if digits else 1
        for number in range(count) if kind == "~" else [count - 1]:
            parents = database.commit(oid).parents
            place = 0 if kind == "~" else number
            if place < 0:
                continue  # ^0 is the commit itself
            if place >= len(parents):
                raise UnknownRevision(
                    f"{text!r} leads beyond {oid[:12]}, which has {len(parents)} "
                    f"{'parent' if len(parents) == 1 else 'parents'}"
                )
            oid = parents[place]
    return oid


def _of_name(database: Database, text: str, session: str | None) -> Oid | None:
    """Return the commit of a branch, a tag or a ref of that name. Raises `UnknownRevision` for two."""
    if text.startswith("refs/"):
        held = database.backend.refs(text).get(text)
        return None if held is None else peeled(database, held)
    head = find_branch(database, text, session=session)
    tag = None if session is None else find_tag(database, text, session=session)
    if tag is None:
        tag = find_tag(database, text)
    if head is not None and tag is not None and head.commit != tag.commit:
        raise UnknownRevision(
            f"{text!r} is both a branch and a tag: name the ref, {branch_ref_of(head)} or {tag.ref}"
        )
    if head is not None:
        return head.commit
    return None if tag is None else tag.commit


def _of_version(database: Database, head: Head, version: int) -> Oid:
    newest: CommitRecord | None = None
    for oid, record in first_parents(database, head.commit):
        if record is None:
            continue
        newest = record if newest is None else newest
        if version < newest.baseline:
            raise UnknownRevision(
                f"version {version} of {head.name} is below its compaction baseline {newest.baseline}: what "
                f"came before it was compacted; choose {newest.baseline} or more"
            )
        if record.context_version == version or (version == 0 and record.kind == "root"):
            return oid
    raise UnknownRevision(
        f"{head.name} has no version {version}: it stands at version {newest.version if newest else 0}, "
        f"and older ones may have been compacted"
    )


def _of_digits(database: Database, starts: Iterable[Oid], digits: str) -> Oid | None:
    if _FULL_ID.fullmatch(digits) and _is_commit(database, digits):
        return digits
    found = [oid for oid in _reachable(database, starts) if _fits(database, oid, digits)]
    if not found:
        return None
    if len(found) > 1:
        shown = ", ".join(sorted(found)[:_SHOWN])
        raise UnknownRevision(f"{digits} fits {len(found)} commits; give more digits: {shown}")
    return found[0]


def _is_commit(database: Database, oid: Oid) -> bool:
    try:
        return database.read(oid).kind == "commit"
    except MissingObject:
        return False


def _fits(database: Database, oid: Oid, digits: str) -> bool:
    if oid.startswith(digits):
        return True
    if not said_change(database.commit(oid)).startswith(digits):
        return False  # that spares the reading of the record of every commit; the record decides
    record = own_record(database, oid)
    return record is not None and record.change.startswith(digits)


def _reachable(objects: Objects, starts: Iterable[Oid]) -> Iterator[Oid]:
    seen: set[Oid] = set()
    waiting = list(starts)
    while waiting:
        oid = waiting.pop()
        if oid not in seen:
            seen.add(oid)
            yield oid
            waiting.extend(objects.commit(oid).parents)


def _listing(what: str, names: list[str]) -> str:
    if not names:
        return f"it has no {what} at all"
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what} it has: {shown}{more}"
