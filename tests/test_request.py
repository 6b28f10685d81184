"""The request a turn serves (API §27): seen by everything the turn runs, gone afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anyio import to_thread
from support import Answer, Order, Question, notifier

from reactifact import (
    Artifact,
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    create_agent,
    current_request,
    produce,
)
from reactifact.request import reset_request, set_request
from reactifact.runtime import active_runs

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

ADA = {"user": "ada", "request_id": "r-1"}


def asked() -> Context:
    context = Context()
    context.create(Question(text="why"), id="q")
    return context


def agent(work: Any, name: str = "x") -> Any:
    @produce(Answer)
    async def look(call: ProduceCall) -> None:
        await work(call)

    return create_agent(name, consumes=[Consume(Question)], produces=[look])


@pytest.mark.parametrize("limit", [None, 2])
async def test_a_call_its_tasks_and_its_threads_see_the_request(limit: int | None) -> None:
    seen: list[Mapping[str, Any]] = []

    async def look(call: ProduceCall) -> None:
        async def inner() -> None:
            seen.append(current_request())

        seen.append(call.request)
        async with anyio.create_task_group() as group:
            group.start_soon(inner)
        seen.append(await to_thread.run_sync(current_request))

    await Runtime(asked(), [agent(look)], limit).arun(request=ADA)
    assert seen == [ADA, ADA, ADA]
    assert current_request() == {}


@pytest.mark.parametrize("verb", ["arun", "arun_once"])
async def test_it_is_empty_without_one_and_again_after_the_turn(verb: str) -> None:
    seen: list[dict[str, Any]] = []

    async def look(call: ProduceCall) -> None:
        seen.append(dict(call.request))

    context = asked()
    runtime = Runtime(context, [agent(look)])
    await getattr(runtime, verb)(request=ADA)
    context.create(Question(text="again"))
    await getattr(runtime, verb)()
    assert seen == [ADA, {}]
    assert dict(current_request()) == {}


async def test_it_is_gone_after_an_error_too() -> None:
    async def fail(call: ProduceCall) -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        await Runtime(asked(), [agent(fail)]).arun(request=ADA)
    assert dict(current_request()) == {}


async def test_a_nested_turn_inherits_it_or_has_its_own() -> None:
    seen: list[dict[str, Any]] = []

    async def inner(call: ProduceCall) -> None:
        seen.append(dict(call.request))

    async def outer(call: ProduceCall) -> None:
        await Runtime(asked(), [agent(inner)]).arun()
        await Runtime(asked(), [agent(inner)]).arun(request={"user": "bob"})
        await Runtime(asked(), [agent(inner)]).arun(request={})
        seen.append(dict(call.request))

    await Runtime(asked(), [agent(outer)]).arun(request=ADA)
    assert seen == [ADA, {"user": "bob"}, {}, ADA]


async def test_turns_at_once_each_see_their_own() -> None:
    seen: dict[str, str] = {}
    here = {name: anyio.Event() for name in ("ada", "bob")}

    async def turn(name: str, other: str) -> None:
        async def look(call: ProduceCall) -> None:
            here[name].set()
            await here[other].wait()
            seen[name] = call.request["user"]

        await Runtime(asked(), [agent(look)]).arun(request={"user": name})

    async with anyio.create_task_group() as group:
        group.start_soon(turn, "ada", "bob")
        group.start_soon(turn, "bob", "ada")
    assert seen == {"ada": "ada", "bob": "bob"}


async def test_conditions_and_dispatchers_see_it() -> None:
    seen: list[tuple[str, str]] = []

    def condition(artifact: Artifact[Any]) -> bool:
        seen.append(("condition", current_request()["user"]))
        return False

    async def send(context: Context, artifact: Artifact[PendingAction]) -> None:
        seen.append(("dispatcher", current_request()["user"]))

    context = asked()
    context.create(Order(item="x"), id="o")
    picky = create_agent("picky", consumes=[Consume(Question, condition)], produces=[])
    await Runtime(context, [picky, notifier()], dispatcher=send).arun(request=ADA)
    assert set(seen) == {("condition", "ada"), ("dispatcher", "ada")}


async def test_active_runs_show_it() -> None:
    seen: list[Mapping[str, Any]] = []

    async def look(call: ProduceCall) -> None:
        seen.extend(info.request for info in active_runs())

    await Runtime(asked(), [agent(look)]).arun(request=ADA)
    assert seen == [ADA]


def test_set_and_reset_by_hand() -> None:
    token = set_request(ADA)
    nested = set_request(None)
    assert current_request() == ADA
    reset_request(nested)
    reset_request(token)
    assert current_request() == {}
