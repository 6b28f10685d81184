"""What looking back reads: one object a commit, and not the trees of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel
from stores import counted_calls, counted_reads, place_of
from support import Place

from reactifact import SessionStore
from reactifact._store import commits
from reactifact._store.commits import earlier_record, listed_record
from reactifact._store.object_db import Staging
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.commit import StoredCommit
from reactifact.errors import StoreError

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    text: str


class Counting(InMemoryKVBackend):
    read = 0

    def read_many(self, oids: Iterable[str]) -> Any:
        oids = list(oids)
        self.read += len(oids)
        return super().read_many(oids)


async def test_history_reads_the_commits_alone() -> None:
    store = Counting()
    session = await SessionStore(store).open("s")
    for number in range(100):
        session.context.create(Note(text=str(number)), id=f"note:{number}")
        session.context.commits.commit_edit(author="a", message=f"note {number}")
    await session.save()
    session = await SessionStore(store).open("s")
    before = store.read
    history = session.context.history()
    assert [commit.message for commit in history] == [f"note {number}" for number in range(100)]
    assert store.read - before <= 101  # and the one the session began with


COMMITS = 200


async def written(place: Any) -> SessionStore:
    """Return a store, opened anew, with a session of many commits."""
    store = SessionStore(place, durability="os")
    session = await store.open("s")
    for number in range(COMMITS):
        session.context.create(Note(text=str(number)), id=f"note:{number}")
        session.context.commits.commit_edit(author="a", message=f"note {number}" if number % 2 else "")
    await session.save()
    return SessionStore(place, durability="os")


@pytest.fixture(params=["git", "postgres"])
def lined_place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, dsn)


async def test_history_is_read_in_few_reads_however_many_commits(lined_place: Any) -> None:
    store = await written(lined_place)
    session = await store.open("s")
    with counted_reads(store.database) as reads:
        history = session.context.history()
    assert len(history) == COMMITS
    assert 0 < len(reads) <= 20  # measured: 16 and 10
    with counted_reads(store.database) as reads:
        assert [commit.id for commit in session.context.history()] == [commit.id for commit in history]
        assert history[0].message.startswith("a: create Note note:0")
        assert [write.artifact_id for write in history[7].writes] == ["note:7"]
        assert cast(StoredCommit, history[1]).details == {"trigger": None, "generation": 0}
    assert reads == []


async def test_a_history_that_is_listed_decodes_no_record(tmp_path: Path) -> None:
    store = await written(tmp_path / "state.git")
    context = (await store.open("s")).context
    with counted_calls() as calls:
        history = context.history()
    assert len(history) == COMMITS
    assert calls["python"] <= 26 * COMMITS  # measured: 23
    commits._in_header.cache_clear()
    assert commits._in_header.cache_info().misses == 0
    assert [commit.id for commit in context.history()] == [commit.id for commit in history]
    assert commits._in_header.cache_info().misses <= 1  # the newest, whose format is looked at
    assert {commit.author for commit in history} == {"a"}
    assert commits._in_header.cache_info().misses >= COMMITS


async def test_what_is_set_on_a_commit_of_a_history_stays(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(text="x"), id="note")
    session.context.commits.commit_edit(author="a", message="m")
    (commit,) = session.context.history()
    commit.message = "mine"
    assert (commit.author, commit.message) == ("a", "mine")
    with pytest.raises(AttributeError, match="no attribute 'autor'"):
        getattr(commit, "autor")  # noqa: B009


async def test_a_commit_that_was_amended_is_left_out_and_one_of_another_message_is_not(
    tmp_path: Path,
) -> None:
    store = await written(tmp_path / "state.git")
    database = store.database
    tip = database.backend.refs()["refs/heads/s/main"]
    found = database.commit(tip)
    parent = database.commit(found.parents[0])
    reworded = replace(found, message="Said otherwise\n")
    changed = replace(found, tree=parent.tree)
    for commit, is_listed in ((reworded, True), (changed, False)):
        staging = Staging(database)
        oid = staging.put_commit(commit)
        record = listed_record(staging, oid, staging.read(oid))
        assert (record is not None) is is_listed
        assert (earlier_record(staging, oid) is not None) is is_listed
        if record is not None:
            assert record.whole() == earlier_record(staging, oid)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"context_version":200', '"context_version":"200"', "context_version is str"),
        ('"version":200', '"version":null', "version is NoneType"),
        ('"change":"', '"change":7,"x":"', "change is int"),
        ('"author":"a"', '"author":NaN', "NaN"),
        ('{"author"', '["author"', "record of a commit"),
    ],
)
async def test_a_header_that_is_damaged_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    store = await written(tmp_path / "state.git")
    found = store.database.commit(store.database.backend.refs()["refs/heads/s/main"])
    assert old in found.record
    staging = Staging(store.database)
    oid = staging.put_commit(replace(found, record=found.record.replace(old, new, 1)))
    with pytest.raises(StoreError, match=message):
        listed_record(staging, oid, staging.read(oid))
