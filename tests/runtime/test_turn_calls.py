"""What one outbox turn costs, in numbers that no machine changes: Python calls, and what a store is given.

The turn is README's: an order comes in, an agent answers with a receipt and an action, which is delivered.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import Order, Receipt

from reactifact import Consume, PendingAction, ProduceCall, Runtime, SessionStore, create_agent, produce
from reactifact._store._backends.git import journal
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid
from reactifact._store.protocol import RefUpdate

ROOT = Path(__file__).parents[2]

MOST = 1_510 if sys.version_info < (3, 12) else 1_960
"""Calls of one turn, the application's own and the event loop's included; from Python 3.12 on those of worker
threads that run already can be counted too."""

WRITES = 3
"""Of a turn: the order before an agent works on it, what was decided before it is sent, the outcome."""

NAMES = 4
"""Renames and links of a write: the mark of its pack, the index, git's lock on the ref, the ref."""

GROWTH = 5
"""Syncs of ten turns in which the journal grows."""

OBJECTS = 53
"""Of a turn: three artifacts, each a payload and its bookkeeping below three folders; an event, an intent and
an entry of the ledger below theirs; three commits. What is the same in each commit is not written again."""


def test_a_turn_makes_no_more_python_calls_than_it_did() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "structure.py"), "--turn"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found = re.search(r"([\d,]+)\s+calls of a turn", shown)
    assert found is not None, shown
    assert 500 < int(found[1].replace(",", "")) <= MOST


class Counting(GitBackend):
    """A bare repository that counts what it is given to write, each object as often as it is given."""

    def __init__(self, path: Path) -> None:
        self.written: Counter[str] = Counter()
        super().__init__(path)

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        super().write(objects, updates)
        self.written["writes"] += 1
        self.written["objects"] += len(objects)


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def process(call: ProduceCall) -> None:
    assert call.trigger is not None
    call.effects.act("notify", key=f"notify:{call.trigger.id}", payload={"to": "a"})
    call.effects.upsert(Receipt(order=call.trigger.id), id=f"receipt:{call.trigger.id}")


@pytest.mark.anyio
async def test_a_turn_gives_a_bare_repository_no_more_than_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Counting(tmp_path / "s.git")
    calls: Counter[str] = Counter()
    sent: list[str] = []

    def counting(name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(os, name)

        def count(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        return count

    session = await SessionStore(backend).open("s")
    agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[process])]
    runtime = Runtime(
        session.context, agents=agents, session=session, dispatcher=lambda _, action: sent.append(action.id)
    )
    turns = 0

    async def run(more: int) -> None:
        nonlocal turns
        for _ in range(more):
            session.context.create(Order(item="a"), id=f"order:{turns}")
            await runtime.arun()
            turns += 1

    await run(5)  # the first ones make the folders that the others find
    backend.written.clear()
    monkeypatch.setattr(journal, "_sync_data", counting("fdatasync"))
    for name in ("fsync", "rename", "link"):
        monkeypatch.setattr(os, name, counting(name))
    await run(10)
    assert len(sent) == turns == 15
    assert backend.written["writes"] == 10 * WRITES
    assert calls["fdatasync"] == 10 * WRITES
    assert calls["fsync"] <= GROWTH
    assert calls["rename"] + calls["link"] <= 10 * WRITES * NAMES
    assert backend.written["objects"] <= 10 * OBJECTS
