"""Turns, executions and deliveries as spans and measurements of OpenTelemetry (extra `otel`).

Owns `Tracing` and `Metrics`, observers of the lifecycle (`_observers`) that `Runtime(tracer=)`,
`RuntimeResources(metrics=)` and `SessionStore.relay(tracer=, metrics=)` make of a tracer and a meter. The
API of OpenTelemetry is imported when one of them is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextvars import Token
from typing import TYPE_CHECKING, Any, NamedTuple

from ._observers import Observer
from .streaming import (
    ActionDelivered,
    CommitMade,
    DeliveryStarted,
    ExecutionFailed,
    ExecutionFinished,
    ExecutionStarted,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LifecycleEvent,
    QuestionAsked,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, SpanContext, Tracer

__all__ = ["Metrics", "Tracing"]


_REMEMBERED = 10_000
"""Commits and failures whose spans are kept to be linked to."""


def observers_of(tracer: Any, meter: Any) -> tuple[Observer, ...]:
    """Return the observers that a tracer and a meter stand for; `None` for neither.

    Raises `ImportError`, saying how to get it, without OpenTelemetry, and `ValueError` for what is neither.
    """
    found: list[Observer] = []
    for given, name, method, kind in (
        (tracer, "tracer", "start_span", Tracing),
        (meter, "metrics", "create_histogram", Metrics),
    ):
        if given is None:
            continue
        if not callable(getattr(given, method, None)):
            what = "a tracer" if kind is Tracing else "a meter"
            raise ValueError(
                f"{name}={given!r} is not {what} of OpenTelemetry: pass what get_tracer or get_meter of a "
                f"provider returns"
            )
        try:
            import opentelemetry.trace  # noqa: F401
        except ImportError as error:
            from ._extras import install_command

            raise ImportError(
                f"{name}= needs OpenTelemetry, which the extra `otel` brings ({error}): "
                f"run {install_command('otel')}"
            ) from error
        found.append(kind(given))
    return tuple(found)


class _Open(NamedTuple):
    """A span in progress, and what puts the span before it back in its place."""

    span: Span
    token: Token[Context]


class Tracing:
    """Spans for turn, generation, execution, commit and delivery, each the parent of what it brings about.

    A span carries session, branch, run id and the ids that tell of what it is (`reactifact.*`). An execution
    links to the span of the last failure of its agent on the same artifact, a delivery to the commit that
    planned it, where this process made them; `reactifact.change_id` says which commit that is in any other.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[tuple[Any, ...], _Open] = {}
        self._commits: OrderedDict[tuple[str, ...], SpanContext] = OrderedDict()
        self._failures: OrderedDict[tuple[str, ...], SpanContext] = OrderedDict()

    def __call__(self, event: LifecycleEvent) -> None:
        """Begin or end the span that an event is about."""
        attributes: dict[str, Any]
        if isinstance(event, TurnStarted):
            self._begin(("turn", event.run_id), "reactifact.turn", event, {})
        elif isinstance(event, TurnFinished | TurnFailed):
            self._end_turn(event)
        elif isinstance(event, GenerationStarted):
            attributes = {"generation": event.number, "executions": event.executions}
            self._begin(("generation", event.run_id), "reactifact.generation", event, attributes)
        elif isinstance(event, GenerationFinished):
            self._end(("generation", event.run_id), "", {"runs": event.runs})
        elif isinstance(event, GenerationFailed):
            self._end(("generation", event.run_id), event.error, {})
        elif isinstance(event, ExecutionFinished):  # or failed, which it is too
            self._end_execution(event)
        elif isinstance(event, ExecutionStarted):
            attributes = {"agent": event.agent, "artifact_id": event.artifact_id, "event": event.event}
            known = self._failures.get(_work(event))
            self._begin(("execution", event.execution), "reactifact.execution", event, attributes, known)
        elif isinstance(event, CommitMade):
            self._commit(event)
        elif isinstance(event, QuestionAsked):
            self._note(event, "question asked", {"artifact_id": event.artifact_id})
        elif isinstance(event, ActionDelivered):
            self._end_delivery(event)
        elif isinstance(event, DeliveryStarted):
            self._begin_delivery(event)

    def _end_turn(self, event: TurnFinished | TurnFailed) -> None:
        if isinstance(event, TurnFailed):
            self._end(("turn", event.run_id), event.error, {})
        else:
            attributes = {"outcome": event.outcome, "runs": event.runs, "errors": event.errors}
            self._end(("turn", event.run_id), "", attributes)

    def _end_execution(self, event: ExecutionFinished) -> None:
        error = event.error if isinstance(event, ExecutionFailed) else ""
        span = self._end(("execution", event.execution), error, {"latency_ms": event.latency})
        if error and span is not None:
            _remember(self._failures, _work(event), span.get_span_context())
        else:
            self._failures.pop(_work(event), None)

    def _commit(self, event: CommitMade) -> None:
        span = self._tracer.start_span(
            "reactifact.commit",
            attributes=_attributes(
                event, {"change_id": event.commit, "version": event.version, "agent": event.agent}
            ),
        )
        span.end()
        _remember(self._commits, (event.session_id, event.commit), span.get_span_context())

    def _begin_delivery(self, event: DeliveryStarted) -> None:
        attributes = {
            "action_id": event.action_id,
            "action_kind": event.action_kind,
            "action_key": event.key,
            "agent": event.agent,
            "change_id": event.commit,
            "attempts": event.attempts,
        }
        planned = self._commits.get((event.session_id, event.commit))
        failed = self._failures.get((event.session_id, event.action_id))
        self._begin(
            ("delivery", event.session_id, event.action_id),
            "reactifact.delivery",
            event,
            attributes,
            planned,
            failed,
        )

    def _end_delivery(self, event: ActionDelivered) -> None:
        attributes = {"status": event.status, "attempts": event.attempts}
        span = self._end(("delivery", event.session_id, event.action_id), event.error, attributes)
        place = (event.session_id, event.action_id)
        if event.error and span is not None:
            _remember(self._failures, place, span.get_span_context())
        else:
            self._failures.pop(place, None)

    # -- spans ---------------------------------------------------------------------------------

    def _begin(
        self,
        key: tuple[Any, ...],
        name: str,
        event: LifecycleEvent,
        attributes: Mapping[str, Any],
        *linked: SpanContext | None,
    ) -> None:
        from opentelemetry import context, trace

        links = [trace.Link(one) for one in linked if one is not None]
        span = self._tracer.start_span(name, attributes=_attributes(event, attributes), links=links)
        self._open[key] = _Open(span, context.attach(trace.set_span_in_context(span)))

    def _end(self, key: tuple[Any, ...], error: str, attributes: Mapping[str, Any]) -> Span | None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        found = self._open.pop(key, None)
        if found is None:
            return None
        context.detach(found.token)
        found.span.set_attributes({f"reactifact.{name}": value for name, value in attributes.items()})
        if error:
            found.span.set_status(Status(StatusCode.ERROR, error))
        found.span.end()
        return found.span

    def _note(self, event: LifecycleEvent, name: str, attributes: Mapping[str, Any]) -> None:
        from opentelemetry import trace

        trace.get_current_span().add_event(name, _attributes(event, attributes))

    def __repr__(self) -> str:
        return f"Tracing({self._tracer!r})"


