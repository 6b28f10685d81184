"""A branch that others wrote: commits made with git are adopted, and a context goes on from what moved.

Owns `load`, the commit that adopts what somebody made with git, the reading of payloads that people wrote
by their models, and `refresh`, which puts what was changed here on top.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from .._store import canonical
from .._store._history.adoption.standing import (
    Change,
    Payload,
    ReadPayload,
    Written,
    as_written,
    is_by_hand,
    person,
)
from .._store._history.adoption.text import Refused
from .._store._history.adoption.tree import stand_on
from .._store._history.fetched import fetched_news, join_fetched
from .._store._history.merge import MergePlan
from .._store.branch import Branch, new_change_id, stored_ref
from .._store.commits import CommitRecord, down_from, operation_payload, read_record
from .._store.graph import first_parents
from .._store.index import Indexes
from .._store.ledger import Ledger
from .._store.object_db import Database, Objects
from .._store.objects import CommitObject, Oid
from .._store.state import Origin, State
from .._undeclared import with_undeclared
from ..artifacts import ACTION_TYPE, Encoded, action_note, encode
from ..errors import NotAdopted, SessionBusy, StaleSession, TypeNotFoundError, text_of
from ..events import EventType
from ..merging import conflict, details_of
from ..resources import RuntimeResources
from ..threads import in_thread
from ..types.codec import decode_payload
from ..types.registry import resolve, revision_of
from . import merge
from .commit import Committer
from .context import Context
from .preload import Ahead, look_ahead, open_ahead
from .working_copy import WorkingCopy

# -- a commit that somebody made with git is adopted when its branch is opened --


def load(
    database: Database,
    session: str,
    branch: str,
    resources: RuntimeResources | None = None,
    *,
    read: ReadPayload | None = None,
) -> Branch | None:
    """Read a branch, or return `None` when there is none; commits made with git are adopted.

    The commit that adopts them stands on top and is written with whatever is written next. `read` reads a
    payload that a person wrote; by default the models of this process do. Runs in a worker thread. Raises
    what `Branch.load` does, and `CommitRefused`, naming what is wrong, where a commit made with git is not
    a valid state.
    """
    try:
        line = Branch.load(database, session, branch)
    except NotAdopted as error:
        ref = stored_ref(database, session, branch)
        tip = database.backend.refs(ref).get(ref)
        if tip is None or not is_by_hand(database, tip):
            raise error  # it is about something else than the branch
        join_fetched(database, session)
        line = Branch.named(database, session, branch)
        return adopt(line, ref, tip, resources or RuntimeResources(), read or PayloadReader(is_strict=True))
    if line is not None and fetched_news(line.ledger) and line.missing_ledgers():
        join_fetched(database, session)
        line.ledger.refresh()
    return line


def opened(
    database: Database, session: str, branch: str, resources: RuntimeResources | None = None
) -> Context | None:
    """Return the context of a branch, or `None`, with what its first changes look up read ahead.

    Runs in a worker thread. Raises what `load` does.
    """
    line = load(database, session, branch, resources)
    if line is None:
        return None
    open_ahead(line)
    return Context.over(line, resources)


def write_adopted(database: Database, session: str, branch: str) -> None:
    """Write the commit that adopts what a branch stands on, where somebody made that with git.

    For verbs that build on a stored commit. Raises as `load` does, and `StaleSession`.
    """
    ref = stored_ref(database, session, branch)
    tip = database.backend.refs(ref).get(ref)
    if tip is not None and is_by_hand(database, tip):
        line = load(database, session, branch)
        if line is not None:
            line.publish()


def adopt(
    line: Branch,
    ref: str,
    tip: Oid,
    resources: RuntimeResources,
    read: ReadPayload,
    *,
    distrusted: Collection[Oid] = (),
) -> Branch:
    """Let a line without commits stand on a commit of ours over `tip`, which is staged and says what came.

    `distrusted` are commits of ours whose bookkeeping is damaged. Raises `CommitRefused`, and
    `ErasedHistory` where it brings back what was erased.
    """
    line.ledger.refresh()
    line.ref, line.published = ref, tip
    from .._store._history.tombstones import read_stones, require_clean

    way_out = "go back from it with `reactifact reject`, then erase the same again"
    stones = read_stones(line.database, line.session)
    require_clean(line.objects, line.session, stones, {ref: tip}, "a commit made with git", way_out)
    line.note_moves_by_git()
    change = new_change_id()
    standing = stand_on(
        line.objects,
        tip,
        ref,
        read=read,
        ledger=line.ledger,
        action_type=ACTION_TYPE,
        change=change,
        distrusted=distrusted,
    )
    record = standing.record
    assert record is not None
    line.tip, line.record = tip, replace(record, session=line.session, branch=line.branch)
    line.is_session, line.is_watched = record.is_session, record.is_watched
    line.next_event = record.next_event
    line.objects.absorb(standing.state.objects)
    line.state = State(line.objects, standing.roots, standing.state.next_sequence, Indexes())
    if (record.session, record.branch) not in (("", ""), (line.session, line.branch)):
        line.fork = {"branch": record.branch, "change": record.change, "commit": standing.base}
    committer = Committer(line, resources)
    made = line.objects.commit(tip)
    _note(committer.working, standing.changes)
    versioned = bool(standing.changes)
    committer.commit_record(
        CommitRecord(
            change=change,
            kind="adopt",
            author=person(made),
            timestamp=resources.clock.now().isoformat(),
            message=_message(made, tip),
            context_version=0 if versioned else None,
            operations=committer.working.operations,
            writes=[
                [found.artifact_id, found.meta.version if found.kind != "delete" else 0, found.kind]
                for found in standing.changes
                if found.meta is not None
            ],
            details={"adopted": standing.commits, "onto": standing.base},
        )
    )
    committer.note_queue()
    return line


def _note(working: WorkingCopy, changes: Iterable[Change]) -> None:
    """Journal what a person changed, and queue the events of it."""
    for found in changes:
        if found.meta is None:
            ends = {"relation": found.relation, "target_id": found.target}
            working.journal({"type": found.kind, "artifact_id": found.artifact_id, **ends})
            continue
        model = working.type_of(found.meta)
        if found.kind == "delete":
            working.journal({"type": "delete", "artifact_id": found.artifact_id})
        else:
            payload = working.state.payload(found.meta)
            encoded = Encoded(found.meta.type_id, payload, found.meta.revision, BaseModel)
            working.journal(
                {
                    "type": found.kind,
                    "artifact_id": found.artifact_id,
                    "data_type": found.meta.type_id,
                    "payload": found.meta.payload,
                    "revision": found.meta.revision,
                    "version": found.meta.version,
                    **action_note(encoded),
                }
            )
        if not found.wakes:
            continue
        if found.kind == "update":
            working.emit_update(model, found.artifact_id, found.when)
        else:
            working.emit(_EVENTS[found.kind], model, found.artifact_id, found.when)


_EVENTS = {"create": EventType.ARTIFACT_CREATED, "delete": EventType.ARTIFACT_DELETED}


def _message(made: CommitObject, commit: Oid) -> str:
    said = made.message.strip().split("\n")[0].encode("utf-8", "replace").decode()
    return f"adopt {commit[:7]}: {said or 'a commit without a message'}"


class PayloadReader:
    """Reads payloads that a person wrote, by the models of this process.

    Where `is_strict`, a type that has no model here is refused. Otherwise a payload of a type that was stored
    before is taken as it is written: a hook of git runs where the application is not installed.
    """

    __slots__ = ("is_strict",)

    def __init__(self, is_strict: bool) -> None:
        self.is_strict = is_strict

    def __call__(self, written: Written) -> Payload:
        """Return a payload as it is stored. Raises `Refused`."""
        type_id, before = written.type_id, written.before
        try:
            model = resolve(type_id)
        except TypeNotFoundError as error:
            if not self.is_strict and written.is_stored_type:
                return as_written(written)
            raise Refused(f"there is no type {type_id!r} ({error})") from error
        try:
            data = canonical.encode(written.value)
        except (ValueError, TypeError) as error:
            raise Refused(text_of(error)) from error
        revision = written.revision
        if revision is None:
            same = before is not None and before.type_id == type_id
            revision = before.revision if same and before is not None else revision_of(model)
        try:
            found = decode_payload(model, data, type_id=type_id, revision=revision)
            encoded = encode(found)
            known = None
            if before is not None and before.type_id == type_id:
                known = Encoded(type_id, before.data, before.revision, model)
            declared = canonical.decode(encoded.payload)
            value, unknown = with_undeclared(written.value, declared, known)
        except ValidationError as error:
            raise _refused(error) from error
        except Exception as error:  # what models, migrations and validators of users raise
            if isinstance(error.__cause__, ValidationError):
                raise _refused(error.__cause__) from error
            raise Refused(text_of(error)) from error
        if unknown is not None:
            raise Refused(f"{model.__qualname__} declares no such field", unknown)
        if value == declared and canonical.encode(value) == encoded.payload:
            return Payload(encoded.payload, encoded.revision)
        return Payload(canonical.encode(value), encoded.revision if before is None else before.revision)


def _refused(error: ValidationError) -> Refused:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return Refused(first["msg"], "".join(parts).lstrip("."))


# -- going on from what somebody else wrote: direct changes are applied again on top of it --


async def refresh(context: Context) -> bool:
    """Load the branch again and apply unpublished direct changes on top; return whether it moved.

    Worker threads read, on copies; the context is changed on the event loop alone and in one go, with all
    that was changed meanwhile. Raises `SessionBusy` while a turn runs, `MergeConflict`, naming the
    artifacts, when somebody else changed what was changed here, and `StaleSession` when the branch is
    gone, or where a merge or an edit of ours would be dropped; the context is untouched then.
    """
    _refuse_beside_a_turn(context)
    async with context.publish_lock:
        _refuse_beside_a_turn(context)  # one that began while we waited; another waits for us now
        return await _refresh(context)


async def take_in(context: Context) -> bool:
    """Go on from what people committed with git since the context was read; return whether that is all.

    For whoever holds the branch's run lock, before a turn. Raises as `refresh` does, and `CommitRefused`.
    """
    line = context.line
    async with context.publish_lock:
        if not await in_thread(_is_ours_below, line.database, line.ref, line.published):
            return False
        await _refresh(context)
    return True


def _is_ours_below(database: Database, ref: str | None, published: Oid | None) -> bool:
    """Whether a ref has moved from `published` by commits that somebody made with git alone."""
    held = None if ref is None else database.backend.refs(ref).get(ref)
    for oid in down_from(database, held):
        if oid == published or not is_by_hand(database, oid):
            return oid == published
    return False


async def _refresh(context: Context) -> bool:
    """Load the branch again, under the context's publish lock."""
    line = context.line
    fresh = await in_thread(_load, line.database, line.session, line.branch, line.ref, context.resources)
    if fresh is None and line.published is not None:
        raise StaleSession(
            f"branch {line.branch!r} of session {line.session!r} was deleted: open the session anew"
        )
    if fresh is None or fresh.published == line.published:
        return False
    await look_ahead(context.commits)
    ours = _Ours.of(context)
    again = await in_thread(ours.on_top_of, fresh)
    await in_thread(line.ledger.refresh)
    # from here on nothing is awaited
    now = _Ours.of(context)
    if now.tip != ours.tip:
        again = now.on_top_of(fresh)  # the store was read just now, and is in the cache
    _go_on(context, fresh, again)
    return True


