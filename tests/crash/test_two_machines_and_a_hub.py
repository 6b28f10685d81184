"""Two machines and a hub: each plans, delivers, forks, drops, tags, compacts, syncs at random, is killed.

At the end both hold the same state and the same ledger, no order that a machine said it had taken is
lost, and nothing was sent that the sender's ledger knew as sent. Under a lease nothing is sent twice but
what was in flight when its sender was killed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crash_support import keys, lines, start
from forked import Process
from support import fsck, git

from reactifact import PendingAction, SessionStore
from reactifact._store.ledger import Ledger
from reactifact.replay import verify_history

pytestmark = pytest.mark.anyio

STEPS = 10
SEEDS = [
    pytest.param(seed, marks=[] if seed < 2 else [pytest.mark.full], id=f"seed{seed}") for seed in range(40)
]
WORK = (
    *("plan", "plan", "plan", "deliver", "deliver", "sync", "sync", "sync"),
    *("fork", "drop", "tag", "compact"),
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the machines have loops of their own; here their stores are only read


class Machine:
    """A process with a store of its own; killed, it is started anew for its next command."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.place = name, folder / f"{name}.git"
        self.hub, self.world = folder / "hub.git", folder / f"{name}.world"
        self.process: Process | None = None
        self.kills = 0

    def tell(self, do: str, number: int = 0, kill: int = 0) -> None:
        """Let it do something, and die at a step of it."""
        if self.process is None:
            self.process = start("travel_child.py", self.place, self.hub, self.world, self.name)
        print(json.dumps({"do": do, "number": number, "kill": kill}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if answer:
            assert answer == ("survived" if kill else "done"), (self.name, do, answer)
            return
        _, errors = self.process.communicate(timeout=60)
        assert kill, f"{self.name} ended in {do}:\n{errors}"
        self.process, self.kills = None, self.kills + 1

    def knows(self) -> set[str]:
        """Return the keys that its ledger has as sent."""
        if not self.place.exists():
            return set()
        store = SessionStore(self.place)
        ledger = Ledger(store.database, "killed")
        ledger.refresh()
        found = {entry.action_id for entry in ledger.entries() if entry.status == "dispatched"}
        store.database.backend.close()
        return {action_id.removeprefix("action:") for action_id in found}

    def sent(self) -> list[str]:
        return [key for (key,) in lines(self.world, "delivered")]

    def taken(self) -> set[int]:
        return {int(number) for (number,) in lines(self.world, "returned")}

    def refs(self) -> str:
        return git(self.place, "for-each-ref", "refs/heads/", "refs/tags/")

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate(timeout=60)


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    git(tmp_path, "init", "--quiet", "--bare", "hub.git")
    machines = Machine(tmp_path, "a"), Machine(tmp_path, "b")
    yield machines
    for machine in machines:
        machine.end()


@pytest.mark.parametrize("leased", [False, True], ids=["apart", "leased"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_both_hold_the_same_in_the_end(pair: tuple[Machine, Machine], seed: int, leased: bool) -> None:
    chance = random.Random(f"{seed} {leased}")
    a, b = pair
    a.tell("plan", 0)
    a.tell("lease" if leased else "sync")
    b.tell("sync")
    steps = STEPS if seed < 2 else 4 * STEPS
    for number in range(1, steps + 1):
        machine = chance.choice(pair)
        do = chance.choice(WORK)
        if do == "deliver" and leased:
            machine = a  # b is refused, as the end shows
        known, before = machine.knows(), len(machine.sent())
        kill = chance.randint(1, 40) if chance.random() < 0.4 else 0
        machine.tell(do, number, kill)
        assert known.isdisjoint(machine.sent()[before:]), "sent what it knew as sent"
    settle(a, b)
    await check(a, b, leased)


def settle(a: Machine, b: Machine) -> None:
    """Let what a kill left be ended by both, delivered by one, and known to both."""
    for machine, number in ((a, 1_000), (b, 1_001)):
        machine.tell("plan", number)
    for machine in (a, b, a, b):
        machine.tell("sync")
    for machine in (a, b):
        machine.tell("plan", 2_000 + (machine is b))  # agents react to what came from the other
        machine.tell("sync")
    a.tell("sync")
    a.tell("deliver")
    for machine in (a, b, a, b):
        machine.tell("sync")


async def check(a: Machine, b: Machine, leased: bool) -> None:
    assert a.refs() == b.refs()
    assert git(a.hub, "for-each-ref", "refs/heads/", "refs/tags/") == a.refs()
    states = []
    for machine in (a, b):
        fsck(machine.place)
        store = SessionStore(machine.place)
        report = verify_history(store.database, "killed")
        assert report.ok, report
        context = await store.load_session("killed")
        assert context is not None
        for number in a.taken() | b.taken():
            assert context.get(f"receipt:{number}") is not None, f"order {number} is lost"
        # what nobody reacts to (deliveries) waits on; orders and prices do not
        assert {event.artifact_type for event in context.pending_events()} <= {PendingAction}
        states.append(context.snapshot())
        await store.aclose()
    assert states[0] == states[1]
    sent = Counter(a.sent() + b.sent())
    assert keys(a.taken() | b.taken()) <= set(sent) == a.knows() == b.knows()
    for machine in (a, b):
        again = Counter(machine.sent())
        assert again.total() - len(again) <= machine.kills
    if leased:
        assert b.sent() == []
        b.tell("plan", 3_000)
        with pytest.raises(AssertionError, match="has its lease"):
            b.tell("deliver")
