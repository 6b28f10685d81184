"""`replay_context` reads a commit's tree exactly, and runs and sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import Note, Order, Outside, Place, commit, notifier

from reactifact import Context, PendingAction, Runtime
from reactifact._sessions.stores import open_database
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid
from reactifact.audit import context_hash
from reactifact.errors import NotAStore, StoreError
from reactifact.replay import replay_context, replay_summary, verify_history

pytestmark = pytest.mark.anyio


async def trade(place: Place, orders: int = 3) -> list[str]:
    """Take orders one by one; return the hash of the state after each turn."""
    session = await place.store().open("shop")
    outside = Outside("notify:o1")
    runtime = Runtime(
        session.context, agents=[notifier()], session=session, dispatcher=outside, dispatch_errors="record"
    )
    hashes = []
    for number in range(orders):
        session.context.create(Order(item=f"tea {number}"), id=f"o{number}")
        await runtime.arun()
        hashes.append(context_hash(session.context))
    await session.save()
    return hashes


async def test_each_version_is_what_it_was(place: Place) -> None:
    hashes = await trade(place)
    for version, expected in enumerate(hashes, start=1):
        context = await replay_context(place.store(), "shop", version=version)
        assert context.version == version
        assert context_hash(context) == expected
    assert context_hash(await replay_context(place.store(), "shop")) == hashes[-1]
    empty = await replay_context(place.store(), "shop", version=0)
    assert (empty.version, empty.list_artifacts()) == (0, [])


async def test_versions_times_and_producers_are_those_of_the_commit(place: Place) -> None:
    session = await place.store().open("s")
    context = session.context
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="n"))
    first = context.get("n")
    assert first is not None
    was = (first.version, first.created_at, first.updated_at, first.created_by_commit)
    await commit(context, lambda call: call.effects.update("n", text="b"))
    await session.save()
    then = (await replay_context(place.store(), "s", version=1)).get("n")
    assert then is not None
    assert (then.version, then.created_at, then.updated_at, then.created_by_commit) == was
    assert then.data == Note(text="a")


async def test_the_summary_counts(place: Place) -> None:
    await trade(place)
    summary = replay_summary(await replay_context(place.store(), "shop"))
    assert summary == {
        "version": 3,
        "artifacts": 9,
        "by_type": {"Order": 3, "PendingAction": 3, "Receipt": 3},
        "relations": 0,
        "pending_questions": 0,
        "pending_actions": 0,
        "dispatched_actions": 2,
        "failed_actions": 1,
    }
    context = Context()
    question = context.interrupt("Really?")
    context.interrupt("And now?")
    context.resume(question.id, "yes")
    assert replay_summary(context)["pending_questions"] == 1


async def test_what_is_not_there(place: Place, tmp_path: Path) -> None:
    await trade(place)
    with pytest.raises(KeyError, match="no session 'nobody'"):
        await replay_context(place.store(), "nobody")
    with pytest.raises(KeyError, match="no branch 'b'"):
        await replay_context(place.store(), "shop", branch="b")
    with pytest.raises(ValueError, match="no version 9: choose 0 to 3"):
        await replay_context(place.store(), "shop", version=9)
    with pytest.raises(NotAStore):
        await replay_context(tmp_path / "nothing", "shop")
    assert not (tmp_path / "nothing").exists()


async def test_a_version_below_the_baseline_is_an_error_that_says_so(git_place: Place) -> None:
    await trade(git_place)
    session = await git_place.store().open("shop")
    before = context_hash(session.context)
    session.context.compact(keep_commits=1)
    await session.save()
    with pytest.raises(ValueError, match="compaction baseline"):
        await replay_context(git_place.store(), "shop", version=1)
    assert context_hash(await replay_context(git_place.store(), "shop")) == before
    report = verify_history(git_place.store().database, "shop")
    assert report.ok, report


async def test_it_can_be_looked_at_and_not_saved(place: Place) -> None:
    await trade(place)
    store = place.store()
    context = await replay_context(store, "shop", version=2)
    with pytest.raises(StoreError, match=r"does not contain|is not saved"):
        await store.save_session("shop", context)
    actions = context.list_artifacts(PendingAction)
    assert [action.data.status for action in actions] == ["dispatched", "failed"]


class Counting(GitBackend):
    """Counts the objects that are read, and refuses every write."""

    read = 0

    def read_many(self, oids: Any) -> dict[Oid, GitObject]:
        wanted = list(oids)
        self.read += len(wanted)
        return super().read_many(wanted)

    def write(self, objects: Any, updates: Any = ()) -> None:
        raise AssertionError("replay writes nothing")


def reads_of(path: Path, work: Any) -> int:
    backend = Counting(path, read_only=True)
    work(open_database(backend))
    backend.close()
    return backend.read


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_cost_of_a_check_is_linear_in_what_there_is(tmp_path: Path, anyio_backend: str) -> None:
    def read_by_a_check(path: Path) -> int:
        def check(database: Any) -> None:
            report = verify_history(database, "shop")
            assert report.ok, report
            counted.append(report.objects)

        counted: list[int] = []
        read = reads_of(path, check)
        assert counted == [read]  # every object once
        return read

    sizes = {}
    for orders in (20, 40, 80):
        place = Place(tmp_path / f"{orders}.git")
        await trade(place, orders)
        assert place.path is not None
        sizes[orders] = read_by_a_check(place.path)
    growth = (sizes[80] - sizes[40]) / (sizes[40] - sizes[20])
    assert growth == pytest.approx(2, rel=0.25)
