"""A commit as a state, whoever made it, and what came of each file that somebody changed in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ....errors import ReactifactError
from ... import canonical
from ...commits import CommitRecord, before_amend, down_from, own_record, read_roots
from ...graph import merge_bases
from ...layout import BOOKKEEPING, Meta, Roots, Waiting
from ...object_db import Objects, Staging
from ...objects import BLOB_MODE, CommitObject, Oid, TreeEntry
from ...state import Origin, State
from ...trees import Path, compare, lookup, subtree, update, walk


class Payload(NamedTuple):
    """A payload in canonical bytes, and the revision of its type that it has the shape of."""

    data: bytes
    revision: str


class Written(NamedTuple):
    """A payload as it stands in the tree of a commit."""

    artifact_id: str
    type_id: str
    value: Any  # what its JSON says
    before: Encoded | None
    revision: str | None  # `None`: a person wrote it
    is_stored_type: bool  # whether the state below holds artifacts of the type


class Encoded(NamedTuple):
    """The payload that an artifact had before."""

    type_id: str
    data: bytes
    revision: str


ReadPayload = Callable[[Written], Payload]
"""Checks a payload and returns it as it is stored. Raises `Refused`."""


def as_written(written: Written) -> Payload:
    """Return a payload as it was written, without a look at its class."""
    same = written.before is not None and written.before.type_id == written.type_id
    known = written.before.revision if same and written.before is not None else ""
    return Payload(canonical.encode(written.value), written.revision or known)


class Change(NamedTuple):
    """What came of a file: `create`, `update`, `delete`, `link` or `unlink`."""

    kind: str
    artifact_id: str
    author: str
    when: datetime
    meta: Meta | None = None  # of what stands there now; of a deletion, of what stood there
    relation: str = ""
    target: str = ""
    wakes: bool = True  # whether agents have still to be told of it


@dataclass
class Standing:
    """A commit as a state, whoever made it."""

    state: State
    record: CommitRecord | None  # of the newest commit of ours below it; `None`: there is none
    base: Oid | None  # that commit
    changes: list[Change] = field(default_factory=list)
    commits: list[Oid] = field(default_factory=list)  # those of somebody else, the newest first

    @property
    def roots(self) -> Roots:
        """The subtrees, changes included."""
        return self.state.flush()


def is_by_hand(objects: Objects, commit: Oid) -> bool:
    """Tell whether somebody else made a commit, or changed what a commit of ours holds."""
    return own_record(objects, commit) is None


def last_good(objects: Staging, commit: Oid) -> Oid | None:
    """Return the newest commit of ours on the first parents of a commit.

    Of one that somebody amended that is what it was before, which may be staged by this.
    """
    return next(filter(None, (ours_at(objects, oid) for oid in down_from(objects, commit))), None)


def ours_at(objects: Staging, commit: Oid) -> Oid | None:
    """Return a commit that is ours, of an amended one what it was; `None` for anybody else's."""
    if own_record(objects, commit) is not None:
        return commit
    original = before_amend(objects, objects.commit(commit))
    return None if original is None else objects.put_commit(original)


def origin_of(meta: Meta, change: str | None) -> Origin:
    """Return the origin of a version that is written once more."""
    when = datetime.fromisoformat(meta.updated_at)
    return Origin(meta.author, when, change, meta.reads, meta.listings)


def person(commit: CommitObject) -> str:
    """Return the author of a commit as `name <email>`."""
    return f"{commit.author.name} <{commit.author.email}>"


# -- the queues of the sides of a commit that git made: joined as sets, with what came along from elsewhere --

Along = tuple[Path, Waiting, Oid]
"""An event that waits in a commit and not below it."""


def came_along(
    objects: Objects, tree: Oid, below: Oid | None, others: Iterable[Standing], replayed: Collection[str]
) -> list[Along]:
    """Return the events that wait in the commit, not below it, and are of what git made anew."""
    if not replayed:
        return []
    queue = subtree(objects, tree, (BOOKKEEPING, "queue"))
    known = {path for other in others for path, _ in walk(objects, other.roots.queue)}
    found = []
    for path, _, new in compare(objects, below, queue):
        if new is None or path in known:
            continue
        try:
            waiting = Waiting.decode(objects.read(new).data)
        except ReactifactError:
            continue  # two that git has joined line by line
        if waiting.event.get("artifact_id") in replayed:
            found.append((path, waiting, new))
    return found


def joined_queue(
    objects: Staging, base: Standing, others: Iterable[Standing], queue: Oid | None, along: Iterable[Along]
) -> Oid | None:
    """Return the queues of all sides as one set: what a side has taken since the base is gone."""
    for other in others:
        if base.base is None or other.base is None:
            continue
        bases = merge_bases(objects, base.base, other.base)
        common = [read_roots(objects, oid).queue for oid in bases]
        edits: dict[Path, TreeEntry | None] = {}
        for path, mine, theirs in compare(objects, queue, other.roots.queue):
            was = any(lookup(objects, root, path) is not None for root in common)
            if theirs is not None and mine is None and not was:
                edits[path] = TreeEntry(BLOB_MODE, theirs)
            elif mine is not None and theirs is None and was:
                edits[path] = None
        queue = update(objects, queue, edits)
    return update(objects, queue, {path: TreeEntry(BLOB_MODE, oid) for path, _, oid in along})
