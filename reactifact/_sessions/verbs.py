"""The verbs over branches that are named by text: fork, log, diff, merge, tag, blame, bisect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from itertools import groupby, islice
from typing import Any

from anyio import from_thread

from .._context import rebase
from .._context.context import Context
from .._context.push import publish
from .._store._history import blame as blaming
from .._store._history.adoption.tree import roots_at
from .._store._history.deleted import note_deleted
from .._store._history.fetched import join_fetched
from .._store._history.log import (
    BranchDiff,
    Entry,
    Filter,
    Log,
    diff_points,
    entry,
    find_point,
    interleaved,
    own_line,
)
from .._store._history.revset import Head, Tag, find_branch, find_head, heads, make_tag, parse_head
from .._store.branch import MAIN, Branch, stored_ref
from .._store.commits import CommitRecord, require_record
from .._store.graph import first_parents
from .._store.names import plain, tag_ref
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.protocol import RefUpdate, recalling
from ..errors import Contention, NameTaken, StaleSession, UnknownRevision
from ..merging import MergePreview, Policy
from ..resources import RuntimeResources
from ..threads import in_thread
from . import stores
from .service import context_at

# -- the verbs over branches that are named by text: fork, log, diff, merge, tag, blame --


def branches(database: Database, session: str | None = None) -> list[Head]:
    """Return the branches of one session or of all, sorted, without ledgers."""
    return [head for head in heads(database, session) if not head.is_ledger]


def named_branch(database: Database, text: str, session: str | None = None) -> Head:
    """Return the branch that a text names. Raises `UnknownRevision`, also for a ledger."""
    head = parse_head(database, text) if session is None else find_head(database, session, text)
    if head.is_ledger:
        raise UnknownRevision(
            f"{head.name} is the ledger of session {head.session!r}, what was delivered: it is not a branch"
        )
    return head


def named_state(database: Database, text: str, session: str | None = None) -> Oid:
    """Return the commit of a state that a text names: a branch, a tag, a version, an id."""
    return find_point(database, text, session=session).entry.commit


async def loaded(database: Database, head: Head, resources: RuntimeResources | None = None) -> Context:
    """Return the context of a branch. Raises `UnknownRevision` when it was deleted meanwhile."""
    context = await in_thread(rebase.opened, database, head.session, head.branch, resources)
    if context is None:
        raise UnknownRevision(f"{head.name} is no longer there: it was deleted just now")
    return context


# -- reading -------------------------------------------------------------------------------------


def log(
    database: Database,
    text: str,
    wanted: Filter,
    *,
    session: str | None = None,
    limit: int | None = None,
    merged: bool = False,
) -> Log:
    """Return the commits of a branch that are wanted, the newest first.

    The branch's own line; with `merged` also what merges brought in. A ledger can be read too.
    """
    head = find_branch(database, text, session=session)
    start = named_state(database, text, session) if head is None else head.commit
    is_whole = merged or (head is not None and head.is_ledger)  # two ledgers that met are one line
    entries: Iterator[Entry] = interleaved(database, [start]) if is_whole else own_line(database, start)
    return Log(islice(filter(wanted.fits, entries), limit))


def diff(database: Database, old: str, new: str, *, session: str | None = None) -> BranchDiff:
    """Compare what two names stand for."""
    points = (find_point(database, text, session=session) for text in (old, new))
    return diff_points(database, *points)


def blame(
    database: Database, text: str, artifact_id: str, *, session: str | None = None
) -> list[blaming.BlamedField]:
    """Return which commit wrote the present value of each field of an artifact.

    Of an action also what its delivery set, from the ledger that belongs to the point.
    """
    point = find_point(database, text, session=session)
    roots = roots_at(database, point.entry.commit)
    found = blaming.blame(database, point.entry.commit, roots, artifact_id)
    return found + blaming.blame_delivery(database, point.ledger, roots, artifact_id)


def at(
    database: Database, text: str, session: str | None = None, resources: RuntimeResources | None = None
) -> Context:
    """Return what a text names as a context that is only looked at, with the deliveries of that time."""
    point = find_point(database, text, session=session)
    found = context_at(database, point.entry.commit, resources, ledger=point.ledger)
    found.freeze(
        f"this context shows commit {point.entry.commit[:12]} ({plain(text)}), and is only looked at: to "
        f"change it, open the branch with SessionStore.open, or begin one there with BranchStore.fork"
    )
    return found


# -- writing -------------------------------------------------------------------------------------


def tag(database: Database, text: str, name: str, *, session: str | None = None) -> Tag:
    """Name the commit that a text stands for; the tag belongs to that commit's session."""
    head = _adopted(database, find_branch(database, text, session=session))
    commit = named_state(database, text, session)
    owner = head.session if head is not None else require_record(database, commit, text).session
    return make_tag(database, owner, name, commit)


def _adopted(database: Database, head: Head | None) -> Head | None:
    """Return a head whose commit is one of ours: what somebody made with git there is adopted."""
    if head is not None and not head.is_ledger:
        rebase.write_adopted(database, head.session, head.branch)
    return head


