"""What stays of what was erased: that something went, of which kind, when, by whose wish; never what it was.

Owns the ref `refs/reactifact/erased/<session>`, its one blob, and the question whether a history still holds
what was erased. A copy of the store, a clone, a bundle made before an erasure holds the old commits: the
tombstone names the first of them, which says nothing of what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import ErasedHistory, MissingObject
from .. import canonical
from ..canonical import refusing_damage
from ..commits import own_record, said_change, said_state
from ..graph import reachable
from ..names import encode_name
from ..object_db import Database, Objects, Staging
from ..objects import Oid
from ..protocol import RefUpdate

ERASED = "refs/reactifact/erased/"
"""The refs of the tombstones, one a session."""


ERASING = "refs/reactifact/erasing/"
"""The refs of the markers: an erasure that is under way, or was killed, one a session."""


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
    return _stones(database, database.backend.refs(erased_ref(session)).get(erased_ref(session)))


def _stones(database: Database, held: Oid | None) -> Stones:
    return Stones() if held is None else Stones.decode(database.read(held).data)


def staged_stones(
    staged: Staging, session: str, erased: Iterable[Tombstone], first: Iterable[Oid]
) -> list[RefUpdate]:
    """Stage more tombstones of a session, and return the move of their ref."""
    ref = erased_ref(session)
    held = staged.database.backend.refs(ref).get(ref)
    known = _stones(staged.database, held)
    wanted = known.with_more(erased, first)
    return [] if wanted == known else [RefUpdate(ref, held, staged.put("blob", wanted.encode()))]


def joined_stones(database: Database, session: str, theirs: Oid) -> bool:
    """Take over the tombstones of another store, whose blob is here; return whether there were new ones."""
    found, staged = _stones(database, theirs), Staging(database)
    moves = staged_stones(staged, session, found.erased, found.first)
    if moves:
        database.write(staged.objects, moves)
    return bool(moves)


def require_clean(
    database: Objects, session: str, stones: Stones, refs: Mapping[str, Oid], where: str, way_out: str
) -> None:
    """Refuse a history that still holds what was erased from a session. Costs that history.

    Raises `ErasedHistory`, naming `where` it is.
    """
    for ref, oid in refs.items():
        if stones.first and (held := _holding(database, stones, oid)) is not None:
            what = ", ".join(sorted({one.token for one in stones.erased}))
            when = max(one.when for one in stones.erased)
            raise ErasedHistory(
                f"{where} still holds what was erased from session {session!r} ({what}, last at {when}): "
                f"{ref} reaches commit {held[:12]}, from before that. {way_out}",
                session,
                held,
            )


def _holding(objects: Objects, stones: Stones, tip: Oid) -> Oid | None:
    try:
        return next((oid for oid in reachable(objects, [tip]) if oid in stones.first), None)
    except MissingObject:
        return None  # of a shallow clone: `share_no_state` looks at what it does hold


def differing(objects: Objects, ours: Iterable[Oid], theirs: Iterable[Oid]) -> Oid | None:
    """Return a commit of theirs that says another state than the same change does here, `None` for none.

    A compaction makes commits anew and leaves their states alone; an erasure is all that changes them.
    """
    states: dict[str, str | None] = {}
    for oid in _walked(objects, ours):
        commit = objects.commit(oid)
        if change := said_change(commit):
            states[change] = said_state(commit)
    for oid in _walked(objects, theirs):
        commit = objects.commit(oid)
        change = said_change(commit)
        if change in states and states[change] != said_state(commit) and own_record(objects, oid) is not None:
            return oid
    return None


def _walked(objects: Objects, tips: Iterable[Oid]) -> Iterable[Oid]:
    try:
        yield from reachable(objects, list(tips))
    except MissingObject:
        return
