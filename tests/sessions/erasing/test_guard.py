"""Stores that still hold what was erased elsewhere: named when they sync or push; nothing comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from store_bytes import holding
from support import Note, fsck, git

from reactifact import SessionStore
from reactifact._sessions.by_hand import refused_push
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._history.tombstones import ERASING, read_stones
from reactifact._store.object_db import Database
from reactifact.errors import ErasedHistory
from reactifact.replay import verify_history

pytestmark = [pytest.mark.anyio]

SECRET = "Wilhelmina Zzyzx"
NAME = "customer:zzyzx"


async def written(place: Path, name: str, text: str, session: str = "s") -> None:
    """Make one commit in a store, in a process of its own as it were."""
    store = SessionStore(place, durability="os")
    async with store.edit(session) as context:
        if context.get(name) is None:
            context.create(Note(text=text), id=name)
        else:
            context.update(name, Note(text=text))
    await store.aclose()


async def hub_and_clone(tmp_path: Path) -> tuple[Path, Path]:
    """Make a store that holds a person, and another that took it over by a sync."""
    hub, clone = tmp_path / "hub.git", tmp_path / "clone.git"
    await written(hub, "note:1", "first")
    await written(hub, NAME, SECRET)
    await written(hub, "note:1", "second")
    store = SessionStore(clone, durability="os")
    report = await store.sync(str(hub))
    assert report.ok
    await store.aclose()
    return hub, clone


async def erased(place: Path, *names: str) -> None:
    store = SessionStore(place, durability="os")
    await store.erase("s", *(names or (NAME,)), by="officer", reason="request")
    await store.aclose()


def refused(report: object) -> ErasedHistory:
    """Return the one failure of a sync."""
    ((session, _, error),) = report.failed  # type: ignore[attr-defined]
    assert session == "s"
    assert isinstance(error, ErasedHistory)
    return error


async def test_a_clone_that_still_holds_it_is_named_and_brings_nothing_back(tmp_path: Path) -> None:
    hub, clone = await hub_and_clone(tmp_path)
    await written(clone, "note:2", "made in the clone")
    await erased(hub)
    store = SessionStore(clone, durability="os")
    report = await store.sync(str(hub))
    error = refused(report)
    assert f"{clone} still holds what was erased from session 's' (erased-" in str(error)
    assert "`reactifact erase`" in str(error)
    assert report.erased == ["s"]
    assert holding(hub, SECRET, "zzyzx") == []
    assert read_stones(store.database, "s").erased == read_stones(SessionStore(hub).database, "s").erased
    await store.aclose()

    await erased(clone)
    store = SessionStore(clone, durability="os")
    assert (await store.sync(str(hub))).ok
    await store.aclose()
    for place in (hub, clone):
        assert holding(place, SECRET, "zzyzx") == []
        assert verify_history(SessionStore(place).database, "s").ok
        fsck(place)
    assert git(hub, "rev-parse", "s/main") == git(clone, "rev-parse", "s/main")
    found = await SessionStore(hub).load_session("s")
    assert found is not None
    assert found.get("note:2") is not None


async def test_where_the_other_store_still_holds_it_what_was_fetched_goes_again(tmp_path: Path) -> None:
    hub, clone = await hub_and_clone(tmp_path)
    await written(clone, NAME, f"{SECRET} once more")
    await written(clone, "note:9", "of another session", session="t")
    await erased(hub)
    store = SessionStore(hub, durability="os")
    report = await store.sync(str(clone))
    assert f"{clone} still holds what was erased" in str(refused(report))
    assert ("t", "main") in report.made
    assert holding(hub, SECRET, "zzyzx") == []
    assert not store.database.backend.refs(ERASING)
    # and the clone has heard of it
    assert read_stones(SessionStore(clone).database, "s").erased
    fsck(hub)


async def test_a_clone_that_was_compacted_is_known_by_what_its_changes_say(tmp_path: Path) -> None:
    hub, clone = await hub_and_clone(tmp_path)
    store = SessionStore(clone, durability="os")
    session = await store.open("s")
    session.context.compact(keep_commits=1)
    await session.save()
    await store.prune(grace=0)
    await store.aclose()
    git(clone, "gc", "--quiet", "--prune=now")
    await erased(hub)
    store = SessionStore(clone, durability="os")
    refused(await store.sync(str(hub)))
    assert holding(hub, SECRET, "zzyzx") == []


async def test_a_push_of_the_old_history_is_refused(tmp_path: Path) -> None:
    hub, clone = await hub_and_clone(tmp_path)
    old, ledger = git(clone, "rev-parse", "s/main").strip(), "refs/heads/s/%outbox"
    await erased(hub)
    new = git(hub, "rev-parse", "s/main").strip()
    subprocess.run(["git", "-C", str(hub), "fetch", "-q", str(clone), old], check=True)
    database = Database(GitBackend(hub, read_only=True))
    (why,) = refused_push(database, [(new, old, "refs/heads/s/main")])
    assert "what is pushed still holds what was erased from session 's'" in why
    (why,) = refused_push(database, [("0" * 40, old, "refs/heads/s/other")])
    assert "take a new clone" in why
    assert refused_push(database, [(new, new, "refs/heads/s/main")]) == []
    assert ledger not in database.backend.refs()


async def test_tombstones_of_two_stores_come_together(tmp_path: Path) -> None:
    hub, clone = await hub_and_clone(tmp_path)
    await written(hub, "customer:2", "Another Person")
    store = SessionStore(clone, durability="os")
    assert (await store.sync(str(hub))).ok
    await store.aclose()
    await erased(hub)
    await erased(clone, "customer:2")
    store = SessionStore(clone, durability="os")
    refused(await store.sync(str(hub)))
    await store.aclose()
    await erased(clone)
    await erased(hub, "customer:2")
    store = SessionStore(clone, durability="os")
    report = await store.sync(str(hub))
    assert report.ok, report.failed
    for place in (hub, clone):
        assert holding(place, SECRET, "zzyzx", "Another Person") == []
        assert len(read_stones(SessionStore(place).database, "s").erased) == 2
