"""A whole history checked: every record against its tree, parents, payloads and bookkeeping.

Owns `verify_history`, the check of one commit, and a backend that hashes each object it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from .._store import canonical
from .._store._history.revset import find_head
from .._store._history.tombstones import read_stones, require_clean
from .._store.branch import MAIN
from .._store.commits import (
    CommitRecord,
    before_amend,
    own_record,
    read_roots,
    safe_text,
    said_state,
    state_hash,
    subject,
    trailers_of,
)
from .._store.layout import (
    ATTRIBUTES,
    BOOKKEEPING,
    EARLIER_ATTRIBUTES,
    Intent,
    Meta,
    artifact_path,
    decode_edges,
    file_path,
    versions_path,
)
from .._store.ledger import LedgerEntry, entries_of, joined_trees
from .._store.migrations import current_tree
from .._store.names import branch_ref, is_ledger_ref, tag_ref
from .._store.object_db import Database, Staging
from .._store.objects import GitObject, Oid, object_id, tag_target
from .._store.protocol import ChecksIndexes, ObjectBackend, Progress, ReadOnlyBackend
from .._store.trees import Path, compare, lookup
from .._store.versions import TRIMMED_FILE, oldest_kept
from ..errors import MissingObject, ReactifactError, StoreError, UnknownRevision, text_of

# -- what must hold inside one commit: its `State`, its payloads, their bookkeeping, its record --


_FOR_PEOPLE = ("Agent", "Run")  # which messages of format 1 do not have
_PLACE_IN_FOLDER = 4  # <x>/<y>/<z>/<name>


class Fault(Exception):
    """Something in a commit does not match; the text says what."""

    def __init__(self, commit: Oid, subject: str, text: str) -> None:
        super().__init__(text)
        self.commit = commit
        self.subject = subject


def check_commit(database: Database, commit: Oid) -> None:
    """Check a commit of a branch against its first parent, which was checked. Raises `Fault`."""
    _CommitCheck(database, commit).run()


def check_foreign_commit(database: Database, commit: Oid, adopted: Collection[Oid]) -> None:
    """Check a commit made with git: what it brings is whole, and was adopted. Raises `Fault`."""
    found = database.commit(commit)
    before = database.commit(found.parents[0]).tree if found.parents else None
    for _, _, new in compare(database, before, found.tree):
        if new is not None:
            database.read(new)
    if commit not in adopted:
        raise Fault(
            commit,
            found.message.partition("\n")[0],
            "it was made with git and is not adopted: open the branch to adopt it",
        )


def check_ledger_commit(database: Database, commit: Oid) -> None:
    """Check a commit of a ledger against its parent. Raises `Fault`."""
    check = _CommitCheck(database, commit)
    check.message()
    if check.record.kind != "ledger":
        raise check.fault("it stands in the ledger and is none of a delivery")
    for path, _, new in check.changes():
        if new is None or path[0] != "ledger":
            continue
        entry = LedgerEntry.decode(database.read(new).data)
        check.require(
            path[1:] == file_path(entry.action_id), f"the delivery of {entry.action_id!r} stands elsewhere"
        )
    if len(check.object.parents) > 1:
        sides = (entries_of(database, parent) for parent in check.object.parents)
        check.require(
            joined_trees(Staging(database), *sides) == entries_of(database, commit),
            "it joins two ledgers and holds something else than both know together",
        )


class _CommitCheck:
    """The checks of one commit."""

    def __init__(self, database: Database, commit: Oid) -> None:
        self.database = database
        self.commit = commit
        self.object = database.commit(commit)
        self.subject = self.object.message.partition("\n")[0]
        record = own_record(database, commit)
        if record is None:
            raise self.fault("reactifact did not make it, or its record was exchanged")
        self.record: CommitRecord = record

    def fault(self, text: str) -> Fault:
        """Return the fault that a text describes."""
        return Fault(self.commit, self.subject, text)

    def require(self, holds: bool, text: str) -> None:
        """Raise the fault that a text describes unless something holds."""
        if not holds:
            raise self.fault(text)

    def run(self) -> None:
        """Check everything."""
        self.roots = read_roots(self.database, self.commit)
        self.message()
        said = said_state(self.object)
        self.require(said is not None, "it names no State")
        self.require(
            said == state_hash(self.roots),
            f"its State is {state_hash(self.roots)}, and it says {said}",
        )
        for path, old, new in self.changes():
            self._changed(path, old, new)
        self._operations()

    def message(self) -> None:
        """Check that the trailers that are there say what the record says.

        A message that begins otherwise than ours was amended by somebody, and decides nothing.
        """
        record = self.record
        if self.object.record and self.subject != subject(record):
            return
        version = "" if record.context_version is None else str(record.context_version)
        for key, value in (
            ("Change-Id", record.change),
            ("Context-Version", version),
            ("Session-Id", record.session),
            ("Branch", record.branch),
            ("Run-Id", record.run_id),
            ("Ledger", record.ledger or ""),
            *trailers_of(record),
        ):
            said = self._trailer(key) or ""
            if not said and (self.object.record or key in _FOR_PEOPLE):
                continue
            self.require(
                said == safe_text(value), f"its record says {key} {value!r}, and its message {said!r}"
            )

    def _trailer(self, key: str) -> str | None:
        last = self.object.message.rstrip("\n").rpartition("\n\n")[2]
        found = [line for line in last.split("\n") if line.startswith(f"{key}: ")]
        return found[-1][len(key) + 2 :] if found else None

    def changes(self) -> list[tuple[Path, Oid | None, Oid | None]]:
        """Return every file that differs from the first parent, having read and hashed each."""
        parents = self.object.parents
        before = current_tree(self.database, parents[0]) if parents else None
        if self.record.kind == "adopt":  # below it may stand bookkeeping that somebody made a mess of
            before = self._adopted_onto()
        found = list(compare(self.database, before, current_tree(self.database, self.commit)))
        self.database.prefetch(new for _, _, new in found if new is not None)
        for _, _, new in found:
            if new is not None:
                self.database.read(new)
        return found

    def _adopted_onto(self) -> Oid | None:
        """Return the tree of the commit of ours that what was adopted is about, where the store has it."""
        onto = self.record.details.get("onto")
        try:
            return None if onto is None else current_tree(self.database, onto)
        except MissingObject:
            return None  # somebody amended it before it was pushed again

    # -- files -------------------------------------------------------------------------------------

    def _changed(self, path: Path, old: Oid | None, new: Oid | None) -> None:
        match path:
            case ("artifacts", _, *_):
                self._payload(path, new)
            case ("relations", *_) if new is not None:
                source, edges = decode_edges(self.database.read(new).data)
                self.require(path[1:] == file_path(source), f"the relations of {source!r} stand elsewhere")
                self.require(bool(edges), f"the relations of {source!r} are an empty file")
            case ("outbox", *_) if new is not None:
                self._intent(path[1:], Intent.decode(self.database.read(new).data))
            case (root, "meta", *_) if root == BOOKKEEPING:
                self._meta(path[2:], old, new)
            case (root, "versions", *_) if root == BOOKKEEPING and new is not None:
                self._kept(path[2:], new)
            case (".gitattributes",):
                known = (ATTRIBUTES, *EARLIER_ATTRIBUTES)
                same = new is not None and self.database.read(new).data in known
                self.require(same, "its .gitattributes are not those of a store")
            case _:
                pass

    def _payload(self, path: Path, new: Oid | None) -> None:
        """A payload without bookkeeping, or beside another's."""
        if new is None:
            return  # that its bookkeeping went with it is seen where that changed
        name = "/".join(path)
        self.require(len(path) == 2 + _PLACE_IN_FOLDER, f"{name} is not a path of a payload")
        entry = lookup(self.database, self.roots.meta, path[2:])
        self.require(entry is not None, f"the payload {name} has no bookkeeping")
        assert entry is not None
        meta = self._decoded(entry.oid)
        self.require(
            path[1:] == artifact_path(meta.type_id, meta.id),
            f"the payload {name} stands where that of {meta.id!r} does not belong",
        )
        self._belongs(meta, new)

    def _meta(self, path: Path, old: Oid | None, new: Oid | None) -> None:
        was = None if old is None else self._decoded(old)
        meta = None if new is None else self._decoded(new)
        if was is not None and (meta is None or was.type_id != meta.type_id):
            left = lookup(self.database, self.roots.artifacts, artifact_path(was.type_id, was.id))
            self.require(left is None, f"the payload of {was.id!r} outlived its bookkeeping")
        if meta is None:
            return
        self.require(path == file_path(meta.id), f"the bookkeeping of {meta.id!r} stands elsewhere")
        entry = lookup(self.database, self.roots.artifacts, artifact_path(meta.type_id, meta.id))
        self.require(entry is not None, f"artifact {meta.id!r} has bookkeeping and no payload")
        assert entry is not None
        self._belongs(meta, entry.oid)
        self._previous(meta)

    def _belongs(self, meta: Meta, payload: Oid) -> None:
        """The payload of a version, by git's id and by its blake3."""
        self.require(
            meta.payload == payload,
            f"the payload of {meta.id!r} v{meta.version} is blob {payload[:12]}, and its bookkeeping "
            f"names {meta.payload[:12]}",
        )
        actual = canonical.content_hash(self.database.read(payload).data)
        self.require(
            meta.content_hash == actual,
            f"the payload of {meta.id!r} v{meta.version} has the hash {actual[:12]}, and its bookkeeping "
            f"names {meta.content_hash[:12]}",
        )

    def _previous(self, meta: Meta) -> None:
        """The version before, as far as it is kept."""
        if meta.previous is None or meta.version <= oldest_kept(self.database, self.roots.versions, meta.id):
            return
        before = self._decoded(meta.previous)
        self.require(
            before.id == meta.id and before.version < meta.version,
            f"the version before {meta.id!r} v{meta.version} is that of {before.id!r} v{before.version}",
        )
        actual = canonical.content_hash(self.database.read(before.payload).data)
        self.require(
            before.content_hash == actual,
            f"the payload of {before.id!r} v{before.version} has the hash {actual[:12]}, and its "
            f"bookkeeping names {before.content_hash[:12]}",
        )

    def _kept(self, path: Path, new: Oid) -> None:
        """A version kept beside the history: `<x>/<y>/<z>/<id>/<n>/{meta,payload}.json`."""
        if path[-1] == TRIMMED_FILE:
            return
        name = "/".join(path)
        self.require(len(path) == _PLACE_IN_FOLDER + 2, f"versions/{name} is not a path of a kept version")
        folder = path[:-1]
        found = lookup(self.database, self.roots.versions, (*folder, "meta.json"))
        payload = lookup(self.database, self.roots.versions, (*folder, "payload.json"))
        self.require(found is not None and payload is not None, f"versions/{name} stands alone")
        assert found is not None
        assert payload is not None
        meta = self._decoded(found.oid)
        self.require(
            folder == (*versions_path(meta.id), str(meta.version)),
            f"the kept version {meta.version} of {meta.id!r} stands elsewhere",
        )
        self._belongs(meta, payload.oid)

    def _intent(self, path: Path, intent: Intent) -> None:
        self.require(
            path == file_path(intent.action_id), f"the wait for {intent.action_id!r} stands elsewhere"
        )
        entry = lookup(self.database, self.roots.meta, file_path(intent.action_id))
        self.require(entry is not None, f"{intent.action_id!r} is waited for and is not an artifact")
        assert entry is not None
        self.require(
            self._decoded(entry.oid).content_hash == intent.intent,
            f"what is waited for under {intent.action_id!r} is not what was planned",
        )

    def _decoded(self, oid: Oid) -> Meta:
        return Meta.decode(self.database.read(oid).data)

    # -- the record --------------------------------------------------------------------------------

    def _operations(self) -> None:
        """What the record says was written last is what stands in the tree.

        Of a commit that was logged, only those of its operations that were applied.
        """
        last: dict[str, dict[str, Any]] = {}
        for operation in self.record.operations:
            if operation.get("type") in ("create", "update", "delete") and operation.get("applied", True):
                last[operation["artifact_id"]] = operation
        for artifact_id, operation in last.items():
            entry = lookup(self.database, self.roots.meta, file_path(artifact_id))
            if operation["type"] == "delete":
                self.require(entry is None, f"its record deletes {artifact_id!r}, which is still there")
                continue
            self.require(entry is not None, f"its record writes {artifact_id!r}, which is not there")
            assert entry is not None
            meta = self._decoded(entry.oid)
            self.require(
                meta.payload == operation.get("payload") and meta.version == operation.get("version"),
                f"its record writes {artifact_id!r} v{operation.get('version')} with blob "
                f"{str(operation.get('payload'))[:12]}, and v{meta.version} with {meta.payload[:12]} "
                f"stands there",
            )


