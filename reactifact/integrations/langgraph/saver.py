"""`ReactifactSaver`: LangGraph's checkpoint saver over a store of reactifact.

Owns the face that LangGraph calls. `thread` knows the commits, `parts` where things stand in their
trees, `rewriting` what deletes and copies.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ..._sessions.stores import StoreLike, open_database
from ..._store.branch import MAIN, Branch
from ..._store.commits import read_roots
from ..._store.names import parse_ref
from ..._store.object_db import Database
from ..._store.objects import Oid
from ..._store.protocol import Durability
from ...errors import ReactifactError
from ...session import SessionStore
from ...threads import in_thread
from . import rewriting
from .parts import (
    Key,
    Part,
    checkpoint_of,
    described,
    described_writes,
    metadata_of,
    prefetch_parts,
    put_part,
    put_pending,
    read_part,
    read_pending,
)
from .thread import WRITES_BRANCH, Thread, moment
from .values import Values

Found = list[tuple[Thread, Key]]  # by these names, because `list` is a method of the saver
Tuples = list[CheckpointTuple]
Names = list[str]

_PAGE = 50
"""How many checkpoints a listing reads at once."""


class MissingThreadId(ReactifactError, ValueError):
    """A config without the id of its thread."""


class _Place(NamedTuple):
    thread: str
    namespace: str
    checkpoint: str | None


class ReactifactSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of LangGraph threads in a store of reactifact: git, SQLite, PostgreSQL, memory.

    `store` is a path, a DSN, a backend or an open `SessionStore`. A thread is the session of its id, a
    checkpoint a commit on one of its branches: `main`, or `fork-1` and so on for what goes on from a
    checkpoint that has been followed already. `put` and `put_writes` return when what they wrote is on
    stable storage, as far as `durability` promises. Threads and processes may use one store at once.

    Values that are plain JSON are stored as JSON for people to read, all others as the bytes of `serde`;
    with a `serde` other than LangGraph's own (an encrypting one) all values go through it.
    """

    def __init__(
        self,
        store: StoreLike | SessionStore,
        *,
        serde: SerializerProtocol | None = None,
        durability: Durability = "full",
    ) -> None:
        super().__init__(serde=serde)
        is_open = isinstance(store, SessionStore)
        self.database: Database = store.database if is_open else open_database(store, durability=durability)
        self._is_own = self.database is not getattr(store, "database", store)
        self._threads: dict[str, Thread] = {}
        self._lock = threading.Lock()
        self._encoding = Values(self.serde), self.serde

    def get_next_version(self, current: int | None, channel: None) -> int:
        """Return the version of a channel after `current`: a number, or a text in a thread that has texts.

        Threads that were copied from LangGraph's own savers have texts.
        """
        given: Any = current
        if not isinstance(given, str):
            return super().get_next_version(current, channel)
        following: Any = f"{int(given.partition('.')[0]) + 1:032}.{0:016}"
        version: int = following
        return version

    # -- one checkpoint ----------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint after the one that `config` names, and return its config.

        Raises `Contention` when others write the thread as fast, and as the store does.
        """
        place = _place(config)
        key = Key(place.namespace, checkpoint["id"])
        kept = get_checkpoint_metadata(config, metadata)
        thread = self._thread(place.thread)
        with thread.lock:
            if not thread.is_known:
                thread.refresh()
            thread.write(partial(self._commit, thread, key, place.checkpoint, checkpoint, kept, new_versions))
        return _config(place.thread, key)

    def _commit(
        self,
        thread: Thread,
        key: Key,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[Branch, str]:
        name, start = self._branch_for(thread, key, parent, metadata)
        line = thread.line(name, start)
        objects = line.objects
        before = None if parent is None else self._part(thread, Key(key.namespace, parent))
        made = put_part(
            objects,
            self._values(),
            line.state.roots.thread,
            key.namespace,
            before,
            checkpoint,
            metadata,
            parent,
            new_versions,
        )
        run = str(metadata.get("run_id") or "")
        said = {"id": key.checkpoint, "namespace": key.namespace, "parent": parent}
        lines = [described(before, checkpoint, metadata, key.namespace), f"Checkpoint {key.checkpoint}"]
        if key.namespace:
            lines.append(f"Namespace {key.namespace}")
        when, text = moment(checkpoint["ts"]), "\n".join(lines)
        thread.commit(line, made, "checkpoint", when, text, {"checkpoint": said}, run)
        return line, name

    def _branch_for(
        self, thread: Thread, key: Key, parent: str | None, metadata: CheckpointMetadata
    ) -> tuple[str, Oid | None]:
        """Return the branch that a checkpoint goes to, and for a new one the commit it begins at.

        It goes on where its parent is the newest of its namespace; a first one of a subgraph where the
        graph stands that called it. Everything else is a fork.
        """
        if not thread.heads:
            return MAIN, None
        again = thread.commits.get(key)
        wanted = Key(key.namespace, parent) if parent is not None else None
        if wanted is None and key.namespace:
            callers = {n: one for n, one in metadata.get("parents", {}).items() if n != key.namespace}
            caller = max(callers, key=len, default=None)
            wanted = None if caller is None else Key(caller, callers[caller])
        if again is not None:
            wanted = key
        if wanted is None or not self._knows(thread, wanted):
            return MAIN if MAIN in thread.heads else next(iter(thread.heads)), None
        for name in sorted(thread.heads, key=lambda one: (one != MAIN, one)):
            if thread.latest(name, wanted.namespace) == wanted.checkpoint:
                return name, None
        return thread.new_fork(), thread.commits[wanted]

    def _knows(self, thread: Thread, key: Key) -> bool:
        if key not in thread.commits:
            thread.refresh()
        return key in thread.commits

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote after the checkpoint that `config` names. Raises as `put` does."""
        place = _place(config)
        if not writes:
            return
        if place.checkpoint is None:
            raise MissingThreadId(
                f"the writes of task {task_id} name no checkpoint: `config['configurable']` lacks "
                f"'checkpoint_id'; give the config that `put` returned"
            )
        key = Key(place.namespace, place.checkpoint)
        done = described_writes([channel for channel, _ in writes], task_path, task_id)
        text = f"{done}\nAfter checkpoint {key.checkpoint}"
        values = self._values()
        thread = self._thread(place.thread)

        def commit() -> tuple[Branch, str]:
            line = thread.line(WRITES_BRANCH)
            tree = line.state.roots.thread
            made = put_pending(line.objects, values, tree, key, writes, task_id, task_path)
            if made is not None and made != tree:
                said = {"writes": {"id": key.checkpoint, "namespace": key.namespace, "task": task_id}}
                thread.commit(line, made, "writes", moment(""), text, said, "")
            return line, WRITES_BRANCH

        with thread.lock:
            if not thread.is_known:
                thread.refresh()
            thread.write(commit)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the newest of its thread and namespace, or `None`."""
        place = _place(config)
        thread = self._thread(place.thread)
        with thread.lock:
            thread.refresh()
            if place.checkpoint is not None:
                key = Key(place.namespace, place.checkpoint)
                return self._tuple(thread, key) if key in thread.commits else None
            newest = thread.newest.get(place.namespace)
            return None if newest is None else self._tuple(thread, Key(place.namespace, newest))

    def _part(self, thread: Thread, key: Key) -> Part | None:
        commit = thread.commits.get(key)
        if commit is None:
            return None
        return read_part(self.database, read_roots(self.database, commit).thread, key.namespace)

    def _tuple(self, thread: Thread, key: Key, part: Part | None = None) -> CheckpointTuple | None:
        part = part or self._part(thread, key)
        if part is None:
            return None
        values = self._values()
        pending = None if thread.writes is None else read_roots(self.database, thread.writes).thread
        parent = None if part.parent is None else Key(key.namespace, part.parent)
        return CheckpointTuple(
            config=_config(thread.id, key),
            checkpoint=checkpoint_of(self.database, values, part),
            metadata=metadata_of(self.database, values, part),
            parent_config=None if parent is None else _config(thread.id, parent),
            pending_writes=read_pending(self.database, values, pending, key),
        )

    # -- many checkpoints --------------------------------------------------------------------------

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first: of a thread, of one namespace, or of all threads.

        `filter` are values that the metadata must have, `before` names the checkpoint to begin after,
        `limit` is how many to yield at most.
        """
        found = self._candidates(config, before, None if filter else limit)
        left = len(found) if limit is None else limit
        while found and left > 0:
            page, found = found[:_PAGE], found[_PAGE:]
            for one in self._page(page, filter, left):
                left -= 1
                yield one

    def _candidates(
        self, config: RunnableConfig | None, before: RunnableConfig | None, wanted: int | None
    ) -> Found:
        """Return the checkpoints to be listed, the newest first; no fewer than `wanted`, if there are."""
        given: dict[str, Any] = {} if config is None else config.get("configurable", {})
        threads = self._all_threads() if given.get("thread_id") is None else [str(given["thread_id"])]
        namespace, checkpoint = given.get("checkpoint_ns"), given.get("checkpoint_id")
        end = None if before is None else get_checkpoint_id(before)
        most = None if wanted is None else wanted + _PAGE  # some may be deleted meanwhile
        found: Found = []
        for thread_id in threads:
            thread = self._thread(thread_id)
            with thread.lock:
                thread.refresh()
                keys = (
                    Key(space, one)
                    for one, space in reversed(thread.order)
                    if (namespace is None or space == namespace)
                    and (checkpoint is None or one == checkpoint)
                    and (end is None or one < end)
                )
                found += [(thread, key) for key in islice(keys, most)]
        return found if len(threads) == 1 else sorted(found, key=lambda one: one[1].checkpoint, reverse=True)

    def _page(self, page: Found, wanted: dict[str, Any] | None, left: int) -> Tuples:
        found: Tuples = []
        values = self._values()
        if not wanted:  # of those that a filter leaves out, not everything is read
            known = [thread.commits.get(key) for thread, key in page[:left]]
            prefetch_parts(self.database, [commit for commit in known if commit is not None])
        for thread, key in page:
            if len(found) == left:
                break
            with thread.lock:
                part = self._part(thread, key)
                if part is None:  # deleted since
                    continue
                if wanted:
                    has = dict(metadata_of(self.database, values, part))
                    if any(name not in has or has[name] != value for name, value in wanted.items()):
                        continue
                one = self._tuple(thread, key, part)
            if one is not None:
                found.append(one)
        return found

    def _all_threads(self) -> Names:
        """Return the ids of the sessions that hold checkpoints."""
        found: set[str] = set()
        for ref, oid in self.database.backend.refs("refs/heads/").items():
            names = parse_ref(ref)
            if names is None or names[0] in found:
                continue
            session = rewriting.session_with_checkpoints(self.database, oid)
            if session is not None:
                found.add(session)
        return sorted(found)

    # -- deleting and copying ----------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, that is its session with all branches. One that is absent is fine.

        Raises `ProtectedBranch` for a branch that is protected.
        """
        thread = self._thread(thread_id)
        with thread.lock:
            rewriting.delete(thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs and what was written after them; the rest is linked anew.

        Raises `Contention`, deleting nothing of a thread, where others write it meanwhile.
        """
        runs = {str(run) for run in run_ids}
        for thread_id in self._all_threads() if runs else []:
            thread = self._thread(thread_id)
            with thread.lock:
                thread.refresh()
                kept = {key for key, oid in thread.commits.items() if thread.nodes[oid].run not in runs}
                rewriting.keep(thread, kept)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints, branches and pending writes to a new thread. No source: nothing is made.

        Raises `NameTaken` where there is a session of the target's id.
        """
        source, target = self._thread(source_thread_id), self._thread(target_thread_id)
        with source.lock:
            source.refresh()
            rewriting.copy(source, target.id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints of some threads, or with `strategy="delete"` the threads.

        `keep_latest` keeps the newest one of each namespace, and of those before it what LangGraph needs
        to build its delta channels. Raises `ValueError` for another strategy.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy is 'keep_latest' or 'delete', not {strategy!r}")
        for thread_id in thread_ids:
            thread = self._thread(thread_id)
            with thread.lock:
                if strategy == "delete":
                    rewriting.delete(thread)
                else:
                    thread.refresh()
                    rewriting.keep(thread, self._latest(thread))

    def _latest(self, thread: Thread) -> set[Key]:
        values = self._values()
        newest = [Key(namespace, checkpoint) for namespace, checkpoint in thread.newest.items()]
        kept = set(newest)
        for key in newest:
            wanted: set[str] | None = None
            following: Key | None = key
            while following is not None and (part := self._part(thread, following)) is not None:
                metadata = metadata_of(self.database, values, part)
                wanted = set(metadata.get("counters_since_delta_snapshot", {})) if wanted is None else wanted
                wanted -= part.head["channels"].keys()
                kept.add(following)
                if not wanted or part.parent is None:
                    break
                following = Key(key.namespace, part.parent)
        return kept

    # -- the same, asynchronously ------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as `put` does, in a worker thread."""
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, as `put_writes` does, in a worker thread."""
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, as `get_tuple` does, from a worker thread."""
        return await in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, as `list` does, read in worker threads."""
        found = await in_thread(self._candidates, config, before, None if filter else limit)
        left = len(found) if limit is None else limit
        while found and left > 0:
            page, found = found[:_PAGE], found[_PAGE:]
            for one in await in_thread(self._page, page, filter, left):
                left -= 1
                yield one

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, as `delete_thread` does, in a worker thread."""
        await in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs, as `delete_for_runs` does, in a worker thread."""
        await in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, as `copy_thread` does, in a worker thread."""
        await in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete old checkpoints, as `prune` does, in a worker thread."""
        await in_thread(partial(self.prune, thread_ids, strategy=strategy))

    # -- the life of the saver ---------------------------------------------------------------------

    def close(self) -> None:
        """Give back files and connections of a store that was opened here."""
        if self._is_own:
            self.database.backend.close()

    def __enter__(self) -> ReactifactSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> ReactifactSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await in_thread(self.close)

    def _values(self) -> Values:
        values, serde = self._encoding
        if serde is not self.serde:  # of a clone, see `with_allowlist`
            values = Values(self.serde)
            self._encoding = values, self.serde
        return values

    def _thread(self, thread_id: str) -> Thread:
        with self._lock:
            found = self._threads.get(thread_id)
            if found is None:
                found = self._threads[thread_id] = Thread(self.database, thread_id)
            return found


def _place(config: RunnableConfig) -> _Place:
    given: dict[str, Any] = config.get("configurable", {})
    if given.get("thread_id") is None:
        raise MissingThreadId(
            "the config names no thread: `config['configurable']` lacks 'thread_id'; "
            "give {'configurable': {'thread_id': '...'}}"
        )
    return _Place(str(given["thread_id"]), given.get("checkpoint_ns") or "", get_checkpoint_id(config))


def _config(thread_id: str, key: Key) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": key.namespace,
            "checkpoint_id": key.checkpoint,
        }
    }
