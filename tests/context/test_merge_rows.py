"""The truth table of a merge: one test a row of `docs/branching.md`, under the row's name.

The docstring of each test is the row: the case, an arrow, the result. `tests/docs/test_pages_of_rows.py`
holds the page and this file together. Each row is merged in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel
from support import Note, Order, Outside, Place, action, commit, live

from reactifact import Context, MergeConflict, PendingAction, ProduceCall, Runtime, register_type
from reactifact._store.commits import state_hash
from reactifact.merging import append_only, as_set, counter, per_field

pytestmark = pytest.mark.anyio

Build = Callable[[], tuple[Context, Context]]
Change = Callable[[Context], object]
LINKS = [("z", "cites", "a"), ("z", "uses", "a")]


class Tally(BaseModel):
    count: int = 0
    tags: list[str] = []
    log: list[str] = []
    title: str = ""


class OldInvoice(BaseModel):
    text: str


class Invoice(BaseModel):
    text: str


register_type(Tally, merge=per_field(count=counter, tags=as_set, log=append_only))
register_type(Invoice, type_id="test.invoice", aliases=["test.bill"])


def nothing(context: Context) -> None:
    """Leave a side as it is."""


def edit(text: str, artifact_id: str = "a") -> Change:
    return lambda context: context.update(artifact_id, Note(text=text))


def delete(context: Context) -> None:
    context.delete("a")


def create(text: str) -> Change:
    return lambda context: context.create(Note(text=text), id="new")


def link(relation: str, target: str = "a") -> Change:
    return lambda context: context.link("z", relation, target)


def unlink(relation: str) -> Change:
    return lambda context: context.unlink("z", relation)


def start() -> Context:
    context = Context()
    context.create(Note(text="old"), id="a")
    context.create(Note(text="same"), id="z")
    for source, relation, target in LINKS:
        context.link(source, relation, target)
    return context


def forked(one: Change, two: Change, begin: Callable[[], Context] = start) -> Build:
    def build() -> tuple[Context, Context]:
        origin = begin()
        fork = origin.branch(name="fork")
        one(origin)
        two(fork)
        return origin, fork

    return build


def contents(context: Context) -> dict[str, Any]:
    """Return everything live; of a delivery that two ledgers know, each says its own time."""
    return {
        name: {field: value for field, value in data.items() if field != "dispatched_at"}
        for name, data in context.snapshot().items()
    }


def texts(context: Context) -> dict[str, str]:
    return {found.id: found.data.text for found in context.list_artifacts(Note)}


def links(context: Context) -> list[tuple[str, str, str]]:
    return [(r.source_id, r.relation, r.target_id) for r in context.relations()]


def state_of(context: Context) -> str:
    """Return the `State` that the last commit of a context carries, direct changes included."""
    context.commits.commit_direct()
    return state_hash(context.line.state.roots)


def merged(build: Build) -> Context:
    """Merge in both directions, on fresh sides; return the first after checking that both agree."""
    return merged_of(*build(), *build())


def merged_of(one: Context, other: Context, two: Context, another: Context) -> Context:
    """Merge `other` into `one`, and `two` into `another`, which is the same the other way round."""
    untouched = contents(other), links(other)
    one.merge(other)
    assert (contents(other), links(other)) == untouched
    another.merge(two)
    assert contents(one) == contents(another)
    assert links(one) == links(another)
    assert state_of(one) == state_of(another)
    for target, source in ((one, other), (another, two)):  # a second merge changes nothing
        before = state_of(target), target.version, target.head_id
        target.merge(source)
        assert (state_of(target), target.version, target.head_id) == before
    other.merge(one)  # and what the source takes over brings it to the same state
    assert state_of(other) == state_of(one)
    return one


def conflicted(build: Build) -> list[str]:
    """Merge in both directions; both must refuse and leave everything as it was. Return the conflicts."""
    found = []
    for into_the_fork in (False, True):
        sides = build()
        target, other = reversed(sides) if into_the_fork else sides
        other.create(Note(text="would merge"), id="fine")
        other.link("z", "cites", "fine")
        before = state_of(target), target.version, target.head_id, links(target)
        with pytest.raises(MergeConflict) as caught:
            target.merge(other)
        assert (state_of(target), target.version, target.head_id, links(target)) == before
        found.append([text.partition(": ")[0] for text in caught.value.conflicts])
    assert found[0] == found[1]
    return found[0]


# -- artifacts ---------------------------------------------------------------------------------


def test_row_same() -> None:
    """neither side changed it → nothing: no commit, no version"""
    context = merged(forked(nothing, nothing))
    assert (texts(context), context.version) == ({"a": "old", "z": "same"}, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (edit("new"), {"a": "new", "z": "same"}),
        (create("c"), {"a": "old", "z": "same", "new": "c"}),
        (delete, {"z": "same"}),
    ],
    ids=["edited", "created", "deleted"],
)
def test_row_only_ours(change: Change, expected: dict[str, str]) -> None:
    """only the target changed, created or deleted it → kept"""
    context = merged(forked(change, nothing))
    assert (texts(context), context.version) == (expected, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (edit("new"), {"a": "new", "z": "same"}),
        (create("c"), {"a": "old", "z": "same", "new": "c"}),
        (delete, {"z": "same"}),
    ],
    ids=["edited", "created", "deleted"],
)
def test_row_only_theirs(change: Change, expected: dict[str, str]) -> None:
    """only the other side changed, created or deleted it → taken over, in the version it has there"""
    context = merged(forked(nothing, change))
    assert (texts(context), context.version) == (expected, 1)


def test_row_both_equal() -> None:
    """both changed it to equal data → nothing; the next merge starts from here"""
    build = forked(edit("new"), edit("new"))
    assert texts(merged(build)) == {"a": "new", "z": "same"}
    origin, fork = build()
    origin.merge(fork)
    origin.update("a", Note(text="newer"))
    origin.merge(fork)  # no conflict: the fork did nothing since
    assert (texts(origin)["a"], origin.version) == ("newer", 0)


def test_row_both_different() -> None:
    """both changed it differently → conflict"""
    assert conflicted(forked(edit("one"), edit("two"))) == ["a"]


def test_row_deleted_against_edited() -> None:
    """one side deleted it, the other changed it → conflict"""
    assert conflicted(forked(delete, edit("two"))) == ["a"]


def test_row_deleted_twice() -> None:
    """both deleted it → gone"""
    context = merged(forked(delete, delete))
    assert (texts(context), context.version) == ({"z": "same"}, 0)


def test_row_created_twice_equal() -> None:
    """both created it with equal data → nothing; each side keeps its own bookkeeping"""
    context = merged(forked(create("c"), create("c")))
    assert (texts(context)["new"], context.version) == ("c", 0)


def test_row_created_twice_different() -> None:
    """both created it with different data → conflict"""
    assert conflicted(forked(create("one"), create("two"))) == ["new"]


def _tally(**fields: Any) -> Change:
    def change(context: Context) -> None:
        found = context.get("t")
        if found is None:
            context.create(Tally(**fields), id="t")
        else:
            context.update("t", found.data.model_copy(update=fields))

    return change


def _with_tally() -> Context:
    context = start()
    context.create(Tally(count=10, tags=["x", "y"], log=["begin"]), id="t")
    return context


def test_row_merge_function_different() -> None:
    """both changed it differently, and its type has a merge function → the function's result, a new
    version
    """
    one = _tally(count=11, tags=["y", "b"], log=["begin", "ours"])
    two = _tally(count=13, tags=["x", "y", "a"], log=["begin", "theirs"], title="named")
    context = merged(forked(one, two, _with_tally))
    found = live(context, "t")
    assert found.data == Tally(count=14, tags=["y", "a", "b"], log=["begin", "ours", "theirs"], title="named")
    assert (found.version, context.version) == (2, 1)


def test_row_merge_function_equal() -> None:
    """both changed it to equal data, and its type has a merge function → the function's result: +1
    and +1 is +2
    """
    context = merged(forked(_tally(count=11), _tally(count=11), _with_tally))
    assert (live(context, "t").data.count, live(context, "t").version, context.version) == (12, 2, 1)


def test_row_merge_function_created_twice() -> None:
    """both created it, and its type has a merge function → the function's result without a base"""
    context = merged(forked(_tally(count=2), _tally(count=2)))
    assert live(context, "t").data.count == 4