# -- A backend whose every object is hashed again when it is read, whatever the store itself checks --


class CheckedBackend(ReadOnlyBackend):
    """Reads another backend and refuses objects that are not what their id says. Never writes.

    `objects` counts what was read and hashed.
    """

    def __init__(self, inner: ObjectBackend, progress: Progress | None = None) -> None:
        super().__init__(inner)
        self.objects = 0
        self._progress = progress
        self._checked_indexes = False

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for. Raises `StoreError` for one that was changed or is absent."""
        if not self._checked_indexes:
            if isinstance(self._inner, ChecksIndexes):
                self._inner.check_indexes()
            self._checked_indexes = True
        found = self._inner.read_many(oids)
        for oid, (kind, data) in found.items():
            actual = object_id(kind, data)
            if actual != oid:
                raise StoreError(
                    f"object {oid} in {self.location} was changed: its content is that of {kind} {actual}; "
                    f"fetch the object from a clone or a backup"
                )
        self.objects += len(found)
        if self._progress is not None:
            self._progress(self.objects, None)
        return found


# -- checking a whole session: every commit, tree and payload against the hashes that name them --


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """What a check of a session read, and the first thing that does not match (`None`: all does)."""

    session: str
    commits: int
    objects: int
    commit: Oid | None = None
    subject: str = ""
    fault: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything matches."""
        return self.fault is None

    def __str__(self) -> str:
        if self.fault is None:
            return (
                f"session {self.session}: {self.commits} commits and {self.objects} objects checked, every "
                f"State and every payload hash matches"
            )
        subject = f" ({self.subject})" if self.subject else ""
        where = "" if self.commit is None else f"commit {self.commit[:12]}{subject}: "
        return f"session {self.session}: {where}{self.fault}"


