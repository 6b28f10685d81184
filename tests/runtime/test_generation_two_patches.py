"""Two patches of one generation on one artifact (DESIGN §5): combined, merged, or run again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, model_validator
from support import Kick, Note, Order, live

from reactifact import (
    Agent,
    Budget,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    create_agent,
    produce,
    register_type,
)
from reactifact.errors import IntentConflict
from reactifact.merging import as_set, counter, per_field

pytestmark = pytest.mark.anyio


class Counter(BaseModel):
    total: int = 0
    names: list[str] = []


def _add(base: Counter | None, theirs: Counter, mine: Counter) -> Counter:
    start = base.total if base is not None else 0
    names = [*theirs.names, *(name for name in mine.names if name not in theirs.names)]
    return Counter(total=theirs.total + mine.total - start, names=names)


register_type(Counter, merge=_add)


class Span(BaseModel):
    first: int = 0
    last: int = 10

    @model_validator(mode="after")
    def _ordered(self) -> Span:
        if self.first > self.last:
            raise ValueError("first is after last")
        return self


def agent(name: str, work: Any) -> Agent:
    """Return an agent that does `work` once for the kick of the test."""

    @produce(Note, also_creates=[PendingAction, Post])
    async def once(call: ProduceCall) -> None:
        work(call)

    return create_agent(name, consumes=[Consume(Kick)], produces=[once])


async def run(context: Context, *agents: Agent, limit: int | None = None, **options: Any) -> int:
    context.drain_events()
    context.create(Kick(), id="kick")
    return await Runtime(context, list(agents), limit).arun(**options)


def updating(name: str, artifact_id: str, **fields: Any) -> Agent:
    return agent(name, lambda call: call.effects.update(artifact_id, **fields))


@pytest.mark.parametrize("limit", [None, 2])
async def test_better_25_different_fields_combine(limit: int | None) -> None:
    context = Context()
    context.create(Order(item="x"), id="o")
    runs = await run(
        context, updating("status", "o", status="paid"), updating("carrier", "o", carrier="dhl"), limit=limit
    )
    assert runs == 2
    assert live(context, "o").data == Order(item="x", status="paid", carrier="dhl")
    assert live(context, "o").version == 2
    assert [found.author for found in context.history()] == ["status", "carrier"]


async def test_better_25_one_value_from_both_may_be_two_increments_and_runs_again() -> None:
    def add_one(call: ProduceCall) -> None:
        call.effects.update("o", price=live(call.context, "o").data.price + 1)

    context = Context()
    context.create(Order(item="x", price=100), id="o")
    assert await run(context, agent("one", add_one), agent("two", add_one)) == 3
    assert live(context, "o").data.price == 102


async def test_better_25_the_same_status_from_both_is_one_version() -> None:
    context = Context()
    context.create(Order(item="x"), id="o")
    assert await run(context, updating("one", "o", status="paid"), updating("two", "o", status="paid")) == 3
    assert live(context, "o").data.status == "paid"
    assert live(context, "o").version == 1


async def test_better_25_the_same_field_runs_the_later_one_again_on_the_new_state() -> None:
    seen: list[tuple[str, int]] = []

    def add(amount: int) -> Any:
        def work(call: ProduceCall) -> None:
            price = live(call.context, "o").data.price
            seen.append((f"add {amount}", price))
            call.effects.update("o", price=price + amount)

        return work

    context = Context()
    context.create(Order(item="x", price=100), id="o")
    runs = await run(context, agent("one", add(1)), agent("ten", add(10)))
    assert seen == [("add 1", 100), ("add 10", 100), ("add 10", 101)]
    assert live(context, "o").data.price == 111
    assert runs == 3  # running again counts as a run
    assert [found.author for found in context.history()] == ["one", "ten"]


async def test_better_25_running_again_under_a_budget_is_not_lost() -> None:
    def add(call: ProduceCall) -> None:
        call.effects.update("o", price=live(call.context, "o").data.price + 1)

    context = Context()
    context.create(Order(item="x"), id="o")
    context.drain_events()
    context.create(Kick(), id="kick")
    runtime = Runtime(context, [agent(f"a{number}", add) for number in range(3)])
    assert await runtime.arun(budget=Budget(max_runs=3)) == 3
    assert live(context, "o").data.price == 1
    assert await runtime.arun() == 3  # two again, then one of them once more
    assert live(context, "o").data.price == 3


async def test_better_25_a_registered_merge_function_decides() -> None:
    def count(name: str, amount: int) -> Any:
        def work(call: ProduceCall) -> None:
            old = live(call.context, "c").data
            call.effects.update("c", total=old.total + amount, names=[*old.names, name])

        return work

    context = Context()
    context.create(Counter(total=5, names=["start"]), id="c")
    runs = await run(
        context, agent("a", count("a", 1)), agent("b", count("b", 1)), agent("c", count("c", 100))
    )
    assert runs == 3
    assert live(context, "c").data == Counter(total=107, names=["start", "a", "b", "c"])


async def test_better_25_a_merge_function_is_asked_also_when_both_wrote_the_same() -> None:
    def add_one(call: ProduceCall) -> None:
        call.effects.update("c", total=live(call.context, "c").data.total + 1)

    context = Context()
    context.create(Counter(total=5), id="c")
    assert await run(context, agent("a", add_one), agent("b", add_one)) == 2
    assert live(context, "c").data.total == 7


@pytest.mark.parametrize("order", [("edit", "drop"), ("drop", "edit")], ids="-".join)
async def test_better_25_delete_against_update_runs_the_later_one_again(order: tuple[str, str]) -> None:
    seen: list[str] = []

    def edit(call: ProduceCall) -> None:
        there = call.context.get("o")
        seen.append(f"edit {'sees it' if there else 'sees nothing'}")
        if there is not None:
            call.effects.update(there, status="paid")

    def drop(call: ProduceCall) -> None:
        found = call.context.get("o")
        seen.append(f"drop {found.data.status if found else 'sees nothing'}")
        call.effects.delete("o")

    agents = {"edit": agent("edit", edit), "drop": agent("drop", drop)}
    context = Context()
    context.create(Order(item="x"), id="o")
    runs = await run(context, *(agents[name] for name in order))
    assert runs == 3
    again = "drop paid" if order[1] == "drop" else "edit sees nothing"
    assert seen[-1] == again
    assert context.get("o") is None


async def test_better_25_fields_that_do_not_fit_together_run_again() -> None:
    seen: list[Span] = []

    def shift(call: ProduceCall) -> None:
        span = live(call.context, "s").data
        seen.append(span)
        call.effects.update("s", last=max(span.first, 3))

    context = Context()
    context.create(Span(first=0, last=10), id="s")
    await run(context, updating("first", "s", first=8), agent("last", shift))
    assert seen == [Span(first=0, last=10), Span(first=8, last=10)]
    assert live(context, "s").data == Span(first=8, last=8)


async def test_better_52_two_creates_of_one_id_lose_nothing_silently() -> None:
    def make(text: str) -> Any:
        return lambda call: call.effects.create(Note(text=text), id="same")

    context = Context()
    runs = await run(context, agent("one", make("one")), agent("two", make("two")))
    assert runs == 3
    found = live(context, "same")
    assert (found.data.text, [note.text for note in found.history]) == ("two", ["one"])


async def test_better_52_equal_creates_of_one_id_are_one_artifact() -> None:
    def make(call: ProduceCall) -> None:
        call.effects.create(Note(text="same"), id="same")

    context = Context()
    assert await run(context, agent("one", make), agent("two", make)) == 2
    assert live(context, "same").version == 0


async def test_better_52_create_once_in_two_executions_keeps_the_first() -> None:
    def make(text: str) -> Any:
        return lambda call: call.effects.create_once(Note(text=text), id="same")

    context = Context()
    await run(context, agent("one", make("one")), agent("two", make("two")))
    found = live(context, "same")
    assert (found.data.text, found.version) == ("one", 0)


async def test_better_52_two_different_actions_under_one_key_are_refused() -> None:
    def act(to: str) -> Any:
        return lambda call: call.effects.act("mail", key="k", payload={"to": to})

    context = Context()
    with pytest.raises(IntentConflict, match="action:k"):
        await run(context, agent("one", act("ada")), agent("two", act("bob")))
    assert context.pending_actions() == []
    assert context.version == 0


async def test_equal_actions_of_two_executions_collapse_to_one() -> None:
    def act(call: ProduceCall) -> None:
        call.effects.act("mail", key="k", payload={"to": "ada"})

    context = Context()
    assert await run(context, agent("one", act), agent("two", act)) == 2
    assert [found.id for found in context.pending_actions()] == ["action:k"]


async def test_links_of_two_patches_are_united() -> None:
    context = Context()
    await run(
        context,
        agent("one", lambda call: call.effects.link("a", "cites", "b")),
        agent("two", lambda call: call.effects.link("a", "cites", "c")),
        agent("three", lambda call: call.effects.link("a", "cites", "b")),
    )
    assert [relation.target_id for relation in context.relations("a")] == ["b", "c"]


class Post(BaseModel):
    views: int = 0
    tags: list[str] = []
    title: str = ""


register_type(Post, merge=per_field(views=counter, tags=as_set))


async def test_the_ready_merge_functions_combine_two_patches() -> None:
    context = Context()
    context.create(Post(views=1, tags=["x"]), id="p")
    runs = await run(
        context,
        updating("one", "p", views=2, tags=["x", "one"]),
        updating("two", "p", views=2, tags=["x", "two"], title="named"),
    )
    assert live(context, "p").data == Post(views=3, tags=["x", "one", "two"], title="named")
    assert runs == 2


async def test_where_a_ready_merge_function_leaves_a_conflict_the_later_execution_runs_again() -> None:
    context = Context()
    context.create(Post(views=1), id="p")
    runs = await run(
        context, updating("one", "p", views=2, title="one"), updating("two", "p", views=5, title="two")
    )
    assert live(context, "p").data == Post(views=5, title="two")
    assert runs == 3


class Fragile(BaseModel):
    total: int = 0


def _broken(base: Fragile | None, theirs: Fragile, mine: Fragile) -> Fragile:
    raise RuntimeError("the merge function broke")


register_type(Fragile, merge=_broken)


def _noting(name: str, text: str) -> Agent:
    """Return an agent that notes something beside its update of an artifact that does not merge."""

    def work(call: ProduceCall) -> None:
        call.effects.create(Note(text=text))
        call.effects.update("f", total=len(text))

    return agent(name, work)


async def test_a_merge_function_that_raises_fails_the_later_execution_and_nothing_is_committed() -> None:
    context = Context()
    context.create(Fragile(), id="f")
    agents = [_noting("one", "a"), _noting("two", "bb")]
    with pytest.raises(RuntimeError, match="the merge function broke"):
        await run(context, *agents)
    assert (context.version, context.list_artifacts(Note)) == (0, [])
    runtime = Runtime(context, agents)
    with pytest.raises(RuntimeError, match="the merge function broke"):
        await runtime.arun()
    assert runtime.last_stats is not None
    assert runtime.last_stats.runs == 1  # what the first execution did is held, not done twice
    assert (context.version, context.list_artifacts(Note)) == (0, [])


async def test_with_isolation_a_merge_function_that_raises_costs_its_execution_alone() -> None:
    told: list[tuple[str, str]] = []
    context = Context()
    context.create(Fragile(), id="f")
    context.drain_events()
    context.create(Kick(), id="kick")
    agents = [_noting("one", "a"), _noting("two", "bb"), updating("three", "o", status="paid")]
    context.create(Order(item="x"), id="o")
    runtime = Runtime(
        context,
        agents,
        isolate_errors=True,
        on_agent_error=lambda agent, event, error: told.append((agent.name, str(error))),
    )
    assert await runtime.arun() == 3
    assert told == [("two", "the merge function broke")]
    assert runtime.last_stats is not None
    assert runtime.last_stats.errors == 1
    assert [note.data.text for note in context.list_artifacts(Note)] == ["a"]
    assert [found.author for found in context.history()] == ["one", "three"]
    assert live(context, "o").data.status == "paid"
    assert context.pending_events() == []


async def test_two_patches_that_change_the_type_have_no_base_that_a_merge_function_could_read() -> None:
    context = Context()
    context.create(Note(tags=["one"]), id="p")
    runs = await run(
        context,
        agent("one", lambda call: call.effects.upsert(Post(views=2, tags=["one"]), id="p")),
        agent("two", lambda call: call.effects.upsert(Post(views=3, tags=["two"]), id="p")),
    )
    assert runs == 2
    assert live(context, "p").data == Post(views=5, tags=["one", "two"])


@pytest.mark.parametrize("isolated", [True, False])
async def test_what_was_combined_stays_whole_when_a_merge_function_fails_after_it(isolated: bool) -> None:
    context = Context()
    context.create(Fragile(), id="f")
    context.create(Order(item="x"), id="o")
    context.drain_events()
    context.create(Kick(), id="kick")
    agents = [
        updating("status", "o", status="paid"),
        updating("carrier", "o", carrier="dhl"),
        _noting("one", "a"),
        _noting("two", "bb"),
    ]
    runtime = Runtime(context, agents, isolate_errors=isolated)
    if isolated:
        assert await runtime.arun() == 4  # combined again without the last, and none run again
    else:
        with pytest.raises(RuntimeError, match="the merge function broke"):
            await runtime.arun()
        assert await Runtime(context, agents[:3]).arun() == 0  # all of it was held
    assert live(context, "o").data == Order(item="x", status="paid", carrier="dhl")
    assert [found.author for found in context.history()] == ["status", "carrier", "one"]
