"""What a runtime runs with: agents, policies, callbacks, and what follows from them alone.

Owns the configuration that `Runtime` is made of and a turn asks about, its checks, and the two hints.
It runs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

from anyio import CancelScope

from .._context.context import Context
from .._observers import Observer
from ..agents import Agent
from ..budget import Budget
from ..errors import ReactifactError, add_note, told
from ..events import Event
from ..interrupt import WAKE
from ..logging import get_logger, hint
from .drain import Dispatcher, Drained, ErrorCallback, Options
from .execution import Result
from .plan import Roster, Scheduler, renames
from .questions import Deadlines

# -- what a runtime runs with: agents, policies, callbacks, and what follows from them alone --

log = get_logger("reactifact.runtime")


SavePolicy = Literal["per_step", "per_commit", "per_turn"]
AgentErrorCallback = Callable[[Agent, Event, BaseException], Any]


class Saves(Protocol):
    """What a runtime needs of a session."""

    session_id: str

    async def save(self) -> None: ...


class Wiring:
    """Agents over a context, and how their work is saved, delivered and reported."""

    def __init__(
        self,
        context: Context,
        agents: Sequence[Agent] | None = None,
        max_concurrency: int | None = None,
        session: Saves | None = None,
        budget: Budget | None = None,
        tracer: Any = None,
        scheduler: Scheduler | None = None,
        isolate_errors: bool = False,
        on_agent_error: AgentErrorCallback | None = None,
        session_save_policy: SavePolicy = "per_commit",
        dispatcher: Dispatcher | None = None,
        on_dispatch_error: ErrorCallback | None = None,
        *,
        dispatch_errors: Literal["raise", "record"] = "raise",
        dispatch_concurrency: int = 1,
        simulate: bool = False,
        hints: bool = True,
        max_failures: int | None = None,
    ) -> None:
        if session_save_policy not in get_args(SavePolicy):
            raise ValueError(
                f"session_save_policy is 'per_step', 'per_commit' or 'per_turn', not {session_save_policy!r}"
            )
        if session_save_policy == "per_step" and session is None:
            raise ValueError(
                "session_save_policy='per_step' needs session=: it says where finished executions are kept; "
                "open one with SessionStore.open"
            )
        if dispatch_errors not in ("raise", "record"):
            raise ValueError(f"dispatch_errors is 'raise' or 'record', not {dispatch_errors!r}")
        for name, value in (
            ("max_concurrency", max_concurrency),
            ("dispatch_concurrency", dispatch_concurrency),
            ("max_failures", max_failures),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name} is a number of at least 1, not {value!r}")
        if max_failures is not None and isolate_errors:
            raise ValueError(
                "isolate_errors=True takes an event on which an agent failed for handled, and max_failures= "
                "keeps it: pass one of them"
            )
        self.context = context
        self.agents: list[Agent] = []
        for agent in agents or ():
            self.register(agent)
        self.max_concurrency = max_concurrency
        self.session = session
        self.budget = budget
        self.scheduler = scheduler
        self.isolate_errors = isolate_errors
        self.on_agent_error = on_agent_error
        self.session_save_policy = session_save_policy
        self.dispatcher = dispatcher
        self.on_dispatch_error = on_dispatch_error
        self.dispatch_errors = dispatch_errors
        self.dispatch_concurrency = dispatch_concurrency
        self.simulate = simulate
        self._roster: Roster | None = None
        self.hints = hints
        self.max_failures = max_failures
        self.observers: tuple[Observer, ...] = ()
        if tracer is not None or context.resources.metrics is not None:
            from ..otel import observers_of

            self.observers = observers_of(tracer, context.resources.metrics)
        self.next_wake: tuple[Any, datetime | None] | None = None  # as of a state of the outbox
        self.deadlines = Deadlines()
        self._hinted: set[str] = set()
        self._told_absent: set[str] = set()

    def register(self, agent: Agent) -> None:
        """Add an agent. Raises `TypeError` for anything else, `ValueError` where another has its alias."""
        if not isinstance(agent, Agent):
            raise TypeError(f"{agent!r} is not an agent: pass an Agent (see create_agent)")
        renames([*self.agents, agent])
        self.agents.append(agent)
        self.context.line.is_watched = True  # from now on each event counts, of one kind or not

    @property
    def roster(self) -> Roster:
        """The agents as the queue knows them, looked at anew: it costs a look at each."""
        known = self._roster
        if known is None or not known.is_of(self.agents):
            known = self._roster = Roster(self.agents)
        return known

    @property
    def known_roster(self) -> Roster:
        """The agents as they were when they were looked at last."""
        return self._roster or self.roster

    @property
    def saves_per_commit(self) -> bool:
        """Whether each generation is saved."""
        return self.session_save_policy != "per_turn"

    @property
    def saves_per_step(self) -> bool:
        """Whether each finished execution is saved before its generation ends."""
        return self.session_save_policy == "per_step"

    def outbox_options(self) -> Options:
        """Return how the outbox is drained."""
        return Options(
            on_error=self.on_dispatch_error,
            owed=self.known_roster.awaits_delivery,
            concurrency=self.dispatch_concurrency,
            simulate=self.simulate,
        )

    def raise_undelivered(self, drained: Drained) -> None:
        """Raise the first failed delivery, unless failures are only recorded."""
        if drained.errors and self.dispatch_errors == "raise":
            drained.raise_first()

    async def report_agent_error(self, result: Result) -> None:
        """Tell the application about an isolated error; what its callback raises is isolated too."""
        if self.on_agent_error is None or result.error is None:
            return
        try:
            answer = self.on_agent_error(result.work.agent, result.work.event, result.error)
            if isinstance(answer, Awaitable):
                await answer
        except Exception as error:
            add_note(result.error, f"on_agent_error failed: {told(error)}")

    def warn_without_dispatcher(self) -> None:
        """Say once that actions wait and nobody delivers them."""
        if self.dispatcher is None and "dispatcher" not in self._hinted and self.context.has_actions():
            pending = self.context.pending_actions()
            waiting = sum(action.data.kind != WAKE for action in pending)
            if waiting:
                self.hint(
                    "dispatcher",
                    f"reactifact: {waiting} pending action(s), but the Runtime has "
                    f"no dispatcher=: they stay pending",
                )

    def hint_at_silence(self) -> None:
        """Say once that events came and woke nobody."""
        if self.agents:
            self.hint(
                "silence",
                f"reactifact: None of the {len(self.agents)} agents ran: no event matched a "
                f"consume of theirs (types are matched exactly)",
            )

    def tell_of_absent(self, absent: dict[str, int]) -> None:
        """Log once for each set of agents that events wait for agents that are not registered."""
        names = ", ".join(f"{name} ({count})" for name, count in absent.items())
        if absent and absent.keys() != self._told_absent:
            self._told_absent = set(absent)
            log.warning(
                f"events wait for agents that are not registered: {names}; register them, or give the agent "
                f"that takes their place aliases=[...]",
                extra={"absent": absent},
            )

    def hint(self, kind: str, text: str) -> None:
        """Log something once, unless hints are turned off; where nobody has set up logging, on stderr."""
        if self.hints and kind not in self._hinted:
            self._hinted.add(kind)
            hint(text)


# -- the turns in progress in this process: listing them and cancelling one --


class RunCancelled(ReactifactError):
    """The turn was cancelled by `cancel_run` (on trio; on asyncio it is `CancelledError`)."""


@dataclass
class RunInfo:
    """A turn in progress. `generation` counts from 1 within the turn."""

    run_id: str
    session_id: str
    started_at: datetime
    request: Mapping[str, Any]
    runtime_id: int
    generation: int = 0
    scope: CancelScope = field(default_factory=CancelScope, repr=False, compare=False)
    is_cancelled: bool = False


_runs: dict[str, RunInfo] = {}


def active_runs() -> list[RunInfo]:
    """Return the turns in progress in this process."""
    return list(_runs.values())


def cancel_run(run_id: str) -> bool:
    """Cancel a turn; return whether there was one. Call it on the turn's event loop."""
    info = _runs.get(run_id)
    if info is None:
        return False
    info.is_cancelled = True
    info.scope.cancel()
    return True


def enter(info: RunInfo) -> None:
    """List a turn."""
    _runs[info.run_id] = info


def leave(info: RunInfo) -> None:
    """Take a turn off the list."""
    _runs.pop(info.run_id, None)