def session_refs(database: Database, session: str) -> dict[str, Oid]:
    """Return all refs of a session: branches, ledger, tags."""
    found = {}
    for own in (branch_ref(session, MAIN), tag_ref(session, MAIN)):
        found.update(database.backend.refs(own.rpartition("/")[0] + "/"))
    return found


def verify_history(database: Database, session: str, *, progress: Progress | None = None) -> HistoryReport:
    """Check every commit of a session: branches, ledger and tags, back to the first.

    Each object is hashed again; each `State` is computed anew; each payload is held against the
    blake3 and the id in its meta, the path it stands at, and the operation that wrote it. `progress` is
    called with how many commits were checked, and of how many. Raises
    `UnknownRevision` for a session that the store does not hold; damage is reported, not raised.
    """
    backend = CheckedBackend(database.backend)
    checked = Database(backend)
    commit: Oid | None = None
    count = 0
    try:
        refs = session_refs(checked, session)
        if not refs:
            find_head(checked, session)  # raises, naming the sessions there are
        ledgers = {oid for name, oid in refs.items() if is_ledger_ref(name)}
        for commit in _oldest_first(checked, [_target(checked, oid) for oid in ledgers]):
            check_ledger_commit(checked, commit)
            count += 1
            if progress is not None:
                progress(count, None)
        others = [_target(checked, oid) for oid in refs.values() if oid not in ledgers]
        order = _oldest_first(checked, others)
        _require_erased(checked, session, refs)
        adopted = _adopted(checked, order)
        whole = count + len(order)
        for commit in order:
            if commit in adopted or own_record(checked, commit) is None:
                check_foreign_commit(checked, commit, adopted)
            else:
                check_commit(checked, commit)
            count += 1
            if progress is not None:
                progress(count, whole)
    except Fault as fault:
        return HistoryReport(session, count, backend.objects, fault.commit, fault.subject, str(fault))
    except UnknownRevision:
        raise
    except (ReactifactError, LookupError, ValueError, TypeError, AttributeError) as error:
        # beside damage: objects whose ids fit and whose content is none that reactifact writes
        return HistoryReport(session, count, backend.objects, commit, "", _damage(error))
    return HistoryReport(session, count, backend.objects)


