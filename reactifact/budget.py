"""The public path of budgets."""

from __future__ import annotations

from .runtime.budget import Budget, BudgetTracker, RunOutcome, RunStats

__all__ = ["Budget", "BudgetTracker", "RunOutcome", "RunStats"]
