"""Counting what the model calls of a turn use, for `max_tokens` and `max_cost`.

Owns the wrapper that stands in for `resources.llm` while a turn with such a budget runs, and what a
turn shows of itself on the resources. When a used-up budget ends a turn is the loop's decision.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from ..authoring.providers import LLMProvider, LLMRequest, LLMResponse, LLMResponseChunk
from ..context.resources import Allowance, RuntimeResources
from ..logs import get_logger
from .budget import Budget, BudgetTracker

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
        trackers = self._trackers()
        response: LLMResponse = await self.inner.complete(request)
        self._count(trackers, request, getattr(response, "usage", None))
        return response

    async def stream(self, request: LLMRequest) -> AsyncIterator[LLMResponseChunk]:
        """Pass the wrapped model's chunks on, counting each that reports usage as it comes."""
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

    def _count(self, trackers: list[BudgetTracker], request: LLMRequest, usage: Any) -> None:
        if not usage or not trackers:
            return
        prompt, completion = _tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens")
        cost = 0.0
        try:
            if self.resources.pricer is not None:
                cost = self.resources.pricer(self._model(request), prompt, completion)
        finally:  # the tokens are used, whatever the application's pricer raises
            for tracker in trackers:
                tracker.record(prompt_tokens=prompt, completion_tokens=completion, cost=cost)

    def _model(self, request: LLMRequest) -> str:
        """Return the model's name for the pricer: the request's own, else the provider's, else ""."""
        return str(request.extra.get("model") or getattr(self.inner, "model", None) or "")


def _tokens(usage: Any, name: str) -> int:
    found = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    return int(found or 0)


@contextmanager
def metered(
    resources: RuntimeResources,
    tracker: BudgetTracker,
    budget: Budget | None,
    deadline: float | None = None,
) -> Iterator[None]:
    """Run a turn: show its budget on the resources and count its model calls in `tracker`.

    `deadline` is in seconds of `resources.clock.monotonic()`; `None` derives it from the budget.
    Calls are counted where the budget limits tokens or cost. Turns may overlap on the same
    resources: each counts its own calls, a nested one for the turns around it too, and the model
    itself is back in place when the last one ends.
    """
    if deadline is None and budget is not None and budget.max_seconds is not None:
        deadline = resources.clock.monotonic() + budget.max_seconds
    with resources.allowing(Allowance(budget, deadline, tracker)):
        if budget is None or not budget.tracks_llm_usage:
            yield
            return
        _tell_without_pricer(resources, budget)
        wrapper = _wrap(resources)
        try:
            yield
        finally:
            _unwrap(resources, wrapper)


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


def _unwrap(resources: RuntimeResources, wrapper: MeteredLLM | None) -> None:
    if wrapper is None:
        return
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
