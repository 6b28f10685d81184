"""Sessions: `SessionStore` opens them, `Session` saves and deletes one.

Owns the life of a session's own line (`main`). Branches beside it are `branching`'s.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from ._context.context import Context
from ._context.preload import look_ahead
from ._context.push import StoreLock, publish, run_lock
from ._runtime.drain import Dispatcher, ErrorCallback, Options, WakeCallback
from ._sessions import stores
from ._sessions.erasing import Erases
from ._sessions.stores import StoreLike, open_database
from ._store.branch import MAIN, Branch
from ._store.names import branch_ref, encode_name
from ._store.object_db import check_compact_every
from ._store.protocol import Durability, Progress, Pruned, Sized
from .clock import SYSTEM_CLOCK
from .errors import StoreError, add_note
from .logging import get_logger
from .produce import Backoff
from .resources import RuntimeResources
from .threads import in_thread

if TYPE_CHECKING:
    from ._sessions import service
    from ._sessions.questions import AskedQuestion
    from ._sessions.relay import RelayReport
    from ._sessions.sync import SyncReport

__all__ = ["Session", "SessionStore"]


_SHOWN = 10

log = get_logger("reactifact.session")


class Session:
    """One session that is open: its id, its context, and whether it was there before.

    An `async with` saves at its end what was changed and not saved, and gives back what the session
    holds. Left by an exception it saves nothing: a note on the exception, and the log, say what that was.
    """

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        context: Context,
        loaded: bool,
        lock: StoreLock | None = None,
    ) -> None:
        self.store = store
        self.session_id = session_id
        self.context = context
        self.loaded = loaded
        self._lock = lock
        context.is_exclusive = lock is not None
        self._is_deleted = False
        self._waiting = context.commits.queue.revision

    @property
    def branch(self) -> str:
        """The branch that is open, `main` for the session's own line."""
        return self.context.line.branch

    @property
    def is_exclusive(self) -> bool:
        """Whether the session was opened with `wait=` and nobody else can run it until it is closed."""
        return self._lock is not None

    async def save(self) -> None:
        """Commit direct changes and write everything. Raises `StaleSession`."""
        commits = self.context.commits
        if commits.line.record is None:
            commits.begin()
        await publish(self.context)

    async def refresh(self) -> bool:
        """Go on from what somebody else wrote; return whether there was anything.

        Direct changes that were not saved, those made meanwhile included, are applied again on top. Raises
        `MergeConflict`, naming the artifacts and changing nothing, where somebody else changed the same,
        `SessionBusy` while a turn runs; a turn that is started meanwhile waits for it.
        """
        from ._context.rebase import refresh

        return await refresh(self.context)

    async def delete(self) -> None:
        """Remove the session with all its branches and its ledger from the store.

        Raises `StoreError` where another branch than its own line is open: that may not be what is meant.
        """
        if self.branch != MAIN:
            raise StoreError(
                f"session {self.session_id!r} is open on its branch {self.branch!r}: remove the branch with "
                f"BranchStore.delete_branch, or the whole session with SessionStore.delete_session"
            )
        await self.store.delete_session(self.session_id)
        self._is_deleted = True

    async def aclose(self) -> None:
        """Give back the session's lock, if it holds one. Nothing is saved."""
        if self._lock is not None:
            self.context.is_exclusive = False
            await self._lock.release()
            self._lock = None

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._is_deleted:
                return
            changes = stores.unsaved(self.context)
            if error is not None and changes:
                self._tell_of_dropped(changes, error)
            elif error is None and (changes or self._has_news()):
                await self.save()
        finally:
            await self.aclose()

    def _has_news(self) -> bool:
        commits = self.context.commits
        return bool(commits.working.events) or commits.queue.revision != self._waiting

    def _tell_of_dropped(self, changes: list[str], error: BaseException) -> None:
        shown = ", ".join(changes[:_SHOWN])
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        text = (
            f"session {self.session_id!r} was left by {type(error).__name__} with changes that were not "
            f"saved and are dropped: {shown}{more}; call `await session.save()` where they are to be kept"
        )
        log.warning(text, extra={"session_id": self.session_id, "dropped": len(changes)})
        add_note(error, text)

    def __repr__(self) -> str:
        return f"Session({self.session_id!r}, loaded={self.loaded})"