def _require_erased(database: Database, session: str, refs: dict[str, Oid]) -> None:
    """Refuse what somebody brought back of an erased history. Raises `ErasedHistory`."""
    stones = read_stones(database, session)
    tips = {ref: _target(database, oid) for ref, oid in refs.items()}
    where = f"{database.backend.location}"
    require_clean(database, session, stones, tips, where, "erase the same again with `reactifact erase`")


def _adopted(database: Database, commits: Iterable[Oid]) -> set[Oid]:
    """Return the commits made with git that commits of ours say they adopted."""
    records = (_own_or_amended(database, commit) for commit in commits)
    return {
        oid
        for record in records
        if record is not None and record.kind == "adopt"
        for oid in record.details.get("adopted", ())
    }


def _own_or_amended(database: Database, commit: Oid) -> CommitRecord | None:
    """Return the record of a commit of ours, of one that somebody amended what it was before."""
    record = own_record(database, commit)
    if record is not None:
        return record
    original = before_amend(database, database.commit(commit))
    if original is None:
        return None
    staged = Staging(database)
    return own_record(staged, staged.put_commit(original))


def _damage(error: Exception) -> str:
    text = text_of(error) or type(error).__name__
    return text if isinstance(error, ReactifactError) else f"it cannot be read ({text})"


def _target(database: Database, oid: Oid) -> Oid:
    """Return the commit behind a ref: the tags of others are objects of their own."""
    found = database.read(oid)
    while found.kind == "tag":
        oid = tag_target(found.data)
        found = database.read(oid)
    return oid


def _oldest_first(database: Database, heads: list[Oid]) -> list[Oid]:
    """Return all commits that some heads reach, each after its parents."""
    order: list[Oid] = []
    seen: set[Oid] = set()
    for head in sorted(heads):
        stack = [(head, False)]
        while stack:
            oid, is_done = stack.pop()
            if is_done:
                order.append(oid)
            elif oid not in seen:
                seen.add(oid)
                stack.append((oid, True))
                stack += [(parent, False) for parent in database.commit(oid).parents if parent not in seen]
    return order
