"""Consumes over groups: what wakes, what is fed, what is read, and what it costs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, model_validator
from support import Place, trigger_of

from reactifact import Context, PendingAction, Produce, ProduceCall, Runtime, produce
from reactifact.agents import Agent, create_agent
from reactifact.consume import AbsentConsume, Consume, CorrelatedConsume, JoinConsume
from reactifact.events import EventType


class Purchase(BaseModel):
    ref: str
    is_open: bool = True


class UrgentPurchase(Purchase):
    level: int = 1


class Payment(BaseModel):
    ref: str
    cleared: bool = True


class Shipment(BaseModel):
    ref: str
    cancelled: bool = False


class Cargo(BaseModel):
    """Counts how often one is decoded."""

    ref: str
    weight: int = 0
    decoded: ClassVar[int] = 0

    @model_validator(mode="after")
    def _count(self) -> Cargo:
        type(self).decoded += 1
        return self


class Container(Cargo):
    decoded: ClassVar[int] = 0


def by_ref(data: Any) -> str:
    return str(data.ref)


class Witness:
    """An agent that notes which events woke it, and what it was fed."""

    def __init__(self, *consumes: Any) -> None:
        self.woken: list[str] = []
        self.fed: list[list[str]] = []

        @produce(Purchase)
        async def watch(call: ProduceCall) -> None:
            self.woken.append(trigger_of(call).id)
            self.fed.append([artifact.id for artifact in call.inputs])

        self.agent: Agent = create_agent("witness", consumes=consumes, produces=[watch])


async def settle(context: Context, witness: Witness) -> list[str]:
    """Run a turn and return the ids that woke the witness in it."""
    before = len(witness.woken)
    await Runtime(context, agents=[witness.agent]).arun()
    return witness.woken[before:]


def join() -> JoinConsume:
    return JoinConsume(Purchase, Payment, key=by_ref)


@pytest.mark.anyio
async def test_a_join_wakes_when_its_group_is_complete() -> None:
    context, witness = Context(), Witness(join())
    context.create(Purchase(ref="a"), id="purchase:a")
    assert await settle(context, witness) == []
    context.create(Payment(ref="b"), id="payment:b")
    assert await settle(context, witness) == []
    context.create(Payment(ref="a"), id="payment:a")
    assert await settle(context, witness) == ["payment:a"]
    assert witness.fed == [["purchase:a", "payment:a"]]
    context.update("purchase:a", Purchase(ref="a", is_open=False))
    assert await settle(context, witness) == ["purchase:a"]


@pytest.mark.anyio
async def test_every_event_of_a_complete_group_wakes_and_is_fed_all_complete_groups() -> None:
    context, witness = Context(), Witness(join())
    for ref in ("a", "b", "c"):
        context.create(Purchase(ref=ref), id=f"purchase:{ref}")
    for ref in ("a", "c", "x"):
        context.create(Payment(ref=ref), id=f"payment:{ref}")
    assert await settle(context, witness) == ["purchase:a", "purchase:c", "payment:a", "payment:c"]
    assert witness.fed == [["purchase:a", "purchase:c", "payment:a", "payment:c"]] * 4


@pytest.mark.anyio
async def test_an_absent_part_wakes_until_it_is_there_and_its_own_events_never_do() -> None:
    context = Context()
    witness = Witness(AbsentConsume(Purchase, absent_type=Shipment, key=by_ref))
    context.create(Purchase(ref="a"), id="purchase:a")
    assert await settle(context, witness) == ["purchase:a"]
    context.create(Shipment(ref="a"), id="shipment:a")
    context.create(Shipment(ref="lonely"), id="shipment:b")
    context.update("purchase:a", Purchase(ref="a", is_open=False))
    assert await settle(context, witness) == []
    assert witness.agent.collect_inputs(context) == []
    context.delete("shipment:a")
    assert await settle(context, witness) == []
    assert [found.id for found in witness.agent.collect_inputs(context)] == ["purchase:a"]
    context.update("purchase:a", Purchase(ref="a"))
    assert await settle(context, witness) == ["purchase:a"]


@pytest.mark.anyio
async def test_conditions_take_data_and_say_who_is_a_part() -> None:
    context = Context()
    witness = Witness(
        CorrelatedConsume(
            key=lambda data: data.ref,
            require=(Purchase, Payment),
            require_conditions={Payment: lambda data: data.cleared},
            forbid=Shipment,
            forbid_conditions={Shipment: lambda data: not data.cancelled},
        )
    )
    context.create(Purchase(ref="a"), id="purchase:a")
    context.create(Payment(ref="a", cleared=False), id="payment:a")
    context.create(Shipment(ref="a", cancelled=True), id="shipment:a")
    assert await settle(context, witness) == []
    context.update("payment:a", Payment(ref="a"))
    assert await settle(context, witness) == ["payment:a"]
    context.update("shipment:a", Shipment(ref="a"))
    context.update("purchase:a", Purchase(ref="a", is_open=False))
    assert await settle(context, witness) == []


@pytest.mark.anyio
async def test_an_artifact_that_is_no_part_itself_does_not_wake_its_group() -> None:
    context = Context()
    witness = Witness(
        AbsentConsume(Purchase, absent_type=Shipment, key=by_ref, condition=lambda data: data.is_open)
    )
    context.create(Purchase(ref="a"), id="open")
    context.create(Purchase(ref="a", is_open=False), id="closed")
    assert await settle(context, witness) == ["open"]
    assert witness.fed == [["open"]]


@pytest.mark.anyio
async def test_an_update_moves_an_artifact_to_another_group() -> None:
    context, witness = Context(), Witness(join())
    context.create(Purchase(ref="a"), id="purchase")
    context.create(Payment(ref="b"), id="payment")
    assert await settle(context, witness) == []
    context.update("purchase", Purchase(ref="b"))
    assert await settle(context, witness) == ["purchase"]
    context.update("payment", Payment(ref="a"))
    assert await settle(context, witness) == []
    assert witness.agent.collect_inputs(context) == []


@pytest.mark.anyio
async def test_a_deleted_part_leaves_its_group_and_wakes_nobody() -> None:
    context = Context()
    consume = JoinConsume(
        Purchase, Payment, key=by_ref, event_types=[EventType.ARTIFACT_UPDATED, EventType.ARTIFACT_DELETED]
    )
    witness = Witness(consume)
    context.create(Purchase(ref="a"), id="purchase:1")
    context.create(Purchase(ref="a"), id="purchase:2")
    context.create(Payment(ref="a"), id="payment")
    assert await settle(context, witness) == []
    context.delete("purchase:1")
    assert await settle(context, witness) == []
    assert [found.id for found in consume.collect(context)] == ["purchase:2", "payment"]
    context.delete("purchase:2")
    context.update("payment", Payment(ref="a", cleared=False))
    assert await settle(context, witness) == []


@pytest.mark.anyio
async def test_without_wakes_it_feeds_only() -> None:
    context = Context()
    feeding = JoinConsume(Purchase, Payment, key=by_ref, wakes=False)
    assert feeding.to_triggers() == []
    witness = Witness(feeding, Consume(Shipment))
    context.create(Purchase(ref="a"), id="purchase")
    context.create(Payment(ref="a"), id="payment")
    assert await settle(context, witness) == []
    context.create(Shipment(ref="z"), id="shipment")
    assert await settle(context, witness) == ["shipment"]
    assert witness.fed == [["purchase", "payment", "shipment"]]


@pytest.mark.anyio
async def test_subclasses_are_parts_but_wake_only_their_own_type() -> None:
    context, witness = Context(), Witness(join())
    context.create(Payment(ref="a"), id="payment")
    context.create(UrgentPurchase(ref="a"), id="urgent")
    assert await settle(context, witness) == ["payment"]
    assert witness.fed == [["payment", "urgent"]]


@pytest.mark.anyio
async def test_inside_an_execution_uncommitted_changes_count() -> None:
    context, consume, seen = Context(), join(), []

    @produce(Shipment)
    async def look(call: ProduceCall) -> None:
        def now() -> list[str]:
            return [found.id for found in consume.collect(call.context)]

        seen.append(now())
        call.context.create(Payment(ref="new"), id="payment:new")
        call.context.create(Purchase(ref="new"), id="purchase:new")
        call.context.update("payment:old", Payment(ref="elsewhere"))
        seen.append(now())
        call.context.delete("payment:new")
        seen.append(now())

    agent = create_agent("looker", consumes=[Consume(Shipment)], produces=[look])
    context.create(Purchase(ref="old"), id="purchase:old")
    context.create(Payment(ref="old"), id="payment:old")
    context.create(Shipment(ref="go"))
    await Runtime(context, agents=[agent]).arun()
    assert seen == [["purchase:old", "payment:old"], ["payment:new", "purchase:new"], []]


@pytest.mark.anyio
async def test_what_a_failed_execution_changed_is_not_in_the_groups() -> None:
    context, consume = Context(), join()

    @produce(Shipment)
    async def fail(call: ProduceCall) -> None:
        call.context.update("payment", Payment(ref="b"))
        call.context.create(Purchase(ref="b"), id="purchase:b")
        call.context.create(Payment(ref="a"), id="payment:a")
        call.context.delete("purchase")
        assert len(consume.collect(call.context)) == 2
        raise OSError("no carrier")

    context.create(Purchase(ref="a"), id="purchase")
    context.create(Payment(ref="a"), id="payment")
    context.create(Shipment(ref="go"))
    with pytest.raises(OSError, match="no carrier"):
        await Runtime(
            context, agents=[create_agent("failing", consumes=[Consume(Shipment)], produces=[fail])]
        ).arun()
    assert [found.id for found in consume.collect(context)] == ["purchase", "payment"]
    context.delete("payment")
    context.commits.commit_direct()
    assert consume.collect(context) == []


@pytest.mark.anyio
async def test_a_delivery_moves_an_action_though_its_payload_stays() -> None:
    def of(data: Any) -> str:
        return str(data.payload["ref"] if isinstance(data, PendingAction) else data.ref)

    context = Context()
    witness = Witness(
        JoinConsume(
            Purchase,
            PendingAction,
            key=of,
            part_conditions={PendingAction: lambda action: action.status == "dispatched"},
        )
    )

    @produce(PendingAction)
    async def send(call: ProduceCall) -> None:
        ref = trigger_of(call).data.ref
        call.effects.act("mail", key=ref, payload={"ref": ref})

    async def deliver(_: Context, action: Any) -> None:
        assert witness.woken == []

    sender = create_agent("sender", consumes=[Consume(Purchase)], produces=[send])
    context.create(Purchase(ref="a"), id="purchase")
    await Runtime(context, agents=[sender, witness.agent]).arun()
    assert witness.woken == []
    await Runtime(context, agents=[sender, witness.agent], dispatcher=deliver).arun()
    assert witness.woken == ["action:a"]
    assert witness.fed == [["purchase", "action:a"]]


# -- what is read ----------------------------------------------------------------------------------


def reading_agent(consume: Any, *, looks: bool) -> Agent:
    @produce(Shipment)
    async def ship(call: ProduceCall) -> Shipment:
        if looks:
            list(call.inputs)
        return Shipment(ref=trigger_of(call).data.ref)

    return create_agent("shipper", consumes=[consume], produces=[ship])


@pytest.mark.anyio
@pytest.mark.parametrize("looks", [False, True])
async def test_the_parts_of_the_group_are_read_and_nothing_else(looks: bool) -> None:
    context = Context()
    for number in range(30):
        context.create(Purchase(ref=str(number)), id=f"purchase:{number}")
    context.create(Payment(ref="7"), id="payment:7")
    await Runtime(context, agents=[reading_agent(join(), looks=looks)]).arun()
    both = [commit for commit in context.history() if commit.author == "shipper"]
    assert [{read.artifact_id for read in commit.reads} for commit in both] == [
        {"purchase:7", "payment:7"}
    ] * 2
    assert [commit.reads[0].artifact_id for commit in both] == ["purchase:7", "payment:7"]


@pytest.mark.anyio
async def test_many_inputs_are_noted_as_a_listing() -> None:
    context = Context()
    for number in range(300):
        context.create(Purchase(ref=str(number)), id=f"purchase:{number}")
        context.create(Payment(ref=str(number)), id=f"payment:{number}")
    context.drain_events()
    context.create(Payment(ref="7"), id="again")
    await Runtime(context, agents=[reading_agent(join(), looks=True)]).arun()
    record = context.line.record
    assert record is not None
    assert len(record.reads) == 3
    assert len(record.listings) == 2


# -- what it costs ---------------------------------------------------------------------------------


class CountedKey:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, data: Any) -> str:
        self.calls += 1
        return str(data.ref)

    def taken(self) -> tuple[int, int]:
        """Return (key calls, decoded artifacts) since the last time."""
        counted = self.calls, Cargo.decoded + Container.decoded
        self.calls = Cargo.decoded = Container.decoded = 0
        return counted


@pytest.fixture(scope="module")
def crowd() -> Context:
    context = Context()
    for number in range(2000):
        context.create(Container(ref=str(number)), id=f"container:{number}")
    context.commits.commit_direct()
    context.drain_events()
    return context


@pytest.fixture
def crowded(crowd: Context) -> tuple[Context, CountedKey, JoinConsume]:
    """2,000 artifacts without a partner, matched once."""
    context, key = crowd.branch(), CountedKey()
    consume = JoinConsume(Purchase, Container, key=key)
    key.taken()
    assert consume.collect(context) == []
    assert key.taken() == (2000, 2000)
    return context, key, consume


@pytest.mark.anyio
async def test_one_event_among_2000_artifacts_costs_a_handful(
    crowded: tuple[Context, CountedKey, JoinConsume],
) -> None:
    context, key, consume = crowded
    witness = Witness(consume)
    context.create(Purchase(ref="1234"), id="purchase")
    assert await settle(context, witness) == ["purchase"]
    assert witness.fed == [["container:1234", "purchase"]]
    assert key.taken() == (1, 0)
    context.update("container:77", Container(ref="1234", weight=2))
    key.taken()
    assert await settle(context, witness) == ["container:77"]
    calls, decoded = key.taken()
    assert calls == 1
    assert decoded <= 3


@pytest.mark.anyio
async def test_nothing_is_decoded_when_nothing_changed(
    crowded: tuple[Context, CountedKey, JoinConsume],
) -> None:
    context, key, consume = crowded
    assert consume.collect(context) == []
    context.create(Shipment(ref="unrelated"))
    context.commits.commit_direct()
    assert consume.collect(context) == []
    assert key.taken() == (0, 0)


@pytest.mark.anyio
async def test_a_branch_judges_no_version_again(crowded: tuple[Context, CountedKey, JoinConsume]) -> None:
    context, key, consume = crowded
    branch = context.branch()
    branch.create(Purchase(ref="5"), id="purchase")
    assert [found.id for found in consume.collect(branch)] == ["container:5", "purchase"]
    branch.commits.commit_direct()
    assert [found.id for found in consume.collect(branch)] == ["container:5", "purchase"]
    assert consume.collect(context) == []
    assert key.taken() == (1, 0)


def test_a_consume_keeps_nothing_of_a_context_that_is_gone() -> None:
    consume = join()
    context = Context()
    context.create(Purchase(ref="a"))
    consume.collect(context)
    assert len(consume._indexes) == 1
    del context
    gc.collect()
    assert len(consume._indexes) == 0


def test_it_finds_its_way_when_the_state_it_stood_at_is_gone() -> None:
    """As after a pruning of what a checkout dropped: here the other context cannot reach it."""
    consume = JoinConsume(
        Purchase, PendingAction, key=lambda data: getattr(data, "ref", None) or data.payload["ref"]
    )
    first, second = Context(), Context()
    second.line.state.indexes = first.line.state.indexes
    for context, ref in ((first, "a"), (second, "b")):
        context.create(Purchase(ref=ref), id=f"purchase {ref}")
        context.create(Purchase(ref="common"), id="common")
        for key in (ref, "common"):
            action = PendingAction(kind="mail", idempotency_key=key, payload={"ref": key})
            context.create(action, id=f"action {key}")
            context.mark_dispatched(f"action {key}")
        context.commits.commit_direct()
    for context, ref in ((first, "a"), (second, "b"), (first, "a")):
        found = [artifact.id for artifact in consume.collect(context)]
        assert found == [f"purchase {ref}", "common", f"action {ref}", "action common"]


@pytest.mark.anyio
async def test_it_works_on_every_store(place: Place) -> None:
    store = place.store()
    session = await store.open("s")
    session.context.create(Purchase(ref="a"), id="purchase")
    session.context.create(Payment(ref="a"), id="payment")
    await session.save()
    loaded = await place.load("s")
    assert [found.id for found in join().collect(loaded)] == ["purchase", "payment"]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CorrelatedConsume(key=by_ref, require=()), "requires no type"),
        (lambda: JoinConsume(Purchase, key=by_ref), "at least two types"),
        (lambda: JoinConsume(Purchase, Purchase, key=by_ref), "at least two types"),
        (
            lambda: JoinConsume(Purchase, Payment, key=by_ref, wakes=False, debounce=True),
            "meaningless.*Purchase and Payment",
        ),
        (
            lambda: CorrelatedConsume(
                key=by_ref, require=Purchase, require_conditions={Payment: lambda data: True}
            ),
            "require_conditions names Payment",
        ),
    ],
)
def test_what_makes_no_consume_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_error_of_a_key_names_the_artifact_and_leaves_the_index_usable() -> None:
    def key(data: Any) -> Any:
        return [data.ref] if data.ref == "bad" else data.ref

    consume = JoinConsume(Purchase, Payment, key=key)
    context = Context()
    context.create(Purchase(ref="a"), id="purchase")
    context.create(Payment(ref="a"), id="payment")
    assert len(consume.collect(context)) == 2
    context.create(Payment(ref="bad"), id="bad one")
    context.commits.commit_direct()
    with pytest.raises(TypeError, match="unhashable") as caught:
        consume.collect(context)
    assert "'bad one'" in caught.value.__notes__[0]
    context.update("bad one", Payment(ref="a"))
    context.commits.commit_direct()
    assert [found.id for found in consume.collect(context)] == ["purchase", "payment", "bad one"]


def test_an_agent_refuses_what_is_no_consume() -> None:
    with pytest.raises(TypeError, match="which is no Consume"):
        create_agent("a", consumes=[Produce(Purchase)])  # type: ignore[list-item]


# -- against a plain regrouping --------------------------------------------------------------------

RULES = CorrelatedConsume(
    key=by_ref,
    require=(Purchase, Payment),
    require_conditions={Payment: lambda data: data.cleared},
    forbid=Shipment,
    forbid_conditions={Shipment: lambda data: not data.cancelled},
)


def regrouped(context: Context) -> dict[str, tuple[list[str], bool]]:
    """Group everything anew: key -> (required parts in order of creation, whether it counts)."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for artifact in context.list_artifacts():
        role = plain_role(artifact.data)
        if role is not None:
            groups.setdefault(artifact.data.ref, []).append((role, artifact.id))
    return {
        key: (
            [i for role, i in members if role != "forbidden"],
            {role for role, _ in members} == {"purchase", "payment"},
        )
        for key, members in groups.items()
    }


