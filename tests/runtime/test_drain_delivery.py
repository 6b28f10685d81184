"""Delivering actions (API §17): once, in order, after the commit; failures, retries, hints."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support import (
    Answer,
    Note,
    Order,
    Outside,
    Place,
    Question,
    Receipt,
    action,
    commit,
    fsck,
    git,
    live,
    notifier,
    trigger_of,
)

from reactifact import (
    Agent,
    Artifact,
    Consume,
    Context,
    EventType,
    PendingAction,
    ProduceCall,
    RunOutcome,
    Runtime,
    create_agent,
    produce,
)
from reactifact._store.ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


def ordered(*names: str) -> Context:
    context = Context()
    for name in names or ("o",):
        context.create(Order(item=f"item {name}"), id=name)
    return context


async def opened(place: Place, *names: str) -> Any:
    session = await place.store().open("s")
    for name in names or ("o",):
        session.context.create(Order(item=f"item {name}"), id=name)
    return session


@pytest.mark.parametrize("actions", [1, 3])
async def test_what_others_delivered_is_looked_at_once_for_each_send(
    place: Place, actions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    hear = Ledger.hear

    def counting(ledger: Ledger) -> Any:
        nonlocal looks
        looks += 1
        return hear(ledger)

    session = await opened(place, *(f"o{number}" for number in range(actions)))
    outside = Outside()
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    monkeypatch.setattr(Ledger, "hear", counting)
    await runtime.arun()
    assert len(outside.sent) == actions
    is_local = session.context.line.database.backend.is_local
    assert looks == (actions if is_local else actions + 1)  # what came while the drain began counts there


def test_an_action_has_the_published_defaults() -> None:
    made = PendingAction(kind="mail", idempotency_key="k")
    assert (made.payload, made.status, made.attempts) == ({}, "pending", 0)
    assert (made.dispatched_at, made.error) == (None, None)


async def test_each_action_is_sent_once_in_order_and_marked(place: Place) -> None:
    session, outside = await opened(place, "a", "b", "c"), Outside()
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    assert await runtime.arun() == 3
    assert runtime.outcome == RunOutcome.COMPLETED
    assert outside.sent == ["notify:a", "notify:b", "notify:c"]
    await runtime.arun()
    assert len(outside.sent) == 3
    for context in (session.context, await place.load("s")):
        for name in ("a", "b", "c"):
            found = action(context, f"notify:{name}")
            assert (found.status, found.attempts, found.error) == ("dispatched", 0, None)
            assert found.dispatched_at is not None
            assert found.dispatched_at.utcoffset() is not None
            assert found.payload == {"item": f"item {name}"}
        assert context.pending_actions() == []
        assert context.version == 3  # deliveries are not commits of the branch


async def test_the_dispatcher_gets_the_context_and_the_pending_artifact() -> None:
    seen: list[tuple[Any, ...]] = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        data = artifact.data
        seen.append((context, artifact.id, data.kind, data.idempotency_key, data.payload, data.status))

    context = ordered()
    await Runtime(context, [notifier()], dispatcher=send).arun()
    assert seen == [(context, "action:notify:o", "mail", "notify:o", {"item": "item o"}, "pending")]


async def test_a_sync_dispatcher_will_do() -> None:
    sent: list[str] = []
    context = ordered()
    await Runtime(context, [notifier()], dispatcher=lambda ctx, found: sent.append(found.id)).arun()
    assert sent == ["action:notify:o"]
    assert action(context, "notify:o").status == "dispatched"


async def test_two_produces_with_one_key_send_once() -> None:
    context, outside = ordered(), Outside()
    await Runtime(context, [notifier("one"), notifier("two")], dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]
    assert len(context.list_artifacts(PendingAction)) == 1


async def test_a_later_turn_with_the_same_key_sends_nothing(place: Place) -> None:
    session, outside = await opened(place), Outside()
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    await runtime.arun()
    session.context.update("o", Order(item="item o", status="changed"))
    assert await runtime.arun() == 1
    assert outside.sent == ["notify:o"]


async def test_actions_are_sent_with_no_events_left(place: Place) -> None:
    session = await opened(place)
    await Runtime(session.context, [notifier()], session=session).arun()
    assert [found.id for found in session.context.pending_actions()] == ["action:notify:o"]
    reopened, outside = await place.store().open("s"), Outside()
    assert reopened.context.pending_events() == []
    runtime = Runtime(reopened.context, [], session=reopened, dispatcher=outside)
    assert await runtime.arun() == 0
    assert outside.sent == ["notify:o"]


async def test_an_action_created_directly_is_sent_too() -> None:
    context, outside = Context(), Outside()
    context.create(PendingAction(kind="mail", idempotency_key="k"), id="action:k")
    await Runtime(context, [], dispatcher=outside).arun()
    assert outside.sent == ["k"]


async def test_a_delivery_wakes_who_waits_for_it(place: Place) -> None:
    @produce(Answer)
    async def thank(call: ProduceCall) -> Answer:
        return Answer(text=f"sent {trigger_of(call).data.idempotency_key}")

    dispatched = Consume.by_status(PendingAction, "dispatched")
    thanker = create_agent("thanker", consumes=[dispatched], produces=[thank])
    session, outside = await opened(place), Outside()
    await Runtime(session.context, [notifier(), thanker], session=session, dispatcher=outside).arun()
    context = await place.load("s")
    assert [found.data.text for found in context.list_artifacts(Answer)] == ["sent notify:o"]


# -- failures -----------------------------------------------------------------------------------------


async def test_a_failure_is_recorded_reported_and_raised() -> None:
    reported: list[tuple[str, str, str]] = []

    def report(artifact: Artifact[PendingAction], error: BaseException) -> None:
        reported.append((artifact.id, artifact.data.status, str(error)))

    context, outside = ordered(), Outside("notify:o")
    runtime = Runtime(context, [notifier()], dispatcher=outside, on_dispatch_error=report)
    with pytest.raises(ConnectionError, match="no route for notify:o"):
        await runtime.arun()
    found = action(context, "notify:o")
    assert (found.status, found.attempts, found.error) == ("failed", 1, "no route for notify:o")
    assert found.dispatched_at is None
    assert reported == [("action:notify:o", "failed", "no route for notify:o")]
    assert not runtime.in_flight


async def test_failed_is_final_until_it_is_retried(place: Place) -> None:
    session, outside = await opened(place), Outside("notify:o")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    outside.failing.clear()
    await runtime.arun()
    assert outside.tried == ["notify:o"]
    reopened = await place.store().open("s")
    assert await Runtime(reopened.context, session=reopened, dispatcher=outside).arun() == 0
    assert outside.tried == ["notify:o"]

    armed = reopened.context.retry_action("action:notify:o")
    assert armed is not None
    assert (armed.data.status, armed.data.attempts, armed.data.error) == ("pending", 1, None)
    await reopened.save()
    last = await place.store().open("s")
    assert action(last.context, "notify:o").status == "pending"
    await Runtime(last.context, session=last, dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]
    assert action(await place.load("s"), "notify:o").status == "dispatched"


async def test_each_failure_counts_an_attempt() -> None:
    context, outside = ordered(), Outside("notify:o")
    runtime = Runtime(context, [notifier()], dispatcher=outside)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    context.mark_failed("action:notify:o", "again")
    assert (action(context, "notify:o").attempts, action(context, "notify:o").error) == (2, "again")


async def test_better_9_intent_and_failure_are_stored_before_arun_raises(place: Place) -> None:
    session = await opened(place)
    with pytest.raises(ConnectionError):
        await Runtime(session.context, [notifier()], session=session, dispatcher=Outside("notify:o")).arun()
    context = await place.load("s")
    assert context.version == 1
    assert [found.author for found in context.history()] == ["notifier"]
    assert live(context, "receipt:o").data == Receipt(order="o")
    assert (action(context, "notify:o").status, action(context, "notify:o").attempts) == ("failed", 1)
    assert context.pending_events() == []


async def test_better_10_the_others_go_on_and_the_first_failure_is_raised_with_notes() -> None:
    context = ordered("a", "b", "c", "d")
    outside = Outside("notify:b", "notify:d")
    with pytest.raises(ConnectionError) as caught:
        await Runtime(context, [notifier()], dispatcher=outside).arun()
    assert str(caught.value) == "no route for notify:b"
    assert outside.sent == ["notify:a", "notify:c"]
    assert len(caught.value.__notes__) == 1
    assert "ConnectionError" in caught.value.__notes__[0]
    assert "no route for notify:d" in caught.value.__notes__[0]
    statuses = [action(context, f"notify:{name}").status for name in "abcd"]
    assert statuses == ["dispatched", "failed", "dispatched", "failed"]


async def test_the_session_goes_on_after_a_failure() -> None:
    context, outside = ordered(), Outside("notify:o")
    runtime = Runtime(context, [notifier()], dispatcher=outside)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    context.create(Order(item="y"), id="p")
    assert await runtime.arun() == 1
    assert outside.sent == ["notify:p"]


async def test_an_error_without_a_text_is_named_by_its_class() -> None:
    def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        raise ConnectionResetError

    context = ordered()
    with pytest.raises(ConnectionResetError):
        await Runtime(context, [notifier()], dispatcher=send).arun()
    assert action(context, "notify:o").error == "ConnectionResetError"


async def test_a_failure_whose_text_cannot_be_stored_is_recorded_all_the_same(place: Place) -> None:
    def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        raise ConnectionError("no such file: \udcff.pdf")

    session = await opened(place)
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=send)
    with pytest.raises(ConnectionError, match="no such file"):
        await runtime.arun()
    found = action(await place.load("s"), "notify:o")
    assert (found.status, found.attempts, found.error) == ("failed", 1, r"no such file: \udcff.pdf")


@pytest.mark.parametrize("fails", [False, True])
async def test_on_dispatch_error_may_be_async_and_may_fail(fails: bool) -> None:
    reported: list[str] = []

    async def report(artifact: Artifact[PendingAction], error: BaseException) -> None:
        await anyio.lowlevel.checkpoint()
        reported.append(artifact.id)
        if fails:
            raise RuntimeError("the callback fails as well")

    context, outside = ordered("a", "b"), Outside("notify:a")
    runtime = Runtime(context, [notifier()], dispatcher=outside, on_dispatch_error=report)
    with pytest.raises(ConnectionError, match="notify:a"):
        await runtime.arun()
    assert reported == ["action:notify:a"]
    assert outside.sent == ["notify:b"]


# -- barriers -----------------------------------------------------------------------------------------


async def test_better_8_the_intent_is_in_the_store_before_it_is_sent(place: Place) -> None:
    seen: list[tuple[str, list[Any]]] = []

    async def look(context: Context, artifact: Artifact[PendingAction]) -> None:
        stored = await place.load("s")
        statuses = [action(stored, f"notify:{name}").status for name in "abc"]
        seen.append((artifact.id, statuses))

    session = await opened(place, "a", "b", "c")
    await Runtime(session.context, [notifier()], session=session, dispatcher=look).arun()
    # each delivery is recorded in the store before the next send
    assert seen == [
        ("action:notify:a", ["pending", "pending", "pending"]),
        ("action:notify:b", ["dispatched", "pending", "pending"]),
        ("action:notify:c", ["dispatched", "dispatched", "pending"]),
    ]


async def test_better_8_a_runtime_without_a_session_records_before_it_sends(place: Place) -> None:
    seen: list[str] = []

    async def look(context: Context, artifact: Artifact[PendingAction]) -> None:
        seen.append(action(await place.load("s"), "notify:o").status)

    session = await opened(place)
    await Runtime(session.context, [notifier()], dispatcher=look).arun()
    assert seen == ["pending"]
    assert action(await place.load("s"), "notify:o").status == "dispatched"


async def test_better_11_a_cancelled_send_is_recorded_and_repeated_with_its_key(place: Place) -> None:
    keys: list[str] = []
    sending = anyio.Event()

    async def hang(context: Context, artifact: Artifact[PendingAction]) -> None:
        keys.append(artifact.data.idempotency_key)
        if len(keys) == 1:
            sending.set()
            await anyio.sleep_forever()

    session = await opened(place)
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=hang)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.arun)
        await sending.wait()
        group.cancel_scope.cancel()
    assert not runtime.in_flight
    for context in (session.context, await place.load("s")):
        found = action(context, "notify:o")
        assert (found.status, found.attempts, found.error) == ("pending", 1, "interrupted")
    reopened = await place.store().open("s")
    await Runtime(reopened.context, session=reopened, dispatcher=hang).arun()
    assert keys == ["notify:o", "notify:o"]
    assert action(await place.load("s"), "notify:o").status == "dispatched"


# -- flush, hint --------------------------------------------------------------------------------------


async def test_flush_sends_without_a_generation(place: Place) -> None:
    session, outside = await opened(place, "a", "b"), Outside("notify:b")
    await Runtime(session.context, [notifier()], session=session).arun()
    session.context.create(Order(item="late"), id="late")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    with pytest.raises(ConnectionError):
        await runtime.flush_pending_actions()
    assert outside.tried == ["notify:a", "notify:b"]
    assert session.context.version == 2  # no generation ran
    stored = await place.load("s")
    assert [action(stored, key).status for key in ("notify:a", "notify:b")] == ["dispatched", "failed"]
    assert await runtime.flush_pending_actions() == 0
    session.context.retry_action("action:notify:b")
    outside.failing.clear()
    assert await runtime.flush_pending_actions() == 1


async def test_flush_without_a_dispatcher_is_nothing() -> None:
    context = ordered()
    runtime = Runtime(context, [notifier()])
    await runtime.arun()
    assert await runtime.flush_pending_actions() == 0
    assert len(context.pending_actions()) == 1


class Saves:
    def __init__(self) -> None:
        self.session_id = "s"
        self.count = 0

    async def save(self) -> None:
        self.count += 1


async def test_flush_saves_only_when_something_was_tried() -> None:
    context, saves = ordered(), Saves()
    await Runtime(context, [notifier()]).arun()
    runtime = Runtime(context, session=saves, dispatcher=Outside())
    assert await runtime.flush_pending_actions() == 1
    assert saves.count == 1
    assert await runtime.flush_pending_actions() == 0
    assert saves.count == 1


async def test_a_hint_on_stderr_without_a_dispatcher(capsys: pytest.CaptureFixture[str]) -> None:
    context = ordered("a", "b")
    runtime = Runtime(context, [notifier()])
    await runtime.arun()
    assert "no dispatcher=" in capsys.readouterr().err
    context.create(Order(item="x"), id="c")
    await runtime.arun()
    out, err = capsys.readouterr()
    assert (out, err) == ("", "")  # once per runtime
    assert len(context.pending_actions()) == 3
    await Runtime(ordered(), [notifier()], dispatcher=Outside()).arun()
    assert "no dispatcher=" not in capsys.readouterr().err


# -- by hand ------------------------------------------------------------------------------------------


async def test_marking_by_hand_is_a_direct_update() -> None:
    context = ordered()
    await Runtime(context, [notifier()]).arun()
    version, head = context.version, context.head_id
    held = live(context, "action:notify:o")
    before = held.version
    context.drain_events()
    marked = context.mark_failed("action:notify:o", "by hand")
    assert marked is held
    assert (held.data.status, held.data.error, held.data.attempts) == ("failed", "by hand", 1)
    assert held.version == before + 1
    again = context.mark_dispatched("action:notify:o")
    assert again is held
    assert held.data.status == "dispatched"
    assert held.data.dispatched_at is not None
    assert held.version == before + 2
    events = [(event.type, event.artifact_id) for event in context.pending_events()]
    assert events == [(EventType.ARTIFACT_UPDATED, "action:notify:o")] * 2
    assert (context.version, context.head_id) == (version, head)


@pytest.mark.parametrize("verb", ["mark_dispatched", "mark_failed", "retry_action"])
def test_what_is_no_action_gives_none(verb: str) -> None:
    context = Context()
    context.create(Note(), id="n")
    assert getattr(context, verb)("n") is None
    assert getattr(context, verb)("unknown") is None


async def test_pending_actions_are_in_the_order_they_were_planned() -> None:
    def plan(call: ProduceCall) -> None:
        for key in ("z", "a", "m"):
            call.effects.act("mail", key=key)

    context = Context()
    await commit(context, plan)
    assert [found.data.idempotency_key for found in context.pending_actions()] == ["z", "a", "m"]
    context.mark_dispatched("action:a")
    assert [found.data.idempotency_key for found in context.pending_actions()] == ["z", "m"]


# -- an agent cannot touch delivery -------------------------------------------------------------------


async def test_better_50_a_dispatched_action_is_not_sent_again_by_retry(place: Place) -> None:
    session, outside = await opened(place), Outside()
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    for context in (session.context, await place.load("s")):
        with pytest.raises(ValueError, match=r"action:notify:o.*dispatched"):
            context.retry_action("action:notify:o")
        assert action(context, "notify:o").status == "dispatched"


PLANS: dict[str, Any] = {
    "create": lambda call, intent: call.effects.create(intent, id="action:notify:o"),
    "update": lambda call, intent: call.effects.update(
        "action:notify:o", status="pending", attempts=0, error=None, dispatched_at=None
    ),
    "delete and create": lambda call, intent: (
        call.effects.delete("action:notify:o"),
        call.effects.create(intent, id="action:notify:o"),
    ),
    "direct update": lambda call, intent: call.context.update("action:notify:o", intent),
}


@pytest.mark.parametrize("how", list(PLANS))
async def test_better_50_writes_of_agents_never_change_delivery(how: str, place: Place) -> None:
    session, outside = await opened(place), Outside()
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    when = action(session.context, "notify:o").dispatched_at
    intent = PendingAction(kind="mail", idempotency_key="notify:o", payload={"item": "item o"})
    await commit(session.context, lambda call: PLANS[how](call, intent))
    await session.save()
    for context in (session.context, await place.load("s")):
        found = action(context, "notify:o")
        assert (found.status, found.dispatched_at) == ("dispatched", when)
        assert context.pending_actions() == []
        await Runtime(context, dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]


async def test_better_50_an_agent_cannot_mark_an_action_as_sent() -> None:
    context, outside = ordered(), Outside()
    await Runtime(context, [notifier()]).arun()
    await commit(context, lambda call: call.effects.update("action:notify:o", status="dispatched"))
    assert action(context, "notify:o").status == "pending"
    await Runtime(context, dispatcher=outside).arun()
    assert outside.sent == ["notify:o"]


async def test_the_same_key_with_another_payload_is_not_sent(place: Place) -> None:
    session, outside = await opened(place), Outside()
    await Runtime(session.context, [notifier()], session=session, dispatcher=outside).arun()
    other = PendingAction(kind="mail", idempotency_key="notify:o", payload={"item": "something else"})
    await commit(session.context, lambda call: call.effects.upsert(other, id="action:notify:o"))
    runtime = Runtime(session.context, session=session, dispatcher=outside)
    with pytest.raises(ValueError, match="action:notify:o was delivered with another payload"):
        await runtime.arun()
    assert outside.tried == ["notify:o"]
    for context in (session.context, await place.load("s")):
        found = action(context, "notify:o")
        assert found.status == "failed"
        assert found.error is not None
        assert "delivered with another payload" in found.error
    await runtime.arun()  # it was said once
    assert outside.tried == ["notify:o"]


# -- when it is sent and saved ------------------------------------------------------------------------


async def test_under_per_turn_the_outbox_drains_once_after_the_save(place: Place) -> None:
    order: list[str] = []

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        stored = await place.load("s")
        assert stored.pending_actions()[0].id == artifact.id
        order.append(f"send {artifact.data.idempotency_key}")

    session = await opened(place, "a", "b")
    save = session.save

    async def saving() -> None:
        order.append("save")
        await save()

    session.save = saving

    @produce(Order)
    async def chain(call: ProduceCall) -> Order | None:
        order.append(f"run {trigger_of(call).id}")
        return None

    runtime = Runtime(
        session.context,
        [notifier(), create_agent("chain", consumes=[Consume(Receipt)], produces=[chain])],
        session=session,
        session_save_policy="per_turn",
        dispatcher=send,
    )
    await runtime.arun()
    assert order == ["run receipt:a", "run receipt:b", "save", "send notify:a", "send notify:b"]
    assert action(await place.load("s"), "notify:b").status == "dispatched"


async def test_per_turn_failure_is_raised_and_stored(place: Place) -> None:
    session, outside = await opened(place, "a", "b"), Outside("notify:a")
    runtime = Runtime(
        session.context,
        [notifier()],
        session=session,
        session_save_policy="per_turn",
        dispatcher=outside,
    )
    with pytest.raises(ConnectionError):
        await runtime.arun()
    stored = await place.load("s")
    assert [action(stored, f"notify:{name}").status for name in "ab"] == ["failed", "dispatched"]


async def test_actions_planned_by_a_reaction_to_a_delivery_are_sent_in_the_same_turn() -> None:
    @produce(Answer, also_creates=PendingAction)
    async def follow_up(call: ProduceCall) -> None:
        if trigger_of(call).data.idempotency_key == "notify:o":
            call.effects.act("sms", key="follow-up")

    consume = Consume.by_status(PendingAction, "dispatched")
    follower = create_agent("follower", consumes=[consume], produces=[follow_up])
    context, outside = ordered(), Outside()
    await Runtime(context, [notifier(), follower], dispatcher=outside).arun()
    assert outside.sent == ["notify:o", "follow-up"]


async def test_a_failed_agent_sends_nothing_that_generation() -> None:
    class Broken(Agent):
        consumes = (Consume(Order),)

        async def run(self, event: Any, context: Context) -> None:
            raise ConnectionError("agent")

    context, outside = ordered(), Outside()
    with pytest.raises(ConnectionError, match="agent"):
        await Runtime(context, [notifier(), Broken()], dispatcher=outside).arun()
    assert outside.tried == []
    assert context.pending_actions() == []


# -- what the repository shows ------------------------------------------------------------------------


async def test_better_12_deliveries_are_commits_of_a_ledger(git_place: Place) -> None:
    session, outside = await opened(git_place, "a", "b"), Outside("notify:b")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    outside.failing.clear()
    session.context.retry_action("action:notify:b")
    await runtime.arun()
    assert git_place.path is not None
    log = git(git_place.path, "log", "--format=%s", "s/%outbox").splitlines()
    assert log[::-1] == [
        "delivered notify:a",
        "failed notify:b",
        "retry notify:b",
        "delivered notify:b",
    ]
    branch = git(git_place.path, "log", "--format=%s", "s/main")
    assert not any(line.startswith("delivered") for line in branch.splitlines())
    assert branch.count("act notify:") == 2
    fsck(git_place.path)


async def test_an_action_leaves_the_outbox_of_the_branch_when_it_is_delivered(git_place: Place) -> None:
    session, outside = await opened(git_place), Outside()
    await Runtime(session.context, [notifier()], session=session).arun()
    assert git_place.path is not None
    listed = git(git_place.path, "ls-tree", "-r", "--name-only", "s/main", "outbox/")
    assert len(listed.splitlines()) == 1
    await Runtime(session.context, session=session, dispatcher=outside).arun()
    session.context.create(Question(text="the next commit"))
    await session.save()
    assert git(git_place.path, "ls-tree", "-r", "--name-only", "s/main", "outbox/") == ""
    entry = git(git_place.path, "ls-tree", "-r", "--name-only", "s/%outbox", "ledger/").splitlines()
    assert len(entry) == 1
    assert entry[0].endswith("/action%3Anotify%3Ao.json")
