"""`await context.preload(...)`: few reads in a worker thread, and none when the artifacts are looked at."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from pydantic import BaseModel
from stores import KINDS, counted_reads, place_of
from support import Note, Order, Outside, Place, SpecialNote, commit, live, notifier

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store import object_db as caches
from reactifact.context import loop_reads
from reactifact.errors import InvalidName

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

NOTES = 60
LEVELS = 6
"""Reads for ids: four levels of trees, bookkeeping, payloads."""
TYPE_LEVELS = 11
"""Reads for types: six levels of payloads first, then those of their bookkeeping."""
DELIVERY_LEVELS = 12
"""Reads for actions beyond that: what the branch waits for, then the ledger's commit and what is below it."""


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, dsn)


async def fill(place: Any) -> None:
    """Save a session with notes, orders, and actions: one delivered, one that failed, one that waits."""
    store = SessionStore(place, durability="os")
    session = await store.open("s")
    context = session.context
    for number in range(NOTES):
        context.create(Note(text=f"note {number}"), id=f"n{number}")
    context.create(SpecialNote(text="special", rank=7), id="special")
    for name in ("sent", "refused"):
        context.create(Order(item=name), id=name)
    runtime = Runtime(
        context,
        [notifier()],
        session=session,
        dispatcher=Outside("notify:refused"),
        dispatch_errors="record",
    )
    await runtime.arun()

    def act(call: ProduceCall) -> None:
        call.effects.act("mail", key="waits")

    await commit(context, act)
    await session.save()
    await close(store)


async def close(store: SessionStore) -> None:
    if type(store.database.backend).__name__ not in ("InMemoryKVBackend", "DocumentBackend"):
        await store.aclose()


async def reopened(place: Any) -> tuple[SessionStore, Context]:
    """Open the session as another process would: nothing of it is at hand."""
    store = SessionStore(place, durability="os")
    context = await store.load_session("s")
    assert context is not None
    return store, context


async def test_what_was_preloaded_by_id_is_looked_at_without_a_read(place: Any) -> None:
    await fill(place)
    store, context = await reopened(place)
    ids = [f"n{number}" for number in range(NOTES)]
    with counted_reads(store.database) as preloading:
        await context.preload(*ids, "absent", "n0")
    assert 0 < len(preloading) <= LEVELS
    with counted_reads(store.database) as reads:
        for number in range(NOTES):
            assert live(context, f"n{number}").data == Note(text=f"note {number}")
        assert context.get("absent") is None
    assert reads == []
    with counted_reads(store.database) as reads:
        await context.preload(*ids, "absent")
    assert reads == []
    await close(store)


async def test_what_was_preloaded_by_type_is_listed_without_a_read(place: Any) -> None:
    await fill(place)
    store, context = await reopened(place)
    with counted_reads(store.database) as preloading:
        await context.preload(Note)
    assert 0 < len(preloading) <= TYPE_LEVELS
    with counted_reads(store.database) as reads:
        listed = context.list_artifacts(Note)
        assert len(listed) == NOTES + 1
        assert listed[-1].data == SpecialNote(text="special", rank=7)
        assert [note.data.text for note in listed[:2]] == ["note 0", "note 1"]
    assert reads == []
    with counted_reads(store.database) as reads:
        assert live(context, "sent").data == Order(item="sent")  # of another type: it is read now
    assert reads != []
    await close(store)


async def test_actions_are_preloaded_with_their_delivery(place: Any) -> None:
    await fill(place)
    for wanted in ([PendingAction], ["action:notify:sent", "action:notify:refused", "action:waits"]):
        store, context = await reopened(place)
        with counted_reads(store.database) as preloading:
            await context.preload(*wanted)  # type: ignore[arg-type]
        assert 0 < len(preloading) <= TYPE_LEVELS + DELIVERY_LEVELS
        with counted_reads(store.database) as reads:
            found = [
                live(context, f"action:{key}").data for key in ("notify:sent", "notify:refused", "waits")
            ]
        assert reads == []
        assert [action.status for action in found] == ["dispatched", "failed", "pending"]
        assert found[1].error == "no route for notify:refused"
        await close(store)


async def test_the_store_is_asked_in_a_worker_thread(git_place: Place) -> None:
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    backend: Any = store.database.backend
    read_many, threads = backend.read_many, set()

    def noting(oids: Any) -> Any:
        threads.add(threading.get_ident())
        return read_many(oids)

    backend.read_many = noting
    await context.preload(Note, "sent", "action:notify:sent")
    assert threads
    assert threading.get_ident() not in threads