def test_row_merge_function_conflict() -> None:
    """the merge function returns `CONFLICT` → conflict"""
    build = forked(_tally(count=11, title="one"), _tally(count=12, title="two"), _with_tally)
    assert conflicted(build) == ["t"]


def test_row_type_changed_on_one_side() -> None:
    """one side stored it under another class → taken over; the file moves to the folder of the new type"""

    def begin() -> Context:
        context = start()
        context.create(OldInvoice(text="5 EUR"), id="i")
        return context

    def change(context: Context) -> None:
        context.update("i", Invoice(text="5 EUR"))

    context = merged(forked(nothing, change, begin))
    assert live(context, "i").data == Invoice(text="5 EUR")
    assert live(context, "i").data_type == "test.invoice"
    assert context.list_artifacts(OldInvoice) == []


def _bill() -> Context:
    """Return a context that wrote an invoice when its type was still called `test.bill`."""
    register_type(Invoice, type_id="test.bill")
    context = start()
    context.create(Invoice(text="5 EUR"), id="i")
    context.commits.commit_direct()
    register_type(Invoice, type_id="test.invoice", aliases=["test.bill"])
    return context


def test_row_type_id_renamed_on_one_side() -> None:
    """the type got a new id with the old one as alias, and one side wrote it since → taken over
    under the new id
    """

    def change(context: Context) -> None:
        context.update("i", Invoice(text="5 EUR"))

    context = merged(forked(nothing, change, _bill))
    assert (live(context, "i").data_type, live(context, "i").data.text) == ("test.invoice", "5 EUR")
    assert [found.id for found in context.list_artifacts(Invoice)] == ["i"]


