"""Two relays and two writers of one store, killed again and again: nothing is lost, and little sent twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crash_support import lines, start
from forked import Process
from stores import place_of

from reactifact import PendingAction, SessionStore

pytestmark = pytest.mark.anyio

KINDS = ("git", "sqlite", "postgres")
ROLES = {"first": ("relay",), "second": ("relay",), "a": ("writer", "a"), "b": ("writer", "b")}
LENGTHS = [  # seconds, and kills at least: with --full ten minutes over the three kinds of store
    pytest.param((2, 12), id="short"),
    pytest.param((200, 60), id="long", marks=pytest.mark.full),
]
PATIENCE = 120


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the processes under test have loops of their own; here the store is only read


class Crowd:
    """The processes, each started anew when it was killed."""

    def __init__(self, place: Any, world: Path) -> None:
        self._arguments = (str(place), str(world))
        self.world = world
        self.kills: Counter[str] = Counter()
        self._running = {name: self._start(name) for name in ROLES}

    def _start(self, name: str) -> Process:
        role, *rest = ROLES[name]
        return start("relay_child.py", role, *self._arguments, *rest)

    def kill(self, name: str, *, again: bool) -> None:
        """Kill one; it must not have ended by itself."""
        child = self._running.pop(name)
        ended = child.poll()
        child.kill()
        _, errors = child.communicate(timeout=PATIENCE)
        assert (ended, errors) == (None, ""), f"{name} ended by itself"
        self.kills[ROLES[name][0]] += 1
        if again:
            self._running[name] = self._start(name)

    def end(self) -> None:
        """Kill those that run."""
        for child in self._running.values():
            child.kill()
            child.communicate(timeout=PATIENCE)

    def progress(self, count: int) -> None:
        """Wait until something was sent or taken so many times more."""
        before, deadline = self._size(), time.monotonic() + PATIENCE
        while self._size() < before + count:
            assert time.monotonic() < deadline, "nothing goes on"
            time.sleep(0.005)

    def _size(self) -> int:
        return self.world.read_bytes().count(b"\n") if self.world.exists() else 0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
async def test_two_relays_and_two_writers_under_kills(
    kind: str, length: tuple[float, int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    place, world = place_of(kind, tmp_path, dsn), tmp_path / "world"
    await SessionStore(place, durability="os").aclose()
    seconds, least = length
    chance = random.Random(f"{kind} {length}")
    crowd = Crowd(place, world)
    try:
        crowd.progress(20)
        until = time.monotonic() + seconds
        while time.monotonic() < until or crowd.kills.total() < least:
            crowd.progress(chance.randrange(1, 12))
            crowd.kill(chance.choice(list(ROLES)), again=True)
        crowd.progress(10)
        for name in ("a", "b"):
            crowd.kill(name, again=False)
        # the relays are killed at whatever they do then: nothing may be left to send
        for name in ("first", "second"):
            crowd.kill(name, again=False)
    finally:
        crowd.end()

    store = SessionStore(place)
    late: list[str] = []

    async def dispatch(context: Any, action: Any) -> None:
        late.append(f"{context.line.session} {action.data.idempotency_key}")

    await store.relay(dispatch, once=True)
    sent = Counter(" ".join(words) for words in lines(world, "delivered"))
    sent.update(late)
    planned = set()
    for session_id in await store.list_sessions():
        context = await store.load_session(session_id)
        assert context is not None
        for action in context.list_artifacts(PendingAction):
            planned.add(f"{session_id} {action.data.idempotency_key}")
            assert action.data.status == "dispatched"
    returned = {
        f"{session_id} {kind}:{number}"
        for session_id, number in lines(world, "returned")
        for kind in ("bill", "print")
    }
    assert returned <= planned
    assert sent.keys() == planned  # nothing is lost, and nothing is sent that was not decided
    repeats = sum(count - 1 for count in sent.values())
    print(f"{kind}: {len(planned)} actions, {dict(crowd.kills)} kills, {repeats} sent twice")
    assert repeats <= crowd.kills["relay"]
    await store.aclose()
