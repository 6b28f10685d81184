"""A process that runs turns and delivers is killed at every step of each store's write path, and at random.

The steps are those of making a store, of its writes, of deletions (also of packed refs), and of tidying
up. After each kill: git finds no fault, every turn that had returned is there, every delivery has its
intent in the state, at most one delivery was repeated and under the same key, and what was deleted stays
away. In the end the state is that of a run that was never killed.
"""

from __future__ import annotations

import ast
import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from crash_support import Order, Receipt, keys, lines, receipt, start
from forked import Process
from kill_child import FIRST_GUEST_ORDER, GUEST, SESSION
from stores import place_of
from support import fsck, git

import reactifact
from reactifact import Context, PendingAction, SessionStore
from reactifact.transfer import export_store

pytestmark = pytest.mark.anyio

Point = dict[str, Any]

MAKING = {
    "git": [
        *(("store-marked", 1), ("store-made", 1)),
        *(("store-folder-made", number) for number in range(1, 6)),
        *(("store-file-renamed", number) for number in range(1, 5)),
    ],
    "sqlite": [("tables made", 1), ("tables committed", 1)],
    "postgres": [("tables made", 1), ("tables committed", 1)],
}
"""The steps of making a store, with how often each is met."""

PRUNING = ("walked", "rows removed", "pruned")
RARE = (  # once for a few turns
    *("pack-merged", "merged-pack-removed", "head-pointed", "history-forgotten"),
    *("pack-renamed", "journal-settled"),
    *PRUNING,
)
STEPS = {
    "git": [
        *("pack-written", "idx-written", "keep-renamed", "pack-renamed", "idx-renamed", "pack-placed"),
        *("ref-locked", "ref-written", "ref-renamed", "ref-moved", "keep-removed"),
        *("ref-unpacked", "ref-removed", "journal-written", "journal-synced", "journal-settled"),
        *("pack-merged", "merged-pack-removed", "head-pointed", "history-forgotten"),
    ],
    "sqlite": ["begun", "objects stored", "refs moved", "committed", *PRUNING],
    "postgres": ["begun", "objects stored", "refs moved", "committed", *PRUNING],
}
TAKING = {
    "git": ("ref-unpacked", "ref-removed", "head-pointed", "history-forgotten"),
    "sqlite": PRUNING,
    "postgres": PRUNING,
}
"""The steps at which something is taken away."""

SOURCES = {
    "git": ["git/*.py"],
    "sqlite": ["sql/sqlite*.py", "sql/backend.py"],
    "postgres": ["sql/postgres*.py", "sql/backend.py"],
}
POINTS = 300  # of each store, beside those of its making
ROUND = 10  # kills of one store
NEW_STORE = ("notice: HEAD points to an unborn branch", "notice: No default references")
"""What git remarks while there is no branch."""
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

    def __init__(self, process: Process) -> None:
        self._process = process

    def run(self, shop: Shop, point: Point, orders: int) -> str:
        asked = {**point, "place": str(shop.place), "world": str(shop.world), "orders": orders}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        ended = self._process.stdout.readline().strip()
        if ended not in ("killed", "done"):
            _, errors = self._process.communicate(timeout=60)
            pytest.fail(f"a run to {point} ended with an error: {errors}")
        return ended


@contextmanager
def killer() -> Iterator[Killer]:
    process = start("kill_child.py")
    try:
        yield Killer(process)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()


class Shop:
    """A store, the file outside, and what must hold of both after each kill."""

    def __init__(self, kind: str, folder: Path, dsn: str | None) -> None:
        folder.mkdir(exist_ok=True)
        self.kind = kind
        self.folder = folder
        self.place = place_of(kind, folder, dsn)
        self.world = folder / "world"
        self.orders = 0  # that were seen in the store
        self._repeats = 0

    async def check(self) -> None:
        """Check the store against what somebody outside has seen."""
        await self._check_objects()
        store = SessionStore(self.place)
        context = await store.load_session(SESSION)
        if context is not None:
            for artifact_id in context.snapshot():
                context.get(artifact_id)
        self.orders = max(self.orders, check_state(context, self.world))
        await self._check_guests(store)
        await store.aclose()
        sent = [key for (key,) in lines(self.world, "delivered")]
        before, self._repeats = self._repeats, len(sent) - len(set(sent))
        assert self._repeats - before <= 1, f"{self._repeats - before} deliveries were repeated"

    async def check_end(self) -> None:
        """Check that the state is the one of a run that was never killed."""
        await self.check()
        store = SessionStore(self.place)
        assert await store.list_sessions() == [SESSION]
        assert not [ref for ref in store.database.backend.refs() if GUEST in ref]
        context = await store.load_session(SESSION)
        assert context is not None
        assert not context.pending_events()
        assert not context.pending_actions()
        assert context.version == 2 * self.orders
        sent = Counter(key for (key,) in lines(self.world, "delivered") if not _is_of_guest(key))
        assert set(sent) == keys(range(self.orders))
        assert all(action.data.status == "dispatched" for action in context.list_artifacts(PendingAction))
        for number in range(self.orders):
            found = context.get(f"receipt:{number}")
            assert found is not None
            assert found.data == receipt(number)
        await store.aclose()

    async def _check_objects(self) -> None:
        """Let git check every object: of the store itself, or of its copy as a repository."""
        repository = self.place if self.kind == "git" else self.folder / "copy.git"
        if self.kind != "git":
            await export_store(self.place, repository)
        if git(repository, "for-each-ref", "refs/heads"):
            fsck(repository)
        else:
            options = ("--strict", "--full", "--no-dangling", "--no-progress")
            command = ["git", "-C", str(repository), "fsck", *options]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            said = (done.stdout + done.stderr).splitlines()
            assert all(line.startswith(NEW_STORE) for line in said), said
        if self.kind != "git":
            shutil.rmtree(repository)

    async def _check_guests(self, store: SessionStore) -> None:
        arrived, leaving, left = (
            {name for (name,) in lines(self.world, word)} for word in ("arrived", "leaving", "left")
        )
        refs = store.database.backend.refs()
        for name in left:
            assert not [ref for ref in refs if name in ref.split("/")], f"{name} is back"
        for name in arrived - leaving:
            context = await store.load_session(name)
            assert context is not None, f"{name} is lost"
            number = FIRST_GUEST_ORDER + int(name.removeprefix(GUEST))
            assert {_status(context, key) for key in keys([number])} == {"dispatched"}