async def test_what_no_cache_would_keep_is_kept(git_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_CACHED_OBJECT", 100)
    monkeypatch.setattr(caches, "_CACHED_BYTES_OF_LOCAL", 2_000)
    monkeypatch.setattr(caches, "_CACHED_TREES", 4)
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    await context.preload(Note, "absent")
    with counted_reads(store.database) as reads:
        for number in range(NOTES):
            assert live(context, f"n{number}").data.text == f"note {number}"
        assert context.get("absent") is None
    assert reads == []


async def test_a_commit_in_between_leaves_the_others_at_hand(git_place: Place) -> None:
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    await context.preload(Note)
    context.update("n0", Note(text="changed"))
    context.delete("n1")
    context.create(Note(text="fresh"), id="fresh")
    await commit(context, lambda call: None)
    await store.save_session("s", context)
    with counted_reads(store.database) as reads:
        assert live(context, "n0").data.text == "changed"
        assert context.get("n1") is None
        assert live(context, "fresh").data.text == "fresh"
        assert live(context, "n2").data.text == "note 2"
    assert reads == []
    await context.preload(Note, "n1", "fresh")
    assert context.get("n1") is None
    assert {note.id for note in context.list_artifacts(Note)} >= {"n0", "fresh", "n2"}


async def test_direct_changes_that_are_not_saved_are_no_hindrance(git_place: Place) -> None:
    store, context = await reopened_after_changes(git_place)
    await context.preload(Note, "sent", "n1", "fresh")
    with counted_reads(store.database) as reads:
        assert live(context, "n0").data.text == "changed"
        assert context.get("n1") is None
        assert live(context, "fresh").data.text == "fresh"
        assert live(context, "sent").data.item == "sent"
    assert reads == []


async def reopened_after_changes(git_place: Place) -> tuple[SessionStore, Context]:
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    context.update("n0", Note(text="changed"))
    context.delete("n1")
    context.create(Note(text="fresh"), id="fresh")
    return store, context


async def test_inside_a_produce_it_reads_the_snapshot_and_notes_no_read(git_place: Place) -> None:
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    seen: list[list[list[str]]] = []

    @produce(Note)
    async def look(call: ProduceCall) -> None:
        call.context.update("n3", Note(text="mine"))
        await call.context.preload(Note, "absent", "sent")
        with counted_reads(store.database) as reads:
            assert live(call.context, "n2").data.text == "note 2"
            assert live(call.context, "n3").data.text == "mine"
            assert call.context.get("absent") is None
        seen.append(reads)
        call.effects.create(Note(text="done"), id="done")

    context.create(Question(text="?"), id="q")
    await Runtime(context, [create_agent("looker", consumes=[Consume(Question)], produces=[look])]).arun()
    assert seen == [[]]
    made = next(found for found in context.history() if found.author == "looker")
    assert {read.artifact_id: read.version for read in made.reads} == {"q": 0, "n2": 0, "n3": 1, "absent": -1}


class Question(BaseModel):
    text: str


async def test_a_preload_before_a_run_serves_its_executions(
    git_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    context.create(Question(text="?"), id="q")
    await store.save_session("s", context)
    for size in ("_CACHED_OBJECT", "_CACHED_BYTES_OF_LOCAL", "_CACHED_TREES"):
        monkeypatch.setattr(caches, size, 1)
    store, context = await reopened(git_place.path)  # with an event left to react to, and nothing unsaved
    await context.preload(*(f"n{number}" for number in range(NOTES)))
    seen: list[list[list[str]]] = []

    @produce(Note)
    async def look(call: ProduceCall) -> None:
        with counted_reads(store.database) as reads:
            for number in range(NOTES):
                assert live(call.context, f"n{number}").data.text == f"note {number}"
        seen.append(reads)

    await Runtime(context, [create_agent("looker", consumes=[Consume(Question)], produces=[look])]).arun()
    assert seen == [[]]


async def test_what_it_refuses(git_place: Place) -> None:
    context = Context()
    await context.preload()
    await context.preload("absent", Note)
    assert context.get("absent") is None
    with pytest.raises(TypeError, match="artifact ids and model classes, not 3"):
        await context.preload(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not <class 'int'>"):
        await context.preload(int)  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        await context.preload("a\ud800")


async def test_look_ups_that_the_loop_waited_for_are_counted(git_place: Place) -> None:
    await fill(git_place.path)
    store, context = await reopened(git_place.path)
    before = loop_reads(context)
    with counted_reads(store.database) as reads:
        assert live(context, "n5").data.text == "note 5"
    assert loop_reads(context) - before == len(reads) > 0
    again = loop_reads(context)
    with counted_reads(store.database) as reads:
        await to_thread.run_sync(context.get, "n6")  # the loop goes on meanwhile
    assert reads != []
    assert loop_reads(context) == again
    await context.preload(Note, "sent", PendingAction)
    for artifact in context.list_artifacts(Note):
        assert artifact.data is not None
    assert live(context, "action:notify:sent").data.status == "dispatched"
    assert loop_reads(context) == again
