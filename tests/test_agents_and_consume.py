"""`Consume`, `Agent`, `create_agent` (API §12): what wakes, what feeds, where triggers come from."""

from __future__ import annotations

from typing import Any

import pytest
from support import Answer, Kick, Note, Order, Question, SpecialNote, live, trigger_of

from reactifact import (
    Agent,
    Artifact,
    Budget,
    Consume,
    Context,
    Event,
    EventType,
    Patch,
    ProduceCall,
    Runtime,
    Trigger,
    consume,
    create_agent,
    produce,
)
from reactifact.errors import ReactifactError

pytestmark = pytest.mark.anyio
CREATED, UPDATED, DELETED = (
    EventType.ARTIFACT_CREATED,
    EventType.ARTIFACT_UPDATED,
    EventType.ARTIFACT_DELETED,
)


class Watcher:
    """An agent that notes each event it is run on."""

    def __init__(self, *consumes: Consume, name: str = "watcher", **options: Any) -> None:
        self.seen: list[tuple[str, str]] = []

        @produce(Answer)
        async def watch(call: ProduceCall) -> None:
            assert call.event is not None
            self.seen.append((call.event.type.removeprefix("artifact_"), call.event.artifact_id))

        self.agent = create_agent(name, consumes=list(consumes), produces=[watch], **options)


async def run(context: Context, *watchers: Watcher, **options: Any) -> int:
    return await Runtime(context, [watcher.agent for watcher in watchers]).arun(**options)


def test_two_triggers_by_default_one_for_each_event_type() -> None:
    triggers = Consume(Note).to_triggers()
    assert [(t.event_type, t.artifact_type, t.debounce) for t in triggers] == [
        (CREATED, Note, False),
        (UPDATED, Note, False),
    ]
    (only,) = Consume(Note, None, [DELETED], debounce=True).to_triggers()
    assert (only.event_type, only.debounce) == (DELETED, True)
    assert Consume(Note, wakes=False).to_triggers() == []


class ShortNotes(Consume):
    artifact_type = Note
    event_types = (CREATED,)
    debounce = True

    def condition(found: Any) -> bool:  # type: ignore[override]  # noqa: N805
        return len(found.data.text) < 3


async def test_defaults_come_from_class_attributes() -> None:
    made = ShortNotes()
    (trigger,) = made.to_triggers()
    assert (trigger.event_type, trigger.artifact_type, trigger.debounce) == (CREATED, Note, True)
    context = Context()
    context.create(Note(text="ok"), id="short")
    context.create(Note(text="far too long"), id="long")
    assert [found.id for found in made.collect(context)] == ["short"]
    watcher = Watcher(ShortNotes())
    await run(context, watcher)
    assert watcher.seen == [("created", "short")]
    assert ShortNotes(debounce=False).to_triggers()[0].debounce is False
    assert ShortNotes(event_types=[UPDATED]).to_triggers()[0].event_type == UPDATED


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="has no artifact type"):
        Consume()
    with pytest.raises(ValueError, match="meaningless"):
        Consume(Note, debounce=True, wakes=False)


async def test_wakes_false_feeds_without_waking() -> None:
    inputs: list[list[str]] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        inputs.append([found.id for found in call.inputs])

    context = Context()
    context.create(Note(), id="n")
    agent = create_agent("a", consumes=[Consume(Question), Consume(Note, wakes=False)], produces=[look])
    runtime = Runtime(context, [agent])
    assert await runtime.arun() == 0
    context.create(Question(text="why"), id="q")
    assert await runtime.arun() == 1
    assert inputs == [["q", "n"]]


async def test_exact_types_wake_and_subclasses_feed() -> None:
    context = Context()
    context.create(SpecialNote(), id="s")
    context.create(Note(), id="n")
    watcher = Watcher(Consume(Note))
    assert await run(context, watcher) == 1
    assert watcher.seen == [("created", "n")]
    assert [found.id for found in Consume(Note).collect(context)] == ["s", "n"]


async def test_a_condition_limits_waking_and_feeding() -> None:
    big = Consume(Note, lambda found: found.data.count > 10)
    context = Context()
    context.create(Note(count=1), id="small")
    context.create(Note(count=11), id="big")
    context.update("small", Note(count=12))
    assert [found.id for found in big.collect(context)] == ["small", "big"]
    watcher = Watcher(big)
    await run(context, watcher)
    # conditions are asked on the state now: both events of `small` match by then
    assert watcher.seen == [("created", "small"), ("created", "big"), ("updated", "small")]


