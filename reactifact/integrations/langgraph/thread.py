"""One thread as this process knows it: its commits, which checkpoint each holds, and its branches.

Owns the index from checkpoints to commits. It is made of the commits themselves, read once; every
`_CHUNK` commits a file below `thread/index/` repeats what they said, so that a thread that is opened
anew costs a few reads and not its whole history.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..._store import canonical
from ..._store.branch import MAIN, Branch, new_change_id, stored_ref
from ..._store.commits import CommitRecord, own_record, read_roots
from ..._store.names import branch_ref, is_ledger_ref
from ..._store.object_db import Database, Staging, blob_entry
from ..._store.objects import Oid
from ..._store.trees import subtree, update, walk
from ...errors import Contention
from .parts import INDEX, Key
from .values import decode_json

WRITES_BRANCH = "pending-writes"
_CHUNK = 64
_ATTEMPTS = 8


class Node(NamedTuple):
    """What the index knows of a commit on a branch."""

    before: Oid | None  # its first parent
    key: Key | None  # the checkpoint it holds; `None` for a commit of another kind
    parent: str | None = None  # the checkpoint before it in its namespace
    run: str = ""
    since: int = 0  # commits since the last one that has the index


class Thread:
    """The commits and branches of one thread. `lock` is held by whoever uses it."""

    def __init__(self, database: Database, thread_id: str) -> None:
        self.database = database
        self.id = thread_id
        self.lock = threading.RLock()
        self.index_is_used = True
        self._folder = branch_ref(thread_id, MAIN).removesuffix(MAIN)
        self.forget()

    def forget(self) -> None:
        """Drop what is known; it is read again when it is needed."""
        self.nodes: dict[Oid, Node] = {}
        self.commits: dict[Key, Oid] = {}
        self.order: list[tuple[str, str]] = []  # (checkpoint, namespace) of each, sorted
        self.newest: dict[str, str] = {}  # the greatest checkpoint of each namespace
        self.heads: dict[str, Oid] = {}  # by branch
        self.writes: Oid | None = None
        self.is_known = False
        self._lines: dict[str, Branch] = {}
        self._names: dict[str, str] = {}  # branches by ref
        self._made: Node | None = None  # of the commit made last

    # -- what the store holds ----------------------------------------------------------------------

    def refresh(self) -> None:
        """Learn what was written since the last time, by whomever. Raises `MissingObject`."""
        found = self.database.backend.refs(self._folder)
        refs = {ref: oid for ref, oid in found.items() if not is_ledger_ref(ref)}
        if any(ref not in refs for ref in self._names):  # deleted, or written anew
            self.forget()
        for ref, oid in refs.items():
            self._take(ref, oid)
        self.is_known = True

    def _take(self, ref: str, head: Oid) -> None:
        name = self._names.get(ref)
        if name is not None and (self.writes if name == WRITES_BRANCH else self.heads.get(name)) == head:
            return
        if name is None:
            record = own_record(self.database, head)
            if record is None:
                return  # somebody's own branch
            name = self._names[ref] = record.branch if record.session == self.id else ref
        if name == WRITES_BRANCH:
            self.writes = head
            return
        met = self._learn(head)
        old = self.heads.get(name)
        if old is not None and met != old:  # it did not go forward
            self.forget()
            self.refresh()
            return
        self.heads[name] = head

    def _learn(self, head: Oid) -> Oid | None:
        """Add the commits from `head` down to the first known one, and return that."""
        chain: list[tuple[Oid, Node]] = []
        oid: Oid | None = head
        while oid is not None and oid not in self.nodes:
            parents = self.database.commit(oid).parents
            before = parents[0] if parents else None
            record = own_record(self.database, oid)
            node = _node(before, record)
            chain.append((oid, node))
            has_index = record is not None and record.details.get("index") and self.index_is_used
            if has_index and before not in self.nodes:
                self._read_index(oid, before)
            oid = before
        for commit, node in reversed(chain):
            self._add(commit, node)
        return oid

    def _add(self, commit: Oid, node: Node) -> None:
        before = None if node.before is None else self.nodes[node.before]
        since = 0 if before is None or node.since == 0 else before.since + 1
        self.nodes[commit] = node._replace(since=since)
        if node.key is not None:
            namespace, checkpoint = node.key
            if node.key not in self.commits:
                insort(self.order, (checkpoint, namespace))  # at the end, as a rule
                self.newest[namespace] = max(checkpoint, self.newest.get(namespace, checkpoint))
            self.commits[node.key] = commit

    def _read_index(self, commit: Oid, before: Oid | None) -> None:
        """Take over the index that a commit has of those before it, if it is about them."""
        thread = read_roots(self.database, commit).thread
        folder = subtree(self.database, thread, (INDEX,))
        files = sorted(walk(self.database, folder))
        self.database.prefetch(oid for _, oid in files)
        last: Oid | None = None
        found: dict[Oid, Node] = {}
        for _, blob in files:
            chunk = decode_json(self.database.read(blob).data)
            if chunk["before"] != last:
                return
            for oid, namespace, checkpoint, parent, run, has_index in chunk["commits"]:
                key = None if checkpoint is None else Key(namespace, checkpoint)
                found[oid] = Node(last, key, parent, run, since=0 if has_index else 1)
                last = oid
        if last != before:
            return  # the commits were made anew since (by a compaction): they are read one by one
        for oid, node in found.items():
            if oid not in self.nodes:
                self._add(oid, node)

    def line_of(self, head: Oid | None) -> Iterator[tuple[Oid, Node]]:
        """Yield the commits of a line, newest first."""
        while head is not None:
            node = self.nodes[head]
            yield head, node
            head = node.before

    def latest(self, branch: str, namespace: str) -> str | None:
        """Return the newest checkpoint of a namespace on a branch."""
        for _, node in self.line_of(self.heads.get(branch)):
            if node.key is not None and node.key.namespace == namespace:
                return node.key.checkpoint
        return None

    def ref_of(self, branch: str) -> str:
        """Return the ref of a branch that the thread has."""
        return next(ref for ref, name in self._names.items() if name == branch)

    # -- writing -----------------------------------------------------------------------------------

    def write(self, make: Callable[[], tuple[Branch, str]]) -> None:
        """Publish what `make` committed on a line, again on what others wrote where they were first.

        `make` returns the line and its branch. Raises `Contention` when others are first every time.
        """
        for left in reversed(range(_ATTEMPTS)):
            try:
                line, name = make()
                line.publish()
            except Contention:
                self._lines.clear()
                self.refresh()
                if not left:
                    raise
            except BaseException:
                self.forget()  # it is not known what was written
                raise
            else:
                self._note(line, name)
                return

    def _note(self, line: Branch, name: str) -> None:
        assert line.tip is not None
        assert line.ref is not None
        self._names[line.ref] = name
        self._lines[name] = line
        if name == WRITES_BRANCH:
            self.writes = line.tip
        else:
            made = self._made
            if made is not None and self.database.commit(line.tip).parents == (made.before,):
                self._add(line.tip, made)
            else:
                self._learn(line.tip)
            self.heads[name] = line.tip
        self.database.tidy()

    def line(self, name: str, start: Oid | None = None) -> Branch:
        """Return a branch to be written: the known one, or a new one that begins at a commit."""
        line = self._lines.get(name)
        head = self.writes if name == WRITES_BRANCH else self.heads.get(name)
        if line is not None and line.tip == head and line.is_published:
            return line
        line = Branch.begin(self.database, self.id, name, attached=True)
        line.ref = stored_ref(self.database, self.id, name)
        if head is not None:
            line.move_to(head)
            line.published = head
        elif start is not None:
            line.move_to(start)
            assert line.record is not None
            line.fork = {"branch": line.record.branch, "change": line.change, "commit": start}
            line.is_session = False
        else:
            line.is_session = name == MAIN
        return line

    def new_fork(self) -> str:
        """Return a name that no branch has yet."""
        number = 1
        while f"fork-{number}" in self.heads:
            number += 1
        return f"fork-{number}"

    def commit(
        self, line: Branch, thread: Oid, kind: str, when: str, message: str, details: dict[str, Any], run: str
    ) -> None:
        """Commit a `thread/` on a line, with the index where one is due."""
        tip = line.tip
        if kind == "checkpoint" and tip is not None and self.nodes[tip].since + 1 >= _CHUNK:
            thread = self._with_index(line.objects, thread, tip)
            details = {**details, "index": True}
        line.state.roots = line.state.roots._replace(thread=thread)
        record = CommitRecord(
            change=new_change_id(),
            kind=kind,
            author="langgraph",
            timestamp=when,
            message=message,
            context_version=1 if kind == "checkpoint" else None,  # the line counts
            run_id=run,
            details=details,
        )
        self._made = _node(tip, record)
        line.commit(record)

    def _with_index(self, objects: Staging, thread: Oid, tip: Oid) -> Oid:
        rows: list[list[Any]] = []
        before: Oid | None = None
        for oid, node in self.line_of(tip):
            namespace, checkpoint = node.key or (None, None)
            rows.append([oid, namespace, checkpoint, node.parent, node.run, node.since == 0])
            before = node.before
            if node.since == 0:  # those before it stand in the index that it has
                break
        record = own_record(self.database, tip)
        name = f"{0 if record is None else record.depth:08}.json"
        chunk = canonical.one_line({"before": before, "commits": rows[::-1]}).encode()
        made = update(objects, thread, {(INDEX, name): blob_entry(objects.put("blob", chunk))})
        assert made is not None
        return made


def _node(before: Oid | None, record: CommitRecord | None) -> Node:
    said = None if record is None else record.details.get("checkpoint")
    if record is None or said is None:
        return Node(before, None, since=1)
    since = 0 if record.details.get("index") else 1
    return Node(before, Key(said["namespace"], said["id"]), said.get("parent"), record.run_id, since)


def moment(text: str) -> str:
    """Return a time as ISO text with a zone; now, where `text` is none."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = datetime.now(UTC)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).isoformat()
