"""Leases: which of several stores delivers a session while they are apart.

Owns the record below `refs/reactifact/leases/<session>`, a line of commits that only ever moves forward, and
the question whether this store may deliver. That the hub agrees is `_sessions/sync`'s.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ...errors import LeaseHeld
from .. import canonical
from ..canonical import refusing_damage, typed
from ..commits import COMMITTER
from ..names import encode_name
from ..object_db import Database, Objects, Staging, blob_entry
from ..objects import CommitObject, Oid, Signature
from ..protocol import scan_refs
from ..trees import lookup

LEASES = "refs/reactifact/leases/"

MARGIN = timedelta(seconds=30)
"""How long after its end another store may take a lease: the clocks of two machines differ."""

_FILE = ("lease.json",)


class Lease(NamedTuple):
    """Which store delivers a session, and until when. `holder` is empty for a lease that was given back."""

    session: str
    holder: str
    name: str  # of the holder, for people
    until: str

    @property
    def end(self) -> datetime:
        """The aware moment from which on it is nobody's."""
        return datetime.fromisoformat(self.until)

    def stage(self, objects: Staging, after: Oid | None, when: datetime) -> Oid:
        """Stage the commit that stands for it, on top of the lease before."""
        blob = objects.put("blob", canonical.encode(self._asdict()))
        tree = objects.put_tree({_FILE[0]: blob_entry(blob)})
        who = Signature(*COMMITTER, int(when.timestamp()))
        verb = f"until {self.until}" if self.holder else "given back"
        parents = () if after is None else (after,)
        return objects.put_commit(CommitObject(tree, parents, who, who, f"lease: {verb}\n"))

    @staticmethod
    @refusing_damage("a lease")
    def decode(data: bytes) -> Lease:
        """Return the lease in the bytes of its file."""
        record: Any = canonical.decode(data)
        lease = typed(Lease(**record))
        if lease.end.tzinfo is None:
            raise ValueError("a lease ends at a moment without a time zone")
        return lease


def lease_ref(session: str) -> str:
    """Return the name of the ref of a session's lease."""
    return LEASES + encode_name(session)


def read_lease(objects: Objects, commit: Oid) -> Lease:
    """Return the lease that a commit stands for. Raises `StoreError` for one that is none."""
    entry = lookup(objects, objects.commit(commit).tree, _FILE)
    return Lease.decode(b"" if entry is None else objects.read(entry.oid).data)


def lease_end(database: Database, session: str, now: datetime) -> datetime | None:
    """Return until when this store may deliver a session; `None`: without end, as far as is known here.

    Raises `LeaseHeld`, naming the holder, where another store has the lease, and where ours has run out.
    """
    backend = database.fetches
    if backend is None:
        return None
    ref = lease_ref(session)
    refs, damaged = scan_refs(database.backend, ref)
    held = refs.get(ref)
    for error in damaged if held is None else ():
        if error.ref == ref or backend.identity(create=False):
            raise error  # a lease may stand in what cannot be read; a store that never took part has none
    lease = None if held is None else read_lease(database, held)
    if lease is None or not lease.holder:
        return None
    if lease.holder != backend.identity(create=False):
        raise LeaseHeld(
            f"session {session!r} is delivered by {lease.name}, which has its lease until {lease.until}: "
            f"nothing is sent from {database.backend.location}; when that has ended or was given back, "
            f"`reactifact sync --lease` takes it"
        )
    require_running(lease.end, session, now)
    return lease.end


def require_running(end: datetime, session: str, now: datetime) -> None:
    """Raise `LeaseHeld` where a lease of ours has run out."""
    if now >= end:
        raise LeaseHeld(
            f"our lease of session {session!r} ran out at {end.isoformat()}, and another store may have it "
            f"by now: `reactifact sync --lease` takes it again"
        )
