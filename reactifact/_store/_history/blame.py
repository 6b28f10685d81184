"""Which commit wrote the present value of each field of an artifact.

The answer comes from the chain of versions: a field is followed back through them as long as its
value stays. Only to name the commits behind the versions found is the history walked, and only as
far as they lie; of the commits on the way nothing but the commit object is read. Reads only.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..._store import canonical
from ...errors import UnknownRevision
from ..commits import CommitRecord, own_record, read_record, said_change, says_version
from ..graph import not_below
from ..index import Indexes
from ..layout import Meta, Roots
from ..ledger import Ledger, LedgerEntry
from ..names import plain, value
from ..object_db import Database, Staging
from ..objects import CommitObject, Oid
from ..state import State
from .diff import common_ends, join_path, same_value


@dataclass(frozen=True, slots=True)
class BlamedField:
    """A field, and the commit that wrote its present value.

    `path` is like `address.lines[0]`. `commit` is `None` where the commit was compacted away;
    `change` too for a direct change of that time. `is_exact` is false where older versions were
    compacted away, so that the value may be older than `version`.
    """

    path: str
    value: Any
    version: int
    commit: Oid | None
    change: str | None
    agent: str
    trigger: dict[str, Any] | None
    generation: int | None
    time: str
    is_exact: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        commit = (self.commit or "-" * 10)[:10]
        cause = self.trigger or {}
        kind = str(cause.get("type", "")).removeprefix("artifact_")
        because = f" <- {kind} {cause.get('artifact_id', '')}" if cause else ""
        text = f"{commit} v{self.version} {self.time[:19]} {self.agent}{because}"
        return f"{plain(text)}: {plain(self.path) or '(whole)'} = {value(self.value)}"


def blame(database: Database, head: Oid, roots: Roots, artifact_id: str) -> list[BlamedField]:
    """Return every field of an artifact, in order of the paths, with the commit that wrote it.

    `head` is the commit of `roots`. A field that a merge put together counts as the merge's. Raises
    `UnknownRevision` where the state has no such artifact.
    """
    versions = State(Staging(database), roots, 0, Indexes()).versions(artifact_id)
    wrote = writers(database, versions, artifact_id)
    commits = _Finder(database, head, artifact_id).find([meta for _, meta, _ in wrote.values()])
    return [_field(path, *found, commits) for path, found in sorted(wrote.items())]


def _field(
    path: str, data: Any, meta: Meta, is_exact: bool, commits: dict[int, tuple[Oid, CommitRecord]]
) -> BlamedField:
    commit, record = commits.get(meta.version, (None, None))
    return BlamedField(
        path=path,
        value=data,
        version=meta.version,
        commit=commit,
        change=meta.commit if record is None else record.change,
        agent=meta.author,
        trigger=None if record is None else record.trigger,
        generation=None if record is None else record.generation or None,
        time=meta.updated_at,
        is_exact=is_exact,
    )


# -- following fields back through versions --------------------------------------------------------


def writers(
    database: Database, versions: Iterator[Any], artifact_id: str
) -> dict[str, tuple[Any, Meta, bool]]:
    """Return, by path, the value, the version that wrote it, and whether that is certain.

    `versions` are the newest first; where they end before the first one, what none of them wrote may be
    older. Raises `UnknownRevision` where there are none.
    """
    newest = next(versions, None)
    if newest is None:
        raise UnknownRevision(
            f"{database.backend.location}: there is no artifact {artifact_id!r} here to blame"
        )
    meta = newest.meta
    data = _data(database, meta)
    values = dict(leaves(data))
    pending = {path: path for path in values}  # path in the version at hand -> path in the present one
    found: dict[str, tuple[Any, Meta, bool]] = {}
    for stored in versions:
        if not pending:
            break
        earlier = _data(database, stored.meta)
        kept: dict[str, str] = {}
        for path, before in aligned(earlier, data):
            if path in pending:
                if before is None:
                    found[pending[path]] = (values[pending[path]], meta, True)
                else:
                    kept[before] = pending[path]
        meta, data, pending = stored.meta, earlier, kept
    for present in pending.values():
        found[present] = (values[present], meta, meta.version == 0)
    return found


def _data(database: Database, meta: Meta) -> Any:
    return canonical.decode(database.read(meta.payload).data)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of everything in a JSON value that holds nothing further."""
    if isinstance(data, dict) and data:
        for key in sorted(data):
            yield from leaves(data[key], join_path(path, key))
    elif isinstance(data, list) and data:
        for index, item in enumerate(data):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, data