def check_state(context: Context | None, world: Path) -> int:
    """Check the state of the session; return how many orders there are."""
    returned = lines(world, "returned")
    sent = {key for (key,) in lines(world, "delivered") if not _is_of_guest(key)}
    if context is None:
        assert not returned
        assert not sent
        return 0
    assert context.version >= max((int(version) for _, version in returned), default=0)
    for number, _ in returned:
        assert context.get(f"receipt:{number}") is not None
        for key in keys([number]):
            assert _status(context, key) == "dispatched"
    for key in sent:  # the intent was on disk before it was sent
        assert _status(context, key) in ("pending", "dispatched")
    for found in context.list_artifacts(Receipt):  # and came with its commit
        for key in keys([found.data.number]):
            assert _status(context, key) == "pending" or key in sent
    return len(context.list_artifacts(Order))


def _status(context: Context, key: str) -> str:
    action = context.get(f"action:{key}")
    assert action is not None, f"the intent {key} is lost"
    status: str = action.data.status
    return status


def _is_of_guest(key: str) -> bool:
    return int(key.partition(":")[2]) >= FIRST_GUEST_ORDER


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Shop:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    return Shop(kind, tmp_path, dsn)


async def killed_at(child: Killer, shop: Shop, point: Point) -> None:
    assert child.run(shop, point, shop.orders + 40) == "killed", point
    try:
        await shop.check()
    except AssertionError as error:
        error.add_note(f"after a kill at {point}")
        raise


@pytest.mark.parametrize(("kind", "number"), ROUNDS)
async def test_a_kill_loses_nothing_and_repeats_at_most_one_delivery(shop: Shop, number: int) -> None:
    with SessionStore(shop.place).database.backend.lock("made by the first lock"):
        pass
    with killer() as child:
        for point in points(shop.kind)[number * ROUND : (number + 1) * ROUND]:
            await killed_at(child, shop, point)
        assert child.run(shop, {}, shop.orders) == "done"
    await shop.check_end()


@pytest.mark.parametrize("kind", TAKING)
async def test_a_kill_while_something_is_taken_away(shop: Shop) -> None:
    with killer() as child:
        for step in TAKING[shop.kind]:
            for hit in (1, 2):
                await killed_at(child, shop, {"step": step, "hit": hit})
        assert child.run(shop, {}, shop.orders) == "done"
    await shop.check_end()


@pytest.mark.parametrize("kind", MAKING)
async def test_a_store_whose_making_was_killed_is_made_by_the_next(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    with ExitStack() as stack:
        child = stack.enter_context(killer())
        for number, (step, hit) in enumerate(MAKING[kind]):
            dsn = None
            if kind == "postgres":
                dsn = stack.enter_context(request.getfixturevalue("postgres").database())
            shop = Shop(kind, tmp_path / str(number), dsn)
            assert child.run(shop, {"step": step, "hit": hit}, 1) == "killed", step
            assert child.run(shop, {}, 1) == "done"
            shop.orders = 1
            await shop.check_end()


@pytest.mark.parametrize("kind", STEPS)
async def test_every_step_of_the_write_path_is_met(shop: Shop) -> None:
    """A step that is new in the source must be listed here, and the child must come by it."""
    listed = {*STEPS[shop.kind], *(step for step, _ in MAKING[shop.kind])}
    assert steps_in_source(shop.kind) == listed
    with killer() as child:
        assert child.run(shop, {}, 12) == "done"
    assert {" ".join(words) for words in lines(shop.world, "step")} == listed


def steps_in_source(kind: str) -> set[str]:
    """Return the names that the modules of a store give to `step` hooks."""
    store = Path(reactifact.__file__).parent / "_store" / "_backends"
    calls = [
        node
        for pattern in SOURCES[kind]
        for path in store.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("step", "_step")
    ]
    found = {ast.literal_eval(call.args[0]) for call in calls if isinstance(call.args[0], ast.Constant)}
    # of an erasure: test_erase_killed; of an opening after a power cut: test_power_cut
    return {step for step in found if not step.startswith(("collect", "put-back"))}


@pytest.mark.parametrize("kind", STEPS)
def test_the_points_are_as_many_as_promised(kind: str) -> None:
    found = points(kind)
    assert len(found) == POINTS
    assert {point["step"] for point in found if "step" in point} == set(STEPS[kind])
    assert sum("after" in point for point in found) >= 50
