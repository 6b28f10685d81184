"""`fsck` finds bookkeeping that does not fit its payloads, and makes it anew from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import Note, Order, Outside, fsck, git, live, notifier

from reactifact import Context, Runtime, SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store.branch import new_change_id
from reactifact._store.commits import make_commit, read_roots, require_record
from reactifact._store.layout import Meta, file_path
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import Oid
from reactifact._store.protocol import RefUpdate
from reactifact._store.trees import lookup, update
from reactifact.cli import main
from reactifact.errors import StoreError
from reactifact.replay.fsck import check_store, repair

MAIN = "refs/heads/s/main"


async def sold(path: Path) -> None:
    store = SessionStore(path, durability="os")
    async with await store.open("s") as session:
        session.context.create(Note(text="kept"), id="n")
        session.context.create(Order(item="tea"), id="o")
        await Runtime(session.context, [notifier()], session=session).arun()
    await store.aclose()


def spoil(path: Path) -> Oid:
    """Put a commit of ours on top whose bookkeeping of the note names another payload; return it."""
    database = open_database(path)
    tip = database.backend.refs(MAIN)[MAIN]
    staged = Staging(database)
    roots, record = read_roots(database, tip), require_record(database, tip, MAIN)
    entry = lookup(database, roots.meta, file_path("n"))
    assert entry is not None
    meta = replace(Meta.decode(database.read(entry.oid).data), version=7, content_hash="0" * 64)
    metas = update(staged, roots.meta, {file_path("n"): blob_entry(staged.put("blob", meta.encode()))})
    spoiled = replace(
        record, change=new_change_id(), kind="direct", operations=[], writes=[], depth=record.depth + 1
    )
    made = make_commit(staged, replace(spoiled, context_version=None), roots._replace(meta=metas), [tip])
    database.write(staged.objects, [RefUpdate(MAIN, tip, made)])
    database.backend.close()
    return made


async def opened(path: Path) -> Context:
    store = SessionStore(path, durability="os")
    context = (await store.open("s")).context
    await store.aclose()
    return context


@pytest.fixture
def path(tmp_path: Path) -> Path:
    anyio.run(sold, tmp_path / "state.git")
    return tmp_path / "state.git"


def test_a_whole_store_has_no_fault_and_is_not_repaired(path: Path) -> None:
    database: Database = open_database(path)
    assert [report.ok for report in check_store(database)] == [True]
    with pytest.raises(StoreError, match="nothing is repaired"):
        anyio.run(repair, database, "s", "main")


def test_bookkeeping_is_made_anew_from_the_payloads(path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    made = spoil(path)
    assert main(["fsck", str(path)]) == 1
    assert "has the hash" in capsys.readouterr().out
    assert main(["fsck", str(path), "--session", "s", "--repair", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["before"] == made
    assert git(path, "rev-parse", "s/main~1").strip() == made  # nothing was rewritten
    assert main(["fsck", str(path)]) == 0
    fsck(path)
    # the state is as it was, what waits is still sent, once
    note = live(anyio.run(opened, path), "n")
    assert (note.data.text, note.version) == ("kept", 0)
    outside = Outside()

    async def run() -> None:
        store = SessionStore(path, durability="os")
        async with await store.open("s") as session:
            await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
        await store.aclose()

    anyio.run(run)
    anyio.run(run)
    assert outside.sent == ["notify:o"]