def test_row_type_renamed_against_edited() -> None:
    """one side stored it under another type id, the other changed its data → conflict that names
    both types
    """
    one: Change = lambda context: context.update("a", Invoice(text="5 EUR"))  # noqa: E731
    assert conflicted(forked(one, edit("two"))) == ["a"]
    origin, fork = forked(one, edit("two"))()
    with pytest.raises(MergeConflict, match=r"test\.invoice in ours, support\.Note in theirs"):
        origin.merge(fork)


# -- relations ---------------------------------------------------------------------------------


def test_row_relation_added_on_one_side() -> None:
    """one side added it → it is there, in the place where that side made it"""
    for one, two in ((link("new"), nothing), (nothing, link("new"))):
        assert links(merged(forked(one, two))) == [*LINKS, ("z", "new", "a")]

    def several(context: Context) -> None:
        for relation in ("first", "second", "third"):
            context.link("z", relation, "a")

    context = merged(forked(nothing, several))
    context.link("z", "after", "a")  # what is made after the merge comes after all of it
    assert [relation for _, relation, _ in links(context)[2:]] == ["first", "second", "third", "after"]


def test_row_relation_added_on_both_sides() -> None:
    """both sides added it → it is there once, in the earlier of the two places"""

    def later(context: Context) -> None:
        context.link("z", "first", "a")
        context.link("z", "new", "a")

    expected = [*LINKS, ("z", "first", "a"), ("z", "new", "a")]
    assert links(merged(forked(link("new"), later))) == expected
    assert links(merged(forked(link("new"), link("new")))) == [*LINKS, ("z", "new", "a")]


def test_row_relations_added_each_its_own() -> None:
    """each side added one of its own → both are there; at one place they are ordered by name"""
    context = merged(forked(link("b"), link("a")))
    assert links(context) == [*LINKS, ("z", "a", "a"), ("z", "b", "a")]


def test_row_relation_removed_on_one_side() -> None:
    """one side removed it → gone"""
    for one, two in ((unlink("cites"), nothing), (nothing, unlink("cites"))):
        assert links(merged(forked(one, two))) == LINKS[1:]


def test_row_relation_removed_on_both_sides() -> None:
    """both sides removed it → gone"""
    assert links(merged(forked(unlink("cites"), unlink("cites")))) == LINKS[1:]


def test_row_relation_removed_and_others_added() -> None:
    """one side removed it, the other added others of the same source → gone, and the others are there"""
    context = merged(forked(unlink("cites"), link("new")))
    assert links(context) == [LINKS[1], ("z", "new", "a")]


def test_row_relation_moved_on_one_side() -> None:
    """one side removed it and made it again, later in the order → it stands where that side put it"""

    def move(context: Context) -> None:
        context.unlink("z", "cites")
        context.link("z", "cites", "a")

    context = merged(forked(nothing, move))
    assert (links(context), context.version) == ([LINKS[1], LINKS[0]], 0)


