"""What was deleted on purpose: branches, ledgers and tags of a session that other stores may still hold.

Owns the record below `refs/reactifact/deleted/<session>`, which travels: for each ref the commits that it was
deleted at, and those that it was made anew at. It is a line of commits that only ever moves forward; two that
went apart are joined as sets, to the same commit on every machine. It holds ids alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import MissingObject
from .. import canonical
from ..canonical import refusing_damage
from ..commits import COMMITTER
from ..graph import not_below
from ..names import encode_name
from ..object_db import Objects, Staging, blob_entry
from ..objects import CommitObject, Oid, Signature
from ..protocol import FetchesRefs, RefUpdate
from ..trees import lookup

DELETED = "refs/reactifact/deleted/"

_FILE = "deleted.json"

Ids = Mapping[str, frozenset[Oid]]


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted of a session, by the names of refs."""

    session: str = ""
    gone: Ids = field(default_factory=dict)
    back: Ids = field(default_factory=dict)  # what was put there again afterwards

    def tips(self, ref: str) -> frozenset[Oid]:
        """Return the commits at which a ref was deleted for good."""
        return self.gone.get(ref, frozenset()) - self.back.get(ref, frozenset())

    def news(self, known: Deleted) -> dict[str, frozenset[Oid]]:
        """Return what was deleted and `known` does not say, by refs."""
        found = {ref: self.tips(ref) - known.gone.get(ref, frozenset()) for ref in self.gone}
        return {ref: tips for ref, tips in found.items() if tips}

    def joined(self, other: Deleted) -> Deleted:
        """Return what either says."""
        return Deleted(
            self.session or other.session, _joined(self.gone, other.gone), _joined(self.back, other.back)
        )

    def covers(self, objects: Objects, ref: str, tip: Oid) -> bool:
        """Tell whether what stands under a ref is what was deleted, or older than that."""
        tips = self.tips(ref)
        return tip in tips or any(is_below(objects, tip, one) for one in tips)

    def stage(self, objects: Staging, parents: Iterable[Oid]) -> Oid:
        """Stage the commit that says so."""
        record: dict[str, Any] = {
            "session": self.session,
            "gone": _lists(self.gone),
            "back": _lists(self.back),
        }
        blob = objects.put("blob", canonical.encode(record))
        who = Signature(*COMMITTER, 0)
        tree = objects.put_tree({_FILE: blob_entry(blob)})
        return objects.put_commit(CommitObject(tree, tuple(parents), who, who, "What was deleted\n"))

    @staticmethod
    @refusing_damage("a list of what was deleted")
    def decode(data: bytes) -> Deleted:
        """Return what the bytes of a file say."""
        record: Any = canonical.decode(data)
        return Deleted(str(record["session"]), _sets(record["gone"]), _sets(record["back"]))


def deleted_ref(session: str) -> str:
    """Return the name of the ref that says what was deleted of a session."""
    return DELETED + encode_name(session)


def read_deleted(objects: Objects, commit: Oid | None) -> Deleted:
    """Return what a commit says was deleted; nothing for `None`."""
    if commit is None:
        return Deleted()
    entry = lookup(objects, objects.commit(commit).tree, (_FILE,))
    return Deleted.decode(b"" if entry is None else objects.read(entry.oid).data)


def note_deleted(objects: Staging, session: str, refs: Mapping[str, Oid]) -> list[RefUpdate]:
    """Stage that some refs are deleted, as far as another store was ever seen to hold them.

    Returns the move to write with the deletion.
    """
    backend = objects.database.backend
    if not isinstance(backend, FetchesRefs):
        return []
    folder = f"/{encode_name(session)}/"
    noted = {ref: oid for ref, oid in backend.fetched_refs().items() if folder in ref}
    if not noted:
        return []
    gone = {}
    for ref, oid in refs.items():
        head = ref.removeprefix("refs/heads")  # of tags the other store's are not noted
        theirs = [one for name, one in noted.items() if name.endswith(head)]
        gone[ref] = frozenset({oid, *(one for one in theirs if is_below(objects, one, oid))})
    return _moved(objects, session, Deleted(session, gone))


def note_back(objects: Staging, session: str, refs: Mapping[str, Oid]) -> list[RefUpdate]:
    """Stage that some refs stand again where they were deleted; return the move to write, if it is needed."""
    known = read_deleted(
        objects, objects.database.backend.refs(deleted_ref(session)).get(deleted_ref(session))
    )
    back = {ref: known.tips(ref) for ref, oid in refs.items() if known.covers(objects, ref, oid)}
    return _moved(objects, session, Deleted(session, {}, back)) if back else []


def join_deleted(objects: Staging, session: str, theirs: Oid) -> list[RefUpdate]:
    """Stage what another store says was deleted beside what ours says; return the move to write."""
    ref = deleted_ref(session)
    held = objects.database.backend.refs(ref).get(ref)
    if held is None or is_below(objects, held, theirs):
        return [] if held == theirs else [RefUpdate(ref, held, theirs)]
    if is_below(objects, theirs, held):
        return []
    both = read_deleted(objects, held).joined(read_deleted(objects, theirs))
    return [RefUpdate(ref, held, both.stage(objects, sorted((held, theirs))))]


def _moved(objects: Staging, session: str, more: Deleted) -> list[RefUpdate]:
    ref = deleted_ref(session)
    held = objects.database.backend.refs(ref).get(ref)
    both = read_deleted(objects, held).joined(more)
    return [RefUpdate(ref, held, both.stage(objects, () if held is None else (held,)))]


def is_below(objects: Objects, old: Oid, new: Oid) -> bool:
    """Tell whether a commit can be reached from another; not where what leads there is gone."""
    try:
        return next(not_below(objects, old, new), None) is None
    except MissingObject:
        return False  # what was deleted may be gone for good


def _joined(one: Ids, other: Ids) -> Ids:
    empty: frozenset[Oid] = frozenset()
    return {ref: one.get(ref, empty) | other.get(ref, empty) for ref in sorted({*one, *other})}


def _lists(ids: Ids) -> dict[str, list[Oid]]:
    return {ref: sorted(oids) for ref, oids in sorted(ids.items())}


def _sets(record: Any) -> Ids:
    return {str(ref): frozenset(str(oid) for oid in oids) for ref, oids in record.items()}
