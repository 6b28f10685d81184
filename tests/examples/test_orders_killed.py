"""The orders example, killed with its mail server at random moments: one mail an order, always."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from orders_support import addressees, count_mails, fsck, read_mails, row, run, start, wait_for, write_orders

ORDERS = 30
KILLS = 2

MOMENTS = [
    pytest.param(seed, marks=[] if seed < 3 else [pytest.mark.full], id=f"seed{seed}") for seed in range(20)
]


def kill_once(orders: Path, store: Path, chance: random.Random) -> None:
    """Start the example and kill it some time after it has sent a random number of mails."""
    sent = chance.randint(count_mails(store), ORDERS)  # all of them, where the last kill came too late
    pause = chance.uniform(0, 0.02)
    process = start(orders, store)
    try:
        wait_for(lambda: count_mails(store) >= sent, process)
        time.sleep(pause)
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("seed", MOMENTS)
def test_killed_at_random_moments_it_always_resumes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    orders = write_orders(tmp_path / "orders.csv", [row(n) for n in range(ORDERS)])
    store = tmp_path / "state.git"
    for _ in range(KILLS):
        kill_once(orders, store, chance)
        if store.exists():
            assert not fsck(store)
    result = run(orders, store)
    assert result.exit_code == 0, result.output
    assert addressees(read_mails(store)) == {f"zoe.{n}@example.com": 1 for n in range(ORDERS)}
    dropped = re.search(r"(\d+) repeats dropped now", result.stdout)
    assert dropped is not None
    assert int(dropped[1]) <= 1  # each delivery is recorded before the next one is made
    assert f"{ORDERS} stored of {ORDERS}" in result.stdout
    assert f"{ORDERS} delivered" in result.stdout
    assert f"revenue    {ORDERS * 14.4:.2f} EUR on {ORDERS} receipts" in result.stdout
    assert not fsck(store)