def test_row_relation_to_a_deleted_artifact() -> None:
    """one side deleted an artifact, the other linked to it → deleted; the relation is there, dangling"""
    context = merged(forked(delete, link("new")))
    assert texts(context) == {"z": "same"}
    assert ("z", "new", "a") in [(r.source_id, r.relation, r.target_id) for r in context.dangling_relations()]


# -- actions -----------------------------------------------------------------------------------

INTENT = PendingAction(kind="mail", idempotency_key="k", payload={"to": "ada"})
MARKS: dict[str, Change] = {
    "pending": nothing,
    "dispatched": lambda context: context.mark_dispatched("action:k"),
    "failed": lambda context: context.mark_failed("action:k", "no route"),
}
RANK = ["pending", "failed", "dispatched"]


def own_ledger(mark: Change, to: str = "ada") -> Context:
    context = start()
    context.create(INTENT.model_copy(update={"payload": {"to": to}}), id="action:k")
    mark(context)
    context.drain_events()
    return context


@pytest.mark.parametrize("theirs", RANK)
@pytest.mark.parametrize("ours", RANK)
async def test_row_action_equal_on_both_sides(ours: str, theirs: str) -> None:
    """equal intents, each side pending, failed or dispatched in a ledger of its own → `dispatched`
    wins over `failed` over pending; `attempts` takes the larger
    """
    expected = max(ours, theirs, key=RANK.index)
    context = merged(lambda: (own_ledger(MARKS[ours]), own_ledger(MARKS[theirs])))
    assert action(context, "k").status == expected
    assert action(context, "k").attempts == int("failed" in (ours, theirs))
    outside = Outside()
    await Runtime(context, dispatcher=outside).arun()
    assert outside.sent == (["k"] if expected == "pending" else [])


@pytest.mark.parametrize("mark", RANK)
async def test_row_action_only_on_one_side(mark: str) -> None:
    """only one side planned it → it is there with its status, and is sent only if nothing was yet"""
    context = merged(lambda: (start(), own_ledger(MARKS[mark])))
    assert action(context, "k").status == mark
    outside = Outside()
    await Runtime(context, dispatcher=outside).arun()
    assert outside.sent == (["k"] if mark == "pending" else [])


async def _simulated(context: Context) -> None:
    await Runtime(context, dispatcher=Outside(), simulate=True).arun()


async def test_row_action_simulated_on_one_side() -> None:
    """one side only simulated it → the mark stays on the branch that simulated and is not taken
    over: the target sends it
    """
    for planned_before in (False, True):
        origin, outside = start(), Outside()
        if planned_before:
            origin.create(INTENT, id="action:k")
        experiment = origin.branch(name="experiment")
        if not planned_before:
            experiment.create(INTENT, id="action:k")
        await _simulated(experiment)
        assert action(experiment, "k").status == "simulated"
        back = origin.branch()
        origin.merge(experiment)
        experiment.merge(back)
        assert state_of(origin) == state_of(experiment)
        assert action(experiment, "k").status == "simulated"
        assert action(origin, "k").status == "pending"
        await Runtime(origin, dispatcher=outside).arun()
        assert outside.sent == ["k"]
        assert action(experiment, "k").status == "dispatched"  # one ledger: what was sent is known everywhere


async def test_row_action_simulated_on_both_sides() -> None:
    """both sides simulated it → simulated"""

    async def build() -> tuple[Context, Context]:
        origin = start()
        fork = origin.branch(name="fork")
        for context in (origin, fork):
            context.create(INTENT, id="action:k")
            await _simulated(context)
        return origin, fork

    pairs = [await build(), await build()]
    for target, other in (pairs[0], reversed(pairs[1])):
        target.merge(other)
        assert action(target, "k").status == "simulated"


@pytest.mark.parametrize("theirs", RANK)
@pytest.mark.parametrize("ours", RANK)
async def test_row_action_payloads_diverge(ours: str, theirs: str) -> None:
    """different intents under one id, whatever was delivered → conflict; no ledger changes"""
    build: Build = lambda: (own_ledger(MARKS[ours]), own_ledger(MARKS[theirs], "bob"))  # noqa: E731
    assert conflicted(build) == ["action:k"]
    target, other = build()
    with pytest.raises(MergeConflict):
        target.merge(other)
    assert (action(target, "k").status, action(other, "k").status) == (ours, theirs)


