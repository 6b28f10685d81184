"""Looking back: the commits of a branch as `Commit`, diffs between versions, and versions of artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from .._html import Child, Html, inline, table
from .._store import canonical
from .._store._history.adoption.tree import roots_at
from .._store._history.diff import diff_values
from .._store.branch import Branch
from .._store.commits import CommitRecord, Listed, operation_payload, subject
from .._store.graph import first_parents, listed_line
from .._store.index import meta_at
from .._store.layout import ListingRecord, Meta, Roots
from .._store.object_db import Objects
from .._store.objects import Oid
from .._store.state import State, Stored
from .._store.trees import compare
from ..artifacts import ACTION_TYPE
from ..commit import History as History
from ..commit import Read, StoredCommit, Write
from ..errors import StoreError
from ..interrupt import DELIVERY_FIELDS
from ..operations import Create, Delete, Link, Operation, Unlink, Update
from ..types.codec import decode_payload
from ..types.registry import resolve
from .working_copy import Reading

# -- the history of a line as commits, and what differs between two of its versions --


def commits(line: Branch) -> History:
    """Return the versioned commits of a line, the oldest first."""
    line.seal()
    baseline = line.baseline
    found = [
        StoredCommit(_Source(line, oid, listed), listed.change, listed.parent_change, listed.context_version)
        for oid, listed in listed_line(line.objects, line.tip)
        if listed.context_version is not None and listed.version > baseline
    ]
    return History(found[::-1])


class _Source(NamedTuple):
    """Where the rest of a commit comes from."""

    line: Branch
    oid: Oid
    listed: Listed

    def fields(self) -> dict[str, Any]:
        """Return what the record says of it. Raises `StoreError` for one that is damaged."""
        record = self.listed.whole()
        return {
            "author": record.author,
            "message": record.message or subject(record),
            "timestamp": datetime.fromisoformat(record.timestamp),
            "writes": [Write(*write) for write in record.writes],
            "details": {"trigger": record.trigger, "generation": record.generation, **record.details},
        }

    def operations(self) -> list[Operation]:
        """Return what it did, read from the store."""
        return [_operation(self.line.objects, op) for op in self.listed.whole().operations]

    def reads(self) -> list[Read]:
        """Return what it read, its listings unfolded."""
        return list(_reads(self.line, self.oid, self.listed.whole()))


def _operation(objects: Objects, op: dict[str, Any]) -> Operation:
    kind = op["type"]
    if kind == "delete":
        return Delete(op["artifact_id"])
    if kind == "link":
        return Link(op["artifact_id"], op["relation"], op["target_id"])
    if kind == "unlink":
        return Unlink(op["artifact_id"], op.get("relation"), op.get("target_id"))
    model = resolve(op["data_type"])
    payload = operation_payload(objects, op)
    data = decode_payload(model, payload, type_id=op["data_type"], revision=op.get("revision"))
    if kind == "create":
        return Create(data, op["data_type"], op["artifact_id"], op["artifact_id"])
    return Update(op["artifact_id"], data, op["data_type"])


def _reads(line: Branch, oid: Oid, record: CommitRecord) -> Iterator[Read]:
    seen: set[str] = set()
    for artifact_id, version in record.reads:
        seen.add(artifact_id)
        yield Read(artifact_id, version)
    for listing in (ListingRecord(*raw) for raw in record.listings):
        state = _snapshot(line, oid, listing)
        for artifact_id in state.ids_of([listing.type_id]):
            stored = state.stored(artifact_id)
            if artifact_id not in seen and stored is not None:
                seen.add(artifact_id)
                yield Read(artifact_id, stored.meta.version)


def _snapshot(line: Branch, oid: Oid, listing: ListingRecord) -> State:
    for earlier, record in first_parents(line.objects, oid):
        if record is not None and record.change == listing.change:
            roots = roots_at(line.objects, earlier)
            return State(line.objects, roots, listing.sequence, line.state.indexes)
    raise StoreError(
        f"the snapshot {listing.change!r}, in which {listing.type_id} was listed, is no longer in "
        f"the history: it was compacted, so the reads of this commit cannot be unfolded"
    )


def refuse_below_baseline(baseline: int, *versions: int) -> None:
    """Refuse versions that a compaction has folded. Raises `ValueError`."""
    for version in versions:
        if version < baseline:
            raise ValueError(
                f"version {version} is below the compaction baseline {baseline}: what came before it was "
                f"folded into it; choose {baseline} or more"
            )


def roots_of_version(line: Branch, version: int) -> Roots:
    """Return the subtrees of the commit with a context version; 0 is the empty state.

    Raises `ValueError` for a version that a compaction has folded.
    """
    line.seal()
    refuse_below_baseline(line.baseline, version)
    if version == 0:
        return Roots()
    found = None
    for oid, record in first_parents(line.objects, line.tip):
        if record is not None and record.version == version:
            found = oid  # the oldest of them made the version; direct changes follow it
        elif found is not None and record is not None:
            break
    if found is not None:
        return roots_at(line.objects, found)
    raise ValueError(f"there is no commit with context version {version} in this history")


class VersionDiff(dict[str, Any]):
    """What differs between two versions, in a dictionary that shows as a table in a notebook."""

    def _repr_html_(self) -> Html:
        """Return a row for each field that differs."""
        rows: list[list[Child]] = []
        for kind in ("added", "removed"):
            for artifact_id, data in self[kind].items():
                rows += [
                    [kind, artifact_id, name, *_sides(kind, inline(value))] for name, value in data.items()
                ]
        for artifact_id, sides in self["changed"].items():
            for change in diff_values(sides["old"], sides["new"]):
                old = None if change.kind == "added" else inline(change.old)
                new = None if change.kind == "removed" else inline(change.new)
                rows.append(["changed", artifact_id, change.path, old, new])
        return table(["What", "Artifact", "Field", "Before", "After"], rows)


def _sides(kind: str, value: Html) -> tuple[Child, Child]:
    return (None, value) if kind == "added" else (value, None)


def diff(line: Branch, old: int, new: int) -> VersionDiff:
    """Compare the committed state of two context versions.

    Raises `ValueError` unless `0 <= old <= new <= version`.
    """
    if not 0 <= old <= new <= line.version:
        raise ValueError(f"cannot compare versions {old} and {new}: choose 0 <= a <= b <= {line.version}")
    refuse_below_baseline(line.baseline, old, new)
    before, after = roots_of_version(line, old), roots_of_version(line, new)
    found: dict[str, dict[str, Any]] = {"added": {}, "removed": {}, "changed": {}}
    for path, left, right in compare(line.objects, before.meta, after.meta):
        was = committed_data(line.objects, left)
        now = committed_data(line.objects, right)
        if was == now:
            continue
        artifact_id = meta_at(line.objects, before if left else after, path).id
        if was is None:
            found["added"][artifact_id] = now
        elif now is None:
            found["removed"][artifact_id] = was
        else:
            found["changed"][artifact_id] = {"old": was, "new": now}
    return VersionDiff({kind: dict(sorted(entries.items())) for kind, entries in found.items()})


def committed_data(objects: Objects, oid: Oid | None) -> dict[str, Any] | None:
    """Return the data that the last versioned commit gave an artifact, `None` when none did."""
    meta = None if oid is None else Meta.decode(objects.read(oid).data)
    while meta is not None and meta.commit is None:
        previous = meta.previous
        meta = None if previous is None else Meta.decode(objects.read(previous).data)
    return None if meta is None else plain_data(objects, meta)


def plain_data(objects: Objects, meta: Meta) -> dict[str, Any]:
    """Return the stored data of a version as plain JSON types, without its class.

    An action comes with the delivery fields it had when it was planned.
    """
    data: Any = canonical.decode(objects.read(meta.payload).data)
    if meta.type_id == ACTION_TYPE:
        data = {**data, **dict(zip(DELIVERY_FIELDS, ("pending", 0, None, None), strict=True))}
    return cast("dict[str, Any]", data)


# -- versions of artifacts as they are stored --


@dataclass(frozen=True)
class ArtifactVersion:
    """One version of an artifact: where it comes from and what it holds."""

    artifact_id: str
    version: int
    data_type: str
    content_hash: str  # blake3 of the payload: equal data of one type gives equal hashes
    author: str  # the agent, or who made the direct change
    commit: str | None  # the id of the commit that wrote it, `None` for a direct change
    updated_at: datetime
    data: Any = field(compare=False, repr=False)


def artifact_version(reading: Reading, artifact_id: str, version: int) -> ArtifactVersion | None:
    """Return one version of a live artifact, `None` for an id that is not live.

    Raises `ValueError` for a version that it does not have, or that was trimmed.
    """
    newest: int | None = None
    stored: Stored | None = None
    for stored in reading.state.versions(artifact_id):
        newest = stored.meta.version if newest is None else newest
        if stored.meta.version == version:
            return _version(reading, stored)
    if stored is None or newest is None:
        return None
    oldest = stored.meta.version
    trimmed = f": versions before {oldest} were trimmed" if 0 <= version < oldest else ""
    raise ValueError(
        f"artifact {artifact_id!r} has no version {version}{trimmed}; kept are {oldest} to {newest}"
    )


def version_history(reading: Reading, artifact_id: str) -> list[ArtifactVersion]:
    """Return the kept versions of a live artifact, the oldest first; empty for another id."""
    found = [_version(reading, stored) for stored in reading.state.versions(artifact_id)]
    return found[::-1]


def find_versions(
    reading: Reading, model: type[BaseModel] | None, content_hash: str | None
) -> list[ArtifactVersion]:
    """Return the kept versions of all live artifacts that match, in order of creation and version.

    Reads the bookkeeping of every version of the type; only those that match are decoded.
    """
    return [_version(reading, stored) for stored in _matching(reading, model, content_hash)]


def _matching(reading: Reading, model: type[BaseModel] | None, content_hash: str | None) -> Iterator[Stored]:
    for artifact_id in reading.ids(model):
        for stored in reversed(list(reading.state.versions(artifact_id))):
            if content_hash in (None, stored.meta.content_hash):
                yield stored


def _version(reading: Reading, stored: Stored) -> ArtifactVersion:
    meta = stored.meta
    return ArtifactVersion(
        artifact_id=meta.id,
        version=meta.version,
        data_type=meta.type_id,
        content_hash=meta.content_hash,
        author=meta.author,
        commit=meta.commit,
        updated_at=datetime.fromisoformat(meta.updated_at),
        data=reading.version_data(meta),
    )
