"""What stays of what was erased: that something went, of which kind, when, by whose wish; never what it was.

Owns the ref `refs/reactifact/erased/<session>`, its one blob, and the question whether a history still holds
what was erased. A copy of the store, a clone, a bundle made before an erasure holds the old commits: the
tombstone names the first of them, which says nothing of what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from ...errors import ErasedHistory, MissingObject
from .. import canonical
from ..canonical import refusing_damage
from ..commits import COMMITTER, own_record, said_change, said_state
from ..graph import not_below
from ..migrations import current_tree
from ..names import encode_name
from ..object_db import Database, Objects, Staging, blob_entry
from ..objects import CommitObject, Oid, Signature
from ..protocol import RefUpdate
from ..trees import compare, lookup, subtree

ERASED = "refs/reactifact/erased/"
"""The refs of the tombstones, one a session."""


ERASING = "refs/reactifact/erasing/"
"""The refs of the markers: an erasure that is under way, or was killed, one a session."""


_FILE = ("erased.json",)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One artifact that was erased, or whose personal fields were.

    `token` stands where its id stood. `because` is the token of what it came from, where nobody named it
    itself. `fields` are the names of the fields that were erased alone, empty where all of it went.
    """

    token: str
    type_id: str
    versions: int
    when: str
    by: str
    reason: str = ""
    because: str = ""
    fields: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        found = {name: value for name, value in asdict(self).items() if value}
        return {**found, "fields": list(self.fields)} if self.fields else found


@dataclass(frozen=True, slots=True)
class Stones:
    """The tombstones of a session, and the commits by which a history that holds what went is known."""

    erased: tuple[Tombstone, ...] = ()
    first: frozenset[Oid] = field(default_factory=frozenset)

    def encode(self) -> bytes:
        """Return the bytes of the blob."""
        return canonical.encode(
            {"erased": [one.to_dict() for one in self.erased], "first": sorted(self.first)}
        )

    @staticmethod
    @refusing_damage("the tombstones of a session")
    def decode(data: bytes) -> Stones:
        """Return the tombstones in the bytes of a blob."""
        record: Any = canonical.decode(data)
        found = [Tombstone(**{**one, "fields": tuple(one.get("fields", ()))}) for one in record["erased"]]
        return Stones(tuple(found), frozenset(record["first"]))

    def with_more(self, erased: Iterable[Tombstone], first: Iterable[Oid]) -> Stones:
        """Return them with others; of an erasure that is done once more, what was said first stays."""
        known = {(one.token, one.fields) for one in self.erased}
        more = [one for one in erased if (one.token, one.fields) not in known]
        return Stones((*self.erased, *more), self.first.union(first))


def erased_ref(session: str) -> str:
    """Return the name of the ref of a session's tombstones."""
    return ERASED + encode_name(session)


def read_stones(database: Database, session: str) -> Stones:
    """Return the tombstones of a session, none where nothing was erased."""
    ref = erased_ref(session)
    return stones_at(database, database.backend.refs(ref).get(ref))


def stones_at(objects: Objects, commit: Oid | None) -> Stones:
    """Return the tombstones that a commit of their ref holds."""
    if commit is None:
        return Stones()
    entry = lookup(objects, objects.commit(commit).tree, _FILE)
    return Stones.decode(b"" if entry is None else objects.read(entry.oid).data)


def staged_stones(
    staged: Staging, session: str, erased: Iterable[Tombstone], first: Iterable[Oid]
) -> list[RefUpdate]:
    """Stage more tombstones of a session, and return the move of their ref."""
    ref = erased_ref(session)
    held = staged.database.backend.refs(ref).get(ref)
    known = stones_at(staged, held)
    wanted = known.with_more(erased, first)
    if wanted == known:
        return []
    return [RefUpdate(ref, held, _commit(staged, wanted, [held] if held else []))]


