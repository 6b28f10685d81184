"""A session with a damaged object beside sound ones: what waits in those is found and delivered."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support import Order, Outside, Place, notifier

from reactifact import Runtime, SessionStore
from reactifact._sessions import service
from reactifact._sessions.stores import open_database
from reactifact._store.layout import BOOKKEEPING
from reactifact._store.names import branch_ref, ledger_ref
from reactifact._store.objects import Oid
from reactifact._store.protocol import RefScan
from reactifact._store.trees import subtree, walk
from reactifact.errors import StoreError

pytestmark = pytest.mark.anyio

PARTS = ("commit", "tree", "bookkeeping", "outbox", "intent", "ledger", "ledger tree")


async def planned(store: SessionStore, name: str, outside: Outside | None) -> None:
    """Let a session plan an action, and send it where there is an outside."""
    session = await store.open(name)
    session.context.create(Order(item="tea"), id=f"{name}{outside is None}")
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()


def oid_of(path: Path, part: str) -> Oid:
    """Return the id of an object that a scan needs of the session `b`."""
    database = open_database(path)
    refs = database.backend.refs("refs/heads/")
    tip, ledger = refs[branch_ref("b", "main")], refs[ledger_ref("b")]
    tree = database.commit(tip).tree
    found = {
        "commit": tip,
        "tree": tree,
        "bookkeeping": subtree(database, tree, (BOOKKEEPING,)),
        "outbox": subtree(database, tree, ("outbox",)),
        "intent": next(oid for _, oid in walk(database, subtree(database, tree, ("outbox",)))),
        "ledger": ledger,
        "ledger tree": database.commit(ledger).tree,
    }[part]
    database.backend.close()
    assert found is not None
    return found


def damage(path: Path, oid: Oid) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE objects SET data = ? WHERE oid = ?", (b"otherwise", bytes.fromhex(oid)))


@pytest.mark.parametrize("part", PARTS)
async def test_a_damaged_session_does_not_stop_the_others(tmp_path: Path, part: str) -> None:
    path = tmp_path / "store.db"
    place = Place(path)
    store = place.store()
    await planned(store, "b", Outside())
    for name in ("a", "b", "c"):
        await planned(store, name, None)
    await store.aclose()
    assert await place.store().pending_sessions() == ["a", "b", "c"]
    damage(path, oid_of(path, part))
    store = place.store()
    assert await store.pending_sessions() == ["a", "b", "c"]
    outside = Outside()
    report = await store.drain(outside)
    assert (report.tried, report.delivered) == (2, 2)
    assert [(session, branch) for session, branch, _ in report.failed] == [("b", "main")]
    assert "damaged" in report.failed[0][2]
    assert len(outside.sent) == 2


def test_a_store_that_cannot_be_read_is_no_damage_of_its_branches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(tmp_path / "store.db")
    asked: list[str] = []
    held = {branch_ref(f"s{number}", "main"): "1" * 40 for number in range(20)}

    def scan_refs(prefix: str = "refs/") -> RefScan:
        asked.append(prefix)
        if len(asked) > 1:
            raise StoreError("the server cannot be reached")
        return RefScan(held)

    monkeypatch.setattr(database.backend, "scan_refs", scan_refs)
    with pytest.raises(StoreError, match="cannot be reached"):
        service.waiting_branches(database)
    assert len(asked) == 2


async def test_a_damaged_branch_is_listed_and_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    place = Place(path)
    async with place.store().edit("s") as context:
        context.create(Order(item="tea"), id="o")
    branches = place.branches()
    await branches.fork("s", "s/bad")
    async with branches.edit("s", "bad") as context:
        context.update("o", Order(item="cocoa"))
    listed = await branches.branches("s")
    assert [head.name for head in listed] == ["s/bad", "s/main"]
    await branches.aclose()
    damage(path, listed[0].commit)

    branches = place.branches()
    assert await branches.branches("s") == await branches.branches() == listed
    assert [field.path for field in await branches.blame("s/main", "o")]
    (entry,) = await branches.log("s", artifact_id="o")
    assert entry.commit == listed[1].commit
    with pytest.raises(StoreError, match=f"{listed[0].commit}.*damaged"):
        await branches.log("s/bad")
    await branches.delete_branch("s", "bad")
    assert await branches.branches() == listed[1:]