def aligned(old: Any, new: Any, old_path: str = "", new_path: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield (path, path in `old` or `None`) of every leaf of `new`; `None` where its value is new.

    In lists of different lengths, what both begin and end with is the same items.
    """
    if isinstance(old, dict) and isinstance(new, dict) and old and new:
        for key in sorted(new):
            below = join_path(new_path, key)
            if key in old:
                yield from aligned(old[key], new[key], join_path(old_path, key), below)
            else:
                yield from ((path, None) for path, _ in leaves(new[key], below))
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        partners = _partners(old, new)
        for index, item in enumerate(new):
            below, partner = f"{new_path}[{index}]", partners.get(index)
            if partner is None:
                yield from ((path, None) for path, _ in leaves(item, below))
            else:
                yield from aligned(old[partner], item, f"{old_path}[{partner}]", below)
    elif same_value(old, new):
        yield new_path, old_path
    else:
        yield from ((path, None) for path, _ in leaves(new, new_path))


def _partners(old: list[Any], new: list[Any]) -> dict[int, int]:
    """Return which item of `old` each item of `new` is."""
    if len(old) == len(new):
        return {index: index for index in range(len(new))}
    start, end = common_ends(old, new)
    found = {index: index for index in range(start)}
    found.update({len(new) - 1 - step: len(old) - 1 - step for step in range(end)})
    return found


# -- deliveries ------------------------------------------------------------------------------------


def blame_delivery(database: Database, ledger: Oid | None, roots: Roots, action_id: str) -> list[BlamedField]:
    """Return the fields that the delivery of an action set, each with the ledger's commit that did.

    `ledger` is the newest commit of the ledger to be read. Nothing for an action that was never
    tried, and for any other artifact. Costs the deliveries since the one that is found.
    """
    stored = State(Staging(database), roots, 0, Indexes()).stored(action_id)
    if stored is None:
        return []
    found: dict[str, BlamedField] = {}
    later: _Delivery | None = None
    for earlier in _deliveries(database, ledger, action_id):
        if later is not None:
            for name in _DELIVERED:
                if name not in found and getattr(earlier.entry, name) != getattr(later.entry, name):
                    found[name] = later.field(name, stored.meta)
        later = earlier
        if len(found) == len(_DELIVERED):
            break
    for name in _DELIVERED if later is not None else ():
        if name not in found and later is not None:
            found[name] = later.field(name, stored.meta)
    return [found[name] for name in sorted(found)]


_DELIVERED = ("attempts", "dispatched_at", "error", "status")


class _Delivery(NamedTuple):
    """What one commit of a ledger made of an action."""

    commit: Oid
    record: CommitRecord
    entry: LedgerEntry

    def field(self, name: str, meta: Meta) -> BlamedField:
        """Return one field as written here."""
        return BlamedField(
            path=name,
            value=getattr(self.entry, name),
            version=meta.version + self.entry.changes,
            commit=self.commit,
            change=self.record.change,
            agent=self.record.author,
            trigger=None,
            generation=None,
            time=self.record.timestamp,
        )


def _deliveries(database: Database, ledger: Oid | None, action_id: str) -> Iterator[_Delivery]:
    """Yield the commits of a ledger that are about one action, the newest first."""
    for oid in [] if ledger is None else not_below(database, ledger, None):
        record = read_record(database, oid)
        if record is not None and action_id in record.details.get("actions", ()):
            entry = Ledger(database, record.session, head=oid).entry(action_id)
            if entry is not None:
                yield _Delivery(oid, record, entry)


# -- from versions to commits ----------------------------------------------------------------------


class _Finder:
    """Finds the commits that wrote some versions of one artifact."""

    def __init__(self, database: Database, head: Oid, artifact_id: str) -> None:
        self._database = database
        self._head = head
        self._artifact_id = artifact_id

    def find(self, metas: list[Meta]) -> dict[int, tuple[Oid, CommitRecord]]:
        """Return, by version, the commit and its record; what was compacted away is left out."""
        wanted = {meta.version: meta for meta in metas}
        changes = {meta.commit: version for version, meta in wanted.items() if meta.commit is not None}
        direct = {version: meta.payload for version, meta in wanted.items() if meta.commit is None}
        found: dict[int, tuple[Oid, CommitRecord]] = {}
        for oid, commit in self._commits():
            if len(found) == len(wanted):
                break
            version = changes.get(said_change(commit))
            if version is None and direct - found.keys() and not says_version(commit):
                version = self._written_directly(oid, direct)
            record = None if version is None else own_record(self._database, oid)
            if version is not None and record is not None:
                found.setdefault(version, (oid, record))
        return found

    def _commits(self) -> Iterator[tuple[Oid, CommitObject]]:
        """Yield every commit below the head, the newest first."""
        seen = {self._head}
        first = self._database.commit(self._head)
        waiting = [(-first.committer.time, 0, self._head, first)]
        while waiting:
            _, _, oid, found = heapq.heappop(waiting)
            yield oid, found
            for parent in found.parents:
                if parent not in seen:
                    seen.add(parent)
                    commit = self._database.commit(parent)
                    heapq.heappush(waiting, (-commit.committer.time, len(seen), parent, commit))

    def _written_directly(self, oid: Oid, payloads: dict[int, Oid]) -> int | None:
        """Return the last of some versions, given with their payloads, that an unversioned commit wrote."""
        record = read_record(self._database, oid)
        for operation in reversed([] if record is None else record.operations):
            version = operation.get("version")
            if operation.get("artifact_id") != self._artifact_id or version not in payloads:
                continue
            if operation.get("payload") == payloads[version]:  # else the other side of a merge wrote it
                return int(version)
        return None