async def fork(database: Database, source: str, target: str, *, session: str | None = None) -> Head:
    """Begin a branch on the commit that `source` names, with the queue that commit left.

    It costs one ref. Raises `NameTaken` where the target is a branch or a tag already, `ValueError`
    for a target in another session.
    """
    context, owner, branch = await in_thread(_fork, database, source, target, session)
    await stores.save_as(database, context, owner, branch, is_session=False)
    return await in_thread(find_head, database, owner, branch)


def _fork(database: Database, source: str, target: str, session: str | None) -> tuple[Context, str, str]:
    with recalling(database.backend):
        head = _adopted(database, find_branch(database, source, session=session))
        commit = named_state(database, source, session)
        record = require_record(database, commit, source)
        owner = session or (record.session if head is None else head.session)
        branch = target if session is not None else _branch_of(target, owner)
        _require_new(database, owner, branch)
        past = context_at(database, commit)
        return past.branch(name=branch), owner, branch


def delete_branch(database: Database, session: str, name: str) -> None:
    """Remove a branch; one that is absent is fine. Raises `ProtectedBranch`."""
    database.protection.require_free("delete", session, name)
    ref = stored_ref(database, session, name)
    held = database.backend.refs(ref).get(ref)
    if held is not None:
        staged = Staging(database)
        note = note_deleted(staged, session, {ref: held})
        database.write(staged.objects, [*note, RefUpdate(ref, held, None)])


def rename(database: Database, text: str, target: str, *, session: str | None = None) -> Head:
    """Give a branch another name, in one write. Raises `NameTaken`, `ValueError`, `ProtectedBranch`.

    Whoever has the branch open under its old name is `StaleSession` from then on.
    """
    head = named_branch(database, text, session)
    branch = target if session is not None else _branch_of(target, head.session)
    if MAIN in (head.branch, branch):
        raise ValueError(f"{MAIN} is the session's own line: it keeps its name, and no other branch gets it")
    database.protection.require_free("rename", head.session, head.branch)
    _require_new(database, head.session, branch)
    with (
        database.backend.lock(f"run {head.session}/{head.branch}"),
        database.backend.lock(f"run {head.session}/{branch}"),
    ):
        rebase.write_adopted(database, head.session, head.branch)
        line = Branch.load(database, head.session, head.branch)
        if line is None or line.ref is None:
            raise UnknownRevision(f"{head.name} is no longer there: it was deleted just now")
        context, old = Context.over(line), RefUpdate(line.ref, line.published, None)
        context.commits.note_queue()  # what others delivered for it is recorded under its old name
        context.commits.attach(head.session, branch, None)
        context.commits.commit_note(f"reactifact: rename branch {plain(head.branch)} to {plain(branch)}")
        context.commits.note_queue()
        publication = line.prepare()
        assert publication is not None
        try:
            staged = Staging(database)
            note = (
                [] if old.expected is None else note_deleted(staged, head.session, {old.name: old.expected})
            )
            objects = {**publication.objects, **staged.objects}
            database.write(objects, [publication.update, *note, old], publication.trees)
        except Contention as error:
            raise StaleSession(f"{head.name} was written by somebody else: nothing was renamed") from error
    return find_head(database, head.session, branch)


def _require_new(database: Database, session: str, branch: str) -> None:
    names = (stored_ref(database, session, branch), tag_ref(session, branch))
    if any(name in database.backend.refs(name) for name in names):
        raise NameTaken(
            f"session {session!r} has a branch or a tag {branch!r}: choose another name, or delete it"
        )


def _branch_of(target: str, session: str) -> str:
    branch = target.removeprefix(f"{session}/")
    if branch == target or not branch:
        raise ValueError(
            f"{target!r} names no branch of session {session!r}, and a fork stays in the session whose "
            f"ledger it shares: call it {session}/NAME, or give session= and the name alone"
        )
    return branch


async def sides(
    database: Database,
    into: str,
    source: str,
    *,
    session: str | None = None,
    resources: RuntimeResources | None = None,
) -> tuple[Context, Context]:
    """Return the contexts of a branch to merge into, and of whatever state is to be merged."""
    head = await in_thread(named_branch, database, into, session)
    await in_thread(join_fetched, database, head.session)  # what the other side delivered comes with it
    target = await loaded(database, head, resources)
    return target, await _source(database, source, session, resources)


async def merge(
    target: Context, other: Context, *, message: str, policy: Policy | None, emit_events: bool
) -> Entry | None:
    """Merge a context into that of a branch, and write it.

    Returns the merge commit, `None` when there was nothing to take over. Raises `MergeConflict`,
    `StaleSession`; nothing is written then.
    """
    before = target.head_id
    take = partial(target.merge, other, message=message, policy=_on_loop(policy), emit_events=emit_events)
    await in_thread(take)  # both contexts were opened for this, and nobody else has them
    await publish(target)
    if target.head_id == before:
        return None
    return await in_thread(_newest_merge, target.line.database, target.line.tip)


async def preview(target: Context, other: Context, policy: Policy | None) -> MergePreview:
    """Return what merging a context into another one would do."""
    found = await in_thread(partial(target.merge, other, policy=_on_loop(policy), dry_run=True))
    assert found is not None
    return found


