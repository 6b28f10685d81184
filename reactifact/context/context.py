"""`Context`: the working state of one branch, with its history and its branches.

Owns the public methods that look back (history, diff, checkout, compaction, versions), that branch
and merge, and that make one document of it all. The present state is `live`'s, commits are
`committing`'s.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ..errors import SessionBusy, StoreError
from ..store.database import Database
from ..store.kv import KVBackend
from ..store.ledger import Ledger
from ..store.line import MAIN, Line
from ..store.memory import MemoryBackend
from . import documents, log, merge_verbs, rewinding, versions
from .commits import Commit
from .live import LiveContext
from .resolving import MergePreview, Policy
from .resources import RuntimeResources
from .scope import current_scope


class Context(LiveContext):
    """The working state of one branch.

    `Context()` stands alone, over a store in memory; `SessionStore.open` and
    `BranchStore.load_branch` give contexts over a durable store. `create`, `update`, `delete`,
    `link` and `unlink` are direct changes: they show at once, and become one commit at the next
    save, generation, branch or merge.
    """

    def __init__(self, resources: RuntimeResources | None = None) -> None:
        database = Database(MemoryBackend())
        self._open(Line(database, Ledger(database, "context"), "context", MAIN), resources)

    @classmethod
    def over(cls, line: Line, resources: RuntimeResources | None = None) -> Context:
        """Return the context of a line of a store."""
        context = cls.__new__(cls)
        context._open(line, resources)
        return context

    # -- history -------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of applied commits; direct changes do not count."""
        return self.commits.line.version

    @property
    def head_id(self) -> str | None:
        """The id of the last applied commit, or `None`."""
        return self.commits.line.head

    def history(self) -> list[Commit]:
        """Return the applied commits, the oldest first."""
        return log.commits(self.commits.line)

    commit_log = history

    def diff(self, a: int, b: int) -> dict[str, Any]:
        """Compare the committed state of two versions: `{"added", "removed", "changed"}`.

        Raises `ValueError` unless `0 <= a <= b <= version`.
        """
        return log.diff(self.commits.line, a, b)

    @property
    def compacted_at(self) -> int:
        """The highest version that a compaction has folded into the baseline; 0 before any."""
        return self.commits.line.baseline

    def checkout(self, version: int) -> None:
        """Go back to a version and drop the later commits; there is no way forward.

        What they never wrote stays, direct changes included; the event queue is emptied. The store
        follows at the next save. Nothing that was delivered is taken back or sent again. Raises
        `ValueError` for a version out of range, `ProtectedBranch`, `SessionBusy` while a turn runs.
        """
        self._refuse_to_move("checkout")
        if self.runner is not None:
            raise SessionBusy(
                f"context.checkout() was called while run {self.runner} is in progress, whose executions "
                f"still read what it would drop: await the run first"
            )
        rewinding.checkout(self.commits, version)

    def compact(self, *, keep_commits: int, keep_versions: int | None = None) -> int:
        """Fold all but the last commits of each branch of the session into a baseline, in the store too.

        Returns how many versions of this branch were folded. `keep_versions` trims the history of
        each artifact to that many earlier versions; numbers stay. Raises `ValueError` for a
        negative number, `ProtectedBranch`, `StaleSession`.
        """
        self._refuse_to_move("compact")
        return rewinding.compact(self.commits, keep_commits, keep_versions)

    def log_commit(self, commit: Commit) -> None:
        """Append a commit whose changes were applied already; fills in its parent and its version."""
        self._refuse_to_move("log_commit")
        rewinding.log_commit(self.commits, commit)

    def artifact_version(self, id: str, version: int) -> versions.ArtifactVersion | None:
        """Return one version of a live artifact, or `None`. Raises `ValueError` for one it has not."""
        return versions.artifact_version(self._view(), id, version)

    def version_history(self, id: str) -> list[versions.ArtifactVersion]:
        """Return the kept versions of a live artifact, the present one last."""
        return versions.version_history(self._view(), id)

    def find_versions(
        self, type: type[BaseModel] | None = None, content_hash: str | None = None
    ) -> list[versions.ArtifactVersion]:
        """Return the kept versions of all live artifacts of a type, or with some content."""
        return versions.find_versions(self._view(), type, content_hash)

    # -- branches ------------------------------------------------------------------------------

    def branch(self, *, name: str = "") -> Context:
        """Return an independent copy that shares `resources` and the session's ledger.

        It costs one commit at most, whatever the state holds, and takes the queue along. It is
        written to the store when `BranchStore.save_branch` gives it a name, when a runtime has to
        record an intent on it, or when it is merged.
        """
        self._refuse_inside_an_execution("branch")
        self.commits.begin()
        self.commits.note_queue()
        return Context.over(self.commits.line.fork_off(name or "fork"), self.resources)

    def merge(
        self,
        other: Context,
        *,
        message: str = "Merged branch",
        policy: Policy | None = None,
        dry_run: bool = False,
        emit_events: bool = False,
    ) -> MergePreview | None:
        """Merge another context into this one: three-way, by artifact, all or nothing.

        `policy` settles conflicts: `"ours"`, `"theirs"`, or a function of a `ConflictDetail`. A
        `dry_run` returns what the merge would do and changes nothing; else `None` is returned.
        `emit_events` queues the events of what was taken over. Raises `MergeConflict`, with nothing
        applied, when both sides changed an artifact differently. Nothing is ever delivered by a merge.
        """
        self._refuse_inside_an_execution("merge")
        return merge_verbs.merge(
            self.commits,
            other.commits,
            message=message,
            policy=policy,
            dry_run=dry_run,
            emit_events=emit_events,
        )

    def merge_from(self, other: Context) -> None:
        """Take over what is absent here or has a higher version there, and unite the relations.

        Two-way and without conflicts: ids stay, nothing is deleted, one commit. `merge` compares
        against a common base instead.
        """
        self._refuse_inside_an_execution("merge_from")
        merge_verbs.merge_from(self.commits, other.commits)

    def clone(self) -> Context:
        """Return a detached copy with resources of its own and no pending events.

        What is delivered from either is recorded in the one ledger of the session.
        """
        self._refuse_inside_an_execution("clone")
        self.commits.begin()
        self.commits.note_queue()
        twin = Context.over(self.commits.line.fork_off(self.commits.line.branch))
        twin.commits.restart_queue()
        twin.commits.hold([])
        return twin

    def _refuse_to_move(self, verb: str) -> None:
        self._refuse_inside_an_execution(verb)
        if self.is_publishing:
            raise StoreError(f"context.{verb}() was called while the context is being saved; await that")

    # -- one document --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the whole context as plain JSON types: history, queue, ledger, fork base and name.

        Direct changes become a commit first, as with a save.
        """
        self._refuse_inside_an_execution("to_dict")
        return documents.to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any], resources: RuntimeResources | None = None) -> Context:
        """Return the context that `to_dict` described, over a store in memory.

        Raises `NotAStore` for another dictionary, `FormatTooNew`, `StoreError` for a damaged one.
        """
        return cls.over(documents.line_of(data), resources)

    async def save_checkpoint(self, place: documents.CheckpointLike) -> None:
        """Save `to_dict` at a path (one JSON file) or in a `CheckpointBackend`."""
        await documents.checkpoint(place).save(self.to_dict())

    @classmethod
    async def load_checkpoint(
        cls, place: documents.CheckpointLike, resources: RuntimeResources | None = None
    ) -> Context:
        """Return the context saved at a path or in a `CheckpointBackend`.

        Raises `NoCheckpoint` (a `ValueError`) when nothing was, and what `from_dict` raises.
        """
        return cls.from_dict(await documents.checkpoint(place).load(), resources)

    async def to_kv(self, backend: KVBackend, key: str) -> None:
        """Save `to_dict` under a key."""
        await backend.set(key, self.to_dict())

    @classmethod
    async def from_kv(
        cls, backend: KVBackend, key: str, resources: RuntimeResources | None = None
    ) -> Context | None:
        """Return the context saved under a key, or `None`. Raises what `from_dict` raises."""
        data = await backend.get(key)
        return None if data is None else cls.from_dict(data, resources)

    def _refuse_inside_an_execution(self, verb: str) -> None:
        scope = current_scope()
        if scope is not None and scope.context is self:
            raise StoreError(
                f"context.{verb}() was called inside a produce of the same context: an execution "
                f"sees one snapshot; {verb} outside of the run, or plan effects instead"
            )
