"""What reactifact 0.15 wrote, as sessions of ours: one commit for each state it kept.

Owns what becomes of a document: artifacts with their versions, relations, waiting events, and the
delivery state of actions, which goes into the ledger. A branch of that package carries the state it
was forked from; that becomes a commit below both lines, so that they still merge three-way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from .._store import canonical
from .._store import state as versioning
from .._store._backends.published import Document, Published
from .._store.branch import MAIN
from .._store.commits import CommitRecord, make_commit
from .._store.index import Indexes
from .._store.layout import Intent, Meta, ReadRecord, Roots, Waiting
from .._store.ledger import Ledger, LedgerEntry, joined
from .._store.names import branch_ref
from .._store.object_db import Database, Staging
from .._store.objects import Oid
from .._store.protocol import RefUpdate
from .._store.state import Origin, State, Stored, of_waiting
from .._store.trees import update
from ..artifacts import ACTION_TYPE, encode
from ..errors import NotAStore, ReactifactError, told
from ..events import EventType
from ..interrupt import PendingAction

_AUTHOR = "application"
_REVISION = "0.15"  # of no model: a migrate hook, if there is one, sees what is imported
_BRANCH = "branch:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).isoformat()


@dataclass(slots=True)
class _Session:
    """The documents of one session: its own line and its branches."""

    main: Document | None = None
    branches: dict[str, Document] = field(default_factory=dict)


@dataclass(slots=True)
class _Built:
    """A document as a state, and what the ledger has to know of its actions."""

    state: State
    entries: dict[str, LedgerEntry]
    writes: list[list[Any]]
    operations: list[dict[str, Any]]


def write_sessions(database: Database, found: Published, session: str | None = None) -> None:
    """Write every session of what was found into an empty database; equal data, equal ids.

    `session` names the one of a checkpoint. Raises `NotAStore`, naming the key, for a document that
    does not hold together, `InvalidName` for an id that cannot be stored.
    """
    for name, documents in _sessions(found, session).items():
        _Import(database, found.location, name).write(documents)


def _sessions(found: Published, session: str | None) -> dict[str, _Session]:
    if found.checkpoint is not None:
        return {session or PurePath(found.location).stem: _Session(found.checkpoint)}
    if session is not None:
        raise NotAStore(f"{found.location} holds sessions under names of their own; leave out the session")
    sessions = {key: _Session(doc) for key, doc in found.documents.items() if not key.startswith(_BRANCH)}
    for key, document in found.documents.items():
        if not key.startswith(_BRANCH):
            continue
        rest = key.removeprefix(_BRANCH)
        # both parts may hold a colon: the longest session that is there, else what is before the first
        owners = [name for name in sessions if rest.startswith(f"{name}:")]
        owner = max(owners, key=len) if owners else rest.partition(":")[0]
        sessions.setdefault(owner, _Session()).branches[rest[len(owner) + 1 :]] = document
    return sessions


class _Import:
    """One session on its way: its ledger, its objects, the Change-Ids that are taken."""

    def __init__(self, database: Database, location: str, session: str) -> None:
        self.database = database
        self.location = location
        self.session = session
        self.objects = Staging(database)
        self.ledger = Ledger(database, session)
        self.changes: set[str] = set()
        self._last = ""  # the Change-Id of the commit made last

    def write(self, documents: _Session) -> None:
        lines = {} if documents.main is None else {MAIN: documents.main}
        lines |= {name: doc for name, doc in documents.branches.items() if name != MAIN or not lines}
        built = {name: self._checked(name, doc) for name, doc in lines.items()}
        when = max(_moment(doc) for doc in lines.values())
        self._deliver(built, when)
        main = documents.main
        if main is not None and main.get("head_id"):
            self.changes.add(main["head_id"])  # the session's own line keeps it
        tip = self._root(min(_begin(doc) for doc in lines.values()))
        bases = self._bases(lines, tip, _version(main) if main is not None else None)
        updates = []
        for name, doc in lines.items():
            base = bases[name]
            oid = self._commit(name, doc, built[name], base.parent, base.fork)
            updates.append(RefUpdate(branch_ref(self.session, name), None, oid))
        self.database.write(self.objects.objects, updates, self.objects.trees)

    def _checked(self, name: str, document: Document) -> _Built:
        try:
            return _build(self.objects, document, name, self.location)
        except ReactifactError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
            raise NotAStore(
                f"session {self.session!r}, branch {name!r} in {self.location} is damaged "
                f"({told(error)}); restore it from a copy"
            ) from error

    def _deliver(self, built: dict[str, _Built], when: str) -> None:
        entries: dict[str, LedgerEntry] = {}
        for one in built.values():
            for action_id, entry in one.entries.items():
                both = joined(entries.get(action_id), entry)
                assert both is not None
                entries[action_id] = both
        if entries:
            change = self._change("", f"ledger of {self.session}")
            message = f"outbox: imported from {self.location}"
            moment = datetime.fromisoformat(when)
            self.ledger.record(entries, change=change, when=moment, message=message, branch=MAIN)
            self.ledger.write()

    def _bases(self, lines: dict[str, Document], root: Oid, main: int | None) -> dict[str, _Base]:
        """Commit the states that branches were forked from; return what each line goes on from.

        They stand on the session's own line in the order of their versions, but for those that lie
        beyond where it is now (it was reset since).
        """
        forks = {name: doc["base"] for name, doc in lines.items() if isinstance(doc.get("base"), dict)}
        made: dict[bytes, tuple[Oid, str]] = {}
        tip = root
        for name, base in sorted(forks.items(), key=lambda item: (_version(item[1]), item[0])):
            key = canonical.encode(base)
            if key in made or name == MAIN:
                continue
            whole = {"events": [], "relations": [], "commits": [], **base}
            built = self._checked(name, whole)
            is_beyond = main is None or _version(base) > main
            oid = self._commit(MAIN, whole, built, root if is_beyond else tip, None, queue=False)
            made[key] = oid, self._last
            tip = tip if is_beyond else oid
        found = {}
        for name in lines:
            if name == MAIN or name not in forks:
                found[name] = _Base(tip if name == MAIN else root, None)
                continue
            oid, change = made[canonical.encode(forks[name])]
            found[name] = _Base(oid, {"branch": MAIN, "change": change, "commit": oid})
        return found

    def _root(self, when: str) -> Oid:
        record = CommitRecord(
            change=self._change("", f"root of {self.session}"),
            kind="root",
            session=self.session,
            branch=MAIN,
            author="reactifact",
            timestamp=when,
            message=f"Begin session {self.session}",
            is_session=True,
        )
        return make_commit(self.objects, record, Roots(), ())

    def _commit(
        self,
        branch: str,
        document: Document,
        built: _Built,
        parent: Oid,
        fork: dict[str, Any] | None,
        *,
        queue: bool = True,
    ) -> Oid:
        version = _version(document)
        head: str = document.get("head_id") or ""
        name = (
            f"{branch} of {self.session} at {version}: {canonical.content_hash(canonical.encode(document))}"
        )
        is_own = queue and branch == MAIN and head != ""
        change = head if is_own else self._change(head, name)
        self._last = change
        record = CommitRecord(
            change=change,
            kind="edit",
            session=self.session,
            branch=branch,
            author=_AUTHOR,
            timestamp=_moment(document),
            message=f"imported from {self.location}",
            context_version=version or None,
            version=version,
            head=change if version else None,
            depth=self._depth(parent) + 1,
            operations=built.operations,
            writes=built.writes,
            next_event=len(document["events"]) if queue else 0,
            is_watched=True,
            next_sequence=built.state.next_sequence,
            ledger=self.ledger.tip,
            fork=fork,
            is_session=branch == MAIN,
            baseline=version,  # what came before is not there, as after a compaction
            details={"imported": {"commits": [_plain(commit) for commit in document["commits"]]}},
        )
        events = enumerate(document["events"] if queue else ())
        waiting = [Waiting(_queued(event), None, order) for order, event in events]
        files = update(self.objects, None, of_waiting(self.objects, waiting))
        return make_commit(self.objects, record, built.state.flush()._replace(queue=files), [parent])

    def _depth(self, oid: Oid) -> int:
        depth = 0
        while parents := self.objects.commit(oid).parents:
            depth, oid = depth + 1, parents[0]
        return depth

    def _change(self, wanted: str, name: str) -> str:
        """Return a Change-Id: the one the package gave, or one that follows from a name."""
        change = wanted
        if not change or change in self.changes:
            change = canonical.content_hash(name.encode())[:32]
        self.changes.add(change)
        return change


@dataclass(frozen=True, slots=True)
class _Base:
    """What the commit of a line goes on from."""

    parent: Oid
    fork: dict[str, Any] | None


# -- states ----------------------------------------------------------------------------------------


def _build(objects: Staging, document: Document, branch: str, location: str) -> _Built:
    built = _Built(State(objects, Roots(), 0, Indexes()), {}, [], [])
    commits = {commit["id"]: commit for commit in document["commits"]}
    created, written = _writers(document["commits"])
    for key, artifact in document["artifacts"].items():
        if artifact["id"] != key:
            raise ValueError(f"artifact {key!r} calls itself {artifact['id']!r}")
        first = commits.get(artifact.get("created_by_commit") or created.get(key, ""))
        last = commits.get(written.get(key, ""))
        _put(built, artifact, first, last, branch)
    for link in document["relations"]:
        source, relation, target = link["source_id"], link["relation"], link["target_id"]
        if built.state.link(source, relation, target):
            built.operations.append(
                {"type": "link", "artifact_id": source, "relation": relation, "target_id": target}
            )
    for event in document["events"]:
        _queued(event)
    return built


def _writers(commits: Iterable[Document]) -> tuple[dict[str, str], dict[str, str]]:
    """Return, by artifact, the commits that created it and wrote it last."""
    created: dict[str, str] = {}
    written: dict[str, str] = {}
    for commit in commits:
        for write in commit.get("writes", ()):
            written[write["artifact_id"]] = commit["id"]
            if write["op_type"] == "create":
                created[write["artifact_id"]] = commit["id"]
    return created, written


def _put(
    built: _Built, artifact: Document, first: Document | None, last: Document | None, branch: str
) -> None:
    state, artifact_id, type_id = built.state, artifact["id"], artifact["data_type"]
    history = [*artifact.get("history", ()), artifact["data"]]
    version = artifact.get("version", len(history) - 1)
    payloads, action = _payloads(history, type_id)
    revision = _REVISION
    if action is not None:
        revision = encode(action).revision
    begun, ended = (datetime.fromisoformat(artifact[name]) for name in ("created_at", "updated_at"))
    changes = len(history) - len(payloads)  # versions that a delivery made
    oldest = version - (len(history) - 1)  # those before were trimmed
    origin = _origin(first, begun, artifact.get("created_by_commit"))
    if oldest:
        payload = payloads[0]
        stored = state.objects.put("blob", payload), payload
        meta = versioning.first(artifact_id, type_id, stored, revision, state.next_sequence, origin)
        meta = replace(meta, version=oldest)
        state.adopt(Stored(state.objects.put("blob", meta.encode()), meta), None)
    else:
        meta = state.put(artifact_id, type_id, payloads[0], revision, origin)
    for place, payload in enumerate(payloads[1:], 2):
        is_last = place == len(payloads)
        writer = last if is_last else None
        meta = state.put(
            artifact_id, type_id, payload, revision, _origin(writer, ended if is_last else begun)
        )
    if len(payloads) == 1 and last is not None and last is not first:
        meta = state.touch(artifact_id, _origin(last, ended))
    built.writes.append([artifact_id, meta.version, "create"])
    operation: dict[str, Any] = {
        "type": "create",
        "artifact_id": artifact_id,
        "data_type": type_id,
        "payload": meta.payload,
        "revision": revision,
        "version": meta.version,
    }
    if action is not None:
        operation["action"] = action.idempotency_key
        _wait(built, action, meta, changes, artifact["updated_at"], branch)
    built.operations.append(operation)


def _payloads(history: list[Document], type_id: str) -> tuple[list[bytes], PendingAction | None]:
    """Return the payloads of all versions; an action's without those that its delivery made."""
    if type_id != ACTION_TYPE:
        return [canonical.encode(data) for data in history], None
    actions = [PendingAction.model_validate(data) for data in history]
    found: list[bytes] = []
    for action in actions:
        payload = encode(action).payload
        if not found or found[-1] != payload:
            found.append(payload)
    return found, actions[-1]


