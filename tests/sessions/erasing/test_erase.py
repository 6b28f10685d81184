"""Erasing artifacts, or their personal fields: nothing of them is left in any store, the rest holds."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from anyio import to_thread
from pydantic import BaseModel
from store_bytes import holding
from stores import KINDS, place_of
from support import Note, Outside, fsck, git, trigger_of

from reactifact import (
    Agent,
    Consume,
    Context,
    PendingAction,
    PendingQuestion,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._history.tombstones import ERASING, Tombstone, read_stones
from reactifact._store.objects import GitObject, object_id
from reactifact._store.protocol import RefUpdate
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.erasure import Personal
from reactifact.errors import (
    ErasureRefused,
    MissingObject,
    ProtectedBranch,
    SessionBusy,
    StaleSession,
    UnknownRevision,
)
from reactifact.replay import verify_history

pytestmark = [pytest.mark.anyio]

SECRET = "Wilhelmina Zzyzx"
ANOTHER = "wilhelmina.zzyzx@example.org"
NAME = "customer:zzyzx"


class Customer(BaseModel):
    """A person."""

    name: Annotated[str, Personal()]
    email: Annotated[str, Personal("erased@example.invalid")]
    orders: int = 0
    born: Annotated[datetime | None, Personal(None)] = None


class Count(BaseModel):
    """How many there are."""

    number: int


def welcoming() -> list[Agent]:
    """Return an agent that mails each customer, asks about it, and counts."""

    @produce(Count, also_creates=(PendingAction, PendingQuestion))
    async def welcome(call: ProduceCall) -> None:
        customer = trigger_of(call)
        call.effects.act("mail", key=f"mail:{customer.data.email}", payload={"to": customer.data.email})
        call.effects.create(
            PendingQuestion(question=f"May {customer.data.name} order?"), id=f"ask:{customer.id}"
        )
        call.effects.create(Count(number=customer.data.orders), id=f"count:{customer.data.orders}")

    return [create_agent("welcomer", consumes=[Consume(Customer)], produces=[welcome])]


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A place of each kind."""
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, dsn)


async def filled(where: Any) -> SessionStore:
    """Store a session in which a customer left traces wherever there are any."""
    store = SessionStore(where)
    session = await store.open("s")
    context = session.context
    context.create(Note(text="first"), id="note:1")
    await session.save()
    context.create(Customer(name=SECRET, email=ANOTHER, orders=1), id=NAME)
    context.create(Customer(name="Bob", email="bob@example.org", orders=2), id="customer:bob")
    context.link("note:1", "about", NAME)
    outside = Outside(f"mail:{ANOTHER}")
    runtime = Runtime(context, welcoming(), session=session, dispatcher=outside, dispatch_errors="record")
    await runtime.arun()
    assert outside.tried == [f"mail:{ANOTHER}", "mail:bob@example.org"]
    branches = BranchStore(store.database)
    await branches.fork("s", "s/exp")
    await branches.tag("s/exp", "before")
    async with store.edit("s", "exp", message=f"correct {SECRET}") as fork:
        fork.update(NAME, Customer(name=SECRET, email=ANOTHER, orders=3))
    async with store.edit("s", message=f"delete {NAME}") as main:
        main.delete(NAME)
    await branches.save_branch(
        await loaded(store, "s", "exp"), session_id="copy", name="main"
    )  # a fork that is another session
    return SessionStore(store.database)


async def loaded(store: SessionStore, session: str, branch: str = "main") -> Context:
    """Read a branch from the store."""
    found = await BranchStore(store.database).load_branch(session, branch)
    assert found is not None
    return found


async def verified(store: SessionStore, session: str) -> None:
    """Check the whole history of a session."""
    report = await to_thread.run_sync(verify_history, store.database, session)
    assert report.ok, report


async def stones(store: SessionStore, session: str) -> tuple[Tombstone, ...]:
    """Return what is left of what was erased."""
    return (await to_thread.run_sync(read_stones, store.database, session)).erased


def told(context: Context) -> list[tuple[str, int | None]]:
    """Return the Change-Ids and the numbers of the versions of a branch."""
    return [(one.id, one.context_version) for one in context.history()]


