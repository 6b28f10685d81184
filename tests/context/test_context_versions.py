"""Versions over the store: absolute numbers, look-ups, clones, logged commits (API §2, §3, §34)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support import Note, Order, Place, SpecialNote, commit, git, live

from reactifact import Context, Link, ProduceCall
from reactifact.commit import Commit, Write
from reactifact.operations import Create, Delete, Operation, Update
from reactifact.replay.history import verify_history

pytestmark = pytest.mark.anyio


def updating(text: str) -> Callable[[ProduceCall], object]:
    return lambda call: call.effects.update(live(call.context, "a"), text=text)


def numbered(count: int) -> Context:
    context = Context()
    context.create(Note(text="0"), id="a")
    for number in range(1, count):
        context.update("a", Note(text=str(number)))
    return context


async def test_versions_are_numbered_absolutely_however_much_is_kept(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(text="0"), id="a")
    for number in range(1, 6):
        await commit(session.context, updating(str(number)))
    session.context.compact(keep_commits=1, keep_versions=2)
    for context in (session.context, await place.load("s")):
        found = live(context, "a")
        assert (found.version, [old.text for old in found.history]) == (5, ["3", "4"])
        assert found.at(4).text == "4"
        assert found.diff(3, 5)["changed"]["text"] == {"old": "3", "new": "5"}
        for ask in (
            partial(found.at, 2),
            partial(context.artifact_version, "a", 2),
            partial(found.diff, 2, 5),
        ):
            with pytest.raises(ValueError, match="versions before 3 were trimmed"):
                ask()
        assert [v.version for v in context.version_history("a")] == [3, 4, 5]
    session.context.update("a", Note(text="6"))
    assert [old.text for old in live(session.context, "a").history] == ["3", "4", "5"]
    session.context.delete("a")
    session.context.create(Note(text="new"), id="a")
    session.context.update("a", Note(text="newer"))
    await session.save()
    assert [v.data.text for v in (await place.load("s")).version_history("a")] == ["new", "newer"]


def test_a_version_says_where_it_comes_from() -> None:
    context = numbered(3)
    found = context.artifact_version("a", 1)
    assert found is not None
    assert (found.version, found.data.text, found.author, found.commit) == (1, "1", "application", None)
    assert context.artifact_version("a", 2).content_hash != found.content_hash  # type: ignore[union-attr]
    assert context.artifact_version("nobody", 0) is None
    assert context.version_history("nobody") == []
    with pytest.raises(ValueError, match="no version 3; kept are 0 to 2"):
        context.artifact_version("a", 3)


def test_versions_are_found_by_type_and_by_content() -> None:
    context = numbered(2)
    context.create(SpecialNote(text="s"), id="b")
    context.create(Order(item="0"), id="o")
    context.create(Note(text="0"), id="c")
    assert [(v.artifact_id, v.version) for v in context.find_versions(Note)] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]
    same = context.artifact_version("a", 0)
    assert same is not None
    found = context.find_versions(content_hash=same.content_hash)
    assert [(v.artifact_id, v.version) for v in found] == [("a", 0), ("c", 0)]
    assert context.find_versions(Order, same.content_hash) == []


async def test_a_clone_is_independent_and_keeps_the_history() -> None:
    context = numbered(2)
    await commit(context, lambda call: call.effects.update(live(call.context, "a"), text="agent's"))
    context.compact(keep_commits=0)
    context.create(Note(text="waits"), id="w")
    twin = context.clone()
    assert twin.pending_events() == []
    assert context.pending_events() != []
    assert (twin.version, twin.head_id, twin.compacted_at) == (1, context.head_id, 1)
    assert twin.resources is not context.resources
    assert [old.text for old in live(twin, "a").history] == ["0", "1"]
    twin.update("a", Note(text="twin's"))
    assert live(context, "a").data.text == "agent's"


def test_a_logged_commit_becomes_the_head() -> None:
    context = Context()
    context.create(Note(text="x"), id="a")
    context.create(Note(text="y"), id="b")
    made = Create(Note(text="x"), artifact_id="a", id="a")
    first = Commit("importer", "load", [made], writes=[Write("a", 0, "create")])
    context.log_commit(first)
    assert (first.context_version, first.parent_id, context.head_id) == (1, None, first.id)
    second = Commit("importer", "tie", [Link("a", "to", "b")])
    context.log_commit(second)
    assert (second.context_version, second.parent_id, context.version) == (2, first.id, 2)
    assert context.history() == [first, second]
    assert list(context.diff(0, 2)["added"]) == ["a"]  # b was not named: it stays a direct change
    context.checkout(0)
    assert context.get("a") is None


async def test_what_a_logged_commit_says_is_kept_also_where_it_does_not_stand(git_place: Place) -> None:
    session = await git_place.store().open("s")
    context = session.context
    context.create(Note(text="1"), id="a")
    context.update("a", Note(text="2"))
    operations: list[Operation] = [
        Create(Note(text="1"), artifact_id="a", id="a"),
        Update("a", Note(text="2")),
        Create(Note(text="without an id")),
        Create(Note(text="gone"), artifact_id="b", id="b"),
        Delete("b"),
        Delete("a"),
    ]
    for operation in operations:
        context.log_commit(Commit("importer", "load", [operation]))
    await session.save()
    assert verify_history(session.store.database, "s").fault is None
    assert git_place.path is not None
    git(git_place.path, "gc", "--prune=now", "--quiet")
    history = (await git_place.load("s")).history()
    assert [operation for commit in history for operation in commit.operations] == operations