def _refuse_beside_a_turn(context: Context) -> None:
    if context.runner is not None:
        raise SessionBusy(
            f"session.refresh() was called while run {context.runner} is in progress, whose executions still "
            f"read what it would replace: await the run first"
        )


def _load(
    database: Database, session: str, branch: str, ref: str | None, resources: RuntimeResources
) -> Branch | None:
    if ref is None:
        raise StaleSession("a branch that has no name in the store cannot be refreshed: save it first")
    fresh = load(database, session, branch, resources)
    if fresh is not None:
        open_ahead(fresh)
        fresh.state.held()  # it is looked at on the event loop
    return fresh


class _Again(NamedTuple):
    """The direct changes as a line of their own, and how they go on top of what the store holds."""

    changes: Branch
    merge: merge.Merge


class _Ours(NamedTuple):
    """A copy of a line, for a thread to read, and the commit that the store was last known to hold."""

    copy: Branch
    tip: Oid | None
    published: Oid | None

    @classmethod
    def of(cls, context: Context) -> _Ours:
        """Commit what is open on a context and copy its line."""
        context.commits.commit_direct()
        line = context.line
        copy, published = line.fork_off(line.branch), line.published
        for oid, record in first_parents(copy.objects, copy.tip):
            if oid == published:
                break
            if record is not None and record.kind == "adopt":
                published = oid  # it is made once more, over what stands there by now
                break
        return cls(copy, line.seal(), published)

    def on_top_of(self, fresh: Branch) -> _Again | None:
        """Return how the direct changes apply to `fresh`, which stays as it is; `None` without any.

        Raises `MergeConflict`, `StaleSession`.
        """
        changes = _direct_changes(self.copy, self.published, fresh.ledger)
        if changes is None:
            return None
        planned = merge.prepare(fresh, changes, None)
        if planned.plan.clashes:
            details = details_of(planned.objects, planned.plan.clashes)
            raise conflict(details, "the direct changes made here")
        if not fresh.database.backend.is_local:
            fresh.objects.ahead = Ahead(fresh, fresh.state.roots, planned.plan.ids(), set(), []).read()
        return _Again(changes, planned)


