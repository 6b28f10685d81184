"""Sessions on every kind of store: the same turn, the same objects, the same behaviour."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_server import PostgresServer
from stores import KINDS, OwnBackend, place_of
from support import Note, Order, Outside, Receipt, action, live, notifier

from reactifact import Context, Runtime, RuntimeResources, SessionStore
from reactifact._store.commits import read_roots
from reactifact._store.names import branch_ref, ledger_ref
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import FormatTooNew, NotAStore, SessionBusy, StaleSession, StoreError

pytestmark = pytest.mark.anyio


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, dsn)


class Ticking:
    """A clock that goes on by a second each time it is read, so that every run is the same."""

    def __init__(self) -> None:
        self.moment = datetime(2024, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(0)


async def order(place: Any, outside: Outside, session_id: str = "user-1") -> None:
    """What the README shows: one order, one receipt, one mail. Run again, nothing happens."""
    store = SessionStore(place, durability="os")
    session = await store.open(session_id)
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    session.context.create(Order(item="tea"), id="order:42")
    await runtime.arun()
    if not isinstance(place, InMemoryKVBackend | OwnBackend):
        await store.aclose()


async def test_an_order_brings_one_mail_however_often_it_is_opened(place: Any) -> None:
    outside = Outside()
    for _ in range(3):
        await order(place, outside)
    assert outside.sent == ["notify:order:42"]
    store = SessionStore(place)
    session = await store.open("user-1")
    assert session.loaded
    assert action(session.context, "notify:order:42").status == "dispatched"
    assert live(session.context, "receipt:order:42").data == Receipt(order="order:42")
    assert await store.list_sessions() == ["user-1"]
    assert await store.pending_sessions() == []
    await store.aclose()


async def test_a_delivery_that_failed_is_sent_from_a_store_opened_anew(place: Any) -> None:
    with pytest.raises(ConnectionError):
        await order(place, Outside("notify:order:42"))
    outside = Outside()
    store = SessionStore(place)
    report = await store.drain(outside, retry_failed=True)
    assert (report.tried, report.delivered) == (1, 1)
    assert outside.sent == ["notify:order:42"]
    await store.aclose()


async def test_branches_are_saved_merged_and_deleted(place: Any) -> None:
    store, branches = SessionStore(place), BranchStore(place)
    session = await store.open("s")
    session.context.create(Note(text="base"), id="n")
    await session.save()
    fork = session.context.branch(name="fork")
    fork.update("n", Note(text="changed"))
    await branches.save_branch(fork, session_id="s", name="fork")
    loaded = await branches.load_branch("s", "fork")
    assert loaded is not None
    session.context.merge(loaded)
    await session.save()
    await branches.delete_branch("s", "fork")
    assert await branches.list_branches("s") == []
    again = await store.open("s")
    assert live(again.context, "n").data == Note(text="changed")
    await again.delete()
    assert not await store.has_session("s")
    assert await store.list_sessions() == []
    await store.aclose()
    await branches.aclose()


async def test_a_context_moves_from_store_to_store_with_its_history(place: Any) -> None:
    outside = Outside()
    source = InMemoryKVBackend()
    await order(source, outside)
    context = await SessionStore(source).load_session("user-1")
    assert context is not None
    store = SessionStore(place)
    await store.save_session("other", context)
    copy = await store.load_session("other")
    assert copy is not None
    assert copy.version == context.version
    assert [c.id for c in copy.history()] == [c.id for c in context.history()]
    await Runtime(copy, [notifier()], dispatcher=outside).arun()
    assert outside.sent == ["notify:order:42"]
    await store.aclose()


async def test_a_second_writer_is_told(place: Any) -> None:
    store, other = SessionStore(place), SessionStore(place)
    first, second = await store.open("s"), await other.open("s")
    first.context.create(Note(text="first"), id="a")
    second.context.create(Note(text="second"), id="b")
    await first.save()
    with pytest.raises(StaleSession):
        await second.save()
    assert live((await other.open("s")).context, "a")
    await store.aclose()
    await other.aclose()


async def test_many_sessions_at_once(place: Any) -> None:
    count = 50 if isinstance(place, OwnBackend) else 12  # more than there are worker threads
    outside = Outside()
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(order, place, outside, f"s{number}")
    assert len(outside.sent) == count
    store = SessionStore(place)
    assert len(await store.list_sessions()) == count
    await store.aclose()


# --- the same objects everywhere ------------------------------------------------------------------


def scripted(script: list[tuple[str, str, int]], context: Context) -> None:
    """Make direct changes."""
    for verb, name, number in script:
        if verb == "create":
            context.create(Note(text=name, count=number), id=name)
        elif verb == "update":
            context.update(name, Note(text=name, count=number))
        elif verb == "delete":
            context.delete(name)
        else:
            context.link(name, "next", str(number))


async def trees_of(place: Any, script: list[tuple[str, str, int]]) -> list[Any]:
    """Run a script in a session of a new store and return the trees it left."""
    store = SessionStore(place, durability="os")
    session = await store.open("s", RuntimeResources(clock=Ticking()))
    for position in range(0, len(script), 3):
        scripted(script[position : position + 3], session.context)
        await session.save()
    again = SessionStore(place)
    head = again.database.backend.refs(branch_ref("s", "main"))
    roots = [read_roots(again.database, oid) for oid in head.values()]
    await store.aclose()
    await again.aclose()
    return [list(head), [(r.artifacts, r.relations, r.outbox, r.meta) for r in roots]]


names = st.sampled_from(["a", "b", "c"])
scripts = st.lists(
    st.tuples(st.sampled_from(["create", "update", "delete", "link"]), names, st.integers(0, 5)),
    min_size=1,
    max_size=8,
)


@given(script=scripts)
@settings(max_examples=6)
async def test_the_same_script_leaves_the_same_trees_on_every_store(
    script: list[tuple[str, str, int]], tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> None:
    left = {}
    with postgres.database() as dsn:
        for kind in ("memory", "git", "sqlite", "postgres"):
            place = place_of(kind, tmp_path_factory.mktemp("same"), dsn)
            left[kind] = await trees_of(place, script)
    assert left["memory"][1][0] is not None
    assert left == dict.fromkeys(left, left["memory"])


async def test_a_turn_of_one_clock_has_equal_payloads_on_every_store(
    tmp_path: Path, postgres_dsn: str
) -> None:
    found = {}
    for kind in KINDS:
        place = place_of(kind, tmp_path, postgres_dsn)
        await order(place, Outside())
        store = SessionStore(place)
        context = await store.load_session("user-1")
        assert context is not None
        refs = sorted(context.line.database.backend.refs("refs/heads/user-1/"))
        assert refs == [ledger_ref("user-1"), branch_ref("user-1", "main")]
        stored = [context.line.state.stored(name) for name in ("order:42", "receipt:order:42")]
        found[kind] = (context.line.state.roots.artifacts, [s and s.meta.payload for s in stored])
        await store.aclose()
    assert found == dict.fromkeys(found, found["memory"])


# --- a user's own backend -------------------------------------------------------------------------


async def test_a_users_own_backend_keeps_one_document_a_session() -> None:
    own = OwnBackend()
    own.texts["theirs"] = "{}"
    for name in ("a", "b/ü"):
        await order(own, Outside(), name)
    assert sorted(own.texts) == ["session-a", "session-b%2F%C3%BC", "theirs"]
    assert json.loads(own.texts["session-a"])["session"] == "a"
    store = SessionStore(own)
    assert await store.list_sessions() == ["a", "b/ü"]
    context = Context.from_dict(json.loads(own.texts["session-a"]))
    assert action(context, "notify:order:42").status == "dispatched"
    await store.delete_session("a")
    assert sorted(own.texts) == ["session-b%2F%C3%BC", "theirs"]
    await store.aclose()
    assert own.closed == 1


async def test_what_a_deleted_branch_held_leaves_the_document() -> None:
    own = OwnBackend()
    store, branches = SessionStore(own), BranchStore(own)
    session = await store.open("s")
    await session.save()
    session.context.create(Note(text="kept"), id="n")
    await session.save()
    fork = session.context.branch()
    fork.create(Note(text="in the fork alone"), id="secret")
    await branches.save_branch(fork, session_id="s", name="fork")
    assert "in the fork alone" in own.texts["session-s"]
    await branches.delete_branch("s", "fork")
    assert "in the fork alone" not in own.texts["session-s"]
    assert live((await SessionStore(own).open("s")).context, "n").data == Note(text="kept")


async def test_a_document_that_is_not_ours_is_never_an_empty_session() -> None:
    own = OwnBackend()
    own.texts["session-s"] = json.dumps({"artifacts": [], "commits": []})
    with pytest.raises(NotAStore, match=r"session-s of OwnBackend.*reactifact import"):
        await SessionStore(own).open("s")
    own.texts["session-s"] = json.dumps({"format_version": 9})
    with pytest.raises(FormatTooNew, match="format 9"):
        await SessionStore(own).open("s")


async def test_a_damaged_document_is_refused() -> None:
    own = OwnBackend()
    await order(own, Outside())
    own.texts["session-user-1"] = own.texts["session-user-1"].replace("tea", "tee")
    with pytest.raises(StoreError, match="damaged"):
        await SessionStore(own).open("user-1")


async def test_one_turn_at_a_time_on_a_users_own_backend() -> None:
    own = OwnBackend()
    store = SessionStore(own)

    def twice() -> None:
        with store.database.backend.lock("x"), store.database.backend.lock("x"):
            pass

    with pytest.raises(SessionBusy, match="of OwnBackend is held"):
        twice()
