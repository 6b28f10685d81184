"""`per_step` under SIGKILL: a kill in a fan-out of paid calls loses only those in flight, on every store."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_support import lines, start
from forked import Process
from support import fsck

from reactifact import Context, SessionStore

pytestmark = pytest.mark.anyio

CALLS = 20
SEEDS = [
    pytest.param(seed, marks=[] if seed < 3 else [pytest.mark.full], id=f"seed{seed}") for seed in range(40)
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the process under test has a loop of its own; here the store is only read


@pytest.fixture(params=["git", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_dsn")
    else:
        yield str(tmp_path / ("state.git" if request.param == "git" else "state.db"))


def paid(world: Path) -> Counter[int]:
    return Counter(int(number) for (number,) in lines(world, "paid"))


def run_to_its_end(store: str, world: Path, *, policy: str = "per_step", at_once: int = CALLS) -> None:
    child = start("steps_child.py", store, world, CALLS, 0, at_once, policy)
    _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, "")


async def read(store: str) -> Context:
    found = await SessionStore(store).load_session("steps")
    assert found is not None
    return found


def kill(child: Process) -> None:
    child.kill()
    _, errors = child.communicate(timeout=60)
    assert not errors, errors


@pytest.mark.parametrize("hanging", [1, 4])
async def test_what_had_finished_is_not_paid_again(store: str, tmp_path: Path, hanging: int) -> None:
    world = tmp_path / "world"
    child = start("steps_child.py", store, world, CALLS, hanging, CALLS, "per_step")
    deadline = time.monotonic() + 60
    reader = SessionStore(store)
    try:
        while True:
            assert time.monotonic() < deadline
            assert child.poll() is None
            found = await reader.load_session("steps")
            if found is not None and len(found.commits.held) == CALLS - hanging:
                break
    finally:
        kill(child)
    assert found.version == 0  # the generation commits as a whole
    if store.endswith(".git"):
        fsck(Path(store))
    assert paid(world) == dict.fromkeys(range(CALLS - hanging), 1)
    run_to_its_end(store, world)
    assert paid(world) == dict.fromkeys(range(CALLS), 1)
    context = await read(store)
    written = [commit.writes[0].artifact_id for commit in context.history()]
    assert written == [f"finding:{number}" for number in range(CALLS)]  # in plan order, all of them
    assert not context.commits.held
    assert not context.pending_events()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_kill_at_any_moment_costs_at_most_the_calls_in_flight(
    store: str, tmp_path: Path, seed: int
) -> None:
    chance, world, at_once = random.Random(seed), tmp_path / "world", 4
    kills = 3
    for _ in range(kills):
        before = paid(world).total()
        child = start("steps_child.py", store, world, CALLS, 0, at_once, "per_step")
        goal, deadline = before + chance.randrange(1, 9), time.monotonic() + 60
        while child.poll() is None and paid(world).total() < goal:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.01))
        kill(child)
    run_to_its_end(store, world, at_once=at_once)
    assert set(paid(world)) == set(range(CALLS))
    assert paid(world).total() <= CALLS + kills * at_once
    context = await read(store)
    assert context.version == CALLS


async def test_without_it_a_kill_pays_all_of_them_again(tmp_path: Path) -> None:
    """What `per_commit` costs in the same place: the measure of what is gained."""
    store, world = str(tmp_path / "state.git"), tmp_path / "world"
    child = start("steps_child.py", store, world, CALLS, 1, CALLS, "per_commit")
    deadline = time.monotonic() + 60
    while paid(world).total() < CALLS - 1:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    kill(child)
    run_to_its_end(store, world, policy="per_commit")
    assert paid(world) == {**dict.fromkeys(range(CALLS - 1), 2), CALLS - 1: 1}