# -- histories ---------------------------------------------------------------------------------


def _criss_cross(one: Change, two: Change, begin: Callable[[], Context] = start) -> tuple[Context, Context]:
    """Return two sides that merged each other's earlier state: they have two merge bases."""
    origin = begin()
    fork = origin.branch(name="fork")
    one(origin)
    two(fork)
    ours, theirs = origin.branch(), fork.branch()
    origin.merge(theirs)
    fork.merge(ours)
    return origin, fork


def test_row_criss_cross() -> None:
    """two merge bases → they are folded into one, three-way over their own base"""

    def build() -> tuple[Context, Context]:
        def unlinked(context: Context) -> None:
            context.update("a", Note(text="ours"))
            context.unlink("z", "cites")

        origin, fork = _criss_cross(unlinked, edit("theirs", "z"))
        origin.create(Note(text="1"), id="one")
        origin.update("a", Note(text="ours again"))
        origin.link("z", "cites", "a")  # gone from the folded base, hence made anew
        fork.create(Note(text="2"), id="two")
        return origin, fork

    expected = {"a": "ours again", "z": "theirs", "one": "1", "two": "2"}
    context = merged(build)
    assert (texts(context), links(context)) == (expected, [LINKS[1], LINKS[0]])


def test_row_criss_cross_merge_function() -> None:
    """two merge bases, and the type has a merge function → it folds the bases too: nothing is
    counted twice
    """

    def build() -> tuple[Context, Context]:
        origin, fork = _criss_cross(_tally(count=11), _tally(count=11), _with_tally)
        _tally(count=13)(origin)
        return origin, fork

    assert live(merged(build), "t").data.count == 13


def test_row_criss_cross_contested() -> None:
    """two merge bases that do not agree on an artifact → as if the base held what neither side
    holds: equal sides agree, others conflict
    """

    def build(first: str, second: str) -> tuple[Context, Context]:
        origin = start()
        fork = origin.branch(name="fork")
        origin.update("a", Note(text="one"))
        fork.update("a", Note(text="two"))
        ours, theirs = origin.branch(), fork.branch()
        origin.merge(theirs, policy="ours")
        fork.merge(ours, policy="ours")
        for context, text in ((origin, first), (fork, second)):
            context.update("a", Note(text=text))
        return origin, fork

    assert conflicted(lambda: build("one", "two")) == ["a"]
    assert texts(merged(lambda: build("agreed", "agreed")))["a"] == "agreed"

    def counted() -> tuple[Context, Context]:
        origin = _with_tally()
        fork = origin.branch(name="fork")
        _tally(count=11, title="one")(origin)
        _tally(count=12, title="two")(fork)
        ours, theirs = origin.branch(), fork.branch()
        origin.merge(theirs, policy="ours")
        fork.merge(ours, policy="ours")
        _tally(count=13, title="agreed")(origin)
        _tally(count=14, title="agreed")(fork)
        return origin, fork

    assert conflicted(counted) == ["t"]  # nobody knows from where to count


def test_row_unrelated_histories() -> None:
    """no common commit and no recorded fork → the base is empty: equal artifacts agree, the rest is
    united
    """

    def build(text: str = "same") -> tuple[Context, Context]:
        one, two = Context(), Context()
        one.create(Note(text="same"), id="s")
        two.create(Note(text=text), id="s")
        one.create(Note(text="ours"), id="one")
        two.create(Note(text="theirs"), id="two")
        return one, two

    assert texts(merged(build)) == {"s": "same", "one": "ours", "two": "theirs"}
    assert conflicted(lambda: build("other")) == ["s"]


async def test_row_separate_stores(place: Place) -> None:
    """forks of equal states in separate stores → three-way over the recorded fork point; the other
    history is copied in
    """
    first = await place.store().open("s")
    for name, text in (("a", "old"), ("z", "same")):
        first.context.create(Note(text=text), id=name)
    first.context.link("z", "cites", "a")
    await first.save()

    def build() -> tuple[Context, Context]:
        ours = first.context.branch(name="ours")
        elsewhere = Context()
        for name, text in (("a", "old"), ("z", "same")):
            elsewhere.create(Note(text=text), id=name)
        elsewhere.link("z", "cites", "a")
        theirs = elsewhere.branch(name="theirs")
        ours.update("a", Note(text="ours"))
        theirs.update("z", Note(text="theirs"))
        theirs.unlink("z", "cites")
        return ours, theirs

    context = merged(build)
    assert (texts(context), links(context)) == ({"a": "ours", "z": "theirs"}, [])
    await place.branches().save_branch(context, session_id="s", name="merged")
    assert texts(await place.load("s", "merged")) == {"a": "ours", "z": "theirs"}


