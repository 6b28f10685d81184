"""The queue of a branch: files that are shared, an order that stays, and no growth without a reader."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel
from support import fsck, git

from reactifact import Consume, Context, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact._context.queue import Queue
from reactifact._store.commits import read_queue
from reactifact._store.layout import Waiting
from reactifact.branching import BranchStore
from reactifact.events import Event, EventType

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    TYPE_ID: ClassVar[str] = "queue.Order"
    price: int = 0


seen: list[str] = []


@produce(Order)
async def note(call: ProduceCall) -> None:
    assert call.trigger is not None
    seen.append(f"{call.event.type.removeprefix('artifact_')} {call.trigger.id}")


def agents(name: str = "noter") -> list[object]:
    seen.clear()
    return [create_agent(name, consumes=[Consume(Order)], produces=[note])]


def waiting(context: Context) -> list[str]:
    return [f"{e.type.removeprefix('artifact_')} {e.artifact_id}" for e in context.pending_events()]


async def saved(path: Path, count: int) -> SessionStore:
    store = SessionStore(path, durability="os")
    session = await store.open("s")
    for number in range(count):
        session.context.create(Order(price=number), id=f"o{number}")
    await session.save()
    return store


def cost_of_one_more(context: Context) -> tuple[int, int]:
    context.create(Order(), id="one more")
    context.commits.note_queue()
    publication = context.line.prepare()
    assert publication is not None
    found = [item for oid, item in publication.objects.items()]
    return len(found), sum(len(item.data) for item in found)


async def test_a_commit_costs_what_it_changes_however_many_events_wait(tmp_path: Path) -> None:
    few = await (await saved(tmp_path / "few.db", 3)).open("s")
    many = await (await saved(tmp_path / "many.db", 3_000)).open("s")
    objects, size = cost_of_one_more(few.context)
    more_objects, more_size = cost_of_one_more(many.context)
    assert more_objects <= objects + 4  # levels that the few do not share
    assert more_size - size < 12_000  # trees that are wider; the events take 500,000


async def test_opening_saving_forking_and_merging_read_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await saved(tmp_path / "s.git", 300)
    read: list[bytes] = []
    decode = Waiting.decode

    def counted(data: bytes) -> Waiting:
        read.append(data)
        return decode(data)

    monkeypatch.setattr(Waiting, "decode", staticmethod(counted))
    session = await store.open("s")
    context = session.context
    context.update("o1", Order(price=-1))
    await session.save()
    fork = context.branch(name="b")
    fork.update("o2", Order(price=-2))
    await BranchStore(store.database).save_branch(fork, session_id="s", name="b")
    context.merge(fork)
    await session.save()
    assert not read
    assert len(context.pending_events()) == 301  # 300 created, and o1 updated
    assert len(read) == 300  # each once, but for the one that was made here
    fsck(tmp_path / "s.git")


async def test_the_order_survives_and_a_generation_takes_the_events_off(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 60)
    session = await store.open("s")
    assert waiting(session.context) == [f"created o{number}" for number in range(60)]
    await Runtime(session.context, agents(), session=session).arun()
    assert seen == [f"created o{number}" for number in range(60)]
    assert not git(tmp_path / "s.git", "ls-tree", "-r", "s/main", ".reactifact/queue/")
    assert waiting((await store.open("s")).context) == []


async def test_an_event_is_a_file_that_is_never_rewritten(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 20)
    session = await store.open("s")
    fork = session.context.branch(name="b")
    for context, name in ((session.context, "mine"), (fork, "theirs")):
        context.create(Order(), id="shared name")
        context.create(Order(), id=name)
    await session.save()
    await BranchStore(store.database).save_branch(fork, session_id="s", name="b")

    def files(revision: str) -> set[str]:
        out = git(tmp_path / "s.git", "ls-tree", "-r", "--format=%(path) %(objectname)", revision)
        return {line for line in out.splitlines() if line.startswith(".reactifact/queue/")}

    before, ours, theirs = files("s/main~1"), files("s/main"), files("s/b")
    assert before < ours
    assert before < theirs  # sets that a merge may unite
    assert len({line.split()[0] for line in ours | theirs}) == len(ours | theirs)


async def test_without_any_agent_one_event_of_a_kind_waits_for_an_artifact(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 2)
    for price in range(1, 5):
        session = await store.open("s")
        session.context.update("o0", Order(price=price))
        session.context.update("o0", Order(price=-price))
        await session.save()
        assert waiting(session.context) == ["created o0", "created o1", "updated o0"]
    session.context.delete("o1")
    session.context.create(Order(), id="o1")
    await session.save()
    expected = ["created o0", "updated o0", "deleted o1", "created o1"]
    assert waiting(session.context) == waiting((await store.open("s")).context) == expected


async def test_what_waited_without_an_agent_wakes_it_after_a_restart(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 1)
    for price in (1, 2):
        session = await store.open("s")
        session.context.update("o0", Order(price=price))
        await session.save()
    session = await SessionStore(tmp_path / "s.git").open("s")
    await Runtime(session.context, agents(), session=session).arun()
    assert seen == ["created o0", "updated o0"]


async def test_once_an_agent_was_registered_every_event_counts(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 1)
    session = await store.open("s")
    await Runtime(session.context, agents(), session=session).arun()
    for price in (1, 2, 3):
        session = await store.open("s")  # a process without a runtime
        session.context.update("o0", Order(price=price))
        await session.save()
    assert waiting(session.context) == ["updated o0"] * 3
    await Runtime(session.context, agents(), session=session).arun()
    assert seen == ["updated o0"] * 3


async def test_a_session_of_direct_changes_alone_is_compacted(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 5)
    session = await store.open("s")
    for price in range(1, 20):
        session.context.update("o0", Order(price=price))
        await session.save()
    before = session.context.snapshot()
    session.context.compact(keep_commits=4, keep_versions=1)
    await session.save()
    assert int(git(tmp_path / "s.git", "rev-list", "--count", "s/main")) == 5  # those, and the root
    again = (await SessionStore(tmp_path / "s.git").open("s")).context
    assert again.snapshot() == before
    assert [one.price for one in again.get("o0").history] == [18]  # type: ignore[union-attr]
    assert waiting(again)[-1] == "updated o0"
    assert len(waiting(again)) == 6
    fsck(tmp_path / "s.git")


async def test_what_waits_for_an_absent_agent_is_passed_over(tmp_path: Path) -> None:
    store = await saved(tmp_path / "s.git", 3)
    session = await store.open("s")
    runtime = Runtime(session.context, agents("gone"), session=session, budget=None)
    await runtime.arun(max_iterations=0)
    for entry in session.context.queue:
        session.context.queue.owe(entry, ["gone"])
    await session.save()
    session = await store.open("s")
    queue = session.context.queue
    assert queue.active({"other"}) == []
    session.context.create(Order(), id="new")
    assert [entry.event.artifact_id for entry in session.context.queue.active({"other"})] == ["new"]
    assert [entry.event.artifact_id for entry in queue] == ["o0", "o1", "o2", "new"]
    assert [entry.event.artifact_id for entry in queue.active({"gone"})] == ["o0", "o1", "o2", "new"]
    stored = read_queue(store.database, session.context.line.tip or "")
    assert [one.owed for one in stored] == [["gone"]] * 3


def test_changes_that_fail_in_the_middle_leave_the_queue_as_it_was() -> None:
    context = Context()
    for name in ("a", "b", "c"):
        context.create(Order(), id=name)
    queue: Queue = context.queue
    first = next(iter(queue)).event

    def fail() -> None:
        with queue.whole():
            queue.remove([first])
            queue.append(Event(EventType.ARTIFACT_CREATED, Order, "d"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert waiting(context) == ["created a", "created b", "created c"]