async def test_nothing_of_it_is_left_and_all_else_is_as_it_was(where: Any) -> None:
    store = await filled(where)
    before = {b: told(await loaded(store, "s", b)) for b in ("main", "exp")}
    kept = {b: (await loaded(store, "s", b)).snapshot() for b in ("main", "exp")}
    assert holding(where, SECRET)
    assert holding(where, ANOTHER)
    assert holding(where, NAME)

    report = await store.erase("s", NAME, by="officer", reason="request 17")

    assert holding(where, SECRET, ANOTHER, NAME, "zzyzx") == []
    assert [one.id for one in report.artifacts] == [NAME, f"action:mail:{ANOTHER}", f"ask:{NAME}"]
    assert report.sessions == ("copy", "s")
    assert report.rests == ("count:1",)
    again = SessionStore(where)
    for session in ("s", "copy"):
        await verified(again, session)
    for branch in ("main", "exp"):
        context = await loaded(again, "s", branch)
        assert told(context) == before[branch]
        gone = {NAME, f"action:mail:{ANOTHER}", f"ask:{NAME}"}
        assert context.snapshot() == {n: v for n, v in kept[branch].items() if n not in gone}
        assert context.relations("note:1") == []
    assert (await loaded(again, "copy")).get(NAME) is None


async def test_the_tombstone_says_what_when_and_by_whom_and_never_what_it_held(where: Any) -> None:
    store = await filled(where)
    await store.erase("s", NAME, by="officer", reason="request 17")
    for session in ("s", "copy"):
        found = await stones(store, session)
        assert [(one.type_id.rpartition(".")[2], one.by, one.reason) for one in found] == [
            (kind, "officer", "request 17") for kind in ("Customer", "PendingAction", "PendingQuestion")
        ]
        first, *others = found
        assert first.versions == 2
        assert not first.because
        assert {one.because for one in others} == {first.token}
        assert datetime.fromisoformat(first.when).tzinfo is not None


async def test_the_session_goes_on_and_sends_nothing_twice(where: Any) -> None:
    store = await filled(where)
    await store.erase("s", NAME, by="officer")
    session = await SessionStore(where).open("s")
    outside = Outside()
    runtime = Runtime(session.context, welcoming(), session=session, dispatcher=outside)
    session.context.create(Customer(name="Eve", email="eve@example.org", orders=4), id="customer:eve")
    await runtime.arun()
    assert outside.sent == ["mail:eve@example.org"]
    assert session.context.get("count:4") is not None
    await verified(session.store, "s")


async def test_a_dry_run_says_what_would_go_and_changes_nothing(where: Any) -> None:
    store = await filled(where)
    refs = store.database.backend.refs() if not _is_own(where) else None
    would = await store.erase("s", NAME, by="officer", dry_run=True)
    assert refs is None or store.database.backend.refs() == refs
    assert holding(where, SECRET)
    did = await store.erase("s", NAME, by="officer")
    assert would.is_dry_run
    assert not did.is_dry_run
    assert would.artifacts == did.artifacts
    assert (would.commits, would.refs, would.dropped) == (did.commits, did.refs, did.dropped)


def _is_own(where: Any) -> bool:
    return hasattr(where, "texts")


async def test_personal_fields_alone_get_their_placeholders_in_every_version(where: Any) -> None:
    store = await filled(where)
    before = told(await loaded(store, "s", "exp"))
    report = await store.erase("s", NAME, by="officer", fields_only=True)
    assert holding(where, SECRET, ANOTHER) == []
    assert report.artifacts[0].fields == ("name", "email")
    again = SessionStore(where)
    context = await loaded(again, "s", "exp")
    found = context.get(NAME)
    assert found is not None
    assert found.data == Customer(name="[erased]", email="erased@example.invalid", orders=3)
    assert told(context) == before
    await verified(again, "s")
    with pytest.raises(ErasureRefused, match="nothing is left to erase"):
        await again.erase("s", NAME, by="officer", fields_only=True)


class Strict(BaseModel):
    """A person whose number must be one."""

    number: Annotated[int, Personal()]


