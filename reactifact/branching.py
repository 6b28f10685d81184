"""`BranchStore`: the branches of a store, saved and loaded by name, and the verbs over them.

A thin face: what a verb does stands in `_sessions/verbs`, `_sessions/undo` and below.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

from ._context import rebase
from ._context.context import Context
from ._sessions import stores, verbs
from ._sessions.erasing import Erases
from ._sessions.stores import StoreLike, open_database
from ._sessions.sync import SyncOptions, SyncReport, sync
from ._sessions.undo import redo_last, revert, undo_last
from ._store._backends.git import Repository
from ._store._backends.git.backend import GitBackend
from ._store._history.blame import BlamedField
from ._store._history.log import BranchDiff, Entry, Filter
from ._store._history.revset import DAMAGE, Head, Tag, readable_tags
from ._store.branch import MAIN
from ._store.commits import require_record
from ._store.object_db import Database, Protection, check_compact_every
from ._store.protocol import Durability
from .errors import StoreError
from .logging import get_logger
from .merging import MergeConflict, MergePreview, Policy
from .racing import Fork, Judge, Race, Strategy, race
from .resources import RuntimeResources
from .session import SessionStore
from .threads import in_thread

__all__ = ["BranchStore", "Fork", "MergeConflict", "Race"]

log = get_logger("reactifact.branching")


# -- protected branches, for the layer of sessions: see `_store/object_db` --


def protect(database: Database, patterns: Iterable[str]) -> None:
    """Protect the branches that globs of `session/branch` name, beside those protected already."""
    added = Protection.of(patterns)
    known = database.protection.patterns
    database.protection = Protection(tuple(dict.fromkeys([*known, *added.patterns])))


def require_free(database: Database, verb: str, session: str, branch: str) -> None:
    """Refuse `verb` on a protected branch. Raises `ProtectedBranch`."""
    database.protection.require_free(verb, session, branch)


# -- `BranchStore`: the branches of a store, saved and loaded by name, and the verbs over them --


class BranchStore(Erases):
    """The branches of the sessions of one store. `backend` is a path or a backend object.

    The verbs name a branch as `session/branch` (`session` alone is its own line, `main`). Where ids
    contain slashes and a name could be read in two ways, give `session=`, and the branch by its
    name alone. Wherever a commit will do, a tag (`session/tag`), a version (`session/branch@v3`; `v3` with
    `session=`), a commit id and a Change-Id (four digits are enough) are understood too.
    `UnknownRevision` is raised for a name that stands for nothing, or for two things.

    `protected` holds globs of `session/branch`: such a branch is not deleted, reset, undone or
    compacted through this store (`ProtectedBranch`); commits and merges go on.
    """

    def __init__(
        self,
        backend: StoreLike,
        compact_every: int | None = 100,
        *,
        durability: Durability = "full",
        protected: Iterable[str] = (),
    ) -> None:
        check_compact_every(compact_every)
        globs = Protection.of(protected).patterns
        self.compact_every = compact_every
        self.database = open_database(backend, durability=durability)
        self.database.maintain_every(compact_every)
        protect(self.database, globs)

    @property
    def repository(self) -> Repository:
        """The `pygit2.Repository` behind the store. Raises `StoreError` where there is none."""
        backend = self.database.backend
        if not isinstance(backend, GitBackend):
            raise StoreError(
                f"{backend.location} is a {type(backend).__name__} and no git repository: "
                f"only a store at a path has one"
            )
        return backend.repository

    # -- whole branches ------------------------------------------------------------------------

    async def save_branch(self, context: Context, *, session_id: str, name: str) -> None:
        """Write a context as a branch of a session.

        A detached context (from `Context.branch`) is that branch from now on. Raises
        `StaleSession` where the branch holds commits that the context does not contain.
        """
        await stores.save_as(self.database, context, session_id, name, is_session=False)

    async def load_branch(
        self, session_id: str, name: str, resources: RuntimeResources | None = None
    ) -> Context | None:
        """Return the context of a branch, or `None`. A merge made by hand is merged again, as by `open`."""
        return await in_thread(rebase.opened, self.database, session_id, name, resources)

    async def list_branches(self, session_id: str) -> list[str]:
        """Return the names of the saved branches of a session, sorted.

        The line that `SessionStore` keeps for the session is not one of them.
        """
        return await in_thread(self._names, session_id)

    def _names(self, session_id: str) -> list[str]:
        found = verbs.branches(self.database, session_id)
        return [head.branch for head in found if head.branch != MAIN or not self._is_session(head)]

    def _is_session(self, head: Head) -> bool:
        try:
            return require_record(self.database, head.commit, MAIN).is_session
        except DAMAGE:
            return True  # as nearly every `main` is; it hides no other branch

    async def delete_branch(self, session_id: str, name: str) -> None:
        """Remove a branch; one that is absent is fine. What it delivered stays in the ledger.

        Raises `ProtectedBranch`.
        """
        await in_thread(verbs.delete_branch, self.database, session_id, name)

    async def branches(self, session: str | None = None) -> list[Head]:
        """Return the branches of one session or of all, sorted: session, branch, commit, name.

        A branch whose commit is damaged or missing is among them; reading it raises, the others can be used.
        """
        return await in_thread(verbs.branches, self.database, session)

    async def fork(self, source: str, target: str, *, session: str | None = None) -> Head:
        """Begin the branch `target` on the commit that `source` names.

        It costs one ref, and takes the queue along. Raises `NameTaken` for a target that exists,
        `ValueError` for one in another session.
        """
        return await verbs.fork(self.database, source, target, session=session)

    async def merge(
        self,
        into: str,
        source: str,
        *,
        session: str | None = None,
        message: str | None = None,
        policy: Policy | None = None,
        emit_events: bool = False,
        resources: RuntimeResources | None = None,
    ) -> Entry | None:
        """Merge `source` into the branch `into` and write it, all or nothing.

        `policy` settles conflicts, and `emit_events` wakes agents, as in `Context.merge`. Returns
        the merge commit, `None` when there was nothing to take over. Raises `MergeConflict`, and
        `StaleSession` when somebody wrote the branch meanwhile.
        """
        both = await verbs.sides(self.database, into, source, session=session, resources=resources)
        words = message or f"Merge {source} into {into}"
        return await verbs.merge(*both, message=words, policy=policy, emit_events=emit_events)

    async def preview(
        self,
        into: str,
        source: str,
        *,
        session: str | None = None,
        policy: Policy | None = None,
        resources: RuntimeResources | None = None,
    ) -> MergePreview:
        """Return what `merge` would do; nothing is written."""
        target, other = await verbs.sides(self.database, into, source, session=session, resources=resources)
        return await verbs.preview(target, other, policy)

    @asynccontextmanager
    async def edit(
        self,
        session_id: str,
        branch: str = MAIN,
        *,
        author: str = "application",
        message: str = "",
        resources: RuntimeResources | None = None,
    ) -> AsyncIterator[Context]:
        """Make one versioned commit of what is done inside the block: see `SessionStore.edit`."""
        store = SessionStore(self.database, self.compact_every)
        async with store.edit(
            session_id, branch, author=author, message=message, resources=resources
        ) as context:
            yield context

    async def undo(
        self, session: str, branch: str = MAIN, *, resources: RuntimeResources | None = None
    ) -> str:
        """Undo what was done last to a branch (turn, merge, edit, checkout, compaction); return what it was.

        What was delivered stays delivered. The guards of `resources` are asked, in a worker thread, about
        what the branch holds otherwise then. Raises `StoreError` when there is nothing to undo,
        `ProtectedBranch`, `SessionBusy`, `StaleSession`, `NotAuthorized`, `GuardrailViolation`.
        """
        return await in_thread(undo_last, self.database, session, branch, resources)

    async def redo(
        self, session: str, branch: str = MAIN, *, resources: RuntimeResources | None = None
    ) -> str:
        """Take back the last undo of a branch that has not moved since; return what is done again.

        Undos are taken back one after another. Raises as `undo` does.
        """
        return await in_thread(redo_last, self.database, session, branch, resources)

    async def revert(
        self,
        branch: str,
        revision: str,
        *,
        session: str | None = None,
        policy: Policy | None = None,
        message: str | None = None,
        resources: RuntimeResources | None = None,
    ) -> Entry | None:
        """Take back one generation by a new commit, and keep what came after it.

        `revision` names a commit of it (`branch@v3`, an id, a Change-Id); of an edit, a merge or a direct
        change, that commit. What it wrote gets its earlier content as a new version; an intent that it
        planned and that nobody has sent goes, and what was delivered stays delivered. It wakes no agent.
        Returns the commit, `None` where there is nothing left to take back. Raises `MergeConflict` where
        something it wrote was changed since (unless `policy` settles it), `SessionBusy` beside a turn,
        `StaleSession`.
        """
        return await revert(
            self.database,
            branch,
            revision,
            session=session,
            policy=policy,
            message=message,
            resources=resources,
        )

    async def race(
        self,
        branch: str,
        strategies: Mapping[str, Strategy],
        *,
        judge: Judge,
        session: str | None = None,
        policy: Policy | None = None,
        keep: bool = False,
        resume: bool = False,
        max_concurrency: int | None = None,
        resources: RuntimeResources | None = None,
    ) -> Race:
        """Try strategies side by side, each on a fork of a branch, and merge the one that the judge names.

        A strategy is a list of agents, run until nothing is left to react to, each of whose executions is
        kept as it ends (`per_step`) and whose intents are noted as simulated; or an async function of the
        fork's `Session`, which does all that itself (`Runtime(..., simulate=True)` sends nothing). Its name
        is that of the fork. `judge` gets the forks that came to their end by name, as `Fork`s, and returns
        the winner's name or `None`; it may be async. `policy` settles conflicts of the merge.

        The forks are deleted at the end unless `keep` is set. `resume` goes on with forks that an earlier
        race has left, after a crash. A strategy that fails is out of the race; where all fail the first
        error is raised, and the forks are kept then, as after any other error. Raises `NameTaken`,
        `MergeConflict`, `ValueError` for a winner that is not there.
        """
        return await race(
            SessionStore(self.database, self.compact_every),
            branch,
            strategies,
            judge,
            session=session,
            policy=policy,
            keep=keep,
            resume=resume,
            max_concurrency=max_concurrency,
            resources=resources,
        )

    async def rename(self, branch: str, name: str, *, session: str | None = None) -> Head:
        """Give a branch another name of its session, `session/name` as in `fork`; `main` keeps its own.

        Raises `NameTaken`, `ValueError`, `ProtectedBranch`, `SessionBusy` while it is run, `StaleSession`.
        """
        return await in_thread(partial(verbs.rename, session=session), self.database, branch, name)

    async def at(
        self, revision: str, *, session: str | None = None, resources: RuntimeResources | None = None
    ) -> Context:
        """Return the state that a branch, a tag, a version or a commit names, to be looked at.

        Deliveries are shown as they were then. What would change or run the context raises
        `ReadOnlyContext`; `Context.branch` of it makes a fork that can be. Raises `UnknownRevision`.
        """
        return await in_thread(verbs.at, self.database, revision, session, resources)

    async def sync(
        self,
        remote: str | None = None,
        *,
        sessions: Sequence[str] | None = None,
        policy: Policy | None = None,
        lease: float | None = None,
        wait: float = 30.0,
        name: str = "",
        resources: RuntimeResources | None = None,
    ) -> SyncReport:
        """Bring the store and another one together: fetch, merge here by our rules, push what nobody moved.

        `remote` is what git calls it (default: `origin`, or the only one), an address or a path; git reaches
        it with its own credentials. Branches, ledgers and tags of `sessions` (default: all) travel, and so do
        deletions and compactions. `policy` settles conflicts as in `merge`; what is left of them stands in
        the report, and the branches of such a session stay as they are on both sides. `wait` is how many
        seconds a branch that somebody runs is waited for.

        `lease` takes or renews the lease of each session for so many seconds (0: gives it back): until its
        end no other store that syncs delivers the session (`LeaseHeld`). `name` tells people who has it.

        Raises `SyncUnsupported` for a store that is not a bare repository, `RemoteError`, `UnknownRevision`
        for a session that neither holds, `Contention` after many lost races.
        """
        options = SyncOptions(sessions, policy, wait, lease, name)
        return await sync(self.database, remote, options, resources=resources)

    # -- history -------------------------------------------------------------------------------

    async def log(
        self,
        branch: str,
        *,
        session: str | None = None,
        artifact_id: str | None = None,
        agent: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        generation: int | None = None,
        limit: int | None = None,
        merged: bool = False,
    ) -> list[Entry]:
        """Return the commits of a branch that fit, the newest first.

        `since` and `until` are aware times, both included; `generation` is the number within its
        turn. With `merged` the commits that merges brought in are listed too. The ledger of a
        session is the branch `%outbox`.
        """
        wanted = Filter(artifact_id, agent, since, until, generation)
        read = partial(verbs.log, session=session, limit=limit, merged=merged)
        return await in_thread(read, self.database, branch, wanted)

    async def diff(self, a: str, b: str, *, session: str | None = None) -> BranchDiff:
        """Return what differs between two branches or commits: artifacts, relations, deliveries.

        A branch is compared with the session's ledger as it is now, any other commit with the
        ledger that it knew. The result prints as text; `to_dict` gives plain JSON types.
        """
        return await in_thread(partial(verbs.diff, session=session), self.database, a, b)

    async def blame(self, branch: str, artifact_id: str, *, session: str | None = None) -> list[BlamedField]:
        """Return, for every field of an artifact, the commit, agent, trigger and time that wrote it.

        What the delivery of an action set is told with the ledger's commit that recorded it.
        """
        return await in_thread(partial(verbs.blame, session=session), self.database, branch, artifact_id)

    async def bisect(
        self,
        branch: str,
        predicate: verbs.Predicate,
        *,
        session: str | None = None,
        resources: RuntimeResources | None = None,
    ) -> verbs.Bisection | None:
        """Return the first generation whose stored state fails `predicate(context)`, or `None`.

        No agent runs, and log2 of the number of generations states are looked at. A commit outside of any
        generation (a direct change, a merge) counts as one. The predicate may be asynchronous.
        """
        name = partial(verbs.named_state, self.database, branch, session)
        return await verbs.bisect(self.database, await in_thread(name), predicate, resources)

    async def tag(self, branch: str, name: str, *, session: str | None = None) -> Tag:
        """Give the commit that `branch` names a name in its session, which never moves.

        Naming the same commit again changes nothing. Raises `NameTaken` for another one.
        """
        return await in_thread(partial(verbs.tag, session=session), self.database, branch, name)

    async def tags(self, session: str | None = None) -> list[Tag]:
        """Return the tags of one session or of all, sorted: session, name, commit.

        One that is damaged is left out, and named in a warning of the log.
        """
        found, damaged = await in_thread(readable_tags, self.database, session)
        for one in damaged:
            log.warning("tag %s cannot be read: %s", one.ref, one.error, extra={"ref": one.ref})
        return found

    async def aclose(self) -> None:
        """Give back files and descriptors."""
        await in_thread(self.database.backend.close)

    def __repr__(self) -> str:
        return f"BranchStore({self.database.backend.location!r})"