def test_row_fork_of_a_fork() -> None:
    """a fork of a fork into the first → the change of the middle one comes too"""

    def build() -> tuple[Context, Context]:
        origin = start()
        middle = origin.branch(name="middle")
        middle.update("a", Note(text="of the middle"))
        leaf = middle.branch(name="leaf")
        leaf.create(Note(text="of the leaf"), id="leaf")
        origin.update("z", Note(text="of the first"))
        return origin, leaf

    assert texts(merged(build)) == {"a": "of the middle", "z": "of the first", "leaf": "of the leaf"}


def test_row_second_merge() -> None:
    """the same branch is merged again → the base is what was merged last"""

    def build() -> tuple[Context, Context]:
        origin, fork = forked(nothing, edit("first"))()
        origin.merge(fork)
        origin.update("a", Note(text="edited after the merge"))
        fork.create(Note(text="second"), id="b")
        return origin, fork

    assert texts(merged(build)) == {"a": "edited after the merge", "z": "same", "b": "second"}


async def test_row_versions() -> None:
    """what was taken over → keeps its version, times, producer and history; the merge is one commit
    with two parents
    """
    context = Context()
    context.create(Order(item="x"), id="o")
    fork = context.branch(name="fork")
    await commit(fork, lambda call: call.effects.create(Note(text="0"), id="n"), author="maker")
    made = fork.head_id
    await commit(fork, lambda call: call.effects.update("n", text="1"), author="editor")
    context.merge(fork)
    found = live(context, "n")
    assert (found.version, found.created_by_commit) == (1, made)
    assert [note.text for note in found.history] == ["0"]
    context.line.seal()
    assert context.line.tip is not None
    assert len(context.line.objects.commit(context.line.tip).parents) == 2


async def test_row_fork_before_and_after_a_compaction(place: Place) -> None:
    """forks made before and after a compaction → merged three-way as without it, with each other and
    with the compacted line
    """

    async def build() -> dict[str, Context]:
        nonlocal number
        number += 1
        name = f"s{number}"
        session = await place.store().open(name)
        main = session.context
        main.create(Note(text="old"), id="a")
        main.create(Note(text="same"), id="z")
        for round_ in range(3):
            await commit(main, partial(_rewrite, text=f"round {round_}"))
        await session.save()
        await place.branches().save_branch(main.branch(name="early"), session_id=name, name="early")
        for round_ in range(3, 6):
            await commit(main, partial(_rewrite, text=f"round {round_}"))
        await session.save()
        assert main.compact(keep_commits=1) == 5
        await session.save()
        early = await place.load(name, "early")
        assert texts(early)["r"] == "round 2"
        late = main.branch(name="late")
        early.update("z", Note(text="early"))
        late.update("a", Note(text="late"))
        late.create(Note(text="after"), id="after")
        return {"main": main, "early": early, "late": late}

    number = 0
    expected = {"a": "late", "z": "early", "r": "round 5", "after": "after"}
    for one, two in (("early", "late"), ("main", "early"), ("main", "late")):
        first, second = await build(), await build()
        context = merged_of(first[one], first[two], second[one], second[two])
        found = texts(context)
        wanted = dict(expected)
        if "early" not in (one, two):
            wanted["z"] = "same"
        if "late" not in (one, two):
            wanted = {**wanted, "a": "old"}
            del wanted["after"]
        assert found == wanted
    # both changed the same artifact since the fork: a conflict, as without the compaction
    sides = await build()
    sides["early"].update("a", Note(text="early"))
    with pytest.raises(MergeConflict) as caught:
        sides["late"].merge(sides["early"])
    (detail,) = caught.value.details
    assert detail.base == Note(text="old")


def _rewrite(call: ProduceCall, text: str) -> None:
    call.effects.upsert(Note(text=text), id="r")
