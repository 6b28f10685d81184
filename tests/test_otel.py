"""Spans and measurements of OpenTelemetry, against the SDK's exporter and reader in memory."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer
from stores import KINDS, place_of
from support import Order, Outside, Place, Receipt, notifier

from reactifact import (
    Consume,
    Context,
    ProduceCall,
    Runtime,
    RuntimeResources,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._extras import install_command
from reactifact.errors import StoreError

pytestmark = pytest.mark.anyio


class Traces:
    """A tracer and the spans that it made."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("tests")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.name == f"reactifact.{name}"]

    def the(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found


class Measures:
    """A meter and what was measured by it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.meter = MeterProvider([self._reader]).get_meter("tests")

    def points(self, name: str) -> Sequence[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"reactifact.{name}"
            for point in metric.data.data_points
        ]

    def value(self, name: str) -> Any:
        (point,) = self.points(name)
        return point.value


def said(span: ReadableSpan, name: str) -> Any:
    assert span.attributes is not None
    return span.attributes.get(f"reactifact.{name}")


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


async def ordered(place: Place, resources: RuntimeResources | None = None, **options: Any) -> Context:
    session = await place.store().open("s", resources)
    session.context.create(Order(item="tea"), id="o")
    await Runtime(session.context, [notifier()], session=session, hints=False, **options).arun()
    return session.context


@pytest.mark.every_loop
async def test_a_turn_is_a_tree_of_spans(git_place: Place) -> None:
    traces = Traces()
    with traces.tracer.start_as_current_span("request") as request:
        context = await ordered(git_place, tracer=traces.tracer, dispatcher=Outside())
    turn, generation = traces.the("turn"), traces.the("generation")
    assert turn.parent is not None
    assert turn.parent.span_id == request.get_span_context().span_id
    assert is_child(generation, turn)
    for name in ("execution", "commit", "delivery"):
        assert is_child(traces.the(name), generation), name
    assert said(turn, "outcome") == "completed"
    assert said(traces.the("execution"), "agent") == "notifier"
    assert said(traces.the("commit"), "change_id") == context.head_id
    delivery = traces.the("delivery")
    assert (said(delivery, "status"), said(delivery, "change_id")) == ("dispatched", context.head_id)
    assert [link.context.span_id for link in delivery.links] == [traces.the("commit").context.span_id]
    for name in ("turn", "generation", "execution", "commit", "delivery"):
        span = traces.the(name)
        assert (said(span, "session_id"), said(span, "branch")) == ("s", "main")
        assert said(span, "run_id") == said(turn, "run_id")
    assert trace.get_current_span() is trace.INVALID_SPAN  # nothing is left behind


@pytest.mark.parametrize("at_once", [None, 4])
async def test_what_a_produce_traces_lies_in_its_execution(at_once: int | None) -> None:
    traces, context = Traces(), Context()

    @produce(Receipt)
    async def work(call: ProduceCall) -> None:
        assert call.trigger is not None
        with traces.tracer.start_as_current_span(f"reactifact.call-{call.trigger.id}"):
            pass

    for number in range(3):
        context.create(Order(item="tea"), id=str(number))
    agent = create_agent("a", consumes=[Consume(Order)], produces=[work])
    await Runtime(context, [agent], tracer=traces.tracer, max_concurrency=at_once).arun()
    executions = {said(span, "artifact_id"): span for span in traces.spans("execution")}
    assert len(executions) == 3
    for number in range(3):
        assert is_child(traces.the(f"call-{number}"), executions[str(number)])
    assert {is_child(span, traces.the("generation")) for span in executions.values()} == {True}


async def test_a_retry_links_to_the_failure_before_it() -> None:
    traces, context, failing = Traces(), Context(), [True]

    @produce(Receipt)
    async def work(call: ProduceCall) -> None:
        if failing:
            failing.pop()
            raise ConnectionError("no route")

    context.create(Order(item="tea"), id="o")
    agent = create_agent("a", consumes=[Consume(Order)], produces=[work])
    runtime = Runtime(context, [agent], tracer=traces.tracer)
    with pytest.raises(ConnectionError):
        await runtime.arun()
    await runtime.arun()
    first, second = traces.spans("execution")
    assert (first.status.status_code, first.status.description) == (
        StatusCode.ERROR,
        "ConnectionError: no route",
    )
    assert second.status.status_code is not StatusCode.ERROR
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert traces.spans("turn")[0].status.status_code is StatusCode.ERROR


async def test_a_relay_traces_its_deliveries_by_the_commit_that_planned_them(git_place: Place) -> None:
    traces = Traces()
    context = await ordered(git_place)
    world = Outside("notify:o")
    for _ in range(2):
        await git_place.store().relay(
            world, once=True, tracer=traces.tracer, backoff=1e-9, max_attempts=5, poll=0.01
        )
        world.failing.clear()
    failed, sent = traces.spans("delivery")
    assert (said(failed, "status"), said(failed, "attempts")) == ("failed", 1)
    assert said(sent, "status") == "dispatched"
    assert {said(span, "change_id") for span in (failed, sent)} == {context.head_id}
    assert {said(span, "session_id") for span in (failed, sent)} == {"s"}


async def test_turns_executions_and_deliveries_are_measured(place: Place) -> None:
    measures = Measures()
    resources = RuntimeResources(metrics=measures.meter)
    await ordered(place, resources, dispatcher=Outside())
    (turn,) = measures.points("turn.duration")
    assert (turn.count, turn.attributes) == (1, {"outcome": "completed"})
    (execution,) = measures.points("execution.duration")
    assert execution.attributes == {"agent": "notifier", "result": "finished"}
    (delivery,) = measures.points("delivery.duration")
    assert delivery.attributes == {"kind": "mail", "status": "dispatched"}
    (attempts,) = measures.points("delivery.attempts")
    assert (attempts.count, attempts.sum) == (1, 0)


async def test_a_relay_measures_what_waits_and_how_old_it_is(git_place: Place) -> None:
    measures = Measures()
    await ordered(git_place)
    seen: list[Any] = []

    async def send(context: Context, action: Any) -> None:
        seen.append(measures.value("outbox.waiting"))
        raise ConnectionError("no route")

    stop = anyio.Event()

    def parked(action: Any, error: Exception) -> None:
        stop.set()

    await git_place.store().relay(
        send, metrics=measures.meter, max_attempts=1, stop=stop, on_dispatch_error=parked
    )
    assert measures.points("outbox.waiting") == []  # nobody knows any more
    (attempts,) = measures.points("delivery.attempts")
    assert attempts.attributes == {"kind": "mail", "status": "parked"}
    assert len(seen) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_the_size_of_a_store_grows_with_what_it_holds(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    place, measures = place_of(kind, tmp_path, dsn), Measures()
    store = SessionStore(place)
    if kind == "own":
        with pytest.raises(StoreError, match="has no `size`"):
            store.observe(measures.meter)
        return
    with pytest.raises(ValueError, match=r"metrics=.*OpenTelemetry"):
        store.observe(object())
    store.observe(measures.meter)
    before = measures.value("store.size")
    async with store.edit("s") as context:
        context.create(Order(item=secrets.token_hex(100_000)), id="o")
    (point,) = measures.points("store.size")
    assert point.value >= before + 100_000
    assert point.attributes == {"store": store.database.backend.location}
    if kind == "git":
        files = [file for file in (tmp_path / "state.git/objects").rglob("*") if file.is_file()]
        assert point.value == sum(file.stat().st_size for file in files)


async def test_a_relay_measures_the_size_of_its_store_while_it_runs(git_place: Place) -> None:
    measures = Measures()
    await ordered(git_place)
    sizes: list[int] = []

    async def send(context: Context, action: Any) -> None:
        sizes.append(measures.value("store.size"))

    await git_place.store().relay(send, metrics=measures.meter, once=True)
    assert sizes[0] > 0
    assert measures.points("store.size") == []


async def test_what_is_neither_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"tracer=.*OpenTelemetry"):
        Runtime(Context(), tracer=object())
    context = Context(RuntimeResources(metrics=object()))
    with pytest.raises(ValueError, match=r"metrics=.*OpenTelemetry"):
        Runtime(context)


async def test_a_tracer_that_fails_stops_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def start_span(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("no collector")

    world = Outside()
    await ordered(place, tracer=Broken(), dispatcher=world)
    assert world.sent == ["notify:o"]
    assert "an observer of the lifecycle failed" in caplog.text


def test_without_the_api_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Traces().tracer
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ImportError, match="extra `otel`") as failed:
        Runtime(Context(), tracer=tracer)
    assert install_command("otel") in str(failed.value)
