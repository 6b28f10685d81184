"""Ledgers below `refs/remotes/`: which count for a session of ours, and what joining them changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Order, Outside, git, notifier

from reactifact import Runtime, SessionStore
from reactifact._store._history.fetched import fetched_news, join_fetched
from reactifact._store.ledger import Ledger
from reactifact.branching import BranchStore
from reactifact.checkpoints import SQLiteKVBackend

pytestmark = pytest.mark.anyio

FETCH = "+refs/heads/*:refs/remotes/origin/*"


async def turn(store: SessionStore, name: str, outside: Outside | None) -> None:
    session = await store.open("s")
    session.context.create(Order(item=name), id=name)
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()


async def test_what_a_fetched_branch_delivered_comes_with_its_merge(tmp_path: Path) -> None:
    a = SessionStore(tmp_path / "a.git")
    await turn(a, "o1", None)
    git(tmp_path, "clone", "--quiet", "--bare", "a.git", "b.git")
    sent = Outside()
    await a.drain(sent)
    await turn(a, "o2", sent)
    b, again = SessionStore(tmp_path / "b.git"), Outside()
    await turn(b, "o3", None)
    git(tmp_path / "b.git", "fetch", "--quiet", str(tmp_path / "a.git"), FETCH)
    branches = BranchStore(b.database)
    assert await branches.merge("s/main", "refs/remotes/origin/s/main") is not None
    report = await b.drain(again)
    assert (report.failed, sent.sent, again.sent) == ([], ["notify:o1", "notify:o2"], ["notify:o3"])
    logged = [entry.subject for entry in await branches.log("s/%outbox")]
    assert sorted(logged) == ["delivered notify:o1", "delivered notify:o2", "delivered notify:o3"]


async def test_two_that_went_apart_are_one_before_the_drain_and_the_log_shows_both(tmp_path: Path) -> None:
    a = SessionStore(tmp_path / "a.git")
    for name in ("o1", "o2"):
        await turn(a, name, None)
    git(tmp_path, "clone", "--quiet", "--bare", "a.git", "b.git")
    b = SessionStore(tmp_path / "b.git")
    for store, key in ((a, "o1"), (b, "o2")):
        session = await store.open("s")
        session.context.mark_dispatched(f"action:notify:{key}")
        session.context.line.ledger.write()
    git(tmp_path / "b.git", "fetch", "--quiet", str(tmp_path / "a.git"), FETCH)
    again = Outside()
    assert (await b.drain(again)).tried == 0
    assert join_fetched(b.database, "s") or not fetched_news(_ledger(b))
    entries = await BranchStore(b.database).log("s/%outbox")
    assert {"delivered notify:o1", "delivered notify:o2"} <= {entry.subject for entry in entries}
    assert not join_fetched(b.database, "s")


def _ledger(store: SessionStore) -> Ledger:
    ledger = Ledger(store.database, "s")
    ledger.refresh()
    return ledger


async def test_another_session_of_the_same_id_and_other_stores_do_not_count(tmp_path: Path) -> None:
    a, b = SessionStore(tmp_path / "a.git"), SessionStore(tmp_path / "b.git")
    await turn(a, "o1", Outside())
    await turn(b, "o1", None)
    git(tmp_path / "b.git", "fetch", "--quiet", str(tmp_path / "a.git"), FETCH)
    outside = Outside()
    await b.drain(outside)
    assert outside.sent == ["notify:o1"]
    assert fetched_news(_ledger(b)) == {}
    kept = SessionStore(SQLiteKVBackend(tmp_path / "c.db"))
    await turn(kept, "o1", outside)
    assert fetched_news(_ledger(kept)) == {}