def join_stones(database: Database, session: str, theirs: Oid) -> bool:
    """Take over the tombstones of another store, which are here by now; return whether any were new."""
    ref = erased_ref(session)
    held = database.backend.refs(ref).get(ref)
    if held is not None and next(not_below(database, theirs, held), None) is None:
        return False
    known, found = stones_at(database, held), stones_at(database, theirs)
    staged = Staging(database)
    new = theirs
    if held is not None and next(not_below(database, held, theirs), None) is not None:
        both = known.with_more(found.erased, found.first)
        ordered = sorted(both.erased, key=lambda one: (one.when, one.token, one.fields))
        new = _commit(staged, replace(both, erased=tuple(ordered)), sorted([held, theirs]))
    database.write(staged.objects, [RefUpdate(ref, held, new)])
    return True


def _commit(staged: Staging, stones: Stones, parents: Sequence[Oid]) -> Oid:
    """Stage the commit of some tombstones: git moves a ref forward along commits alone."""
    tree = staged.put_tree({_FILE[0]: blob_entry(staged.put("blob", stones.encode()))})
    last = max(datetime.fromisoformat(one.when) for one in stones.erased)
    who = Signature(*COMMITTER, int(last.timestamp()))
    count = len(stones.erased)
    message = f"{count} erasure{'s' * (count != 1)}\n"
    return staged.put_commit(CommitObject(tree, tuple(parents), who, who, message))


def require_clean(
    objects: Objects, session: str, stones: Stones, refs: Mapping[str, Oid], where: str, way_out: str
) -> None:
    """Refuse a history that still holds what was erased from a session. Costs that history.

    Raises `ErasedHistory`, naming `where` it is.
    """
    if not stones.erased:
        return
    for ref, oid in refs.items():
        for commit in _walked(objects, [oid]):
            if commit in stones.first:
                raise _held(session, stones, ref, commit, where, way_out)


def require_same_states(
    objects: Objects,
    session: str,
    stones: Stones,
    ours: Mapping[str, Oid],
    theirs: Mapping[str, Oid],
    where: str,
    way_out: str,
) -> None:
    """Refuse a history in which a change holds more than the same change does in a clean one.

    A clone that was compacted, or is shallow, lacks the commits by which a history is known otherwise. A
    compaction leaves states alone; an erasure is all that changes them. Raises `ErasedHistory`.
    """
    if not stones.erased:
        return
    clean: dict[str, Oid] = {}
    for oid in _walked(objects, ours.values()):
        if change := said_change(objects.commit(oid)):
            clean[change] = oid
    for ref, tip in theirs.items():
        for oid in _walked(objects, [tip]):
            other = clean.get(said_change(objects.commit(oid)))
            if other is not None and other != oid and _holds_more(objects, oid, other):
                raise _held(session, stones, ref, oid, where, way_out)


def _holds_more(objects: Objects, oid: Oid, clean: Oid) -> bool:
    found, other = objects.commit(oid), objects.commit(clean)
    if said_state(found) == said_state(other) or own_record(objects, oid) is None:
        return False
    before, after = (subtree(objects, current_tree(objects, one), ("artifacts",)) for one in (clean, oid))
    return any(new is not None for _, _, new in compare(objects, before, after))


def _held(session: str, stones: Stones, ref: str, commit: Oid, where: str, way_out: str) -> ErasedHistory:
    what = ", ".join(sorted({one.token for one in stones.erased}))
    when = max(one.when for one in stones.erased)
    return ErasedHistory(
        f"{where} still holds what was erased from session {session!r} ({what}, last on {when[:10]}): {ref} "
        f"reaches commit {commit[:12]}, from before that; {way_out}",
        session,
        commit,
    )


def _walked(objects: Objects, tips: Iterable[Oid]) -> Iterable[Oid]:
    """Yield the commits that some commits reach, as far as they are there."""
    seen: set[Oid] = set()
    waiting = list(tips)
    while waiting:
        oid = waiting.pop()
        if oid in seen:
            continue
        seen.add(oid)
        try:
            parents = objects.commit(oid).parents
        except MissingObject:
            continue
        yield oid
        waiting += parents