@pytest.mark.parametrize(("model", "why"), [(Strict(number=7), "number"), (Note(text="x"), "marks no field")])
async def test_fields_that_take_no_placeholder_are_refused_by_name(model: BaseModel, why: str) -> None:
    store = SessionStore(place_of("memory", Path(), None))
    async with store.edit("s") as context:
        context.create(model, id="person:1")
    refs = store.database.backend.refs()
    with pytest.raises(ErasureRefused, match=why):
        await store.erase("s", "person:1", by="officer", fields_only=True)
    assert store.database.backend.refs() == refs


async def test_what_was_never_there_is_refused(where: Any) -> None:
    store = await filled(where)
    with pytest.raises(UnknownRevision, match="customer:nobody"):
        await store.erase("s", NAME, "customer:nobody", by="officer")
    with pytest.raises(UnknownRevision, match="no session"):
        await store.erase("t", NAME, by="officer")
    with pytest.raises(ErasureRefused, match="nothing was named"):
        await store.erase("s", by="officer")
    assert holding(where, SECRET)


async def test_an_artifact_of_that_id_in_another_session_stays(where: Any) -> None:
    store = await filled(where)
    async with store.edit("unrelated") as context:
        context.create(Customer(name="Another", email="a@example.org"), id=NAME)
    report = await store.erase("s", NAME, by="officer")
    assert report.sessions == ("copy", "s")
    found = (await loaded(store, "unrelated")).get(NAME)
    assert found is not None
    assert holding(where, SECRET, ANOTHER) == []


