"""Reading the three files into artifacts, each with the place where it was found."""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from pathlib import Path

from reactifact import Context
from reactifact.sources import SourceRef

from .agents import CHARGED_TO, POLICY
from .models import Limit, Policy, Transaction

FOLDER = Path(__file__).parent
_PERCENT = re.compile(r"at most (\d+) percent")


def read_files(context: Context, folder: Path = FOLDER) -> None:
    """Create what the files hold, as direct facts. Raises `ValueError` for a policy without a figure."""
    for number, row in _rows(folder / "transactions.csv"):
        transaction = Transaction(
            department=row["department"],
            cents=_cents(row["amount"]),
            source=_source("transactions.csv", number),
        )
        context.create(transaction, id=f"transaction:{row['id']}")
        context.link(f"transaction:{row['id']}", CHARGED_TO, f"limit:{row['department']}")
    text = (folder / "policy.txt").read_text(encoding="utf-8")
    match = _PERCENT.search(text)
    if match is None:
        raise ValueError("policy.txt does not say by how many percent a budget may be exceeded")
    line = text.count("\n", 0, match.start()) + 1
    policy = Policy(
        percent=int(match[1]), text=text.splitlines()[line - 1], source=_source("policy.txt", line)
    )
    context.create(policy, id=POLICY)
    for number, row in _rows(folder / "budget.csv"):
        limit = Limit(
            department=row["department"], cents=_cents(row["limit"]), source=_source("budget.csv", number)
        )
        context.create(limit, id=f"limit:{row['department']}")


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(enumerate(csv.DictReader(file), start=2))  # the header is line 1


def _cents(amount: str) -> int:
    return int(Decimal(amount) * 100)


def _source(name: str, line: int) -> SourceRef:
    return SourceRef(source_id=name, locator=f"{name}:{line}")
