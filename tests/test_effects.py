"""`Effects` and `Handle` (API §10): what each method plans; nothing is applied before the commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest
from support import Note, Order, Question, commit, live

from reactifact import (
    Agent,
    Artifact,
    Consume,
    Context,
    Create,
    Delete,
    Effects,
    Event,
    EventType,
    Link,
    Patch,
    PendingAction,
    PendingQuestion,
    ProduceCall,
    Runtime,
    RuntimeResources,
    Trigger,
    Unlink,
    Update,
    create_agent,
    produce,
)
from reactifact.effects import current_effects
from reactifact.errors import AnswerConflict, IntentConflict, ReactifactError
from reactifact.outbox import actions
from reactifact.testing import JumpingClock

pytestmark = pytest.mark.anyio


def planned() -> tuple[Context, Effects]:
    context = Context()
    context.create(Note(text="a", count=1), id="n")
    context.drain_events()
    return context, Effects(context)


def test_nothing_is_applied_by_planning() -> None:
    context, effects = planned()
    assert effects.is_empty()
    effects.create(Note(), id="x")
    effects.update("n", text="b")
    effects.link("n", "cites", "x")
    effects.act("mail", key="k")
    effects.ask("ok?")
    assert not effects.is_empty()
    assert effects.context is context
    assert context.snapshot() == {"n": Note(text="a", count=1).model_dump()}
    assert context.relations() == []
    assert context.pending_events() == []


def test_create_gives_a_handle() -> None:
    _, effects = planned()
    handle = effects.create(Note(text="x"), id="x")
    assert (handle.id, handle.type) == ("x", "Note")
    assert effects.operations == [Create(Note(text="x"), id="x")]


def test_better_29_automatic_ids_have_128_random_bits() -> None:
    _, effects = planned()
    made = [effects.create(Order(item="x")).id for _ in range(50)]
    assert len(set(made)) == 50
    for name in made:
        head, _, tail = name.partition(":")
        assert head == "order"
        assert len(bytes.fromhex(tail)) == 16


def test_the_factory_makes_ids() -> None:
    context = Context(RuntimeResources(id_factory=lambda kind: f"made-for-{kind}"))
    assert Effects(context).create(Note()).id == "made-for-Note"


def test_better_29_a_factory_that_repeats_itself_is_refused() -> None:
    context = Context(RuntimeResources(id_factory=lambda kind: "same"))
    effects = Effects(context)
    effects.create(Note())
    with pytest.raises(ValueError, match=r"'same'.*taken"):
        effects.create(Note())
    context.create(Note(text="there"), id="same")
    with pytest.raises(ValueError, match=r"'same'.*taken"):
        Effects(context).create(Note())


def test_create_once_plans_nothing_when_the_id_is_there() -> None:
    _, effects = planned()
    assert effects.create_once(Note(text="again"), id="n") is None
    assert effects.is_empty()
    handle = effects.create_once(Note(), id="x")
    assert handle is not None
    assert effects.create_once(Note(text="twice"), id="x") is None
    assert effects.operations == [Create(Note(), id="x")]


def test_create_once_from_names_the_id_after_its_source() -> None:
    context, effects = planned()
    first = effects.create_once_from(live(context, "n"), Order(item="x"))
    second = effects.create_once_from("n", Order(item="x"), prefix="draft")
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == ("order:n", "draft:n")
    assert effects.create_once_from("n", Order(item="y")) is None


def test_upsert_is_the_same_operation_as_create_with_an_id() -> None:
    context, effects = planned()
    other = Effects(context)
    effects.upsert(Note(text="b"), id="n")
    other.create(Note(text="b"), id="n")
    assert effects.operations == other.operations


@pytest.mark.parametrize("by", ["id", "artifact"])
def test_update_keeps_the_other_fields(by: str) -> None:
    context, effects = planned()
    effects.update(live(context, "n") if by == "artifact" else "n", text="b")
    assert effects.operations == [Update("n", Note(text="b", count=1))]


def test_better_26_a_second_update_builds_on_the_first() -> None:
    context, effects = planned()
    artifact = live(context, "n")
    effects.update(artifact, text="b")
    effects.update(artifact, count=2)
    effects.update("n", tags=["t"])
    assert effects.operations[-1] == Update("n", Note(text="b", count=2, tags=["t"]))


def test_better_26_an_update_builds_on_a_planned_create() -> None:
    _, effects = planned()
    handle = effects.create(Note(text="x", count=7), id="x")
    effects.update(handle, text="y")
    assert effects.operations[-1] == Update("x", Note(text="y", count=7))


async def test_better_26_two_updates_in_one_produce_are_both_there() -> None:
    context, _ = planned()

    def work(call: Any) -> None:
        call.effects.update("n", text="b")
        call.effects.update("n", count=2)

    await commit(context, work)
    assert live(context, "n").data == Note(text="b", count=2)


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"txet": "b"}, "no field 'txet'"), ({"count": "many"}, "count"), ({"text": None}, "text")],
    ids=["misspelt", "wrong type", "none"],
)
def test_better_28_an_update_is_validated(fields: dict[str, Any], says: str) -> None:
    context, effects = planned()
    with pytest.raises(ValueError, match=says):
        effects.update("n", **fields)
    assert effects.is_empty()
    assert live(context, "n").data == Note(text="a", count=1)


def test_an_update_of_what_is_missing_is_an_error() -> None:
    context, effects = planned()
    with pytest.raises(LookupError, match="'gone'"):
        effects.update("gone", text="b")
    effects.delete("n")
    with pytest.raises(LookupError, match="'n'"):
        effects.update(live(context, "n"), text="b")


def test_delete_link_and_unlink_take_ids_artifacts_and_handles() -> None:
    context, effects = planned()
    artifact = live(context, "n")
    handle = effects.create(Note(), id="x")
    effects.link(artifact, "cites", handle)
    effects.link(handle, "cites", "n")
    effects.unlink(artifact)
    effects.unlink("n", "cites", handle)
    effects.delete(artifact)
    effects.delete(handle)
    assert effects.operations[1:] == [
        Link("n", "cites", "x"),
        Link("x", "cites", "n"),
        Unlink("n"),
        Unlink("n", "cites", "x"),
        Delete("n"),
        Delete("x"),
    ]


def test_handle_calls_chain() -> None:
    context, effects = planned()
    first = effects.create(Note(), id="x")
    second = effects.create(Note(), id="y")
    chained = first.link("cites", "n").link("uses", live(context, "n")).link("next", second).unlink("old")
    assert chained is first
    first.unlink("cites", "n").unlink()
    assert effects.operations[2:] == [
        Link("x", "cites", "n"),
        Link("x", "uses", "n"),
        Link("x", "next", "y"),
        Unlink("x", "old"),
        Unlink("x", "cites", "n"),
        Unlink("x"),
    ]


def test_ask_and_resume_plan_a_question_and_its_answer() -> None:
    context, effects = planned()
    handle = effects.ask("ok?", kind="approval", notes={"a": 1}, id="q")
    asked = PendingQuestion(question="ok?", kind="approval", notes={"a": 1})
    assert (handle.id, handle.type) == ("q", "PendingQuestion")
    assert effects.operations == [Create(asked, id="q")]
    question = context.interrupt("really?")
    effects.resume(question, "yes")
    operation = effects.operations[-1]
    assert isinstance(operation, Update)
    assert isinstance(operation.new_data, PendingQuestion)
    assert operation.new_data.answered
    assert operation.new_data.resolution == "yes"
    assert operation.new_data.resolved_at is not None
    assert not question.data.answered


def test_act_plans_an_action_under_its_key_once() -> None:
    context, effects = planned()
    handle = effects.act("mail", key="k1", payload={"to": "ada"})
    assert handle is not None
    assert (handle.id, handle.type) == ("action:k1", "PendingAction")
    expected = PendingAction(kind="mail", idempotency_key="k1", payload={"to": "ada"})
    assert effects.operations == [Create(expected, id="action:k1")]
    assert effects.act("mail", key="k1", payload={"to": "ada"}) is None
    context.create(PendingAction(kind="mail", idempotency_key="k2"), id="action:k2")
    assert effects.act("mail", key="k2") is None
    assert len(effects.operations) == 1
    other = effects.act("mail", key="k3", id="my-id")
    assert other is not None
    assert other.id == "my-id"


def test_one_key_with_two_payloads_in_one_produce_is_refused() -> None:
    _, effects = planned()
    effects.act("mail", key="k", payload={"to": "ada"})
    with pytest.raises(IntentConflict, match="action:k"):
        effects.act("mail", key="k", payload={"to": "bob"})


def test_another_payload_replaces_an_intent_that_nobody_has_tried() -> None:
    context, effects = planned()
    context.create(PendingAction(kind="mail", idempotency_key="k", payload={"to": "ada"}), id="action:k")
    assert effects.act("mail", key="k", payload={"to": "ada"}) is None
    assert effects.act("mail", key="k", payload={"to": "bob"}) is not None
    replaced = PendingAction(kind="mail", idempotency_key="k", payload={"to": "bob"})
    assert effects.operations == [Create(replaced, id="action:k")]
    # what stands is planned again: nothing to plan, whatever this execution planned before
    assert effects.act("mail", key="k", payload={"to": "ada"}) is None
    with pytest.raises(IntentConflict, match="different content"):
        effects.act("mail", key="k", payload={"to": "eve"})


@pytest.mark.parametrize("how", ["sent", "failed", "re-armed"])
def test_an_intent_that_was_tried_is_not_replaced(how: str) -> None:
    context, effects = planned()
    context.create(PendingAction(kind="mail", idempotency_key="k", payload={"to": "ada"}), id="action:k")
    if how == "sent":
        context.mark_dispatched("action:k")
    else:
        context.mark_failed("action:k", "no route")
    if how == "re-armed":
        context.retry_action("action:k")
    assert effects.act("mail", key="k", payload={"to": "ada"}) is None
    with pytest.raises(IntentConflict, match=r"'action:k' .*another content.* key of its own"):
        effects.act("mail", key="k", payload={"to": "bob"})
    assert effects.operations == []


def test_an_id_of_something_else_is_not_taken_for_an_action() -> None:
    context, effects = planned()
    context.create(Note(text="no action"), id="action:k")
    with pytest.raises(IntentConflict, match="id of a Note"):
        effects.act("mail", key="k")


def test_an_answer_is_planned_once() -> None:
    context, effects = planned()
    question = context.interrupt("Ship it?")
    effects.resume(question, "yes")
    effects.resume(question, "yes")
    assert len(effects.operations) == 1
    with pytest.raises(AnswerConflict, match="change=True"):
        effects.resume(question, "no")
    effects.resume(question, "no", change=True)
    assert effects.operations[-1].new_data.resolution == "no"  # type: ignore[attr-defined]
    with pytest.raises(LookupError, match="there is no question 'nowhere'"):
        effects.resume("nowhere", "yes")


def test_add_and_to_patch() -> None:
    _, effects = planned()
    effects.add(Delete("n"))
    patch = effects.to_patch()
    assert isinstance(patch, Patch)
    assert patch.operations == [Delete("n")]


async def test_all_effects_of_one_execution_are_one_commit() -> None:
    context, _ = planned()

    def work(call: Any) -> None:
        call.effects.create(Note(), id="x").link("cites", "n")
        call.effects.update("n", text="b")
        call.effects.act("mail", key="k")
        call.effects.ask("ok?", id="q")
        call.effects.delete("kick")

    await commit(context, work)
    assert context.version == 1
    assert set(context.snapshot()) == {"n", "x", "action:k", "q"}


async def test_a_returned_patch_comes_before_the_effects() -> None:
    class Both(Agent):
        triggers = (Trigger(EventType.ARTIFACT_CREATED, Question),)

        async def run(self, event: Event | None, context: Context) -> Patch:
            effects = current_effects()
            assert effects is not None
            effects.create(Note(text="effect"), id="n")
            return Patch().create(Note(text="patch"), id="n").create(Note(), id="first")

    context = Context()
    context.create(Question(text="?"), id="q")
    await Runtime(context, [Both()]).arun()
    assert [getattr(op, "artifact_id", None) for op in context.history()[0].operations] == ["n", "first", "n"]
    assert live(context, "n").data.text == "effect"
    assert [note.text for note in live(context, "n").history] == ["patch"]


async def test_current_effects_is_there_only_inside_a_produce() -> None:
    seen: list[Any] = []
    context, _ = planned()
    assert current_effects() is None
    await commit(context, lambda call: seen.append((current_effects(), call.effects)))
    assert seen[0][0] is seen[0][1]
    assert current_effects() is None


async def test_current_effects_is_its_own_for_each_concurrent_execution() -> None:
    started = [anyio.Event(), anyio.Event()]
    pairs: list[bool] = []

    def meeting(number: int) -> Agent:
        @produce(Note)
        async def meet(call: ProduceCall) -> None:
            mine = current_effects()
            started[number].set()
            await started[1 - number].wait()
            pairs.append(mine is current_effects() is call.effects)
            call.effects.create(Note(text=f"by {number}"), id=f"n{number}")

        return create_agent(f"agent {number}", consumes=[Consume(Question)], produces=[meet])

    context = Context()
    context.create(Question(text="?"), id="q")
    await Runtime(context, [meeting(0), meeting(1)], max_concurrency=2).arun()
    assert pairs == [True, True]
    assert [len(found.operations) for found in context.history()] == [1, 1]
    assert [found.author for found in context.history()] == ["agent 0", "agent 1"]


async def test_execute_gives_the_patch_and_applies_nothing() -> None:
    class Direct(Agent):
        async def run(self, event: Event | None, context: Context) -> Patch:
            effects = current_effects()
            assert effects is not None
            effects.delete("n")
            return Patch().create(Note(), id="x")

    context, _ = planned()
    patch = await Direct().execute(context)
    assert patch.operations == [Create(Note(), id="x"), Delete("n")]
    assert context.get("x") is None
    assert isinstance(context.get("n"), Artifact)


async def test_one_patch_handed_out_by_two_executions_makes_two_artifacts() -> None:
    always = Patch().create(Note(text="again"))

    @produce(Note)
    def work(call: ProduceCall) -> Patch:
        return always

    context = Context()
    context.create(Question(text="one"))
    context.create(Question(text="two"))
    assert (
        await Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[work])]).arun() == 2
    )
    assert [note.data.text for note in context.list_artifacts(Note)] == ["again", "again"]
    operation = always.operations[0]
    assert isinstance(operation, Create)
    assert operation.artifact_id is None


async def test_what_a_task_does_after_its_execution_is_refused_and_not_lost() -> None:
    """It would go to a view that nobody commits any more."""
    refused: list[str] = []
    over = anyio.Event()

    async def outlive(call: ProduceCall, effects: Effects) -> None:
        await over.wait()
        context = call.context
        assert live(context, "n").data.text == "a"  # it goes on seeing what its execution saw
        for name, late in {
            "create": lambda: context.create(Note(), id="late"),
            "update": lambda: context.update("n", Note(text="late")),
            "delete": lambda: context.delete("n"),
            "link": lambda: context.link("n", "cites", "n"),
            "unlink": lambda: context.unlink("n"),
            "effect": lambda: effects.create(Note(), id="late"),
        }.items():
            with pytest.raises(
                ReactifactError, match="after its execution had ended, by a task that outlived"
            ):
                late()
            refused.append(name)

    async with anyio.create_task_group() as group:

        @produce(Note)
        def work(call: ProduceCall) -> None:
            group.start_soon(outlive, call, call.effects)

        context = Context()
        context.create(Note(text="a"), id="n")
        context.drain_events()
        context.create(Question(text="one"), id="q")
        await Runtime(context, [create_agent("x", consumes=[Consume(Question)], produces=[work])]).arun()
        context.update("n", Note(text="b"))
        over.set()
    assert refused == ["create", "update", "delete", "link", "unlink", "effect"]
    assert context.snapshot().keys() == {"n", "q"}
    assert live(context, "n").data.text == "b"


# -- later, never, and to oneself -------------------------------------------------------------------


LATER = datetime(2031, 1, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))


async def test_a_time_is_kept_in_utc_and_without_a_zone_it_is_refused() -> None:
    _, effects = planned()
    assert effects.act("mail", key="k", not_before=LATER) is not None
    (create,) = effects.operations
    assert isinstance(create, Create)
    assert create.data.not_before == LATER
    assert create.data.not_before.tzinfo is UTC
    with pytest.raises(ValueError, match="'j' has no zone"):
        effects.act("mail", key="j", not_before=datetime(2031, 1, 1))
    assert len(effects.operations) == 1


async def test_an_intent_without_a_time_is_stored_as_ever() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.act("mail", key="k"))
    stored = context.working.state.stored("action:k")
    assert stored is not None
    payload = context.working.state.payload(stored.meta)
    assert b"not_before" not in payload
    assert b"cancelled_at" not in payload


async def test_a_time_is_moved_by_planning_the_intent_again() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.act("mail", key="k", not_before=LATER))
    await commit(context, lambda call: call.effects.act("mail", key="k", not_before=LATER + timedelta(1)))
    assert live(context, "action:k").data.not_before == LATER + timedelta(1)
    again: list[Any] = []
    await commit(
        context,
        lambda call: again.append(call.effects.act("mail", key="k", not_before=LATER + timedelta(1))),
    )
    assert again == [None]


async def test_what_is_cancelled_stays_so_and_is_sent_by_nobody() -> None:
    context, sent = Context(), []
    told: list[Any] = []

    async def send(context: Context, action: Artifact[Any]) -> None:
        sent.append(action.id)

    await commit(context, lambda call: call.effects.act("mail", key="k", payload={"n": 1}))
    await commit(context, lambda call: told.append(call.effects.cancel("k")))
    await commit(context, lambda call: told.append(call.effects.cancel("k")))
    await commit(context, lambda call: told.append(call.effects.act("mail", key="k", payload={"n": 2})))
    await commit(context, lambda call: told.append(call.effects.cancel("nothing")))
    assert told == [True, False, None, False]
    assert live(context, "action:k").data.status == "cancelled"
    assert await Runtime(context, dispatcher=send).flush_pending_actions() == 0
    assert sent == []
    assert context.pending_actions() == []
    assert [found.id for found in actions(context, "cancelled")] == ["action:k"]


async def test_what_was_delivered_cannot_be_cancelled() -> None:
    context, told = Context(), []

    async def send(context: Context, action: Artifact[Any]) -> None:
        """Send it."""

    await commit(context, lambda call: call.effects.act("mail", key="k"))
    await Runtime(context, dispatcher=send).flush_pending_actions()
    await commit(context, lambda call: told.append(call.effects.cancel("k")))
    assert told == [False]
    assert live(context, "action:k").data.status == "dispatched"


async def test_an_intent_may_be_cancelled_by_the_execution_that_planned_it() -> None:
    context = Context()

    def both(call: ProduceCall) -> None:
        call.effects.act("mail", key="k")
        assert call.effects.cancel("k")
        assert not call.effects.cancel("k")

    await commit(context, both)
    assert live(context, "action:k").data.status == "cancelled"
    assert context.pending_actions() == []


async def test_a_plan_and_its_cancellation_in_one_generation_end_in_a_cancelled_intent() -> None:
    context = Context()
    await commit(context, lambda call: call.effects.act("mail", key="k", payload={"n": 1}))
    done: list[Any] = []

    @produce(Note, also_creates=PendingAction)
    async def replan(call: ProduceCall) -> None:
        done.append(call.effects.act("mail", key="k", payload={"n": 2}))

    @produce(Note)
    async def cancel(call: ProduceCall) -> None:
        done.append(call.effects.cancel("k"))

    agents = [
        create_agent("replans", consumes=[Consume(Order)], produces=[replan]),
        create_agent("cancels", consumes=[Consume(Order)], produces=[cancel]),
    ]
    context.create(Order(item="tea"), id="o")
    await Runtime(context, agents).arun()
    found = live(context, "action:k").data
    assert (found.status, found.payload) == ("cancelled", {"n": 2})


async def test_a_fork_and_a_merge_keep_what_was_cancelled_and_when_it_is_due() -> None:
    context = Context()

    def plan(call: ProduceCall) -> None:
        call.effects.act("mail", key="a", not_before=LATER)
        call.effects.act("mail", key="b")

    await commit(context, plan)
    fork = context.branch(name="fork")
    await commit(fork, lambda call: call.effects.cancel("b"))
    assert live(fork, "action:a").data.not_before == LATER
    assert [found.id for found in context.pending_actions()] == ["action:a", "action:b"]
    context.merge(fork)
    assert [found.id for found in context.pending_actions()] == ["action:a"]
    copy = Context.from_dict(context.to_dict())
    assert live(copy, "action:b").data.status == "cancelled"
    assert [found.id for found in copy.pending_actions()] == ["action:a"]
    context.checkout(1)  # before it was cancelled
    assert [found.id for found in context.pending_actions()] == ["action:a", "action:b"]


async def test_a_turn_delivers_a_wake_that_is_due_and_an_agent_reacts() -> None:
    clock = JumpingClock()
    context = Context(RuntimeResources(clock=clock))
    woken: list[Any] = []

    @produce(Note)
    async def remind(call: ProduceCall) -> None:
        assert call.trigger is not None
        assert call.inputs == []
        woken.append((call.trigger.data.idempotency_key, call.trigger.data.payload))

    agent = create_agent("reminder", consumes=[Consume.wake("remind:")], produces=[remind])
    at = clock.now() + timedelta(hours=1)

    def plan(call: ProduceCall) -> None:
        call.effects.wake(at, key="remind:1", payload={"n": 1})
        call.effects.wake(at, key="other:1")

    await commit(context, plan)
    runtime = Runtime(context, [agent])  # a wake needs no dispatcher
    assert await runtime.arun() == 0
    assert woken == []
    clock.advance(3600)
    assert await runtime.arun() == 1
    assert woken == [("remind:1", {"n": 1})]
    assert await runtime.arun() == 0
    assert live(context, "action:other:1").data.status == "dispatched"


def test_edit_plans_what_the_block_changed() -> None:
    context, effects = planned()
    note = context.get("n", Note)
    assert note is not None
    with effects.edit(note) as data:
        data.count = 5
    assert effects.operations == [Update("n", Note(text="a", count=5))]
    assert note.data.count == 1  # the copy was changed, not the artifact
    with effects.edit(note) as data:  # on top of what is planned
        assert data.count == 5
        data.text = "b"
    assert effects.operations[-1] == Update("n", Note(text="b", count=5))


def test_edit_plans_nothing_for_no_change_or_an_error() -> None:
    context, effects = planned()
    note = context.get("n", Note)
    assert note is not None
    with effects.edit(note):
        pass
    with pytest.raises(ZeroDivisionError), effects.edit(note) as data:
        data.count = 1 // 0
    with pytest.raises(ValueError, match="count"), effects.edit(note) as data:
        data.count = "many"  # type: ignore[assignment]
    assert effects.is_empty()
    effects.delete(note)
    with pytest.raises(LookupError, match="'n'"), effects.edit(note) as data:
        data.count = 7
