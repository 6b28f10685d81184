"""What the example knows and what it finds out. Money is in whole cents."""

from __future__ import annotations

from pydantic import BaseModel

from reactifact.sources import SourceRef


class Transaction(BaseModel):
    """A line of the transactions file."""

    department: str
    cents: int
    source: SourceRef


class Limit(BaseModel):
    """A line of the budget file."""

    department: str
    cents: int
    source: SourceRef


class Policy(BaseModel):
    """What the policy text allows: how many percent over the budget."""

    percent: int
    text: str
    source: SourceRef


class Spending(BaseModel):
    """What a department spent, computed from its transactions."""

    department: str
    cents: int
    transactions: int


class Finding(BaseModel):
    """The answer for a department: how far it is over what it may spend."""

    department: str
    spent: int
    allowed: int
    over: int

    @property
    def verdict(self) -> str:
        """The finding in words."""
        return f"over by {self.over / 100:.2f}: needs the board" if self.over > 0 else "within the policy"