def _wait(
    built: _Built, action: PendingAction, meta: Meta, changes: int, updated_at: str, branch: str
) -> None:
    """Note what the branch waits for and what the world was told."""
    if action.status not in ("dispatched", "simulated"):
        built.state.expect(Intent(meta.id, meta.sequence, meta.content_hash, action.ordering_key))
    if action.status == "pending" and not action.attempts and not changes:
        return
    at = action.dispatched_at
    built.entries[meta.id] = LedgerEntry(
        meta.id,
        action.status,
        meta.content_hash,
        branch,
        attempts=action.attempts,
        error=action.error,
        dispatched_at=None if at is None else at.isoformat(),
        updated_at=updated_at,
        changes=changes,
    )


def _origin(commit: Document | None, when: datetime, change: str | None = None) -> Origin:
    """Return who wrote, after a commit that is there, one that was compacted, or none."""
    if commit is None:
        return Origin(_AUTHOR, when, change)
    reads = tuple(ReadRecord(read["artifact_id"], read["version"]) for read in commit.get("reads", ()))
    return Origin(commit["author"], when, commit["id"], reads)


# -- documents -------------------------------------------------------------------------------------


def _version(document: Document) -> int:
    return int(document.get("version") or 0)


def _times(document: Document) -> Iterator[str]:
    yield _EPOCH
    yield from (artifact["updated_at"] for artifact in document["artifacts"].values())
    yield from (commit["timestamp"] for commit in document["commits"])
    yield from (event["timestamp"] for event in document["events"] if event.get("timestamp"))


def _moment(document: Document) -> str:
    """Return the newest time in a document: an import says when the state was, not when it was read."""
    return max(datetime.fromisoformat(text) for text in _times(document)).isoformat()


def _begin(document: Document) -> str:
    times = [datetime.fromisoformat(artifact["created_at"]) for artifact in document["artifacts"].values()]
    return min(times, default=datetime.fromisoformat(_moment(document))).isoformat()


def _queued(event: Document) -> dict[str, Any]:
    """Return an event that waited as the queue holds it. Raises `ValueError` for anything else."""
    when = event.get("timestamp") or _EPOCH
    return {
        "type": EventType(event["type"]).value,
        "artifact_type": str(event["artifact_type"]),
        "artifact_id": str(event["artifact_id"]),
        "timestamp": datetime.fromisoformat(when).isoformat(),
    }


def _plain(commit: Document) -> Document:
    """Return a commit without the data in its operations: payloads stand in files of their own."""
    return {key: value for key, value in commit.items() if key != "operations"}