def plain_role(data: BaseModel) -> str | None:
    if isinstance(data, Purchase):
        return "purchase"
    if isinstance(data, Payment) and data.cleared:
        return "payment"
    return "forbidden" if isinstance(data, Shipment) and not data.cancelled else None


def check(context: Context) -> None:
    expected = regrouped(context)
    fed = {part for parts, counts in expected.values() if counts for part in parts}
    order = [artifact.id for artifact in context.list_artifacts() if artifact.id in fed]
    assert [artifact.id for artifact in RULES.collect(context)] == order
    wakes = RULES.to_triggers()
    for artifact in context.list_artifacts():
        woken = any(
            trigger.context_condition is not None
            and trigger.artifact_type is type(artifact.data)
            and trigger.context_condition(artifact, context)
            for trigger in wakes
        )
        assert woken == (artifact.id in fed and type(artifact.data) in (Purchase, Payment))


REFS = st.sampled_from(["a", "b", "c"])
DATA: st.SearchStrategy[BaseModel] = st.one_of(
    st.builds(Purchase, ref=REFS, is_open=st.booleans()),
    st.builds(UrgentPurchase, ref=REFS),
    st.builds(Payment, ref=REFS, cleared=st.booleans()),
    st.builds(Shipment, ref=REFS, cancelled=st.booleans()),
)
IDS = st.sampled_from([f"id:{number}" for number in range(8)])
STEPS = st.one_of(
    st.tuples(st.just("put"), IDS, DATA),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.sampled_from(["commit", "branch", "back"])),
)


def put(context: Context, artifact_id: str, data: BaseModel) -> None:
    if context.get(artifact_id) is None:
        context.create(data, id=artifact_id)
    else:
        context.update(artifact_id, data)


def play(steps: Iterable[tuple[Any, ...]]) -> None:
    contexts = [Context()]
    for verb, *arguments in steps:
        context = contexts[-1]
        if verb == "put":
            put(context, *arguments)
        elif verb == "delete":
            context.delete(*arguments)
        elif verb == "commit":
            context.commits.commit_direct()
        elif verb == "branch":
            contexts.append(context.branch())
        elif verb == "back":
            contexts.insert(0, contexts.pop())
        check(contexts[-1])
    for context in contexts:
        check(context)


@given(st.lists(STEPS, max_size=30))
def test_the_index_finds_what_a_plain_regrouping_finds(steps: list[tuple[Any, ...]]) -> None:
    play(steps)
