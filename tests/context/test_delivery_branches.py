"""The world is neither branched nor rewound: actions over branches, merges, reopening (API §9, DESIGN §6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support import Note, Order, Outside, Place, action, commit, live, notifier

from reactifact import Context, MergeConflict, PendingAction, ProduceCall, Runtime

pytestmark = pytest.mark.anyio

INTENT = PendingAction(kind="mail", idempotency_key="k", payload={"to": "ada"})
Mark = Callable[[Context], object]


def pending(context: Context) -> None:
    """Leave it as it was planned."""


def dispatched(context: Context) -> None:
    context.mark_dispatched("action:k")


def failed(context: Context) -> None:
    context.mark_failed("action:k", "no route")


def failed_twice(context: Context) -> None:
    failed(context)
    failed(context)


MARKS: dict[str, Mark] = {"pending": pending, "dispatched": dispatched, "failed": failed}
RANK = {"pending": 0, "failed": 1, "dispatched": 2}


def separate(mark: Mark, payload: dict[str, str] | None = None) -> Context:
    """Return a context with a ledger of its own that planned the action and marked it."""
    context = Context()
    context.create(Note(text="same"), id="n")
    intent = INTENT.model_copy(update={"payload": payload}) if payload is not None else INTENT
    context.create(intent, id="action:k")
    mark(context)
    context.drain_events()
    return context


@pytest.mark.parametrize("theirs", list(MARKS))
@pytest.mark.parametrize("ours", list(MARKS))
async def test_equal_intents_of_separate_contexts_merge_whatever_their_status(ours: str, theirs: str) -> None:
    target, other = separate(MARKS[ours]), separate(MARKS[theirs])
    target.merge(other)
    expected = max(ours, theirs, key=lambda status: RANK[status])
    assert action(target, "k").status == expected
    assert action(target, "k").payload == {"to": "ada"}
    outside = Outside()
    await Runtime(target, dispatcher=outside).arun()
    assert outside.sent == (["k"] if expected == "pending" else [])
    assert action(other, "k").status == theirs  # the source is as it was


@pytest.mark.parametrize("theirs", list(MARKS))
async def test_an_action_only_the_other_side_has_comes_with_its_status(theirs: str) -> None:
    target = Context()
    target.create(Note(text="same"), id="n")
    target.merge(separate(MARKS[theirs]))
    assert action(target, "k").status == theirs
    outside = Outside()
    await Runtime(target, dispatcher=outside).arun()
    assert outside.sent == (["k"] if theirs == "pending" else [])


async def test_attempts_take_the_larger_side() -> None:
    for ours, theirs in ((failed, failed_twice), (failed_twice, failed)):
        target = separate(ours)
        target.merge(separate(theirs))
        assert action(target, "k").attempts == 2


@pytest.mark.parametrize("theirs", list(MARKS))
@pytest.mark.parametrize("ours", list(MARKS))
async def test_different_payloads_under_one_id_conflict(ours: str, theirs: str) -> None:
    target, other = separate(MARKS[ours]), separate(MARKS[theirs], {"to": "bob"})
    with pytest.raises(MergeConflict, match="action:k") as caught:
        target.merge(other)
    assert len(caught.value.conflicts) == 1
    assert (action(target, "k").status, action(target, "k").payload) == (ours, {"to": "ada"})
    assert target.version == 0


async def test_a_conflict_leaves_the_ledger_alone_too() -> None:
    target, other = separate(pending), separate(dispatched)
    target.update("n", Note(text="ours"))
    other.update("n", Note(text="theirs"))
    with pytest.raises(MergeConflict):
        target.merge(other)
    assert action(target, "k").status == "pending"


@pytest.mark.parametrize("theirs", list(MARKS))
@pytest.mark.parametrize("ours", list(MARKS))
async def test_a_merge_never_dispatches(ours: str, theirs: str, place: Place) -> None:
    outside = Outside()
    session = await place.store().open("s")
    session.context.create(INTENT, id="action:k")
    MARKS[ours](session.context)
    await session.save()
    runtime = Runtime(session.context, session=session, dispatcher=outside)
    session.context.merge(separate(MARKS[theirs]))
    await session.save()
    assert outside.tried == []
    assert not runtime.in_flight
    assert action(await place.load("s"), "k").status == max(ours, theirs, key=lambda s: RANK[s])


# -- branches of one session share one ledger ---------------------------------------------------------


def test_a_delivery_on_one_side_shows_on_the_other() -> None:
    context = Context()
    context.create(INTENT, id="action:k")
    fork = context.branch()
    fork.mark_dispatched("action:k")
    assert action(fork, "k").status == "dispatched"
    assert context.pending_actions() == []


async def planned(place: Place) -> None:
    """Leave in the store a session whose branches `main` and `b` both wait for one action."""
    session = await place.store().open("s")
    session.context.create(Order(item="x"), id="o")
    await Runtime(session.context, [notifier()], session=session).arun()
    await place.branches().save_branch(session.context.branch(), session_id="s", name="b")


@pytest.mark.parametrize("first", ["main", "b"])
async def test_better_12_what_one_branch_delivered_no_other_sends_again(first: str, place: Place) -> None:
    await planned(place)
    outside = Outside()
    names = ["main", "b"] if first == "main" else ["b", "main"]
    for name in names:
        context = await place.load("s", None if name == "main" else name)
        await Runtime(context, dispatcher=outside).arun()
        assert action(context, "notify:o").status == "dispatched"
    assert outside.sent == ["notify:o"]


async def test_better_12_two_contexts_that_were_open_before_the_delivery(place: Place) -> None:
    await planned(place)
    outside = Outside()
    main, branch = await place.load("s"), await place.load("s", "b")
    assert len(main.pending_actions()) == len(branch.pending_actions()) == 1
    await Runtime(branch, dispatcher=outside).arun()
    await Runtime(main, dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]


async def test_better_12_a_failure_is_known_on_all_branches(place: Place) -> None:
    await planned(place)
    outside = Outside("notify:o")
    with pytest.raises(ConnectionError):
        await Runtime(await place.load("s", "b"), dispatcher=outside).arun()
    main = await place.load("s")
    assert action(main, "notify:o").status == "failed"
    await Runtime(main, dispatcher=outside).arun()
    assert outside.tried == ["notify:o"]


async def test_never_sent_again_after_reopen_merge_and_branch(place: Place) -> None:
    outside = Outside()
    session = await place.store().open("s")
    session.context.create(Order(item="x"), id="o")
    early = session.context.branch(name="early")
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]

    late = session.context.branch(name="late")
    await Runtime(late, [notifier()], dispatcher=outside).arun()
    await Runtime(early, [notifier()], dispatcher=outside).arun()  # plans the same intent anew
    assert action(early, "notify:o").status == "dispatched"
    session.context.merge(early)
    session.context.merge(late)
    await session.save()
    reopened = await place.store().open("s")
    await Runtime(reopened.context, [notifier()], session=reopened, dispatcher=outside).arun()
    assert await Runtime(reopened.context, dispatcher=outside).flush_pending_actions() == 0
    assert outside.sent == ["notify:o"]


async def test_not_sent_again_after_its_artifact_was_deleted(place: Place) -> None:
    outside = Outside()
    session = await place.store().open("s")
    session.context.create(Order(item="x"), id="o")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    await runtime.arun()
    session.context.delete("action:notify:o")
    session.context.update("o", Order(item="x", status="again"))
    await runtime.arun()
    assert action(session.context, "notify:o").status == "dispatched"
    assert outside.sent == ["notify:o"]


async def test_not_sent_again_after_the_branch_that_sent_it_was_deleted(place: Place) -> None:
    await planned(place)
    outside = Outside()
    await Runtime(await place.load("s", "b"), dispatcher=outside).arun()
    await place.branches().delete_branch("s", "b")
    await Runtime(await place.load("s"), dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]


async def test_a_deleted_action_that_was_not_sent_is_not_sent() -> None:
    context, outside = Context(), Outside()
    context.create(INTENT, id="action:k")
    context.delete("action:k")
    await Runtime(context, dispatcher=outside).arun()
    assert outside.tried == []


def _mail(to: str, call: ProduceCall) -> None:
    call.effects.act("mail", key="k", payload={"to": to})


async def test_different_payloads_on_two_branches_conflict_and_one_is_sent(place: Place) -> None:
    session = await place.store().open("s")
    session.context.create(Note(), id="n")
    fork = session.context.branch(name="fork")
    outside = Outside()
    for context, to in ((session.context, "ada"), (fork, "bob")):
        await commit(context, partial(_mail, to))
    await Runtime(session.context, session=session, dispatcher=outside).arun()
    with pytest.raises(ValueError, match="delivered with another payload"):
        await Runtime(fork, dispatcher=outside).arun()
    assert outside.sent == ["k"]
    with pytest.raises(MergeConflict, match="action:k"):
        session.context.merge(fork)


async def test_a_branch_without_a_name_records_before_it_sends(place: Place) -> None:
    outside = Outside()
    session = await place.store().open("s")
    session.context.create(Order(item="x"), id="o")
    await session.save()
    fork = session.context.branch()
    await Runtime(fork, [notifier()], dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]
    # whoever plans the same intent afterwards finds it delivered
    main = await place.store().open("s")
    await Runtime(main.context, [notifier()], session=main, dispatcher=outside).arun()
    assert action(main.context, "notify:o").status == "dispatched"
    assert outside.sent == ["notify:o"]


async def test_two_sessions_have_two_ledgers(place: Place) -> None:
    outside = Outside()
    for name in ("one", "two"):
        session = await place.store().open(name)
        session.context.create(Order(item="x"), id="o")
        await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    assert outside.sent == ["notify:o", "notify:o"]


async def test_merging_a_session_that_delivered_brings_its_deliveries(place: Place) -> None:
    outside = Outside()
    one, two = await place.store().open("one"), await place.store().open("two")
    for session in (one, two):
        session.context.create(Order(item="x"), id="o")
    await Runtime(one.context, [notifier()], session=one, dispatcher=outside).arun()
    await Runtime(two.context, [notifier()], session=two).arun()
    two.context.merge(one.context)
    await two.save()
    stored = await place.load("two")
    assert action(stored, "notify:o").status == "dispatched"
    await Runtime(stored, dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]
    assert live(stored, "receipt:o").version == 0