async def test_event_types_choose_what_wakes() -> None:
    watcher = Watcher(Consume(Note, None, [DELETED]))
    context = Context()
    context.create(Note(), id="n")
    context.update("n", Note(text="b"))
    context.delete("n")
    assert await run(context, watcher) == 1
    assert watcher.seen == [("deleted", "n")]


async def test_by_field_and_by_status() -> None:
    context = Context()
    context.create(Order(item="x", status="open"), id="o1")
    context.create(Order(item="y", status="paid"), id="o2")
    context.create(Note(count=3), id="n")
    paid, three = Consume.by_status(Order, "paid"), Consume.by_field(Note, "count", 3)
    assert [found.id for found in paid.collect(context)] == ["o2"]
    assert [found.id for found in three.collect(context)] == ["n"]
    watcher = Watcher(paid, three)
    await run(context, watcher)
    assert watcher.seen == [("created", "o2"), ("created", "n")]
    quiet = Consume.by_status(Order, "paid", wakes=False)
    assert quiet.to_triggers() == []
    (only,) = Consume.by_field(Order, "item", "x", event_types=[DELETED]).to_triggers()
    assert only.event_type == DELETED


def test_the_function_form() -> None:
    made = consume(Note, lambda found: False, [DELETED], debounce=True)
    assert isinstance(made, Consume)
    (trigger,) = made.to_triggers()
    assert (trigger.event_type, trigger.debounce) == (DELETED, True)


# -- debounce ---------------------------------------------------------------------------------------


async def test_debounced_events_of_one_batch_become_one_run_on_the_last() -> None:
    context = Context()
    for name in ("a", "b", "c"):
        context.create(Note(), id=name)
    watcher = Watcher(Consume(Note, debounce=True))
    assert await run(context, watcher) == 1
    assert watcher.seen == [("created", "c")]
    context.create(Note(), id="d")
    assert await run(context, watcher) == 1  # a later batch is another run
    assert watcher.seen == [("created", "c"), ("created", "d")]


async def test_debounce_belongs_to_the_consume_not_to_the_agent() -> None:
    context = Context()
    for name in ("a", "b"):
        context.create(Note(), id=f"n-{name}")
        context.create(Order(item="x"), id=f"o-{name}")
    watcher = Watcher(Consume(Note, debounce=True), Consume(Order))
    assert await run(context, watcher) == 3
    assert sorted(watcher.seen) == [("created", "n-b"), ("created", "o-a"), ("created", "o-b")]


async def test_two_debounced_consumes_are_two_runs() -> None:
    context = Context()
    for name in ("a", "b"):
        context.create(Note(), id=f"n-{name}")
        context.create(Order(item="x"), id=f"o-{name}")
    watcher = Watcher(Consume(Note, debounce=True), Consume(Order, debounce=True))
    assert await run(context, watcher) == 2
    assert sorted(watcher.seen) == [("created", "n-b"), ("created", "o-b")]


async def test_an_event_that_also_matches_plainly_is_not_debounced() -> None:
    context = Context()
    context.create(Note(count=1), id="a")
    context.create(Note(count=1), id="b")
    watcher = Watcher(Consume(Note, debounce=True), Consume(Note, lambda found: found.data.count == 1))
    assert await run(context, watcher) == 2
    assert watcher.seen == [("created", "a"), ("created", "b")]


async def test_a_debounced_run_counts_once_against_max_runs() -> None:
    context = Context()
    for number in range(5):
        context.create(Note(), id=f"n{number}")
    context.create(Order(item="x"), id="o")
    runtime = Runtime(
        context,
        [Watcher(Consume(Note, debounce=True)).agent, Watcher(Consume(Order), name="other").agent],
        budget=Budget(max_runs=2),
    )
    assert await runtime.arun() == 2
    assert context.pending_events() == []


# -- agents -----------------------------------------------------------------------------------------


def test_names_default_to_the_class() -> None:
    class Clerk(Agent):
        pass

    class Named(Agent):
        name = "by-attribute"

    assert Clerk().name == "Clerk"
    assert Clerk("by-argument").name == "by-argument"
    assert Named().name == "by-attribute"
    assert (Clerk().priority, Clerk().concurrency_limit) == (0, None)
    assert Clerk(priority=3).priority == 3


