"""Moving a context to another place of its history: checkout, compaction, a clone, a logged commit.

Owns the steps around the store's pure functions: what is open is committed first, the line moves, and
live artifacts show the new state. Nothing here changes the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._store._history import squash
from .._store._history.rebase import Reset, reset_to
from .._store.branch import new_change_id
from .._store.canonical import decode
from .._store.commits import CommitRecord
from .._store.layout import ReadRecord
from .._store.objects import object_id
from .._store.protocol import Progress
from .._store.state import Origin
from .._undeclared import over_stored
from ..artifacts import check_text, encode
from ..commit import Commit
from ..operations import Create, Delete, Link, Operation, Unlink, Update
from .history import refuse_below_baseline

if TYPE_CHECKING:
    from .commit import Committer


def require_version(commits: Committer, version: int) -> None:
    """Refuse a version that cannot be gone to. Raises `ValueError`."""
    line = commits.line
    if not 0 <= version <= line.version:
        raise ValueError(f"cannot check out version {version}: choose 0 to {line.version}")
    refuse_below_baseline(commits.line.baseline, version)


def checkout(commits: Committer, version: int) -> None:
    """Drop the versioned commits after `version`; direct changes that they did not touch stay."""
    require_version(commits, version)
    line = commits.line
    if line.ref is not None:
        line.database.protection.require_free("check out an earlier version of", line.session, line.branch)
    is_same = version == line.version
    go_back(commits, version, f"reactifact: check out version {version}")
    commits.restart_queue()
    commits.hold([])
    if line.published is not None and not is_same:
        commits.note_queue()  # what comes next is not part of it
        line.note_move("checkout", commits.resources.clock.now(), f"the checkout of version {version}")


def go_back(commits: Committer, version: int, message: str, run_id: str = "") -> None:
    """Move the line to a version, whatever the queue then is; `run_id` as in `reset_to`."""
    commits.commit_direct()
    line = commits.line
    tip = line.seal()
    if tip is None or version == line.version:
        return
    found = reset_to(line.objects, tip, version, run_id)
    commits.working.release_missing(found.roots.meta)
    line.move_to(found.commit)
    stand = line.state.roots._replace(held=None, queue=None)
    line.state.roots = found.roots
    line.state.next_sequence = found.next_sequence
    commits.replace_line(line)
    if found.roots != stand:
        _commit_what_stays(commits, found, message)
    elif line.record is not None and line.record.ledger != line.ledger.tip:
        commits.commit_note(message)  # so that no delivery of the dropped commits counts as news
    line.drop_unreachable()


def _commit_what_stays(commits: Committer, found: Reset, message: str) -> None:
    """Make one commit of the direct changes that outlive what was dropped after them."""
    commits.commit_record(
        CommitRecord(
            change=new_change_id(),
            kind="direct",
            author=commits.principal,
            timestamp=commits.resources.clock.now().isoformat(),
            message=message,
            operations=found.operations,
        )
    )


def compact(
    commits: Committer, keep_commits: int, keep_versions: int | None, progress: Progress | None
) -> int:
    """Squash what is older than the last `keep_commits` versions; return how many were folded."""
    commits.note_queue()
    line = commits.line
    now = commits.resources.clock.now()
    folded = squash.compact(line, keep_commits, keep_versions, now, progress)
    commits.replace_line(line)
    return folded


def log_commit(commits: Committer, commit: Commit) -> None:
    """Append a commit whose changes were applied already, by direct changes."""
    for text, what in ((commit.id, "commit id"), (commit.author, "author"), (commit.message, "message")):
        check_text(text, what)
    commits.begin()
    line = commits.line
    origin = Origin(
        commit.author,
        commit.timestamp,
        commit.id,
        tuple(ReadRecord(read.artifact_id, read.version) for read in commit.reads),
    )
    named = {_id_of(op) for op in commit.operations} | {write.artifact_id for write in commit.writes}
    operations = [_record(commits, op) for op in commit.operations]
    taken = {name for name in named if name}
    _commit_others(commits, taken)
    line.state.claim(origin, taken)
    parent = line.head
    commits.commit_record(
        CommitRecord(
            change=commit.id or new_change_id(),
            kind="edit",
            author=commit.author,
            timestamp=commit.timestamp.isoformat(),
            message=commit.message,
            context_version=0,
            operations=operations,
            reads=[[read.artifact_id, read.version] for read in commit.reads],
            writes=[[write.artifact_id, write.version, write.op_type] for write in commit.writes],
        )
    )
    commit.parent_id = parent
    commit.context_version = line.version
    commits.working.renew_all()


def _commit_others(commits: Committer, ids: set[str]) -> None:
    """Make a commit of the direct changes that do not concern `ids`; those stay open."""
    working = commits.working
    others = [op for op in working.operations if op["artifact_id"] not in ids]
    working.operations = others
    whole = working.state.take_out(ids)
    commits.commit_direct()
    working.state.put_back(whole, ids)


def _id_of(operation: Operation) -> str | None:
    if isinstance(operation, Create):
        return operation.artifact_id or operation.id
    return getattr(operation, "artifact_id", None)


def _record(commits: Committer, operation: Operation) -> dict[str, Any]:
    name = _id_of(operation)
    if isinstance(operation, Create | Update):
        data = operation.data if isinstance(operation, Create) else operation.new_data
        encoded = encode(data)
        stored = None if name is None else commits.line.state.stored(name)
        if name is not None:
            encoded = over_stored(encoded, commits.line.state, name)
        payload = object_id("blob", encoded.payload)
        record: dict[str, Any] = {
            "type": "create" if isinstance(operation, Create) else "update",
            "artifact_id": name,
            "data_type": encoded.type_id,
            "payload": payload,
            "revision": encoded.revision,
            "version": 0 if stored is None else stored.meta.version,
        }
        if stored is None or stored.meta.payload != payload:
            # no tree holds this payload, so the record does: else it would go with the next `git gc`
            record |= {"payload": None, "data": decode(encoded.payload), "applied": False}
        return record
    if isinstance(operation, Link | Unlink):
        kind = "link" if isinstance(operation, Link) else "unlink"
        return {
            "type": kind,
            "artifact_id": name,
            "relation": operation.relation,
            "target_id": operation.target_id,
        }
    if isinstance(operation, Delete):
        is_gone = name is None or commits.line.state.stored(name) is None
        return {"type": "delete", "artifact_id": name, **({} if is_gone else {"applied": False})}
    raise TypeError(f"{type(operation).__name__} is not an operation that can be logged")