def _go_on(context: Context, fresh: Branch, again: _Again | None) -> None:
    fresh.ledger = context.line.ledger  # it holds what was recorded here and is not written yet
    context.commits.reload(fresh)
    if again is not None:
        again.merge.stage(fresh, again.changes)
        _apply_again(context.commits, again.merge.plan)


def _apply_again(commits: Committer, plan: MergePlan) -> None:
    """Make the direct changes once more, as changes of the state that is there now."""
    origin, working = commits.origin(), commits.working
    made = [combined.result.stored for combined in plan.combine]
    for stored in [*plan.adopt, *(stored for stored in made if stored is not None)]:
        meta = stored.meta
        payload = working.state.payload(meta)
        encoded = Encoded(meta.type_id, payload, meta.revision, resolve(meta.type_id))
        kind = "create" if working.state.stored(meta.id) is None else "update"
        working.write(meta.id, encoded, origin, kind)
    for artifact_id in plan.delete:
        working.delete(artifact_id, origin)
    for source, relation, target in plan.link:
        working.link(source, relation, target)
    for source, relation, target in plan.unlink:
        working.unlink(source, relation, target)


def _direct_changes(line: Branch, published: Oid | None, ledger: Ledger) -> Branch | None:
    """Return a line with the unpublished direct changes alone, `None` when there are none.

    Raises `StaleSession` where there is something else that the application made.
    """
    ours, dropped = _unpublished(line.objects, line.seal(), published)
    _refuse_to_drop(line, ours)
    known = [operation for record in _direct(line.objects, dropped) for operation in record.operations]
    records = list(_direct(line.objects, ours))
    if not records:
        return None
    twin = Branch(line.database, ledger, line.session, line.branch)
    twin.objects.absorb(line.objects)
    if published is not None:
        twin.move_to(published)
    working = WorkingCopy(twin.state, twin.ledger, RuntimeResources(), durable=False, branch=line.branch)
    for record in reversed(records):
        origin = Origin(record.author, datetime.fromisoformat(record.timestamp))
        for operation in record.operations:
            if not any(_is_same(operation, other) for other in known):
                _apply(working, operation, origin)
        known = []  # only what outlived a checkout tells again what the store holds
        twin.commit(record)
    twin.seal()
    return twin


