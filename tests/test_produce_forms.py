"""`Produce`, `@produce` and `ProduceCall` (API §11): forms, declared types, what they react to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from support import Answer, Echo, Note, Order, Question, SpecialNote, live, trigger_of

from reactifact import Agent, Consume, Context, EventType, Patch, Produce, ProduceCall, Runtime, create_agent
from reactifact.produce import produce

pytestmark = pytest.mark.anyio


def asked(*questions: str) -> Context:
    context = Context()
    for number, text in enumerate(questions or ("why",)):
        context.create(Question(text=text), id=f"q{number}")
    return context


async def run(context: Context, *produces: Produce[Any], consumes: list[Consume] | None = None) -> Runtime:
    agent = create_agent("agent", consumes=consumes or [Consume(Question)], produces=list(produces))
    runtime = Runtime(context, [agent])
    await runtime.arun()
    return runtime


def texts(context: Context, kind: type[Any] = Answer) -> list[str]:
    return [found.data.text for found in context.list_artifacts(kind)]


class ByAttribute(Produce[Any]):
    artifact_type = Answer

    async def produce(self, call: ProduceCall) -> None:
        self.effects.create(Answer(text="attribute"))


class ByArgument(Produce[Any]):
    async def produce(self, call: ProduceCall) -> None:
        call.effects.create(Answer(text="argument"))


class ByGeneric(Produce[Answer]):
    async def produce(self, call: ProduceCall) -> None:
        assert call.effects is self.effects
        self.effects.create(Answer(text="generic"))


async def test_the_type_comes_from_class_attribute_constructor_or_generic() -> None:
    context = asked()
    forms = (ByAttribute(), ByArgument(Answer), ByGeneric())
    assert [form.artifact_type for form in forms] == [Answer, Answer, Answer]
    await run(context, *forms)
    assert texts(context) == ["attribute", "argument", "generic"]


def test_without_a_type_it_is_refused() -> None:
    with pytest.raises(ValueError, match="ByArgument"):
        ByArgument()
    with pytest.raises(ValueError, match="Produce"):
        Produce()


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="factory"):
        Produce(Answer, factory=lambda: None)  # type: ignore[call-arg]


def test_names() -> None:
    assert ByAttribute().name == "ByAttribute"
    assert ByGeneric().name == "ByGeneric"
    assert Produce(Answer).name == "Produce[Answer]"
    assert Produce[Answer]().name == "Produce[Answer]"

    @produce(Answer)
    def written(call: ProduceCall) -> None: ...

    assert written.name == "written"
    written.name = "other"
    assert written.name == "other"


async def test_a_bare_produce_does_nothing_and_widens_what_may_be_created() -> None:
    @produce(Answer)
    async def both(call: ProduceCall) -> list[Any]:
        return [Answer(text="a"), Echo(text="e")]

    with pytest.raises(ValueError, match=r"not declared in produces.*also_creates"):
        await run(asked(), both)
    for bare in (Produce(Echo), Produce[Echo]()):
        context = asked()
        await run(context, both, bare)
        assert (texts(context), texts(context, Echo)) == (["a"], ["e"])


@pytest.mark.parametrize("widened", [Echo, (Echo, Order), [Echo]], ids=["type", "tuple", "list"])
async def test_also_creates_declares_further_types(widened: Any) -> None:
    @produce(Answer, also_creates=widened)
    def both(call: ProduceCall) -> list[Any]:
        return [Answer(text="a"), Echo(text="e")]

    context = asked()
    await run(context, both)
    assert texts(context, Echo) == ["e"]


async def test_an_undeclared_type_is_refused_and_nothing_is_committed() -> None:
    @produce(Note)
    async def wrong(call: ProduceCall) -> None:
        call.effects.create(Note(text="fine"))
        call.effects.create(SpecialNote(text="a subclass is another type"))

    context = asked()
    with pytest.raises(ValueError, match=r"'agent'.*SpecialNote.*not declared in produces.*also_creates"):
        await run(context, wrong)
    assert context.version == 0
    assert context.list_artifacts(Note) == []
    assert len(context.pending_events()) == 1


@pytest.mark.parametrize("produces", [None, []])
async def test_nothing_is_checked_without_produces(produces: Any) -> None:
    class Free(Agent):
        consumes = (Consume(Question),)

        async def run(self, event: Any, context: Context) -> Patch:
            return Patch().create(Answer(text="free"))

    Free.produces = produces
    context = asked()
    await Runtime(context, [Free()]).arun()
    assert texts(context) == ["free"]


async def test_updates_and_deletes_are_never_checked() -> None:
    @produce(Answer)
    async def change(call: ProduceCall) -> None:
        call.effects.update("o", status="closed")
        call.effects.delete("n")

    context = Context()
    context.create(Order(item="x"), id="o")
    context.create(Note(), id="n")
    context.create(Question(text="why"), id="q")
    await run(context, change)
    assert live(context, "o").data.status == "closed"
    assert context.get("n") is None


def sync_model(call: ProduceCall) -> Answer:
    return Answer(text="one")


async def async_model(call: ProduceCall) -> Answer:
    return Answer(text="one")


async def a_list(call: ProduceCall) -> list[Answer]:
    return [Answer(text="one"), Answer(text="two")]


def a_patch(call: ProduceCall) -> Patch:
    return Patch().create(Answer(text="one"), id="p").link("p", "answers", trigger_of(call))


def by_effects(call: ProduceCall) -> None:
    call.effects.create(Answer(text="one"))


async def nothing(call: ProduceCall) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (sync_model, ["one"]),
        (async_model, ["one"]),
        (a_list, ["one", "two"]),
        (a_patch, ["one"]),
        (by_effects, ["one"]),
        (nothing, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_what_a_decorated_function_may_return(
    function: Callable[[ProduceCall], Any], expected: list[str]
) -> None:
    made = produce(Answer)(function)
    assert isinstance(made, Produce)
    context = asked()
    await run(context, made)
    assert texts(context) == expected
    assert context.version == (1 if expected else 0)


async def test_a_strange_result_is_a_type_error() -> None:
    @produce(Answer)
    async def strange(call: ProduceCall) -> dict[str, str]:
        return {"text": "no model"}

    with pytest.raises(TypeError, match="returned dict"):
        await run(asked(), strange)


def test_a_function_must_take_one_argument() -> None:
    with pytest.raises(TypeError, match="exactly one argument"):

        @produce(Answer)  # type: ignore[arg-type]
        def none() -> None: ...

    with pytest.raises(TypeError, match="exactly one argument"):

        @produce(Answer)  # type: ignore[arg-type]
        def two(call: ProduceCall, other: int) -> None: ...


def test_effects_outside_of_a_run_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="outside"):
        _ = ByAttribute().effects
    call = ProduceCall(Context(), [], None, None)
    with pytest.raises(RuntimeError, match="outside"):
        _ = call.effects


async def test_a_call_is_frozen_and_knows_its_event_and_trigger() -> None:
    calls: list[ProduceCall] = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        assert call.context.get("q0") is not None
        assert trigger_of(call).data.text == "why"
        calls.append(call)

    context = asked()
    await run(context, look)
    (call,) = calls
    assert call.event is not None
    assert (call.event.type, call.event.artifact_id) == (EventType.ARTIFACT_CREATED, "q0")
    assert call.trigger is not None
    assert call.trigger.id == "q0"
    with pytest.raises(FrozenInstanceError):
        call.trigger = None  # type: ignore[misc]


async def test_all_produces_of_an_agent_get_the_same_inputs() -> None:
    seen: list[Any] = []

    @produce(Answer)
    async def first(call: ProduceCall) -> None:
        seen.append(call.inputs)
        call.effects.create(Answer(text="planned, not there yet"))

    @produce(Answer)
    async def second(call: ProduceCall) -> None:
        seen.append(call.inputs)

    context = Context()
    context.create(Note(), id="n1")
    context.create(SpecialNote(), id="n2")
    context.create(Question(text="why"), id="q")
    await run(context, first, second, consumes=[Consume(Question), Consume(Note, wakes=False)])
    assert [[found.id for found in inputs] for inputs in seen] == [["q", "n1", "n2"]] * 2


async def test_inputs_behave_like_a_list() -> None:
    checked = []

    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        ids = [found.id for found in call.inputs]
        assert ids == ["q0", "q1", "q2"]
        assert len(call.inputs) == 3
        assert call.inputs[0].id == "q0"
        assert call.inputs[-1].id == "q2"
        assert [found.id for found in call.inputs[1:]] == ["q1", "q2"]
        assert call.inputs == list(call.inputs)
        assert call.inputs + [call.inputs[0]] == [*call.inputs, call.inputs[0]]  # noqa: RUF005
        assert [call.inputs[0]] + call.inputs == [call.inputs[0], *call.inputs]  # noqa: RUF005
        assert call.inputs[0] in call.inputs
        assert bool(call.inputs)
        checked.append(ids)

    await run(asked("a", "b", "c"), look)
    assert len(checked) == 3


class OnOrders(Produce[Answer]):
    reacts_to = (Order,)

    async def produce(self, call: ProduceCall) -> None:
        call.effects.create(Answer(text=f"order {trigger_of(call).id}"))


async def test_reacts_to_limits_a_produce_to_exact_types() -> None:
    @produce(Answer, reacts_to=Note)
    async def on_notes(call: ProduceCall) -> Answer:
        return Answer(text=f"note {trigger_of(call).id}")

    @produce(Answer, reacts_to=(Note, SpecialNote))
    async def on_any_note(call: ProduceCall) -> Answer:
        return Answer(text=f"any {trigger_of(call).id}")

    @produce(Answer)
    async def on_everything(call: ProduceCall) -> Answer:
        return Answer(text=f"all {trigger_of(call).id}")

    context = Context()
    context.create(Order(item="x"), id="o")
    context.create(Note(), id="n")
    context.create(SpecialNote(), id="s")
    everything = [Consume(Order), Consume(Note), Consume(SpecialNote)]
    await run(context, OnOrders(), on_notes, on_any_note, on_everything, consumes=everything)
    assert texts(context) == ["order o", "all o", "note n", "any n", "all n", "any s", "all s"]


async def test_with_reacts_to_a_deletion_runs_without_a_trigger() -> None:
    seen: list[tuple[str, Any]] = []

    @produce(Answer, reacts_to=Note)
    async def on_notes(call: ProduceCall) -> None:
        assert call.event is not None
        seen.append((str(call.event.type), call.trigger))

    context = Context()
    context.create(Note(), id="n")
    context.delete("n")
    every = Consume(Note, None, [EventType.ARTIFACT_CREATED, EventType.ARTIFACT_DELETED])
    runtime = await run(context, on_notes, consumes=[every])
    # the CREATED event finds its artifact gone and is skipped; both executions count as runs
    assert seen == [("artifact_deleted", None)]
    assert runtime.last_stats is not None
    assert runtime.last_stats.runs == 2
