"""A process that runs turns and delivers, killed at random moments: nothing acknowledged is lost.

After each kill: git finds no fault, every turn that had returned is there, at most one delivery was
repeated, under the same key. In the end the state is the one of a run that was never killed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from crash_support import keys, lines, receipt, start
from forked import Process
from support import fsck

from reactifact import Context, PendingAction, SessionStore

pytestmark = pytest.mark.anyio

ORDERS = 12
KILLS = [
    pytest.param(seed, marks=[] if seed < 5 else [pytest.mark.full], id=f"seed{seed}") for seed in range(60)
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the process under test has a loop of its own; here the store is only read


async def read(store: Path) -> Context:
    found = await SessionStore(store).load_session("killed")
    assert found is not None
    return found


def kill_after(process: Process, world: Path, deliveries: int, pause: float) -> None:
    """Kill a process some time after the file outside holds a number of deliveries."""
    deadline = time.monotonic() + 60
    try:
        while process.poll() is None and len(lines(world, "delivered")) < deliveries:
            assert time.monotonic() < deadline, "the child delivers nothing"
            time.sleep(0.001)
        time.sleep(pause)
    finally:
        process.kill()
        _, errors = process.communicate(timeout=60)
    assert not errors, errors


@pytest.mark.parametrize("seed", KILLS)
async def test_a_killed_turn_loses_nothing_and_repeats_at_most_one_delivery(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    store, world = tmp_path / "state.git", tmp_path / "world"
    first = start("turn_child.py", store, world, ORDERS)
    kill_after(first, world, chance.randrange(ORDERS), chance.uniform(0, 0.02))
    if store.exists():
        fsck(store)
    returned = lines(world, "returned")
    if returned:
        context = await read(store)
        assert context.version >= int(returned[-1][1])
        for number, _ in returned:
            assert context.get(f"receipt:{number}") is not None
            for kind in ("bill", "print"):
                action = context.get(f"action:{kind}:{number}")
                assert action is not None
                assert action.data.status == "dispatched"

    last = start("turn_child.py", store, world, ORDERS)
    _, errors = last.communicate(timeout=120)
    assert (last.returncode, errors) == (0, "")
    fsck(store)
    sent = Counter(key for (key,) in lines(world, "delivered"))
    assert set(sent) == keys(range(ORDERS))
    assert sum(sent.values()) - len(sent) <= 1, f"repeated: {[k for k, n in sent.items() if n > 1]}"
    context = await read(store)
    assert not context.pending_events()
    assert not context.pending_actions()
    assert context.version == 2 * ORDERS  # the commits of a run that was never killed
    assert context.snapshot().keys() == {
        f"{prefix}:{n}"
        for prefix in ("order", "priced", "receipt", "action:bill", "action:print")
        for n in range(ORDERS)
    }
    for number in range(ORDERS):
        found = context.get(f"receipt:{number}")
        assert found is not None
        assert found.data == receipt(number)
    assert all(action.data.status == "dispatched" for action in context.list_artifacts(PendingAction))
