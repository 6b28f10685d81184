"""`StatusMachine`, through the runtime."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import Artifact, Consume, Context, EventType, ProduceCall, Runtime, create_agent
from reactifact.recipes import StatusMachine

pytestmark = pytest.mark.anyio


class Query(BaseModel):
    query_id: str
    status: str = "new"


class Part(BaseModel):
    query_id: str
    text: str = ""


class Ticket(BaseModel):
    state: str = "open"


class Comment(BaseModel):
    ticket: str


class Step(BaseModel):
    text: str


class QueryMachine(StatusMachine[Query]):
    terminal = frozenset({"done"})

    def next_status(self, context: Context, key: str) -> str | None:
        parts = [part for part in context.list_artifacts(Part) if part.data.query_id == key]
        if any(part.data.text == "skip" for part in parts):
            return None
        return ("new", "working", "done", "too many")[len(parts)]


def runtime(context: Context, machine: Any, *types: Any) -> Runtime:
    kinds = [EventType.ARTIFACT_CREATED, EventType.ARTIFACT_UPDATED, EventType.ARTIFACT_DELETED]
    consumes = [Consume(kind, event_types=kinds) for kind in types]
    return Runtime(context, [create_agent("status", consumes=consumes, produces=[machine])])


def status(context: Context, artifact_id: str) -> str:
    found = context.get(artifact_id)
    assert found is not None
    return str(found.data.status)


async def test_the_status_follows_what_belongs_to_the_owner() -> None:
    context = Context()
    run = runtime(context, QueryMachine(), Query, Part)
    context.create(Query(query_id="7"), id="first")
    context.create(Query(query_id="8"), id="second")
    await run.arun()
    assert context.version == 0  # the same status is not a change
    context.create(Part(query_id="7"))
    await run.arun()
    assert (status(context, "first"), status(context, "second")) == ("working", "new")
    context.create(Part(query_id="7"))
    await run.arun()
    assert status(context, "first") == "done"
    (last,) = context.history()[-1].writes
    assert (last.artifact_id, last.op_type) == ("first", "update")


async def test_a_terminal_status_stays() -> None:
    context = Context()
    run = runtime(context, QueryMachine(), Query, Part)
    context.create(Query(query_id="7", status="done"), id="q")
    context.create(Part(query_id="7"))
    await run.arun()
    assert (status(context, "q"), context.version) == ("done", 0)


async def test_none_leaves_the_status() -> None:
    context = Context()
    context.create(Query(query_id="7", status="working"), id="q")
    context.create(Part(query_id="7", text="skip"))
    await runtime(context, QueryMachine(), Query, Part).arun()
    assert status(context, "q") == "working"


async def test_events_without_a_key_or_an_owner_do_nothing() -> None:
    context = Context()
    run = runtime(context, QueryMachine(), Query, Part, Step)
    context.create(Query(query_id="7"), id="q")
    context.create(Part(query_id="other"))
    context.create(Part(query_id=""))
    context.create(Step(text="no key"))
    await run.arun()
    gone = context.create(Part(query_id="7"))
    context.delete(gone.id)
    await run.arun()
    assert (status(context, "q"), context.version) == ("new", 0)


async def test_an_owner_whose_key_is_its_id_and_a_transition_with_effects() -> None:
    class TicketMachine(StatusMachine[Ticket]):
        artifact_type = Ticket
        also_creates = Step
        query_id_field = "ticket"
        status_field = "state"

        async def next_status(self, context: Context, key: str) -> str | None:
            return "answered"

        async def on_transition(
            self, call: ProduceCall, artifact: Artifact[Ticket], old: str, new: str
        ) -> None:
            call.effects.create(Step(text=f"{artifact.id} {old} -> {new}"))

    context = Context()
    context.create(Ticket(), id="t1")
    context.create(Ticket(), id="t2")
    context.create(Comment(ticket="t2"))
    await runtime(context, TicketMachine(), Comment).arun()
    assert [found.data.state for found in context.list_artifacts(Ticket)] == ["open", "answered"]
    assert [found.data.text for found in context.list_artifacts(Step)] == ["t2 open -> answered"]
    assert len(context.history()) == 1


async def test_an_owner_key_of_ones_own() -> None:
    class ByPrefix(StatusMachine[Ticket]):
        query_id_field = "ticket"
        status_field = "state"

        def owner_key(self, artifact: Artifact[Ticket]) -> str:
            return artifact.id.removeprefix("ticket:")

        def next_status(self, context: Context, key: str) -> str:
            return f"seen {key}"

    context = Context()
    context.create(Ticket(), id="ticket:1")
    context.create(Comment(ticket="1"))
    await runtime(context, ByPrefix(), Comment).arun()
    assert [found.data.state for found in context.list_artifacts(Ticket)] == ["seen 1"]


async def test_a_machine_without_rules_is_refused() -> None:
    with pytest.raises(TypeError, match="write next_status"):
        StatusMachine(Query)
