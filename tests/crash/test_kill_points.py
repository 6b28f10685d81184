"""A process that runs turns and delivers is killed at every step of each store's write path, and at random.

After each kill: git finds no fault, every turn that had returned is there, every delivery has its intent
in the state, at most one delivery was repeated and under the same key. In the end the state is that of a
run that was never killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import turn_child
from kill_child import SESSION
from stores import place_of

from reactifact import Context, PendingAction, SessionStore
from reactifact.sessions.moving import export_store

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
Point = dict[str, Any]

STEPS = {
    "git": [
        *("pack-written", "idx-written", "keep-renamed", "pack-renamed", "idx-renamed", "pack-dir-synced"),
        *("ref-locked", "ref-written", "ref-renamed", "ref-dir-synced", "keep-removed"),
        *("pack-merged", "merged-pack-removed"),
    ],
    "sqlite": ["begun", "objects stored", "refs moved", "committed"],
    "postgres": ["begun", "objects stored", "refs moved", "committed"],
}
RARE = ("pack-merged", "merged-pack-removed")  # once for every few turns
POINTS = 300  # of each store
ROUND = 10  # kills of one store
NEW_STORE = (  # what git remarks before the first commit is whole
    "notice: HEAD points to an unborn branch (main)",
    "notice: No default references",
)
LONGEST = 0.15  # seconds until a kill at a random time: about ten turns


def points(kind: str) -> list[Point]:
    """Return the points of a store, mixed; the same in every run."""
    chance = random.Random(kind)
    steps = STEPS[kind]
    hits = min(25, 200 // len(steps))
    found: list[Point] = [
        {"step": step, "hit": 1 + hit % 2 if step in RARE else 1 + hit}
        for step in steps
        for hit in range(hits)
    ]
    chance.shuffle(found)
    found += [{"after": chance.uniform(0, LONGEST)} for _ in range(POINTS - len(found))]
    chance.shuffle(found)
    return found


ROUNDS = [
    pytest.param(kind, number, marks=[] if number == 0 else [pytest.mark.full], id=f"{kind}-{number}")
    for kind in STEPS
    for number in range(POINTS // ROUND)
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the processes under test have loops of their own; here the store is only read


class Killer:
    """The process that starts others at a store and kills them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, point: Point, orders: int) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**point, "orders": orders}) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def killer(place: Any, world: Path) -> Iterator[Killer]:
    paths = [str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "error", str(HERE / "kill_child.py"), str(place), str(world)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        yield Killer(process)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()


def lines(world: Path, word: str) -> list[list[str]]:
    """Return what stands behind a word in the file outside."""
    if not world.exists():
        return []
    found = [line.split() for line in world.read_text().splitlines()]
    return [rest for first, *rest in found if first == word]


def repeats(world: Path) -> int:
    sent = [key for (key,) in lines(world, "delivered")]
    return len(sent) - len(set(sent))


async def read(place: Any) -> Context | None:
    store = SessionStore(place)
    found = await store.load_session(SESSION)
    if found is not None:
        for artifact_id in found.snapshot():
            found.get(artifact_id)
    return found


async def check_objects(kind: str, place: Any, folder: Path) -> None:
    """Let git check every object: of the store itself, or of its copy as a repository."""
    repository = place if kind == "git" else folder / "copy.git"
    if kind != "git":
        await export_store(place, repository)
    command = ["git", "-C", str(repository), "fsck", "--strict", "--full", "--no-dangling", "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line for line in (done.stdout + done.stderr).splitlines() if line not in NEW_STORE]
    assert (done.returncode, found) == (0, [])
    if kind != "git":
        shutil.rmtree(repository)


def check_state(context: Context | None, world: Path) -> int:
    """Check what is there against what somebody outside has seen; return how many orders there are."""
    returned, sent = lines(world, "returned"), {key for (key,) in lines(world, "delivered")}
    if context is None:
        assert not returned
        assert not sent
        return 0
    assert context.version >= max((int(version) for _, version in returned), default=0)
    for number, _ in returned:
        assert context.get(f"receipt:{number}") is not None
        for kind in ("bill", "print"):
            assert _status(context, f"{kind}:{number}") == "dispatched"
    for key in sent:  # the intent was on disk before it was sent
        assert _status(context, key) in ("pending", "dispatched")
    for receipt in context.list_artifacts(turn_child.Receipt):  # and came with its commit
        for kind in ("bill", "print"):
            status = _status(context, f"{kind}:{receipt.data.number}")
            assert status == "pending" or f"{kind}:{receipt.data.number}" in sent
    return len(context.list_artifacts(turn_child.Order))


def _status(context: Context, key: str) -> str:
    action = context.get(f"action:{key}")
    assert action is not None, f"the intent {key} is lost"
    status: str = action.data.status
    return status


@pytest.mark.parametrize(("kind", "number"), ROUNDS)
async def test_a_kill_loses_nothing_and_repeats_at_most_one_delivery(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, number: int
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    place, world = place_of(kind, tmp_path, dsn), tmp_path / "world"
    SessionStore(place).database.backend.close()
    orders, before = 0, 0
    with killer(place, world) as child:
        for point in points(kind)[number * ROUND : (number + 1) * ROUND]:
            ended = child.run(point, orders + 40)
            assert ended == "killed", point
            await check_objects(kind, place, tmp_path)
            orders = max(orders, check_state(await read(place), world))
            after = repeats(world)
            assert after - before <= 1, f"{point}: {after - before} deliveries were repeated"
            before = after
        assert child.run({}, orders) == "done"
    await check_objects(kind, place, tmp_path)
    context = await read(place)
    assert context is not None
    check_state(context, world)
    assert not context.pending_events()
    assert not context.pending_actions()
    assert context.version == 2 * orders  # the commits of a run that was never killed
    sent = Counter(key for (key,) in lines(world, "delivered"))
    assert set(sent) == {f"{name}:{n}" for name in ("bill", "print") for n in range(orders)}
    assert all(action.data.status == "dispatched" for action in context.list_artifacts(PendingAction))
    for n in range(orders):
        receipt = context.get(f"receipt:{n}")
        assert receipt is not None
        assert receipt.data == turn_child.Receipt(number=n, text=f"{n * 7 % 50} EUR")


@pytest.mark.parametrize("kind", STEPS)
def test_the_points_are_as_many_as_promised(kind: str) -> None:
    found = points(kind)
    assert len(found) == POINTS
    assert {point["step"] for point in found if "step" in point} == set(STEPS[kind])
    assert sum("after" in point for point in found) >= 50
