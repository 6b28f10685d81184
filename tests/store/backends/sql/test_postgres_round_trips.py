"""How often opening, forking and merging wait for a PostgreSQL server, seen on the wire."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from postgres_proxy import Proxy
from pydantic import BaseModel

from reactifact import SessionStore
from reactifact.branching import BranchStore
from reactifact.errors import StoreError

pytestmark = pytest.mark.anyio

ARTIFACTS = 300
CHANGES = 10


class Sheet(BaseModel):
    number: int
    text: str = ""


async def changed(dsn: str, branch: str, ids: list[str]) -> None:
    """Change artifacts of a branch in one commit."""
    store = BranchStore(dsn, durability="os")
    async with store.edit("lab", branch) as context:
        for artifact_id in ids:
            context.update(artifact_id, Sheet(number=1, text=branch))
    await store.aclose()


async def test_opening_forking_and_merging_take_few_round_trips(postgres_dsn: str) -> None:
    store = BranchStore(postgres_dsn, durability="os")
    async with store.edit("lab") as context:
        for number in range(ARTIFACTS):
            context.create(Sheet(number=number), id=f"sheet:{number}")
    await store.aclose()
    for number in range(5):
        await changed(postgres_dsn, "main", [f"sheet:{number}"])
    ids = [f"sheet:{number}" for number in random.Random(3).sample(range(ARTIFACTS), 2 * CHANGES)]
    proxy = Proxy(postgres_dsn)

    # The first trips of each are those of a new connection, and the look at the tables.
    taken: dict[str, int] = {}
    before = proxy.round_trips
    sessions = SessionStore(proxy.dsn, durability="os")
    session = await sessions.open("lab")
    taken["open"] = proxy.round_trips - before
    assert session.context.version == 6
    await sessions.aclose()

    async def measured(name: str, verb: Any) -> Any:
        branches = BranchStore(proxy.dsn, durability="os")
        start = proxy.round_trips
        found = await verb(branches)
        taken[name] = proxy.round_trips - start
        await branches.aclose()
        return found

    await measured("fork", lambda branches: branches.fork("lab/main", "lab/fork"))
    await changed(postgres_dsn, "main", ids[:CHANGES])
    await changed(postgres_dsn, "fork", ids[CHANGES:])
    merged = await measured("merge", lambda branches: branches.merge("lab/main", "lab/fork"))
    assert len(merged.record.writes) == CHANGES
    # measured: 7, 11, 21; before anything was read ahead: 9, 20, 272; and one after another: 14, 22, 45
    assert taken["open"] <= 8
    assert taken["fork"] <= 12
    assert taken["merge"] <= 24


async def test_a_damaged_row_beside_a_commit_keeps_nobody_from_it(postgres_dsn: str) -> None:
    for session in ("good", "bad"):
        store = BranchStore(postgres_dsn, durability="os")
        async with store.edit(session) as context:
            context.create(Sheet(number=1), id=f"sheet:{session}")
        backend = store.database.backend
        tip = backend.refs()[f"refs/heads/{session}/main"]
        tree = store.database.commit(tip).tree
        await store.aclose()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        changed = connection.execute(
            b"UPDATE reactifact.objects SET data = 'x' WHERE oid = %b", (bytes.fromhex(tree),)
        )
        assert changed.rowcount == 1
    sessions = SessionStore(postgres_dsn, durability="os")
    assert (await sessions.open("good")).context.get("sheet:good") is not None
    with pytest.raises(StoreError, match=f"{tree}.*is damaged"):
        await sessions.open("bad")
    await sessions.aclose()