@pytest.mark.parametrize("kind", ["memory", "git", "sqlite", "postgres"])
async def test_it_waits_for_a_runner_and_is_refused_while_there_is_one(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    where = place_of(kind, tmp_path, dsn)
    store = await filled(where)
    running = await SessionStore(where).open("s", wait=0)
    with pytest.raises(SessionBusy):
        await store.erase("s", NAME, by="officer", wait=0)
    assert holding(where, SECRET)
    await running.aclose()
    await store.erase("s", NAME, by="officer", wait=0)
    assert holding(where, SECRET) == []


async def written_late(context: Context) -> None:
    """Write something on what was read before."""
    context.create(Note(text="late"), id="note:late")
    branches = BranchStore(context.line.database)
    await branches.save_branch(context, session_id="s", name=context.line.branch)


@pytest.mark.parametrize("kind", ["memory", "git", "sqlite", "postgres"])
async def test_a_context_from_before_does_not_bring_it_back(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    where = place_of(kind, tmp_path, dsn)
    store = await filled(where)
    session = await SessionStore(where).open("s")
    fork = await loaded(SessionStore(where), "s", "exp")
    await store.erase("s", NAME, by="officer")
    for context in (session.context, fork):
        with pytest.raises((StaleSession, MissingObject)):
            await written_late(context)
    assert holding(where, SECRET, ANOTHER, NAME) == []


async def test_what_moves_and_undos_left_behind_goes_too(tmp_path: Path) -> None:
    where = tmp_path / "state.git"
    store = await filled(where)
    branches = BranchStore(store.database)
    await branches.undo("s", "exp")
    assert holding(where, SECRET)
    report = await store.erase("s", NAME, by="officer")
    assert any(name.startswith("refs/reactifact/operations/") for name in report.dropped)
    assert holding(where, SECRET, ANOTHER, NAME) == []
    fsck(where)


async def test_packs_loose_objects_reflogs_notes_and_leftovers_of_git_go_too(tmp_path: Path) -> None:
    where = tmp_path / "state.git"
    store = await filled(where)
    git(where, "config", "core.logAllRefUpdates", "always")
    git(where, "tag", "-a", "-m", f"about {SECRET}", "s/signed", "s/main~1")
    git(where, "notes", "add", "-m", f"call {NAME}", "s/main")
    git(where, "branch", "mine", "s/exp")
    git(where, "gc", "--quiet")  # deltas, a cruft pack, packed refs
    git(where, "update-ref", "-m", f"saw {SECRET}", "refs/heads/mine", "s/exp~1")
    loose = git(where, "hash-object", "-w", "--stdin", text=f"{SECRET} lies here").strip()
    (where / "objects/pack/tmp_pack_1").write_bytes(SECRET.encode())
    assert (where / "logs").exists()
    assert (where / f"objects/{loose[:2]}/{loose[2:]}").exists()
    await store.erase("s", NAME, by="officer")
    assert holding(where, SECRET, ANOTHER, NAME) == []
    fsck(where)
    assert "zzyzx" not in git(where, "ls-tree", "-r", "--name-only", "mine")
    assert "erased-" in git(where, "notes", "show", "s/main")
    assert "erased" in git(where, "for-each-ref", "--format=%(contents)", "refs/tags/s/signed")


async def test_a_compacted_history_and_its_kept_versions_lose_it_too(where: Any) -> None:
    store = await filled(where)
    for number in range(6):
        async with store.edit("s", "exp") as fork:
            fork.update(NAME, Customer(name=f"{SECRET} {number}", email=ANOTHER, orders=number))
    context = await loaded(store, "s", "exp")
    await to_thread.run_sync(lambda: context.compact(keep_commits=1))
    assert context.compacted_at
    assert holding(where, f"{SECRET} 1")
    await store.erase("s", NAME, by="officer")
    assert holding(where, SECRET, ANOTHER, NAME) == []
    await verified(SessionStore(where), "s")


async def test_a_protected_branch_is_not_made_anew(tmp_path: Path) -> None:
    where = tmp_path / "state.git"
    store = await filled(where)
    branches = BranchStore(store.database, protected=["s/main"])
    with pytest.raises(ProtectedBranch):
        await branches.erase("s", NAME, by="officer")
    assert holding(where, SECRET)


async def test_two_stores_that_erase_it_come_to_the_same_commits(tmp_path: Path) -> None:
    one, other = tmp_path / "one.git", tmp_path / "other.git"
    store = await filled(one)
    await store.aclose()
    git(tmp_path, "clone", "-q", "--mirror", str(one), str(other))
    for place in (one, other):
        await SessionStore(place).erase("s", NAME, by=f"officer of {place.name}")
    branches = [
        git(place, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
        for place in (one, other)
    ]
    assert branches[0] == branches[1]


async def test_erasing_twice_adds_to_the_tombstones(where: Any) -> None:
    store = await filled(where)
    await store.erase("s", NAME, by="officer")
    await store.erase("s", "customer:bob", by="officer", reason="another")
    assert holding(where, "bob@example.org", NAME, ANOTHER) == []
    kinds = [one.reason for one in await stones(store, "s")]
    assert kinds == ["", "", "", "another", "another", "another"]
    await verified(SessionStore(where), "s")


class Far(InMemoryKVBackend):
    """A store that can only be waited for in a worker thread."""

    @property
    def is_local(self) -> bool:
        return False


@pytest.mark.parametrize("backend", [InMemoryKVBackend, Far])
async def test_opening_finishes_what_a_killed_erasure_left_to_be_removed(
    backend: type[InMemoryKVBackend],
) -> None:
    where = backend()
    store = SessionStore(where)
    async with store.edit("s") as context:
        context.create(Note(text="kept"), id="note:1")
    marker, lost = (GitObject("blob", data) for data in (b'{"phase": "collecting"}', SECRET.encode()))
    ids = {object_id(item.kind, item.data): item for item in (marker, lost)}
    where.write(ids, [RefUpdate(f"{ERASING}s", None, object_id(marker.kind, marker.data))])
    assert holding(where, SECRET)
    session = await SessionStore(where).open("s")
    assert session.context.get("note:1") is not None
    assert holding(where, SECRET) == []
    assert where.refs(ERASING) == {}


async def test_an_erasure_that_somebody_is_at_is_left_to_them() -> None:
    where = InMemoryKVBackend()
    await filled(where)
    marker = GitObject("blob", b'{"phase": "collecting"}')
    oid = object_id(marker.kind, marker.data)
    where.write({oid: marker}, [RefUpdate(f"{ERASING}s", None, oid)])
    with where.lock("erase"):
        await SessionStore(where).open("s")
        assert where.refs(ERASING)
    await SessionStore(where).open("s")
    assert not where.refs(ERASING)