def _attributes(event: LifecycleEvent, fields: Mapping[str, Any]) -> dict[str, Any]:
    known = {"session_id": event.session_id, "branch": event.branch, "run_id": event.run_id, **fields}
    return {f"reactifact.{name}": value for name, value in known.items() if value != ""}


def _work(event: ExecutionStarted) -> tuple[str, ...]:
    return event.session_id, event.branch, event.agent, event.event, event.artifact_id


def _remember(
    known: OrderedDict[tuple[str, ...], SpanContext], key: tuple[str, ...], span: SpanContext
) -> None:
    known[key] = span
    known.move_to_end(key)
    if len(known) > _REMEMBERED:
        known.popitem(last=False)


class Metrics:
    """Durations of turns, executions and deliveries in seconds, and how often an action was tried."""

    def __init__(self, meter: Meter) -> None:
        self._turn = meter.create_histogram("reactifact.turn.duration", "s", "Turns, by outcome")
        self._execution = meter.create_histogram(
            "reactifact.execution.duration", "s", "Executions, by agent and result"
        )
        self._delivery = meter.create_histogram(
            "reactifact.delivery.duration", "s", "Sends, by kind of action and how they ended"
        )
        self._attempts = meter.create_histogram(
            "reactifact.delivery.attempts",
            "{attempt}",
            "Failed sends of an action when it was delivered or parked",
        )

    def __call__(self, event: LifecycleEvent) -> None:
        """Measure what an event tells the end of."""
        if isinstance(event, TurnFinished):
            self._turn.record(event.duration, {"outcome": event.outcome})
        elif isinstance(event, TurnFailed):
            self._turn.record(event.duration, {"outcome": "error"})
        elif isinstance(event, ExecutionFinished):
            result = "failed" if isinstance(event, ExecutionFailed) else "finished"
            self._execution.record(event.latency / 1000, {"agent": event.agent, "result": result})
        elif isinstance(event, ActionDelivered):
            attributes = {"kind": event.action_kind, "status": event.status}
            self._delivery.record(event.latency / 1000, attributes)
            if event.status in ("dispatched", "parked"):
                self._attempts.record(event.attempts, attributes)

    def __repr__(self) -> str:
        return "Metrics()"


def observe_size(meter: Any, measure: Callable[[], int | None], attributes: Mapping[str, str]) -> None:
    """Let a meter ask how many bytes a store takes. `measure` answers `None` once there is nobody to ask."""
    from opentelemetry.metrics import CallbackOptions, Observation

    def callback(options: CallbackOptions) -> Iterable[Observation]:
        found = measure()
        return [] if found is None else [Observation(found, dict(attributes))]

    meter.create_observable_gauge("reactifact.store.size", [callback], "By", "Bytes that the store takes")


def observe_outbox(meter: Any, look: Callable[[], Mapping[str, float] | None]) -> None:
    """Let a meter ask what waits in a store: `waiting`, `failed` and `parked` actions, and their `age`.

    `look` answers `None` once there is nobody who knows.
    """
    from opentelemetry.metrics import CallbackOptions, Observation

    def gauge(name: str, key: str, unit: str, text: str) -> None:
        def callback(options: CallbackOptions) -> Iterable[Observation]:
            found = look()
            return [] if found is None else [Observation(found[key])]

        meter.create_observable_gauge(name, [callback], unit, text)

    gauge("reactifact.outbox.waiting", "waiting", "{action}", "Actions that wait to be sent")
    gauge("reactifact.outbox.failed", "failed", "{action}", "Actions that failed and will be sent again")
    gauge(
        "reactifact.outbox.parked", "parked", "{action}", "Actions that nobody sends before they are re-armed"
    )
    gauge("reactifact.outbox.age", "age", "s", "Seconds since the oldest action that waits was due")
