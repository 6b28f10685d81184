"""`SessionStore.edit`: one versioned commit of what is done inside, or none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support import Note, Order, Place, Question, answering_agents, fsck, git, live

from reactifact import Context, Create, Delete, Link, Runtime, Update
from reactifact.commit import Write
from reactifact.errors import StaleSession
from reactifact.replay import verify_history

pytestmark = pytest.mark.anyio


async def test_an_edit_is_one_versioned_commit(place: Place) -> None:
    async with place.store().edit("s", author="import", message="Take the old orders over") as context:
        context.create(Order(item="x"), id="o")
        context.create(Note(text="a"), id="n")
        context.update("n", Note(text="b"))
        context.link("n", "about", "o")
    context = await place.load("s")
    assert context.version == 1
    (found,) = context.history()
    assert (found.author, found.message) == ("import", "Take the old orders over")
    assert (found.context_version, found.parent_id, found.id) == (1, None, context.head_id)
    assert [type(operation) for operation in found.operations] == [Create, Create, Update, Link]
    assert Write("o", 0, "create") in found.writes
    assert live(context, "o").created_by_commit == found.id
    assert live(context, "n").data.text == "b"
    assert set(context.diff(0, 1)["added"]) == {"o", "n"}
    assert context.diff(0, 1)["added"]["n"]["text"] == "b"


async def test_what_one_edit_makes_and_deletes_again_is_still_read_after_a_gc(place: Place) -> None:
    async with place.store().edit("s") as context:
        context.create(Note(text="old"), id="old")
    async with place.store().edit("s") as context:
        context.create(Note(text="a"), id="n")
        context.update("n", Note(text="b"))
        context.update("old", Note(text="new"))
        context.delete("n")
        context.delete("old")
        context.create(Note(text="c"), id="n")
    if isinstance(place.path, Path) and place.path.is_dir():
        git(place.path, "gc", "--prune=now", "--quiet")
    context = await place.load("s")
    found = context.history()[-1].operations
    assert [type(one) for one in found] == [Create, Update, Update, Delete, Delete, Create]
    texts = [
        (one.data if isinstance(one, Create) else one.new_data).text
        for one in found
        if hasattr(one, "data_type")
    ]
    assert texts == ["a", "b", "new", "c"]
    assert verify_history(place.store().database, "s").ok


async def test_edits_follow_each_other(place: Place) -> None:
    for number in range(3):
        async with place.store().edit("s") as context:
            context.create(Note(count=number), id=f"n{number}")
    async with place.store().edit("s") as context:
        context.delete("n0")
    context = await place.load("s")
    assert context.version == 4
    assert [found.author for found in context.history()] == ["application"] * 4
    assert [type(operation) for operation in context.history()[-1].operations] == [Delete]
    assert context.diff(3, 4) == {
        "added": {},
        "removed": {"n0": Note(count=0).model_dump()},
        "changed": {},
    }


async def test_an_edit_that_raises_commits_nothing(place: Place) -> None:
    async with place.store().edit("s") as context:
        context.create(Note(text="a"), id="n")
    with pytest.raises(ConnectionError, match="no route"):
        await _broken_edit(place, "s")
    context = await place.load("s")
    assert context.version == 1
    assert context.snapshot() == {"n": Note(text="a").model_dump()}
    with pytest.raises(ConnectionError):
        await _broken_edit(place, "new")
    assert not await place.store().has_session("new")


async def _broken_edit(place: Place, session_id: str) -> None:
    async with place.store().edit(session_id) as context:
        context.update("n", Note(text="b"))
        context.create(Note(), id="m")
        raise ConnectionError("no route")


async def test_an_edit_without_a_change_makes_no_commit(place: Place) -> None:
    async with place.store().edit("s") as context:
        context.create(Note(text="a"), id="n")
    async with place.store().edit("s") as context:
        context.update("n", Note(text="a"))
        assert context.get("n") is not None
    assert (await place.load("s")).version == 1


async def test_an_edit_that_somebody_overtook_writes_nothing(place: Place) -> None:
    async with place.store().edit("s") as context:
        context.create(Note(text="a"), id="n")

    async def overtaken() -> None:
        async with place.store().edit("s") as slow:
            slow.update("n", Note(text="slow"))
            async with place.store().edit("s") as quick:
                quick.update("n", Note(text="quick"))

    with pytest.raises(StaleSession):
        await overtaken()
    context = await place.load("s")
    assert (context.version, live(context, "n").data.text) == (2, "quick")


async def test_an_edit_wakes_nobody_later_and_keeps_what_waited(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Question(text="why"), id="q")
    await session.save()
    async with place.store().edit("s") as context:
        context.create(Question(text="edited in"), id="e")
    reopened = await place.store().open("s")
    waiting = [event.artifact_id for event in reopened.context.pending_events()]
    assert "e" not in waiting
    assert waiting == ["q"]  # a trigger saved before its consumer ran fires after a restart
    assert await Runtime(reopened.context, answering_agents(), session=reopened).arun() == 2


async def test_an_edit_of_a_branch(place: Place) -> None:
    async with place.store().edit("s") as context:
        context.create(Note(text="a"), id="n")
    main = await place.load("s")
    await place.branches().save_branch(main.branch(), session_id="s", name="b")
    async with place.store().edit("s", "b", author="ada") as context:
        context.update("n", Note(text="b"))
    assert live(await place.load("s", "b"), "n").data.text == "b"
    assert (await place.load("s", "b")).history()[-1].author == "ada"
    assert live(await place.load("s"), "n").data.text == "a"
    with pytest.raises(KeyError, match="'nowhere'"):
        await place.store().edit("s", "nowhere").__aenter__()


async def test_git_shows_the_author_of_an_edit(git_place: Place) -> None:
    author = "Ada Lovelace <ada@example.com>"
    async with git_place.store().edit("s", author=author, message="Say why\n\nand a body") as context:
        context.create(Note(text="a"), id="n")
    assert git_place.path is not None
    shown = git(git_place.path, "log", "-1", "--format=%an|%ae|%s", "s/main").strip()
    assert shown == "Ada Lovelace|ada@example.com|Say why"
    assert (await git_place.load("s")).history()[0].author == author
    fsck(git_place.path)


async def test_an_edit_writes_what_its_commits_reach_and_nothing_else(git_place: Place) -> None:
    assert git_place.path is not None
    async with git_place.store().edit("s") as context:
        for number in range(3):
            context.create(Note(count=number), id=f"n{number}")
    async with git_place.store().edit("s") as context:
        context.update("n0", Note(count=7))
        context.update("n0", Note(count=8))
        context.create(Note(text="a"), id="new")
        context.update("new", Note(text="b"))
        context.delete("n1")
    assert git(git_place.path, "fsck", "--unreachable", "--no-progress") == ""
    stored = await git_place.load("s")
    assert [found.count for found in live(stored, "n0").get_all_versions()] == [0, 7, 8]
    assert [live(stored, "new").data.text, live(stored, "new").version] == ["b", 1]


def test_a_change_costs_the_same_however_many_were_made_before() -> None:
    def cost(before: int) -> float:
        """Return the seconds that 200 updates and deletions take beside `before` others."""
        context = Context()
        for number in range(before + 200):
            context.create(Note(count=number), id=f"n{number}")
        for number in range(200, before + 200):
            context.update(f"n{number}", Note(text="new"))
        started = time.perf_counter()
        for number in range(200):
            context.update(f"n{number}", Note(text="new"))
            context.delete(f"n{number}")
        return time.perf_counter() - started

    assert min(cost(4000) for _ in range(2)) < 4 * min(cost(100) for _ in range(5))
