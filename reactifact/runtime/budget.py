"""How much a turn may do, and what it did.

Owns `Budget`, `BudgetTracker`, `RunOutcome` and `RunStats`. Enforcing a budget is the loop's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, field_validator


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
    """Limits of one turn; `None` is no limit.

    `max_runs` counts executions, `max_iterations` generations, `max_seconds` is a hard deadline,
    `max_tokens` and `max_cost` count what `resources.llm` reports. `max_tool_calls` is refused.
    """

    model_config = ConfigDict(validate_assignment=True)

    max_runs: int | None = Field(default=None, ge=0)
    max_iterations: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_cost: float | None = Field(default=None, ge=0)

    @field_validator("max_tool_calls")
    @classmethod
    def _refuse_what_is_not_enforced(cls, value: int | None) -> int | None:
        if value is not None:
            raise ValueError(
                "max_tool_calls is not supported: nothing counts the calls of tools; count them in the "
                "produce that calls them, or limit max_tokens"
            )
        return value

    @property
    def tracks_llm_usage(self) -> bool:
        """Whether completions have to be counted."""
        return self.max_tokens is not None or self.max_cost is not None


@dataclass
class BudgetTracker:
    """What the model calls of a turn have used so far."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

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

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens
