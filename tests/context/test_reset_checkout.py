"""`Context.checkout` (API §8, BETTER 13 to 16): what dropped commits wrote returns, the rest stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import Note, Order, Outside, Place, commit, fsck, git, live, notifier

from reactifact import Context, ProduceCall, Runtime
from reactifact.branching import BranchStore
from reactifact.errors import ProtectedBranch, StaleSession

pytestmark = pytest.mark.anyio


def updating(text: str) -> Callable[[ProduceCall], object]:
    return lambda call: call.effects.update(live(call.context, "a"), text=text)


async def edited() -> Context:
    """Return a context whose version n set the text of `a` to n, after a direct creation of `d`."""
    context = Context()
    context.create(Note(text="direct"), id="d")
    await commit(context, lambda call: call.effects.create(Note(text="1"), id="a"))
    for number in range(2, 5):
        await commit(context, updating(str(number)))
    return context


async def test_versions_times_and_producers_are_those_of_the_commit() -> None:
    context = await edited()
    fork = context.branch()
    context.checkout(2)
    at_two = live(context, "a")
    assert (at_two.data.text, at_two.version, context.version) == ("2", 1, 2)
    assert [old.text for old in at_two.history] == ["1"]
    assert context.head_id == fork.history()[1].id
    assert [found.id for found in context.history()] == [found.id for found in fork.history()[:2]]
    assert at_two.created_by_commit == live(fork, "a").created_by_commit
    assert at_two.updated_at == fork.history()[1].timestamp


async def test_live_objects_show_the_state_and_held_ones_stay_readable() -> None:
    context = await edited()
    shown = live(context, "a")
    context.checkout(1)
    assert (shown.data.text, shown.version) == ("1", 0)
    context.checkout(0)
    assert context.get("a") is None
    assert shown.data.text == "1"


async def test_an_artifact_created_directly_is_as_it_was_before_the_agent_wrote_it() -> None:
    context = Context()
    context.create(Note(text="mine"), id="a")
    await commit(context, lambda call: call.effects.update(live(call.context, "a"), text="agent's"))
    context.checkout(0)
    assert (live(context, "a").data.text, live(context, "a").version) == ("mine", 0)


async def test_direct_changes_that_were_not_touched_stay() -> None:
    context = await edited()
    context.update("d", Note(text="later"))
    context.create(Note(text="new"), id="n")
    context.checkout(1)
    assert [live(context, name).data.text for name in ("a", "d", "n")] == ["1", "later", "new"]
    assert [old.text for old in live(context, "d").history] == ["direct"]
    assert context.pending_events() == []


async def test_links_of_dropped_commits_go_and_direct_ones_stay() -> None:
    context = Context()
    for name in ("a", "b", "c"):
        context.create(Note(text=name), id=name)
    context.link("a", "kept", "b")

    def relink(call: ProduceCall) -> None:
        call.effects.link("a", "made", "c")
        call.effects.unlink("a", "kept", "b")

    await commit(context, relink)
    context.link("b", "direct", "c")
    context.checkout(0)
    assert {(r.source_id, r.relation, r.target_id) for r in context.relations()} == {
        ("a", "kept", "b"),
        ("b", "direct", "c"),
    }


async def test_relations_return_to_their_order_where_a_merge_put_two_at_one_place() -> None:
    context = Context()
    for name in ("z", "a", "b"):
        context.create(Note(text=name), id=name)
    fork = context.branch(name="fork")
    context.link("z", "cites", "b")
    fork.link("z", "cites", "a")
    context.merge(fork)
    before = context.relations()
    assert [relation.target_id for relation in before] == ["a", "b"]
    await commit(context, lambda call: call.effects.unlink("z", "cites", "a"))
    context.checkout(context.version - 1)
    assert context.relations() == before


@pytest.mark.parametrize("version", [-1, 5])
async def test_a_version_out_of_range_is_refused(version: int) -> None:
    context = await edited()
    with pytest.raises(ValueError, match=f"version {version}.*0 to 4"):
        context.checkout(version)
    assert context.version == 4


async def test_a_merge_is_dropped_like_any_commit() -> None:
    context = await edited()
    fork = context.branch(name="fork")
    fork.create(Note(text="theirs"), id="t")
    context.merge(fork)
    assert context.version == 5
    context.checkout(4)
    assert context.get("t") is None


async def test_the_store_follows_at_the_next_save(place: Place) -> None:
    session = await place.store().open("s")
    context = session.context
    context.create(Note(text="direct"), id="d")
    await commit(context, lambda call: call.effects.create(Note(text="1"), id="a"))
    await commit(context, lambda call: call.effects.update(live(call.context, "a"), text="2"))
    await session.save()
    context.checkout(1)
    assert live(await place.load("s"), "a").data.text == "2"
    await session.save()
    loaded = await place.load("s")
    assert (loaded.version, live(loaded, "a").data.text) == (1, "1")
    assert loaded.pending_events() == []
    await commit(context, lambda call: call.effects.update(live(call.context, "a"), text="other"))
    await session.save()
    assert live(await place.load("s"), "a").data.text == "other"
    if place.path is not None:
        git(place.path, "gc", "--prune=now", "--quiet")
        fsck(place.path)
        assert [v.data.text for v in (await place.load("s")).version_history("a")] == ["1", "other"]


async def test_a_checkout_loses_nobody_elses_commits(place: Place) -> None:
    session = await place.store().open("s")
    await commit(session.context, lambda call: call.effects.create(Note(text="1"), id="a"))
    await session.save()
    other = await place.store().open("s")
    other.context.create(Note(text="theirs"), id="b")
    await other.save()
    session.context.checkout(0)
    with pytest.raises(StaleSession):
        await session.save()
    assert live(await place.load("s"), "b").data.text == "theirs"


async def test_what_was_sent_is_not_sent_again(place: Place) -> None:
    world = Outside()
    session = await place.store().open("s")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=world)
    session.context.create(Order(item="pen"), id="o")
    await runtime.arun()
    assert world.sent == ["notify:o"]
    session.context.checkout(0)
    await session.save()
    assert session.context.get("action:notify:o") is None
    again = await place.store().open("s")
    again.context.update("o", Order(item="pen", status="again"))
    await Runtime(again.context, [notifier()], session=again, dispatcher=world).arun()
    assert live(again.context, "action:notify:o").data.status == "dispatched"
    assert world.sent == ["notify:o"]


async def test_a_protected_branch_is_not_reset(place: Place) -> None:
    session = await place.store().open("s")
    await commit(session.context, lambda call: call.effects.create(Note(text="1"), id="a"))
    await session.save()
    guarded = BranchStore(session.store.database, protected=["*/main"])
    main = await guarded.load_branch("s", "main")
    assert main is not None
    for verb in (lambda: main.checkout(0), lambda: main.compact(keep_commits=0)):
        with pytest.raises(ProtectedBranch, match=r"s/main.*\*/main"):
            verb()
    assert live(main, "a").data.text == "1"