def _on_loop(policy: Policy | None) -> Policy | None:
    """Let a policy of the application be asked where its other code runs, while a thread merges."""
    if not callable(policy):
        return policy
    asked = policy
    return lambda detail: from_thread.run_sync(asked, detail)


def _newest_merge(database: Database, tip: Oid | None) -> Entry | None:
    """Return the last versioned commit of a line (bookkeeping may follow it)."""
    for found in own_line(database, tip) if tip is not None else ():
        if found.record is not None and found.record.context_version is not None:
            return found
    return None


async def _source(
    database: Database, text: str, session: str | None, resources: RuntimeResources | None
) -> Context:
    head = await in_thread(lambda: find_branch(database, text, session=session))
    if head is not None and not head.is_ledger:
        return await loaded(database, head, resources)
    commit = await in_thread(named_state, database, text, session)
    return await in_thread(context_at, database, commit, resources)


# -- finding the generation in which a state went wrong, without running any agent --


Predicate = Callable[[Context], bool | Awaitable[bool]]
"""Tells whether a state is still right."""


@dataclass(frozen=True, slots=True)
class Step:
    """The commits of one generation, the oldest first; or a commit outside of any."""

    commits: tuple[Oid, ...]
    generation: int | None
    run_id: str | None

    @property
    def last(self) -> Oid:
        """The commit whose state was published."""
        return self.commits[-1]


@dataclass(frozen=True, slots=True)
class Bisection:
    """The first step whose state fails, and the commit of it that made it fail.

    `agents` are the authors of all commits of the generation; `loads` counts the states that were
    looked at.
    """

    entry: Entry
    generation: int | None
    run_id: str | None
    agents: tuple[str, ...]
    before: Oid | None
    loads: int

    @property
    def commit(self) -> Oid:
        """The id of the commit."""
        return self.entry.commit

    @property
    def agent(self) -> str:
        """The author of the commit."""
        return self.entry.author

    def __str__(self) -> str:
        place = "outside of any generation"
        if self.generation is not None:
            place = f"in generation {self.generation} ({', '.join(map(plain, self.agents))})"
        before = "no commit is before it" if self.before is None else f"it held at {self.before[:10]}"
        return f"{self.entry}\n  {place}; {before}; {self.loads} states looked at"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types: the keys of a log entry, and how it was found."""
        found = {"agent": self.agent, "agents": list(self.agents), "before": self.before, "loads": self.loads}
        return {**self.entry.to_dict(), "generation": self.generation, **found}


def steps(database: Database, head: Oid) -> list[Step]:
    """Return the steps of a branch's own line, the oldest first; the empty beginning is none."""
    records = []
    for oid, record in first_parents(database, head):
        if record is not None:  # what somebody made with git is a step with the commit that adopts it
            records.append((oid, record))
    records.reverse()
    return list(_grouped(records))


def _grouped(records: list[tuple[Oid, CommitRecord]]) -> Iterator[Step]:
    for key, group in groupby(records, key=_generation):
        commits = tuple(oid for oid, record in group if record.kind != "root")
        if key is None:
            yield from (Step((oid,), None, None) for oid in commits)
        elif commits:
            yield Step(commits, key[1], key[0])


def _generation(found: tuple[Oid, CommitRecord]) -> tuple[str, int] | None:
    record = found[1]
    return (record.run_id, record.generation) if record.generation else None


async def bisect(
    database: Database, head: Oid, predicate: Predicate, resources: RuntimeResources | None = None
) -> Bisection | None:
    """Return the first step of a branch whose stored state fails `predicate`, `None` if none does.

    Looks at log2(n + 1) of the n states, rounded up, and at a few more inside a generation that
    several agents wrote. As with `git bisect`, a predicate that fails, holds and fails again yields
    one of its failures, always one right after a state that holds.
    """
    found = await in_thread(steps, database, head)
    loads = 0

    async def holds(commit: Oid) -> bool:
        nonlocal loads
        loads += 1
        context = await in_thread(context_at, database, commit, resources)
        answer = predicate(context)
        return bool(await answer if isawaitable(answer) else answer)

    place = await _first_failure([step.last for step in found], holds)
    if place == len(found):
        return None
    failing = found[place]
    inside = await _first_failure(failing.commits[:-1], holds)
    entries = [await in_thread(entry, database, oid) for oid in failing.commits]
    earlier = [oid for step in found[:place] for oid in step.commits] + list(failing.commits[:inside])
    return Bisection(
        entry=entries[inside],
        generation=failing.generation,
        run_id=failing.run_id,
        agents=tuple(dict.fromkeys(one.author for one in entries)),
        before=earlier[-1] if earlier else None,
        loads=loads,
    )


async def _first_failure(
    commits: list[Oid] | tuple[Oid, ...], holds: Callable[[Oid], Awaitable[bool]]
) -> int:
    """Return the place of the first commit that fails, the length of the list if none was found."""
    low, high = 0, len(commits)
    while low < high:
        middle = (low + high) // 2
        if await holds(commits[middle]):
            low = middle + 1
        else:
            high = middle
    return low