def _refuse_to_drop(line: Branch, commits: Iterable[Oid]) -> None:
    """Raise `StaleSession` where commits hold what neither an agent nor a direct change brings back."""
    for oid in commits:
        record = read_record(line.objects, oid)
        if record is not None and record.kind in ("merge", "edit"):
            raise StaleSession(
                f"branch {line.branch!r} of session {line.session!r} moved in the store, and a refresh would "
                f"drop what was committed here and never saved: {record.message!r}; open the session anew "
                f"and do it again"
            )


def _direct(objects: Objects, commits: Iterable[Oid]) -> Iterator[CommitRecord]:
    for oid in commits:
        record = read_record(objects, oid)
        if record is not None and record.kind == "direct":
            yield record


def _unpublished(objects: Objects, tip: Oid | None, published: Oid | None) -> tuple[list[Oid], list[Oid]]:
    """Return the commits of a line that the store does not hold, and those of the store that it dropped.

    Both the newest first; the second are there after a checkout that was not published.
    """
    ours: list[Oid] = []
    for oid, _ in first_parents(objects, tip):
        if oid == published:
            return ours, []
        ours.append(oid)
    places = {oid: place for place, oid in enumerate(ours)}
    dropped: list[Oid] = []
    for oid, _ in first_parents(objects, published):
        if oid in places:
            return ours[: places[oid]], dropped
        dropped.append(oid)
    return ours, dropped


def _is_same(operation: dict[str, Any], other: dict[str, Any]) -> bool:
    """Tell whether a change that outlived a checkout is one that the store holds.

    The record of a checkout tells several changes of one artifact as one: what counts is what came of them.
    """
    names = ("artifact_id", "payload", "version", "relation", "target_id")
    return all(operation.get(name) == other.get(name) for name in names)


def _apply(working: WorkingCopy, operation: dict[str, Any], origin: Origin) -> None:
    """Apply one operation of a record as the direct change it was."""
    kind, artifact_id = operation["type"], operation["artifact_id"]
    if kind == "delete":
        working.delete(artifact_id, origin)
    elif kind == "link":
        working.link(artifact_id, operation["relation"], operation["target_id"])
    elif kind == "unlink":
        working.unlink(artifact_id, operation.get("relation"), operation.get("target_id"))
    else:
        payload = operation_payload(working.state.objects, operation)
        model = resolve(operation["data_type"])
        encoded = Encoded(operation["data_type"], payload, revision_of(model), model)
        working.write(artifact_id, encoded, origin, kind)
