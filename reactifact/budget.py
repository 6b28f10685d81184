"""How much a turn may do, and what it did; counting what its model calls use.

Owns `Budget`, `BudgetTracker`, `RunOutcome`, `RunStats`, and the wrapper that counts tokens and cost.
Enforcing a budget is the loop's.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from weakref import WeakSet

from pydantic import BaseModel, ConfigDict, Field

from ._built_late import built_late
from .logging import get_logger
from .providers import LLMProvider, LLMRequest, LLMResponse, LLMResponseChunk
from .resources import Allowance, RuntimeResources

__all__ = ["Budget", "BudgetTracker", "RunOutcome", "RunStats"]


# -- how much a turn may do, and what it did --


class RunOutcome(StrEnum):
    """Why a turn ended."""

    COMPLETED = "completed"
    ITERATIONS_EXHAUSTED = "iterations_exhausted"
    BUDGET_RUNS_EXCEEDED = "budget_runs_exceeded"
    BUDGET_TIME_EXCEEDED = "budget_time_exceeded"
    BUDGET_TOKENS_EXCEEDED = "budget_tokens_exceeded"
    BUDGET_COST_EXCEEDED = "budget_cost_exceeded"
    QUOTA_EXCEEDED = "quota_exceeded"
    STOPPED = "stopped"


class Budget(BaseModel):
    """Limits of one turn; `None` means no limit.

    `max_runs` counts executions, `max_iterations` generations, `max_seconds` is a hard deadline,
    `max_tokens` and `max_cost` count what `resources.llm` reports. `max_tool_calls` counts the calls of tools
    (`Tool.run`): one more is not made and raises `BudgetExceeded`.
    """

    model_config = ConfigDict(validate_assignment=True, defer_build=True)

    max_runs: int | None = Field(default=None, ge=0)
    max_iterations: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_cost: float | None = Field(default=None, ge=0)

    @property
    def tracks_llm_usage(self) -> bool:
        """Whether completions have to be counted."""
        return self.max_tokens is not None or self.max_cost is not None


built_late(Budget)


@dataclass
class BudgetTracker:
    """What the model and tool calls of a turn have used so far."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    tool_calls: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def record(self, *, prompt_tokens: int, completion_tokens: int, cost: float = 0.0) -> None:
        """Count one completion."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.cost += cost

    def exhausted(self, budget: Budget | None) -> RunOutcome | None:
        """Return the outcome that a used-up budget means, or `None`."""
        if budget is None:
            return None
        if budget.max_tokens is not None and self.total_tokens >= budget.max_tokens:
            return RunOutcome.BUDGET_TOKENS_EXCEEDED
        if budget.max_cost is not None and self.cost > 0 and self.cost >= budget.max_cost:
            return RunOutcome.BUDGET_COST_EXCEEDED
        return None


@dataclass
class RunStats:
    """What one turn did. `duration` is in seconds, `iterations` the generations that ran."""

    runs: int
    iterations: int
    outcome: RunOutcome
    duration: float
    errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    tool_calls: int = 0
    absent: dict[str, int] = field(default_factory=dict)
    """Agents that events wait for and that are not registered, with the number of events."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


# -- counting what the model calls of a turn use, for `max_tokens` and `max_cost` --


_log = get_logger("reactifact.runtime")

_lock = threading.Lock()  # resources may be shared by event loops in several threads
_told_without_pricer: WeakSet[RuntimeResources] = WeakSet()


