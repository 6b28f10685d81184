"""Deleting and copying checkpoints: the commits that stay are made anew, linked past those that go.

Nothing of what was deleted is reached afterwards, except by tags and by clones.
"""

from __future__ import annotations

from dataclasses import replace

from ..._sessions.stores import delete_session
from ..._store.branch import MAIN
from ..._store.commits import CommitRecord, make_commit, own_record, read_roots
from ..._store.names import branch_ref
from ..._store.object_db import Database, Staging
from ..._store.objects import TREE_MODE, Oid, TreeEntry
from ..._store.protocol import RefUpdate
from ..._store.trees import Path, lookup, update
from ...errors import Contention, NameTaken, StoreError
from .parts import INDEX, SUBGRAPHS, Key, named_subgraphs, read_part, writes_path
from .thread import WRITES_BRANCH, Thread


def session_with_checkpoints(database: Database, head: Oid) -> str | None:
    """Return the session of a branch that holds checkpoints of LangGraph, else `None`."""
    record = own_record(database, head)
    if record is None or record.kind == "ledger" or read_roots(database, head).thread is None:
        return None
    return record.session


def delete(thread: Thread) -> None:
    """Delete a thread with its session. Raises `ProtectedBranch`, `Contention`."""
    delete_session(thread.database, thread.id)
    thread.forget()


def keep(thread: Thread, kept: set[Key]) -> None:
    """Delete all checkpoints of a thread but some. Raises `Contention` where somebody wrote meanwhile."""
    if kept >= thread.commits.keys():
        return
    staging = Staging(thread.database)
    made = _Remade(thread, staging, thread.id, kept)
    heads = {name: made.line(head) for name, head in thread.heads.items()}
    if not kept and not made.others:
        delete(thread)
        return
    updates = []
    for name, new in heads.items():
        others = [head for other, head in thread.heads.items() if other != name]
        is_over = name != MAIN and any(new in made.reached(head) for head in others)
        updates.append(RefUpdate(thread.ref_of(name), thread.heads[name], None if is_over else new))
    if thread.writes is not None:
        pending = made.writes(thread.writes)
        updates.append(RefUpdate(thread.ref_of(WRITES_BRANCH), thread.writes, pending))
    try:
        thread.database.write(staging.objects, updates, staging.trees)
    finally:
        thread.forget()


def copy(source: Thread, target: str) -> None:
    """Copy a thread to a new session. Raises `NameTaken` where there is one of that id."""
    database = source.database
    if not source.commits:
        return
    folder = branch_ref(target, MAIN).removesuffix(MAIN)
    taken = (
        f"thread {source.id!r} cannot be copied to {target!r}: {database.backend.location} holds a session "
        f"of that id; delete it, or choose another id"
    )
    if database.backend.refs(folder):
        raise NameTaken(taken)
    staging = Staging(database)
    made = _Remade(source, staging, target, set(source.commits))
    updates = [
        RefUpdate(branch_ref(target, name), None, made.line(head)) for name, head in source.heads.items()
    ]
    if source.writes is not None:
        updates.append(RefUpdate(branch_ref(target, WRITES_BRANCH), None, made.writes(source.writes)))
    try:
        database.write(staging.objects, updates, staging.trees)
    except Contention as error:
        raise NameTaken(taken) from error


class _Remade:
    """Commits of a thread made anew: for another session, without some checkpoints, or both."""

    def __init__(self, thread: Thread, staging: Staging, session: str, kept: set[Key]) -> None:
        self._thread = thread
        self._staging = staging
        self._session = session
        self._kept = kept
        self._made: dict[Oid, Oid | None] = {}
        self.others = False  # whether there are commits of another kind, such as artifacts of the session

    def line(self, head: Oid) -> Oid | None:
        """Return what stands for a head; `None` where nothing of its line stays."""
        waiting: list[Oid] = []
        for oid, _ in self._thread.line_of(head):
            if oid in self._made:
                break
            waiting.append(oid)
        for oid in reversed(waiting):
            self._made[oid] = self._commit(oid)
        return self._made[head]

    def reached(self, head: Oid) -> set[Oid | None]:
        """Return what stands for the commits of a line that was made."""
        return {self._made[oid] for oid, _ in self._thread.line_of(head)}

    def _commit(self, oid: Oid) -> Oid | None:
        node = self._thread.nodes[oid]
        below = None if node.before is None else self._made[node.before]
        if node.key is not None and (node.key not in self._kept or self._thread.commits[node.key] != oid):
            return below
        record = own_record(self._thread.database, oid)
        if record is None:
            raise StoreError(
                f"thread {self._thread.id!r} holds commit {oid[:12]}, which reactifact did not make: its "
                f"checkpoints cannot be deleted or copied; move the branch back to before it"
            )
        self.others = self.others or (node.key is None and record.kind != "root")
        parents = self._thread.database.commit(oid).parents[1:]
        above = [self._made.get(parent) or parent for parent in parents]
        roots = read_roots(self._staging, oid)
        roots = roots._replace(thread=self._tree(roots.thread))
        made = self._record(record, below)
        return make_commit(self._staging, made, roots, [*([below] if below else []), *above])

    def _record(self, record: CommitRecord, below: Oid | None) -> CommitRecord:
        before = None if below is None else own_record(self._staging, below)
        is_versioned = record.context_version is not None
        version = (0 if before is None else before.version) + is_versioned
        fork = record.fork
        if fork is not None and self._made.get(fork.get("commit", "")):
            fork = {**fork, "commit": self._made[fork["commit"]]}
        is_moved = self._session != record.session
        return replace(
            record,
            session=self._session,
            version=version,
            context_version=version if is_versioned else None,
            head=record.change if is_versioned else (None if before is None else before.head),
            parent_change=None if before is None else before.head,
            depth=0 if before is None else before.depth + 1,
            fork=fork,
            ledger=None if is_moved else record.ledger,
            missing_ledgers=[] if is_moved else record.missing_ledgers,
            details={name: value for name, value in record.details.items() if name != "index"},
        )

    def _tree(self, thread: Oid | None) -> Oid | None:
        """Return a `thread/` without the index, and without parts of checkpoints that go."""
        edits: dict[Path, TreeEntry | None] = {(INDEX,): None}
        part = read_part(self._staging, thread, "")
        if part is not None and Key("", part.checkpoint_id) not in self._kept:
            for name in self._staging.tree(part.tree):
                if name != SUBGRAPHS:
                    edits[(name,)] = None
        for folder, namespace in named_subgraphs(self._staging, thread):
            below = read_part(self._staging, thread, namespace)
            if below is None or Key(namespace, below.checkpoint_id) not in self._kept:
                edits[SUBGRAPHS, folder] = None
        return None if thread is None else update(self._staging, thread, edits)

    def writes(self, head: Oid) -> Oid | None:
        """Return one commit with the pending writes of the checkpoints that stay, without a history."""
        roots = read_roots(self._staging, head)
        edits: dict[Path, TreeEntry | None] = {}
        for key in self._kept:
            entry = lookup(self._staging, roots.thread, writes_path(key))
            if entry is not None:
                edits[writes_path(key)] = TreeEntry(TREE_MODE, entry.oid)
        tree = update(self._staging, None, edits)
        record = own_record(self._thread.database, head)
        if tree is None or record is None:
            return None
        made = self._record(record, None)
        return make_commit(self._staging, made, roots._replace(thread=tree), ())
