"""Branch and merge (API §9) on contexts alone: the three-way table, conflicts, relations, moving bases."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import pytest
from pydantic import BaseModel
from support import Note, commit, live

from reactifact import Context, MergeConflict, Update, register_type
from reactifact.commit import Write
from reactifact.merging import counter, per_field

Change = Callable[[Context], object]


class Meter(BaseModel):
    count: int = 0


register_type(Meter, merge=per_field(count=counter))


def nothing(context: Context) -> None:
    """Leave the side as it is."""


def edit(text: str) -> Change:
    return lambda context: context.update("a", Note(text=text))


def delete(context: Context) -> None:
    context.delete("a")


def create(text: str) -> Change:
    return lambda context: context.create(Note(text=text), id="new")


def contents(context: Context) -> dict[str, str]:
    return {found.id: found.data.text for found in context.list_artifacts(Note)}


def forked() -> tuple[Context, Context]:
    context = Context()
    context.create(Note(text="old"), id="a")
    context.create(Note(text="same"), id="z")
    return context, context.branch(name="fork")


BASE = {"a": "old", "z": "same"}
AGREED = [
    # (this side, the other side, what a merge gives on either side)
    ("no change", nothing, nothing, BASE),
    ("one edits", nothing, edit("new"), {**BASE, "a": "new"}),
    ("one creates", nothing, create("c"), {**BASE, "new": "c"}),
    ("one deletes", nothing, delete, {"z": "same"}),
    ("both edit alike", edit("new"), edit("new"), {**BASE, "a": "new"}),
    ("both create alike", create("c"), create("c"), {**BASE, "new": "c"}),
    ("both delete", delete, delete, {"z": "same"}),
    ("each its own", edit("new"), create("c"), {"a": "new", "z": "same", "new": "c"}),
]
CONFLICTS = [
    ("both edit", edit("one"), edit("two"), "a"),
    ("both create", create("one"), create("two"), "new"),
    ("edit and delete", edit("one"), delete, "a"),
    ("delete and edit", delete, edit("two"), "a"),
]


@pytest.mark.parametrize("into_the_fork", [False, True], ids=["into-origin", "into-fork"])
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
@pytest.mark.parametrize(
    ("one", "two", "expected"), [case[1:] for case in AGREED], ids=[c[0] for c in AGREED]
)
def test_what_agrees_is_taken_over(
    one: Change, two: Change, expected: dict[str, str], swapped: bool, into_the_fork: bool
) -> None:
    origin, fork = forked()
    first, second = (two, one) if swapped else (one, two)
    first(origin)
    second(fork)
    target, other = (fork, origin) if into_the_fork else (origin, fork)
    before, untouched = contents(target), contents(other)
    version = target.version
    target.merge(other)
    assert contents(target) == expected
    assert contents(other) == untouched
    assert target.version == version + (before != expected)  # no commit when nothing was taken over


@pytest.mark.parametrize("into_the_fork", [False, True], ids=["into-origin", "into-fork"])
@pytest.mark.parametrize(
    ("one", "two", "contested"), [c[1:] for c in CONFLICTS], ids=[c[0] for c in CONFLICTS]
)
def test_what_does_not_agree_is_a_conflict_and_nothing_is_applied(
    one: Change, two: Change, contested: str, into_the_fork: bool
) -> None:
    origin, fork = forked()
    one(origin)
    two(fork)
    target, other = (fork, origin) if into_the_fork else (origin, fork)
    other.create(Note(text="would merge"), id="fine")
    other.link("z", "cites", "fine")
    before, head = target.snapshot(), target.head_id
    with pytest.raises(MergeConflict, match=contested) as caught:
        target.merge(other)
    assert len(caught.value.conflicts) == 1
    assert contested in caught.value.conflicts[0]
    assert (target.snapshot(), target.head_id, target.version) == (before, head, 0)
    assert target.relations() == []


def test_conflicts_are_texts_sorted_by_id() -> None:
    context = Context()
    for name in ("m", "b", "x"):
        context.create(Note(), id=name)
    fork = context.branch()
    for name in ("x", "m", "b"):
        context.update(name, Note(text="ours"))
        fork.update(name, Note(text="theirs"))
    with pytest.raises(MergeConflict) as caught:
        context.merge(fork)
    found = caught.value.conflicts
    assert all(isinstance(text, str) for text in found)
    assert [text.partition(":")[0] for text in found] == ["b", "m", "x"]
    assert all(text in str(caught.value) for text in found)


def test_a_conflict_may_be_made_by_hand() -> None:
    assert MergeConflict("no").conflicts == []
    assert MergeConflict("no", ["a: differs"]).conflicts == ["a: differs"]


def test_a_branch_is_independent_and_shares_resources() -> None:
    origin, fork = forked()
    assert fork.resources is origin.resources
    origin.update("a", Note(text="ours"))
    fork.create(Note(text="theirs"), id="b")
    fork.link("a", "cites", "b")
    origin.link("a", "uses", "z")
    assert contents(origin) == {"a": "ours", "z": "same"}
    assert contents(fork) == {"a": "old", "z": "same", "b": "theirs"}
    assert [r.relation for r in origin.relations()] == ["uses"]
    assert [r.relation for r in fork.relations()] == ["cites"]


@pytest.mark.anyio
async def test_a_merge_is_one_commit_by_merge() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="a"))
    fork = context.branch()
    fork.update("a", Note(text="b"))
    fork.create(Note(text="c"), id="c")
    head = context.head_id
    context.merge(fork, message="Take the experiment over")
    assert context.version == 2
    merged = context.history()[-1]
    assert (merged.author, merged.message) == ("merge", "Take the experiment over")
    assert (merged.parent_id, merged.context_version) == (head, 2)
    assert merged.writes == [Write("a", 1, "update"), Write("c", 0, "create")]
    assert context.head_id == merged.id


@pytest.mark.anyio
async def test_better_13_what_a_merge_brought_is_in_the_diff() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="a"))
    fork = context.branch()
    await commit(fork, lambda call: call.effects.create(Note(text="b"), id="b"))
    context.merge(fork)
    found = context.diff(1, 2)
    assert set(found["added"]) == {"b", "kick"}  # `commit` changed its kick on the fork as well
    assert found["changed"] == {}


@pytest.mark.anyio
async def test_better_13_a_direct_change_that_a_merge_brought_is_in_the_diff() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="a"))
    fork = context.branch()
    fork.create(Note(text="b"), id="b")
    context.merge(fork)
    assert set(context.diff(1, 2)["added"]) == {"b"}


def test_better_17_second_merge_of_one_branch_goes_on_from_the_first() -> None:
    origin, fork = forked()
    fork.update("a", Note(text="first"))
    origin.merge(fork)
    origin.update("a", Note(text="edited after the merge"))
    fork.create(Note(text="b"), id="b")
    origin.merge(fork)
    assert contents(origin) == {"a": "edited after the merge", "z": "same", "b": "b"}
    origin.merge(fork)  # nothing new
    assert contents(origin)["a"] == "edited after the merge"


def test_better_17_merging_back_and_forth() -> None:
    origin, fork = forked()
    for number in range(1, 5):
        origin.update("z", Note(text=f"ours {number}"))
        fork.update("a", Note(text=f"theirs {number}"))
        origin.merge(fork)
        fork.merge(origin)
        assert contents(origin) == contents(fork) == {"a": f"theirs {number}", "z": f"ours {number}"}


def test_better_18_a_fork_of_a_fork_brings_the_change_of_the_middle_one() -> None:
    origin, middle = forked()
    middle.create(Note(text="of the middle"), id="m")
    middle.update("a", Note(text="edited in the middle"))
    leaf = middle.branch(name="leaf")
    leaf.create(Note(text="of the leaf"), id="l")
    origin.merge(leaf)
    assert contents(origin) == {
        "a": "edited in the middle",
        "z": "same",
        "m": "of the middle",
        "l": "of the leaf",
    }
    origin.merge(middle)  # has all of it
    assert origin.version == 1


def test_better_19_unlinks_merge_both_ways() -> None:
    for into_the_fork in (False, True):
        origin = Context()
        for relation in ("cites", "uses", "quotes"):
            origin.link("s", relation, "t")
        fork = origin.branch()
        origin.unlink("s", "cites")
        origin.link("s", "new", "ours")
        fork.unlink("s", "uses")
        fork.link("s", "new", "theirs")
        target, other = (fork, origin) if into_the_fork else (origin, fork)
        target.merge(other)
        found = {(relation.relation, relation.target_id) for relation in target.relations("s")}
        assert found == {("quotes", "t"), ("new", "ours"), ("new", "theirs")}
        assert target.version == 1


def test_a_link_made_on_both_sides_is_there_once() -> None:
    origin, fork = forked()
    origin.link("a", "cites", "z")
    fork.link("a", "cites", "z")
    fork.link("a", "cites", "y")
    origin.merge(fork)
    assert [(r.relation, r.target_id) for r in origin.relations()] == [("cites", "z"), ("cites", "y")]


@pytest.mark.anyio
async def test_better_20_versions_history_and_producers_survive_a_merge() -> None:
    context = Context()
    context.create(Note(text="0"), id="d")
    fork = context.branch()
    await commit(fork, lambda call: call.effects.create(Note(text="a0"), id="a"), author="maker")
    made = fork.head_id
    await commit(fork, lambda call: call.effects.update("a", text="a1"), author="editor")
    context.merge(fork)
    found = live(context, "a")
    assert (found.version, [note.text for note in found.history]) == (1, ["a0"])
    assert found.created_by_commit == made
    assert found.created_at == live(fork, "a").created_at
    assert found.updated_at == live(fork, "a").updated_at


def test_two_forks_of_equal_but_separate_contexts_merge() -> None:
    def separate() -> Context:
        context = Context()
        context.create(Note(text="old"), id="a")
        context.create(Note(text="same"), id="z")
        return context

    one, two = separate().branch(), separate().branch()
    one.update("a", Note(text="one"))
    two.update("z", Note(text="two"))
    two.create(Note(text="c"), id="c")
    one.merge(two)
    assert contents(one) == {"a": "one", "z": "two", "c": "c"}


def test_contexts_without_any_common_base_unite_or_conflict() -> None:
    one, two = Context(), Context()
    one.create(Note(text="same"), id="s")
    two.create(Note(text="same"), id="s")
    two.create(Note(text="theirs"), id="t")
    one.merge(two)
    assert contents(one) == {"s": "same", "t": "theirs"}
    three = Context()
    three.create(Note(text="different"), id="s")
    with pytest.raises(MergeConflict, match="s: changed"):
        one.merge(three)


def test_an_empty_context_merges_both_ways() -> None:
    empty = Context()
    empty.merge(Context())
    assert empty.version == 0
    full = Context()
    full.create(Note(text="a"), id="a")
    full.merge(Context())
    assert (contents(full), full.version) == ({"a": "a"}, 0)
    empty.merge(full)
    assert contents(empty) == {"a": "a"}


def test_a_merge_of_itself_changes_nothing() -> None:
    context, _ = forked()
    context.merge(context)
    assert (contents(context), context.version) == (BASE, 0)


def test_better_21_a_branch_takes_the_queue_along() -> None:
    context = Context()
    context.create(Note(text="a"), id="a")
    fork = context.branch()
    assert [event.artifact_id for event in fork.pending_events()] == ["a"]
    context.drain_events()
    assert [event.artifact_id for event in fork.pending_events()] == ["a"]  # its own copy


def test_a_merge_queues_no_events_of_its_own() -> None:
    origin, fork = forked()
    origin.drain_events()
    fork.create(Note(text="b"), id="b")
    origin.merge(fork)
    assert origin.pending_events() == []


def test_a_merge_keeps_the_events_of_direct_changes() -> None:
    origin, fork = forked()
    origin.drain_events()
    origin.create(Note(text="mine"), id="mine")
    fork.create(Note(text="b"), id="b")
    origin.merge(fork)
    assert [event.artifact_id for event in origin.pending_events()] == ["mine"]


def test_objects_held_from_before_show_the_merged_state() -> None:
    origin, fork = forked()
    held = live(origin, "a")
    assert held.data.text == "old"
    fork.update("a", Note(text="new"))
    origin.merge(fork)
    assert held.data.text == "new"
    assert held.version == 1
    assert live(origin, "a") is held


def test_a_criss_cross_gives_the_same_result_on_both_sides() -> None:
    origin, fork = forked()
    origin.update("a", Note(text="ours"))
    fork.update("z", Note(text="theirs"))
    ours, theirs = origin.branch(), fork.branch()
    origin.merge(theirs)
    fork.merge(ours)  # two best common ancestors from here on
    origin.create(Note(text="1"), id="one")
    fork.create(Note(text="2"), id="two")
    left, right = origin.branch(), fork.branch()
    left.merge(fork)
    right.merge(origin)
    assert contents(left) == contents(right) == {"a": "ours", "z": "theirs", "one": "1", "two": "2"}


def test_branches_that_crossed_again_and_again_still_merge() -> None:
    one = Context()
    one.create(Meter(), id="n")
    one.create(Note(), id="z")
    other = one.branch(name="other")
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack(0)) + 100)
        for number in range(50):
            for side, context in enumerate((one, other)):
                context.update("n", Meter(count=live(context, "n").data.count + 1))
                context.link("z", f"{side}:{number}", "n")
            before = one.branch(name="before")
            one.merge(other)
            other.merge(before)
    finally:
        sys.setrecursionlimit(limit)
    assert live(one, "n").data.count == live(other, "n").data.count == 100
    assert one.relations() == other.relations()
    assert len(one.relations()) == 100


@pytest.mark.anyio
async def test_a_merge_inside_a_produce_is_refused() -> None:
    context = Context()
    fork = context.branch()
    with pytest.raises(Exception, match="execution sees one snapshot"):
        await commit(context, lambda call: call.context.merge(fork))


@pytest.mark.anyio
async def test_operations_of_a_merge_can_be_read() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.create(Note(text="a"), id="a"))
    fork = context.branch()
    fork.update("a", Note(text="b"))
    context.merge(fork)
    (operation,) = context.history()[-1].operations
    assert isinstance(operation, Update)
    assert operation.new_data == Note(text="b")