class MeteredLLM(LLMProvider):
    """A model whose completions are counted for the turns that ask for them.

    All turns on the same resources share one. What it does not know itself, the wrapped model
    answers; such calls are not counted.
    """

    def __init__(self, inner: Any, resources: RuntimeResources) -> None:
        self.inner = inner
        self.resources = resources
        self.users = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Ask the wrapped model and count what it used."""
        self._require_quota()
        trackers = self._trackers()
        response: LLMResponse = await self.inner.complete(request)
        self._count(trackers, request, getattr(response, "usage", None))
        return response

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Pass the wrapped model's chunks on, counting each that reports usage as it comes."""
        self._require_quota()
        trackers = self._trackers()
        chunks = self.inner.stream(request)
        if inspect.isawaitable(chunks):
            chunks = await chunks
        try:
            async for chunk in chunks:
                self._count(trackers, request, getattr(chunk, "usage", None))
                yield chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    def _trackers(self) -> list[BudgetTracker]:
        """Return the trackers of the turns that the present code runs in."""
        turns = self.resources.allowances()
        return [turn.tracker for turn in turns if turn.budget is not None and turn.budget.tracks_llm_usage]

    def _require_quota(self) -> None:
        quota = self.resources.quota
        if quota is not None:
            quota.require(self.resources.clock, "tokens", "cost")

    def _count(self, trackers: list[BudgetTracker], request: LLMRequest, usage: Any) -> None:
        quota = self.resources.quota
        if not usage or not (trackers or quota is not None):
            return
        prompt, completion = _tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens")
        cost = 0.0
        try:
            if self.resources.pricer is not None:
                cost = self.resources.pricer(self._model(request), prompt, completion)
        finally:  # the tokens are used, whatever the application's pricer raises
            for tracker in trackers:
                tracker.record(prompt_tokens=prompt, completion_tokens=completion, cost=cost)
            if quota is not None:
                quota.count(self.resources.clock, tokens=prompt + completion, cost=cost)

    def _model(self, request: LLMRequest) -> str:
        """Return the model's name for the pricer: the request's own, else the provider's, else ""."""
        return str(request.extra.get("model") or getattr(self.inner, "model", None) or "")


def _tokens(usage: Any, name: str) -> int:
    found = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    return int(found or 0)


class metered:  # noqa: N801 - reads as the verb of a with statement; a generator costs twice as much
    """Run a turn: show its budget on the resources and count its model calls in `tracker`.

    `deadline` is in seconds of `resources.clock.monotonic()`; `None` derives it from the budget.
    Calls are counted where the budget limits tokens or cost, or the resources have a quota. Turns may
    overlap on the same resources: each counts its own calls, a nested one for the turns around it too, and
    the model itself is back in place when the last one ends.
    """

    __slots__ = ("_allowance", "_resources", "_token", "_wrapper")

    def __init__(
        self,
        resources: RuntimeResources,
        tracker: BudgetTracker,
        budget: Budget | None,
        deadline: float | None = None,
    ) -> None:
        if deadline is None and budget is not None and budget.max_seconds is not None:
            deadline = resources.clock.monotonic() + budget.max_seconds
        self._resources = resources
        self._allowance = Allowance(budget, deadline, tracker)
        self._wrapper: MeteredLLM | None = None

    def __enter__(self) -> None:
        resources, budget = self._resources, self._allowance.budget
        is_tracked = budget is not None and budget.tracks_llm_usage
        if budget is not None and is_tracked:
            _tell_without_pricer(resources, budget)
        if is_tracked or resources.quota is not None:
            self._wrapper = _wrap(resources)
        self._token = resources.allow(self._allowance)

    def __exit__(self, *_: object) -> None:
        if self._wrapper is not None:
            _unwrap(self._resources, self._wrapper)
        self._resources.end(self._allowance, self._token)


def _wrap(resources: RuntimeResources) -> MeteredLLM | None:
    with _lock:
        llm = resources.llm
        if llm is None:
            return None
        shared = isinstance(llm, MeteredLLM) and llm.resources is resources
        wrapper: MeteredLLM = llm if shared else MeteredLLM(llm, resources)
        wrapper.users += 1
        resources.llm = wrapper
        return wrapper


def _unwrap(resources: RuntimeResources, wrapper: MeteredLLM) -> None:
    with _lock:
        wrapper.users -= 1
        # a model that was put in place during the turn stays
        if wrapper.users == 0 and resources.llm is wrapper:
            resources.llm = wrapper.inner


def _tell_without_pricer(resources: RuntimeResources, budget: Budget) -> None:
    if budget.max_cost is None or resources.pricer is not None or resources in _told_without_pricer:
        return
    _told_without_pricer.add(resources)
    _log.warning(
        "max_cost has no effect: resources.pricer is None, so that no call has a cost; pass "
        "pricer=f(model, prompt_tokens, completion_tokens) to RuntimeResources"
    )