def test_triggers_come_from_argument_then_class_then_consumes() -> None:
    mine = Trigger(DELETED, Order)

    class Attributed(Agent):
        consumes = [Consume(Note)]  # noqa: RUF012 - a list is how most write it
        triggers = [Trigger(CREATED, Order)]  # noqa: RUF012

    class Derived(Agent):
        consumes = (Consume(Note),)

    event = Event(CREATED, Order, "o")
    assert Attributed(triggers=[mine]).triggers == [mine]
    assert Attributed().matches(event)
    assert not Attributed().matches(Event(CREATED, Note, "n"))
    assert Derived().matches(Event(UPDATED, Note, "n"))
    assert not Derived().matches(event)
    assert len(Derived().matching_triggers(Event(UPDATED, Note, "n"))) == 1
    assert create_agent("x", consumes=[Consume(Note)], triggers=[mine]).triggers == [mine]


def test_wrong_members_are_type_errors() -> None:
    with pytest.raises(TypeError, match=r"'x'.*consumes"):
        create_agent("x", consumes=[Note])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"'x'.*produces"):
        create_agent("x", produces=[lambda call: None])  # type: ignore[list-item]

    class Wrong(Agent):
        produces = (Note,)  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"'Wrong'.*produces"):
        Wrong()


def test_create_agent_sets_everything() -> None:
    notes = Consume(Note)

    @produce(Answer)
    def nothing(call: ProduceCall) -> None: ...

    agent = create_agent(
        "x",
        consumes=[notes],
        produces=[nothing],
        capabilities=("read", "write"),
        priority=4,
        concurrency_limit=2,
    )
    assert isinstance(agent, Agent)
    assert agent.name == "x"
    assert list(agent.consumes or ()) == [notes]
    assert list(agent.produces or ()) == [nothing]
    assert tuple(agent.capabilities) == ("read", "write")
    assert (agent.priority, agent.concurrency_limit) == (4, 2)


def test_inputs_are_collected_once_each() -> None:
    context = Context()
    context.create(SpecialNote(), id="s")
    context.create(Note(), id="n")
    agent = create_agent("x", consumes=[Consume(SpecialNote), Consume(Note)])
    assert [found.id for found in agent.collect_inputs(context)] == ["s", "n"]


async def test_a_subclass_may_override_run() -> None:
    class Shouter(Agent):
        consumes = (Consume(Question),)

        async def run(self, event: Event | None, context: Context) -> Patch | None:
            assert event is not None
            asked = live(context, event.artifact_id)
            return Patch().create(Answer(text=asked.data.text.upper()), id="a")

    context = Context()
    context.create(Question(text="why"), id="q")
    assert await Runtime(context, [Shouter()]).arun() == 1
    assert live(context, "a").data.text == "WHY"
    assert context.history()[0].author == "Shouter"


async def test_a_run_that_returns_something_else_than_a_patch_is_told_so() -> None:
    class Wrong(Agent):
        consumes = (Consume(Question),)

        async def run(self, event: Event | None, context: Context) -> Any:
            return Answer(text="not a patch")

    context = Context()
    context.create(Question(text="why"), id="q")
    with pytest.raises(TypeError, match=r"run\(\) of agent 'Wrong' returned Answer: return a Patch or None"):
        await Runtime(context, [Wrong()]).arun()


async def test_the_trigger_is_the_live_artifact_behind_the_event() -> None:
    seen = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        seen.append(trigger_of(call).data.text)

    context = Context()
    context.create(Note(text="old"), id="n")
    context.update("n", Note(text="new"))
    agent = create_agent("x", consumes=[Consume(Note, None, [CREATED])], produces=[look])
    await Runtime(context, [agent]).arun()
    assert seen == ["new"]


def test_register_and_agents() -> None:
    first, second = create_agent("one"), create_agent("two")
    runtime = Runtime(Context(), [first])
    runtime.register(second)
    assert runtime.agents == [first, second]
    with pytest.raises(TypeError, match="not an agent"):
        runtime.register(Kick())  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1])
def test_an_agent_that_could_never_run_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="agent 'x': concurrency_limit is a number of at least 1"):
        create_agent("x", concurrency_limit=limit)


async def test_a_condition_that_changes_the_context_fails_its_agent() -> None:
    """Its change would be lost: nobody applies what is changed while events are matched."""

    def mark(artifact: Artifact[Any]) -> bool:
        context.update(artifact.id, Note(text="seen"))
        return True

    @produce(Answer)
    def nothing(call: ProduceCall) -> None: ...

    context = Context()
    context.create(Note(text="a"), id="n")
    agent = create_agent("x", consumes=[Consume(Note, mark)], produces=[nothing])
    with pytest.raises(ReactifactError, match="a condition changed the context"):
        await Runtime(context, [agent]).arun()
    assert live(context, "n").data.text == "a"
    assert len(context.pending_events()) == 1
