"""Pruning a SQL store: what branches and tags hold stays, what nothing holds goes, rows stay bounded."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stores import place_of
from support import Answer, Note, Question

from reactifact import Consume, Context, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact._sessions.undo import undo_last
from reactifact._store._backends.document import reach
from reactifact._store._history.revset import make_tag, tags
from reactifact._store.objects import GitObject, Oid
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import StaleSession, StoreError

pytestmark = pytest.mark.anyio

SESSION = "s"


@produce(Answer)
async def answer(call: ProduceCall) -> None:
    assert call.trigger is not None
    call.effects.create(Answer(text=call.trigger.data.text), id=f"answer:{call.trigger.id}")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # one loop will do: what is tested here runs in worker threads


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return str(place_of(request.param, tmp_path, dsn))


def rows(place: str) -> int:
    """Count the objects of a store, as another program would."""
    if place.startswith("postgresql:"):
        with psycopg.connect(place) as server:
            return int(server.execute("SELECT count(*) FROM reactifact.objects").fetchall()[0][0])
    connection = sqlite3.connect(place)
    count = connection.execute("SELECT count(*) FROM objects").fetchone()[0]
    connection.close()
    return int(count)


def stored(place: str) -> set[bytes]:
    """Return the bytes of all rows that are long enough to be known again."""
    query = "SELECT data FROM {} WHERE length(data) >= 48"
    if place.startswith("postgresql:"):
        with psycopg.connect(place) as server:
            return {bytes(row[0]) for row in server.execute(query.format("reactifact.objects"))}
    connection = sqlite3.connect(place)
    found = {row[0] for row in connection.execute(query.format("objects"))}
    connection.close()
    return found


def held(store: SessionStore, prefix: str = "refs/") -> dict[Oid, GitObject]:
    """Return all that refs of a store reach, read from the store itself."""
    backend = store.database.backend
    fresh = type(store.database)(backend)
    return reach(fresh, backend.refs(prefix).values())


async def save(store: SessionStore, *changes: Callable[[Context], Any]) -> Context:
    """Make each change a commit of the session, saved at once."""
    for change in changes:
        async with store.edit(SESSION) as context:
            change(context)
    context = await store.load_session(SESSION)
    assert context is not None
    return context


def noting(number: int, text: str = "") -> Callable[[Context], Any]:
    def change(context: Context) -> None:
        if context.get(f"n{number}") is None:
            context.create(Note(text=text, count=number), id=f"n{number}")
        else:
            context.update(f"n{number}", Note(text=text, count=number))

    return change


async def compact(store: SessionStore, keep: int, versions: int | None = None) -> None:
    context = await store.load_session(SESSION)
    assert context is not None
    context.compact(keep_commits=keep, keep_versions=versions)
    await store.save_session(SESSION, context)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_that_is_held_is_lost_whatever_came_before(place: str, seed: int) -> None:
    chance = random.Random(seed)
    store, branches = SessionStore(place, durability="os"), BranchStore(place, durability="os")
    await save(store, noting(0, "first"))
    for step in range(25):
        names = await branches.list_branches(SESSION)
        kind = chance.choice(["edit", "edit", "fork", "merge", "delete", "tag", "compact", "undo", "prune"])
        if kind == "edit":
            await save(store, noting(chance.randrange(4), str(chance.randrange(5))))
        elif kind == "fork":
            context = await store.load_session(SESSION)
            assert context is not None
            branch = context.branch(name=f"b{step}")
            noting(step, "on a branch")(branch)
            await branches.save_branch(branch, session_id=SESSION, name=f"b{step}")
        elif kind == "merge" and names:
            await branches.merge(chance.choice(names), "main", session=SESSION, policy="theirs")
        elif kind == "delete" and names:
            await branches.delete_branch(SESSION, chance.choice(names))
        elif kind == "tag":
            refs = store.database.backend.refs("refs/heads/s/main")
            make_tag(store.database, SESSION, f"t{step}", refs["refs/heads/s/main"])
        elif kind == "compact":
            await compact(store, chance.randrange(1, 4))
        elif kind == "undo":
            with suppress(StoreError):  # there may be nothing to undo, or its history may be gone
                undo_last(store.database, SESSION)
        elif kind == "prune":
            before = held(store, "refs/heads/") | held(store, "refs/tags/")
            await store.prune(grace=0)
            assert held(store, "refs/heads/") | held(store, "refs/tags/") == before
            assert rows(place) == len(held(store))
    await store.prune(grace=0)  # what could be undone until now is let go
    before = held(store)
    await store.prune(grace=0, rewrite=True)
    again = SessionStore(place)
    assert held(again) == before
    assert rows(place) == len(before)
    for tag in tags(again.database, SESSION):
        assert again.database.read(tag.commit).kind == "commit"
    assert await again.load_session(SESSION) is not None
    for name in await branches.list_branches(SESSION):
        assert await branches.load_branch(SESSION, name) is not None
    for opened in (store, branches, again):
        opened.database.backend.close()


async def test_turns_leave_no_row_behind_and_compact_every_takes_no_history(place: str) -> None:
    store = SessionStore(place, compact_every=5, durability="os")
    session = await store.open(SESSION)
    agents = [create_agent("answerer", consumes=[Consume(Question)], produces=[answer])]
    runtime = Runtime(session.context, agents, session=session)
    for number in range(20):
        session.context.create(Question(text=f"{number}"), id=f"q{number}")
        await runtime.arun()
    assert rows(place) == len(held(store))
    assert (session.context.version, session.context.compacted_at) == (20, 0)
    assert len(session.context.history()) == 20
    await store.aclose()


async def test_compaction_with_a_prune_bounds_the_rows(place: str) -> None:
    store = SessionStore(place, durability="os")
    after = []
    for round_ in range(5):
        for number in range(20):
            await save(store, noting(number % 5, f"text {round_}.{number}"))
        await compact(store, 5, versions=2)
        await store.prune(grace=0)
        after.append(rows(place))
        assert rows(place) == len(held(store))
    assert max(after[2:]) <= after[1] * 1.1, after
    await store.aclose()


async def test_a_compaction_is_undone_until_its_history_is_pruned(place: str) -> None:
    store = SessionStore(place, durability="os")
    await save(store, *(noting(number) for number in range(5)))
    before = store.database.backend.refs("refs/heads/")
    await compact(store, 1)
    await store.prune()
    undo_last(store.database, SESSION)
    assert store.database.backend.refs("refs/heads/") == before
    await compact(store, 1)
    await store.aclose()
    store = SessionStore(place, durability="os")
    assert (await store.prune(grace=0)).operations == 2
    compacted = store.database.backend.refs("refs/heads/")
    with suppress(StoreError):  # an undo goes on with what is left: the last edit
        undo_last(store.database, SESSION)
    assert store.database.backend.refs("refs/heads/") != before
    assert compacted != before
    await store.aclose()


@pytest.mark.parametrize("grace", [3600.0, 0.0])
async def test_a_merge_of_a_branch_that_is_dropped_before_the_save(place: str, grace: float) -> None:
    store, branches = SessionStore(place, durability="os"), BranchStore(place, durability="os")
    context = await save(store, noting(0))
    branch = context.branch(name="b")
    branch.create(Note(text="theirs"), id="theirs")
    await branches.save_branch(branch, session_id=SESSION, name="b")
    other = SessionStore(place, durability="os")
    mine = await other.load_session(SESSION)
    theirs = await BranchStore(other.database).load_branch(SESSION, "b")
    assert mine is not None
    assert theirs is not None
    mine.merge(theirs)  # the same store: what the branch holds is left out of the next write
    await branches.delete_branch(SESSION, "b")
    done = await store.prune(grace=grace)
    assert (done.objects > 0, done.waiting > 0) == (grace == 0, grace > 0)
    if grace:
        await other.save_session(SESSION, mine)
    else:
        with pytest.raises(StaleSession, match="was pruned from"):
            await other.save_session(SESSION, mine)
    found = await store.load_session(SESSION)
    assert found is not None
    assert set(found.snapshot()) == ({"n0", "theirs"} if grace else {"n0"})
    assert held(store)
    for opened in (store, branches, other):
        opened.database.backend.close()


class TestErasure:
    async def test_no_byte_is_left_in_the_tables(
        self, place: str, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        folder = tmp_path
        if place.startswith("postgresql:"):
            with psycopg.connect(place) as server:
                number = server.execute("SELECT oid FROM pg_database WHERE datname = current_database()")
                folder = request.getfixturevalue("postgres").data / "base" / str(number.fetchall()[0][0])
        store = SessionStore(place)
        for number in range(8):
            for session, text in ((SESSION, "public"), ("gone", os.urandom(1 + 600 * number**2).hex())):
                async with store.edit(session) as context:
                    context.create(Note(text=f"{text} {number}"), id=f"{session} {number}")
        before = stored(place)
        assert self.traces(folder, place, before) > 60
        await store.delete_session("gone")
        done = await store.prune(grace=0, rewrite=True)
        assert done.objects > 40
        kept = b"".join(stored(place))
        gone = {row for row in before if row[-48:] not in kept}
        assert len(gone) > 30
        assert self.traces(folder, place, gone) == 0
        await store.aclose()

    def traces(self, folder: Path, place: str, data: set[bytes]) -> int:
        """Count those bytes of rows that stand in some file."""
        if place.startswith("postgresql:"):
            with psycopg.connect(place, autocommit=True) as server:
                server.execute(b"CHECKPOINT")
        held = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
        return sum(row[-48:] in held for row in data)

    async def test_of_sqlite_the_space_goes_back(self, tmp_path: Path) -> None:
        place = str(tmp_path / "state.db")
        store = SessionStore(place)
        async with store.edit("gone") as context:
            context.create(Note(text=os.urandom(400_000).hex()), id="n")
        await store.delete_session("gone")
        await store.prune(grace=0)
        await store.aclose()  # the log is folded into the file
        assert os.path.getsize(place) > 400_000
        await store.prune(grace=0, rewrite=True)
        assert os.path.getsize(place) < 100_000
        await store.aclose()


async def test_other_stores_say_what_prunes_them(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "state.git")
    assert (await store.prune()).operations == 0  # `git gc` removes what it lets go of
    with pytest.raises(StoreError, match="keeps nothing beyond the process"):
        await SessionStore(InMemoryKVBackend()).prune()
