"""Undo of what was done last to a branch: a turn, a merge, an edit, a compaction (and its log)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support import (
    Answer,
    Echo,
    Note,
    Order,
    Outside,
    Place,
    Question,
    answering_agents,
    commit,
    fsck,
    git,
    live,
    notifier,
)

from reactifact import Context, ProduceCall, Runtime, Session, Update
from reactifact._sessions.undo import redo_last, undo_last
from reactifact._store._history.oplog import LIMIT, kept_refs, moved, operations
from reactifact._store.graph import first_parents
from reactifact._store.object_db import Staging
from reactifact._store.protocol import RefUpdate
from reactifact.branching import BranchStore, protect
from reactifact.errors import ProtectedBranch, SessionBusy, StoreError, UnknownRevision

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def opened(place: Place) -> Session:
    session = await place.store().open("s")
    session.context.create(Note(text="direct"), id="d")
    await session.save()
    return session


async def write(context: Context, text: str) -> None:
    def work(call: ProduceCall) -> None:
        found = call.context.get("a")
        if found is None:
            call.effects.create(Note(text=text), id="a")
        else:
            call.effects.update(found, text=text)

    await commit(context, work)


async def test_a_turn_is_undone_whole(place: Place) -> None:
    session = await opened(place)
    session.context.create(Question(text="q"), id="q")
    await session.save()
    before = (await place.load("s")).snapshot()
    await Runtime(session.context, answering_agents(), session=session).arun()
    assert session.context.version == 2
    done = undo_last(session.store.database, "s")
    assert "turn" in done
    assert "2 commits" in done
    loaded = await place.load("s")
    assert (loaded.version, loaded.snapshot()) == (0, before)
    # the queue is again what it was before the turn, so that it can be run anew
    assert [event.artifact_id for event in loaded.pending_events()] == ["d", "q"]
    await Runtime(loaded, answering_agents()).arun()
    assert len(loaded.list_artifacts(Answer)) == len(loaded.list_artifacts(Echo)) == 1


async def test_direct_changes_of_the_turn_go_and_those_of_others_stay(place: Place) -> None:
    session = await opened(place)

    def work(call: ProduceCall) -> None:
        call.context.create(Note(text="by the execution"), id="inside")
        call.effects.create(Note(text="planned"), id="a")

    await commit(session.context, work)
    session.context.create(Note(text="by hand"), id="outside")
    await session.save()
    undo_last(session.store.database, "s")
    loaded = await place.load("s")
    assert [loaded.get(name) is not None for name in ("inside", "a", "outside", "d")] == [
        False,
        False,
        True,
        True,
    ]


async def test_turns_are_undone_one_after_another(place: Place) -> None:
    session = await opened(place)
    for number in range(3):
        await write(session.context, str(number))
    await session.save()
    for left in (2, 1):
        undo_last(session.store.database, "s")
        loaded = await place.load("s")
        assert (loaded.version, live(loaded, "a").data.text) == (left, str(left - 1))
    undo_last(session.store.database, "s")
    with pytest.raises(StoreError, match="nothing to undo"):
        undo_last(session.store.database, "s")
    with pytest.raises(UnknownRevision, match="no branch 'gone'"):
        undo_last(session.store.database, "s", "gone")


async def test_a_merge_and_an_edit_are_undone(place: Place) -> None:
    session = await opened(place)
    fork = session.context.branch(name="fork")
    fork.create(Note(text="theirs"), id="t")
    session.context.merge(fork)
    await session.save()
    assert "merge" in undo_last(session.store.database, "s")
    assert (await place.load("s")).get("t") is None
    async with place.store().edit("s", author="me") as context:
        context.update("d", Note(text="edited"))
    assert "edit" in undo_last(session.store.database, "s")
    assert live(await place.load("s"), "d").data.text == "direct"


async def test_the_ledger_is_not_rewound(place: Place) -> None:
    world = Outside()
    session = await place.store().open("s")
    session.context.create(Order(item="pen"), id="o")
    await session.save()
    await Runtime(session.context, [notifier()], session=session, dispatcher=world).arun()
    undo_last(session.store.database, "s")
    again = await place.store().open("s")
    assert again.context.get("action:notify:o") is None
    await Runtime(again.context, [notifier()], session=again, dispatcher=world).arun()
    assert live(again.context, "action:notify:o").data.status == "dispatched"
    assert world.sent == ["notify:o"]


async def texts(place: Place) -> list[str]:
    """Return the text of the artifact at each version of the session, the newest last."""
    loaded = await place.load("s")
    done: list[Any] = [op for found in loaded.history() for op in found.operations]
    return [op.new_data.text if isinstance(op, Update) else op.data.text for op in done]


def edited(context: Context, text: str) -> None:
    """Make a versioned commit as `edit` does; a turn would leave the input that it was given."""
    context.update("a", Note(text=text))
    context.commits.commit_edit(author="me", message="")


async def written(place: Place, count: int) -> Session:
    session = await opened(place)
    for number in range(count):
        await write(session.context, str(number))
        await session.save()
    return session


async def test_a_checkout_is_undone_and_not_the_edit_before_it(place: Place) -> None:
    session = await written(place, 3)
    database = session.store.database
    held = database.backend.refs("refs/heads/")
    session.context.checkout(2)
    await session.save()
    assert await texts(place) == ["0", "1"]
    assert undo_last(database, "s") == "the checkout of version 2"
    assert database.backend.refs("refs/heads/") == held
    assert "turn" in undo_last(database, "s")  # the one that the checkout had dropped
    assert await texts(place) == ["0", "1"]
    assert "turn" in undo_last(database, "s")
    assert await texts(place) == ["0"]


async def test_undos_are_taken_back_one_after_another_until_the_branch_moves_on(place: Place) -> None:
    session = await written(place, 3)
    database = session.store.database
    with pytest.raises(StoreError, match="nothing to redo"):
        redo_last(database, "s")
    session.context.checkout(1)
    await session.save()
    stands = [database.backend.refs("refs/heads/")]
    undone = []
    for _ in range(3):  # the checkout, then the turns 3 and 2
        undone.append(undo_last(database, "s"))
        stands.append(database.backend.refs("refs/heads/"))
    assert undone[0] == "the checkout of version 1"
    assert await texts(place) == ["0"]
    for done, stand in zip(reversed(undone), reversed(stands[:-1]), strict=True):
        assert redo_last(database, "s") == done
        assert database.backend.refs("refs/heads/") == stand
    with pytest.raises(StoreError, match="nothing to redo"):
        redo_last(database, "s")
    assert undo_last(database, "s") == "the checkout of version 1"  # what was done again can be undone again
    undo_last(database, "s")
    again = await place.store().open("s")
    await write(again.context, "another way")
    await again.save()
    with pytest.raises(StoreError, match="nothing to redo"):
        redo_last(database, "s")
    assert "turn" in undo_last(database, "s")
    assert redo_last(database, "s")
    assert await texts(place) == ["0", "1", "another way"]
    if place.path is not None:
        fsck(place.path)


async def test_what_came_after_a_checkout_is_undone_before_it_or_kept(place: Place) -> None:
    session = await written(place, 3)
    database = session.store.database
    session.context.checkout(1)
    edited(session.context, "after")  # published together with the checkout
    await session.save()
    assert "edit" in undo_last(database, "s")
    assert undo_last(database, "s") == "the checkout of version 1"
    assert await texts(place) == ["0", "1", "2"]
    again = await place.store().open("s")
    again.context.checkout(2)
    again.context.create(Note(text="by hand"), id="h")
    await again.save()
    held = database.backend.refs("refs/heads/")
    with pytest.raises(StoreError, match=r"the checkout of version 2 was done last.*direct changes"):
        undo_last(database, "s")
    assert database.backend.refs("refs/heads/") == held
    assert (await place.load("s")).get("h") is not None


async def test_a_second_checkout_to_one_place_is_undone_to_where_it_began(place: Place) -> None:
    session = await written(place, 2)
    session.context.checkout(1)
    await session.save()
    edited(session.context, "again")
    await session.save()
    session.context.checkout(1)
    await session.save()
    database = session.store.database
    undo_last(database, "s")
    assert await texts(place) == ["0", "again"]
    undo_last(database, "s")
    assert await texts(place) == ["0"]
    undo_last(database, "s")
    assert await texts(place) == ["0", "1"]


async def test_a_compaction_that_was_undone_is_done_again(place: Place) -> None:
    session = await written(place, 4)
    database = session.store.database
    session.context.compact(keep_commits=1)
    stand = database.backend.refs("refs/heads/")
    undo_last(database, "s")
    redo_last(database, "s")
    assert database.backend.refs("refs/heads/") == stand
    assert [found.kind for found in operations(database, "s")] == ["compaction"]


async def test_git_gc_leaves_what_an_undo_dropped_until_a_prune_lets_go_of_it(git_place: Place) -> None:
    assert git_place.path is not None
    session = await written(git_place, 2)
    undo_last(session.store.database, "s")
    await session.store.aclose()
    git(git_place.path, "gc", "--prune=now", "--quiet")
    fsck(git_place.path)
    store = git_place.store()
    redo_last(store.database, "s")
    assert await texts(git_place) == ["0", "1"]
    assert store.database.backend.refs(kept_refs("s")) == {}  # nothing is dropped any more
    undo_last(store.database, "s")
    assert (await store.prune()).operations == 0  # it is younger than an hour
    assert (await store.prune(grace=0)).operations == 1
    git(git_place.path, "gc", "--prune=now", "--quiet")
    with pytest.raises(StoreError, match="nothing to redo"):
        redo_last(git_place.store().database, "s")
    assert await texts(git_place) == ["0"]


async def test_what_somebody_removed_by_hand_is_not_done_again(git_place: Place) -> None:
    assert git_place.path is not None
    session = await written(git_place, 2)
    undo_last(session.store.database, "s")
    await session.store.aclose()
    git(git_place.path, "update-ref", "-d", f"{kept_refs('s')}commits")
    git(git_place.path, "gc", "--prune=now", "--quiet")
    with pytest.raises(StoreError, match=r"turn.*cannot be redone.*git gc"):
        redo_last(git_place.store().database, "s")
    assert await texts(git_place) == ["0"]


async def test_any_move_that_is_noted_with_its_reason_can_be_undone(place: Place) -> None:
    """What the layers above call for a branch that they set aside or set back."""
    session = await written(place, 2)
    database, ref = session.store.database, "refs/heads/s/main"
    tip = database.backend.refs(ref)[ref]
    back = next(oid for oid, record in first_parents(database, tip) if record and record.version == 1)
    staged = Staging(database)
    noted = moved(staged, "s", "reject", {ref: (tip, back)}, NOW, "set aside what Ann pushed")
    database.write(staged.objects, [*noted, RefUpdate(ref, tip, back)])
    assert await texts(place) == ["0"]
    assert [(one.kind, one.text) for one in operations(database, "s")] == [
        ("reject", "set aside what Ann pushed")
    ]
    assert undo_last(database, "s") == "set aside what Ann pushed"
    assert database.backend.refs(ref)[ref] == tip
    redo_last(database, "s")
    assert database.backend.refs(ref)[ref] == back


async def test_another_branch_may_write_the_log_meanwhile(place: Place) -> None:
    session = await written(place, 2)
    branches = BranchStore(session.store.database)
    await branches.fork("s", "s/b")
    other = await branches.load_branch("s", "b")
    assert other is not None
    backend, moved = session.store.database.backend, False
    lists = backend.refs

    def refs(prefix: str = "refs/") -> dict[str, str]:
        nonlocal moved
        found = lists(prefix)
        if "operations" in prefix and not moved:
            moved = True  # between the look at the log and the write
            undo_last(session.store.database, "s", "b")
        return found

    backend.refs = refs  # type: ignore[method-assign]
    session.context.checkout(1)
    await session.save()
    assert moved
    kinds = [(found.kind, *found.after) for found in operations(session.store.database, "s")]
    assert kinds == [("undo", "refs/heads/s/b"), ("checkout", "refs/heads/s/main")]


async def test_a_compaction_is_undone_on_every_branch(place: Place) -> None:
    session = await opened(place)
    branches = BranchStore(session.store.database)
    for number in range(6):
        await write(session.context, str(number))
    await session.save()
    await branches.tag("s", "six")
    fork = session.context.branch(name="fork")
    await branches.save_branch(fork, session_id="s", name="fork")
    before = session.store.database.backend.refs("refs/heads/")
    session.context.compact(keep_commits=1, keep_versions=0)
    assert session.store.database.backend.refs("refs/heads/") != before
    assert "compaction" in undo_last(session.store.database, "s")
    assert session.store.database.backend.refs("refs/heads/") == before
    loaded = await place.load("s")
    assert (loaded.compacted_at, len(loaded.history())) == (0, 6)
    assert [old.text for old in live(loaded, "a").history] == ["0", "1", "2", "3", "4"]
    assert [found.kind for found in operations(session.store.database, "s")] == ["undo"]
    if place.path is not None:
        git(place.path, "gc", "--prune=now", "--quiet")
        fsck(place.path)


async def test_after_a_prune_a_compaction_cannot_be_undone(git_place: Place) -> None:
    assert git_place.path is not None
    session = await opened(git_place)
    for number in range(4):
        await write(session.context, str(number))
    session.context.compact(keep_commits=1)
    await session.store.prune(grace=0)
    await session.store.aclose()
    git(git_place.path, "gc", "--prune=now", "--quiet")
    assert "compaction" not in undo_last(git_place.store().database, "s")  # but the last thing that is left
    assert (await git_place.load("s")).compacted_at == 3


async def test_the_log_is_bounded_and_hidden(git_place: Place) -> None:
    assert git_place.path is not None
    session = await opened(git_place)
    for number in range(LIMIT + 3):
        await write(session.context, str(number))
        session.context.compact(keep_commits=0)
    assert len(operations(session.store.database, "s")) == LIMIT
    assert "compact" not in git(git_place.path, "log", "--all", "--format=%s")
    await session.delete()
    assert git(git_place.path, "for-each-ref") == ""


async def test_a_protected_or_running_branch_is_not_undone(place: Place) -> None:
    session = await opened(place)
    await write(session.context, "1")
    await session.save()
    database = session.store.database
    with database.backend.lock("run s/main"), pytest.raises(SessionBusy):
        undo_last(database, "s")
    protect(database, ["s/m*"])
    with pytest.raises(ProtectedBranch, match=r"undo s/main.*'s/m\*'"):
        undo_last(database, "s")
    with pytest.raises(TypeError, match="list of globs"):
        protect(database, "s/main")
    assert (await place.load("s")).version == 1


async def test_a_compaction_of_a_protected_branch_is_not_undone_through_another(place: Place) -> None:
    session = await opened(place)
    branches = BranchStore(session.store.database)
    for number in range(4):
        await write(session.context, str(number))
    await session.save()
    await branches.fork("s/main", "s/fork")
    session.context.compact(keep_commits=1)
    database = session.store.database
    stand = database.backend.refs()
    protect(database, ["s/main"])
    with pytest.raises(ProtectedBranch, match="undo the compaction of s/main"):
        undo_last(database, "s", "fork")
    assert database.backend.refs() == stand


async def test_small_packs_are_merged_every_so_many_saves(git_place: Place) -> None:
    assert git_place.path is not None
    from reactifact import SessionStore

    def packs() -> int:
        assert git_place.path is not None
        return len(list((git_place.path / "objects/pack").glob("*.pack")))

    for every, most in ((10, 20), (None, 1000)):
        store = SessionStore(git_place.path, compact_every=every, durability="os")
        session = await store.open(f"every {every}")
        before = packs()
        for number in range(40):
            session.context.create(Note(text=str(number)), id=str(number))
            await session.save()
            if store.database._tidying is not None:
                store.database._tidying.join(20)  # what is merged beside the saves is merged by now
        grown = packs() - before
        assert grown <= most if every else grown == 40
        commits = int(git(git_place.path, "rev-list", "--count", session.context.line.ref or ""))
        assert commits == 41
        await store.aclose()
    with pytest.raises(ValueError, match="compact_every=0"):
        SessionStore(git_place.path, compact_every=0)
