"""A lease as it is stored, and the question whether this store may deliver."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.kv import MemoryBackend
from reactifact._store._history.lease import Lease, lease_end, lease_ref, read_lease
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import CommitObject, Oid, Signature
from reactifact._store.protocol import RefUpdate
from reactifact.errors import LeaseHeld, StoreError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(GitBackend(tmp_path / "a.git", durability="os"))


def put(database: Database, lease: Lease, after: Oid | None = None) -> Oid:
    staged = Staging(database)
    made = lease.stage(staged, after, NOW)
    database.write(staged.objects, [RefUpdate(lease_ref("s"), after, made)])
    return made


def lease(holder: str, seconds: float = 60) -> Lease:
    return Lease("s", holder, "laptop A", (NOW + timedelta(seconds=seconds)).isoformat())


def test_it_comes_back_as_it_was(database: Database) -> None:
    first = put(database, lease("me"))
    assert read_lease(database, first) == lease("me")
    second = put(database, lease("", 0), first)
    assert database.commit(second).parents == (first,)


def test_only_the_holder_may_deliver_and_only_until_its_end(database: Database) -> None:
    assert lease_end(database, "s", NOW) is None
    backend = database.backend
    assert isinstance(backend, GitBackend)
    held = put(database, lease(backend.identity()))
    assert lease_end(database, "s", NOW) == NOW + timedelta(seconds=60)
    with pytest.raises(LeaseHeld, match="ran out"):
        lease_end(database, "s", NOW + timedelta(seconds=60))
    held = put(database, lease("somebody"), held)
    for moment in (NOW, NOW + timedelta(days=1)):  # an end that is over may have been put off at the hub
        with pytest.raises(LeaseHeld, match="laptop A"):
            lease_end(database, "s", moment)
    put(database, lease("", 0), held)
    assert lease_end(database, "s", NOW) is None


def test_a_store_without_an_identity_holds_nothing(database: Database) -> None:
    put(database, lease("somebody"))
    with pytest.raises(LeaseHeld):
        lease_end(database, "s", NOW)
    assert lease_end(Database(MemoryBackend()), "s", NOW) is None  # it never synced


@pytest.mark.parametrize("text", [b"", b"[]", b'{"holder": 1}', b'{"session": "s"}'])
def test_what_is_no_lease_is_refused_by_name(database: Database, text: bytes) -> None:
    staged = Staging(database)
    who = Signature("x", "x@example.com", 0)
    from reactifact._store.object_db import blob_entry

    tree = staged.put_tree({"lease.json": blob_entry(staged.put("blob", text))})
    made = staged.put_commit(CommitObject(tree, (), who, who, "x\n"))
    database.write(staged.objects, [RefUpdate(lease_ref("s"), None, made)])
    with pytest.raises(StoreError, match="lease"):
        lease_end(database, "s", NOW)