class SessionStore(Erases):
    """The sessions of one store.

    `backend` is a path (a bare git repository, made when absent) or a backend object.
    `durability="full"` syncs every publication; `"os"` survives a killed process but not a power
    cut. `compact_every` bounds the store's files: small packs are merged from time to time, history
    stays; `None` leaves them alone.
    """

    def __init__(
        self,
        backend: StoreLike,
        compact_every: int | None = 100,
        *,
        durability: Durability = "full",
    ) -> None:
        check_compact_every(compact_every)
        self.compact_every = compact_every
        self.database = open_database(backend, durability=durability)
        self.database.maintain_every(compact_every)

    async def open(
        self,
        session_id: str,
        resources: RuntimeResources | None = None,
        *,
        branch: str = MAIN,
        wait: float | None = None,
    ) -> Session:
        """Open a session; one that is new is written with its first save.

        `branch` opens another branch of it than its own line: a runtime with this session saves its work
        there. Raises `UnknownRevision` for one that does not exist (`BranchStore.fork` begins it).

        With `wait` (seconds) it is opened for this process alone: until `Session.aclose` nobody else
        can run it, and whoever opens it with `wait` queues up. Raises `SessionBusy`, naming the
        holder, when the wait was in vain, `InvalidName` for an id that cannot be stored,
        `FormatTooNew`, `MissingObject`. A merge that somebody made with git is merged again by our
        rules first; raises `MergeConflict` or `StoreError`, moving nothing, where that cannot be.
        """
        encode_name(session_id)
        lock = None
        if wait is not None:
            clock = (resources or RuntimeResources()).clock
            lock = run_lock(Branch.named(self.database, session_id, branch), clock, wait)
            await lock.acquire()
        try:
            if not self.database.has_finished_erasures:
                await in_thread(stores.finish_erasures, self.database)
            from ._context import rebase

            context = await in_thread(rebase.opened, self.database, session_id, branch, resources)
            loaded = context is not None
            if context is None and branch != MAIN:
                from ._store._history.revset import find_head

                await in_thread(find_head, self.database, session_id, branch)  # it says what there is instead
            if context is None:
                begin = partial(Branch.begin, self.database, session_id, MAIN, attached=True)
                line = await in_thread(begin)
                line.is_session = True
                context = Context.over(line, resources)
            return Session(self, session_id, context, loaded, lock)
        except BaseException:
            if lock is not None:
                await lock.release()
            raise

    async def load_session(
        self, session_id: str, resources: RuntimeResources | None = None
    ) -> Context | None:
        """Return the context of a session, or `None`."""
        from ._context import rebase

        return await in_thread(rebase.opened, self.database, session_id, MAIN, resources)

    async def save_session(self, session_id: str, context: Context) -> None:
        """Write a context as a session's own line. Raises `StaleSession`."""
        await stores.save_as(self.database, context, session_id, MAIN, is_session=True)

    async def has_session(self, session_id: str) -> bool:
        """Tell whether a session is stored."""
        ref = branch_ref(session_id, MAIN)
        return ref in await in_thread(self.database.backend.refs, ref)

    async def list_sessions(self) -> list[str]:
        """Return the ids of all stored sessions, sorted."""
        return await in_thread(stores.sessions, self.database)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session with its branches, tags and ledger; one that is absent is fine.

        Raises `ProtectedBranch` where one of its branches is protected, and `Contention` where others write
        it as fast as it is removed.
        """
        await in_thread(stores.delete_session, self.database, session_id)

    async def sync(
        self,
        remote: str | None = None,
        *,
        sessions: Sequence[str] | None = None,
        lease: float | None = None,
        resources: RuntimeResources | None = None,
    ) -> SyncReport:
        """Bring the store and another one together over git: see `BranchStore.sync`."""
        from ._sessions.sync import SyncOptions, sync

        options = SyncOptions(sessions=sessions, lease=lease)
        return await sync(self.database, remote, options, resources=resources)

    async def questions(
        self, session_id: str | None = None, *, only_open: bool = True
    ) -> list[AskedQuestion]:
        """Return the questions that wait for an answer in a session, or in all, branch by branch.

        With `only_open=False` those that are answered or expired too. Reads every question there is. A
        branch that cannot be read is left out and logged.
        """
        from ._sessions import questions

        now = SYSTEM_CLOCK.now()
        found, broken = await in_thread(
            partial(questions.questions, only_open=only_open), self.database, session_id, now
        )
        for one in broken:
            log.warning("questions of a branch cannot be read", extra={"ref": one.ref, "error": one.error})
        return found

    async def answer(
        self,
        question_id: str,
        answer: Any = None,
        *,
        session_id: str | None = None,
        branch: str | None = None,
        option: str | None = None,
        change: bool = False,
        wait: float = 10.0,
        resources: RuntimeResources | None = None,
    ) -> AskedQuestion:
        """Answer a question in the store; the next turn of its branch wakes who waits for it.

        `answer` is a model or JSON data, or `option` is the label of one of the question's options. Where
        the id is on several branches, the session's own line is meant. Waits `wait` seconds for a turn in
        progress. Raises `UnknownQuestion`, `AnswerInvalid`, `QuestionExpired` for an answer that is late,
        `AnswerConflict` for a second one (unless `change` asks for it), `TypeNotFoundError` where the model
        of the answer cannot be imported, `SessionBusy`, `StaleSession`.
        """
        from ._sessions import questions

        return await questions.answer(
            self.database,
            question_id,
            answer,
            session=session_id,
            branch=branch,
            option=option,
            change=change,
            wait=wait,
            resources=resources,
        )

    async def pending_sessions(self) -> list[str]:
        """Return the sessions in which some branch has actions to send, sorted.

        A session with a branch that cannot be read is among them: opening it says why.
        """
        from ._sessions import service

        return await in_thread(service.pending_sessions, self.database)

    async def drain(
        self,
        dispatcher: Dispatcher,
        *,
        retry_failed: bool = False,
        max_attempts: int | None = None,
        dispatch_concurrency: int = 1,
        sessions_at_once: int = 8,
        on_dispatch_error: ErrorCallback | None = None,
        resources: RuntimeResources | None = None,
    ) -> service.DrainReport:
        """Deliver what a crash, or a failed delivery, left anywhere in the store.

        Actions that wait are sent; with `retry_failed` those that failed are re-armed first, with
        `max_attempts` only those that failed less often. Failures are recorded and reported, not raised.
        What another drain is delivering at the time is not waited for, but skipped and reported so.
        Up to `sessions_at_once` sessions are drained side by side, so that a send that hangs holds back its
        own session alone; in each, `dispatch_concurrency` actions at once. Raises `ValueError` for a
        `max_attempts` or a `sessions_at_once` below 1.
        """
        if sessions_at_once < 1:
            raise ValueError(f"sessions_at_once={sessions_at_once}: give a number from 1 on")
        if max_attempts is not None and max_attempts < 1:
            raise ValueError(f"max_attempts={max_attempts}: give a number from 1 on, or None for no limit")
        options = Options(
            on_error=on_dispatch_error,
            concurrency=dispatch_concurrency,
            wait=0.0,
            retry_failed=retry_failed,
            max_attempts=max_attempts,
            is_apart=True,
        )
        from ._sessions import service

        return await service.drain_store(
            self.database, dispatcher, options, resources=resources, sessions_at_once=sessions_at_once
        )

    async def relay(
        self,
        dispatcher: Dispatcher | None,
        *,
        concurrency: int = 8,
        timeout: float | None = 60.0,
        max_attempts: int | None = 10,
        backoff: float = 1.0,
        longest: float = 3600.0,
        once: bool = False,
        dispatch_concurrency: int = 1,
        poll: float = 1.0,
        rescan: float = 300.0,
        stop: anyio.Event | None = None,
        on_dispatch_error: ErrorCallback | None = None,
        on_wake: WakeCallback | None = None,
        resources: RuntimeResources | None = None,
        tracer: Any = None,
        metrics: Any = None,
    ) -> RelayReport:
        """Deliver what waits in all sessions until `stop` is set or the call is cancelled; times are seconds.

        `concurrency` sessions are delivered from side by side, each in the order of its plans; with
        `dispatch_concurrency` several actions of a session too, those of one ordering key one after
        another. What another drain holds is passed over, and looked at again. A send that takes longer than
        `timeout` is cut and counts as failed. What failed is sent again after `backoff`, twice that ... up to
        `longest` seconds, each shortened by a full jitter; the failure that is the `max_attempts`th parks it:
        it stays as it is until `retry_action` re-arms it. With `once` it ends when nothing is due any more.

        The classes of the artifacts are not needed. A dispatcher that is not a coroutine function runs in a
        thread. `on_wake` (session id, branch, action) is called for each wake that is due; a wake is
        delivered without it, too. Told to stop, it sends nothing more, lets what is being sent end (at
        most `timeout` seconds) and records it. Where refs cannot be waited for, they are looked at every
        `poll` seconds; every `rescan` seconds all are listed. `tracer` and `metrics` are a tracer and a meter
        of OpenTelemetry (extra `otel`).

        Raises `ValueError` for a number below 1 or a time that is not above 0. Trouble with one session is
        logged and in the report, and leaves the others alone.
        """
        from ._sessions.relay import Pace, Relay, checked, run

        pace = Pace(
            concurrency=concurrency,
            max_attempts=max_attempts,
            backoff=Backoff(backoff, longest, jitter=1.0),
            poll=poll,
            rescan=rescan,
            once=once,
        )
        options = Options(
            on_error=on_dispatch_error, concurrency=dispatch_concurrency, timeout=timeout, on_wake=on_wake
        )
        work = Relay(
            self.database,
            dispatcher,
            options,
            checked(pace, timeout),
            resources=resources,
            stop=stop,
            tracer=tracer,
            metrics=metrics,
        )
        return await run(work, math.inf if timeout is None else timeout)

    def observe(self, metrics: Any) -> None:
        """Let a meter of OpenTelemetry ask for `reactifact.store.size`, bytes, whenever it collects.

        A relay with `metrics=` does so by itself. Of a bare repository it is its objects, of SQLite the pages
        of the file, of PostgreSQL the tables with their indexes. Raises `StoreError` for a store that cannot
        tell, `ValueError` for what is not a meter, `ImportError` without the extra `otel`.
        """
        backend = self.database.backend
        if not isinstance(backend, Sized):
            raise StoreError(f"{backend.location} is a {type(backend).__name__}, which has no `size`")
        from .otel import observe_size, observers_of

        observers_of(None, metrics)
        observe_size(metrics, backend.size, {"store": backend.location})

    async def rebuild_ledger(
        self, session_id: str, resources: RuntimeResources | None = None
    ) -> service.RebuiltLedger:
        """Give up a ledger that is lost for good (`LedgerMissing`), and go on from what the branches say.

        An action that no branch waits for any more counts as delivered. What a branch still waits for is
        sent by the next drain, also where the lost ledger had it as sent. Nothing is changed where the
        ledger is complete. Raises `UnknownRevision` for no such session, `SessionBusy` beside a drain.
        """
        from ._sessions import service

        return await service.rebuild_ledger(self.database, session_id, resources)

    async def prune(
        self, *, grace: float = 3600.0, rewrite: bool = False, progress: Progress | None = None
    ) -> Pruned:
        """Let go of what no branch or tag has reached for `grace` seconds; remove it from a SQL store.

        Compactions, checkouts and undos older than that can no longer be undone. In a bare repository the
        next `git gc` removes what they dropped, in a SQLite or PostgreSQL store this does.

        What deleted branches and sessions, compactions and undone turns left stays until this is asked for.
        It is noted the first time it is found so and removed by a prune at least `grace` seconds later,
        with `grace=0` at once; what is reached is never touched. `rewrite` writes the tables anew
        afterwards, so that the space goes back and no byte of what was removed is left in them; others
        wait meanwhile. `progress` is called in a worker thread with how many objects were looked at, and of
        how many. Raises `StoreError` for another kind of store, naming what does it there, and for
        a damaged one; `SessionBusy` while another prune is at it.
        """
        return await stores.prune_store(self.database, grace=grace, rewrite=rewrite, progress=progress)

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
        """Make one versioned commit of what is done inside the block, or none when it raises.

        For code that wants the store without the reactive loop: its changes wake no agent, events
        that waited before still do. Raises `StaleSession` when somebody else wrote the branch
        meanwhile; nothing is written then.
        """
        context = await self._context(session_id, branch, resources)
        await look_ahead(context.commits)
        context.commits.gather()
        first = context.line.next_event
        yield context
        await look_ahead(context.commits)
        context.commits.commit_edit(author=author, message=message)
        context.queue.remove_since(first)
        await publish(context)

    async def _context(self, session_id: str, branch: str, resources: RuntimeResources | None) -> Context:
        if branch == MAIN:
            return (await self.open(session_id, resources)).context
        from ._context import rebase

        context = await in_thread(rebase.opened, self.database, session_id, branch, resources)
        if context is None:
            raise KeyError(
                f"session {session_id!r} has no branch {branch!r}: fork one with context.branch() "
                f"and BranchStore.save_branch"
            )
        return context

    async def aclose(self) -> None:
        """Give back files and descriptors."""
        await in_thread(self.database.backend.close)

    def __repr__(self) -> str:
        return f"SessionStore({self.database.backend.location!r})"
