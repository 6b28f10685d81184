"""Eight processes write one store: sessions of their own, one they queue up for, one they race for.

Nothing is lost or sent twice, every refusal is a typed error, and git finds no fault.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crash_support import Receipt, keys, lines, start
from stores import place_of
from support import fsck

from reactifact import PendingAction, SessionStore
from reactifact.transfer import export_store

pytestmark = pytest.mark.anyio

PROCESSES = 8
KINDS = ("git", "sqlite", "postgres")
TURNS = [
    pytest.param(turns, marks=[] if turns == 2 else [pytest.mark.full], id=f"{turns}-turns")
    for turns in (2, 50)
]
WRITERS = [pytest.param(writers, marks=[] if writers == 4 else [pytest.mark.full]) for writers in (4, 20)]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the processes under test have loops of their own; here the store is only read


def work(place: Any, world: Path, processes: int, turns: int, parts: str) -> list[int]:
    """Run processes beside each other; return how often each was refused."""
    children = [start("contention_child.py", place, world, name, turns, parts) for name in range(processes)]
    try:
        ends = [child.communicate(timeout=3000) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [(child.returncode, errors) for child, (_, errors) in zip(children, ends, strict=True)] == [
        (0, "")
    ] * processes
    return [int(out) for out, _ in ends]


async def check(kind: str, place: Any, world: Path, expected: dict[str, int]) -> None:
    """Check that each session has its orders, each delivered once, and that git finds no fault."""
    sent: dict[str, Counter[str]] = {session: Counter() for session in expected}
    returned: Counter[str] = Counter()
    for session, what in lines(world, "delivered"):
        sent[session][what] += 1
    for session, _ in lines(world, "returned"):
        returned[session] += 1
    assert returned == expected

    store = SessionStore(place)
    assert await store.list_sessions() == sorted(expected)
    for session, orders in expected.items():
        context = await store.load_session(session)
        assert context is not None
        assert sent[session] == dict.fromkeys(keys(range(orders)), 1), f"of session {session}"
        assert {found.data.number for found in context.list_artifacts(Receipt)} == set(range(orders))
        actions = context.list_artifacts(PendingAction)
        assert {action.data.idempotency_key for action in actions} == keys(range(orders))
        assert all(action.data.status == "dispatched" for action in actions)
        assert not context.pending_events()
        assert context.version == len(context.history()) == 2 * orders  # two agents, one commit each
    await store.aclose()
    copy = world.with_name("copy.git")
    if kind != "git":
        await export_store(place, copy)
    fsck(place if kind == "git" else copy)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    return place_of(kind, tmp_path, dsn)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("kind", KINDS)
async def test_eight_processes_lose_nothing(tmp_path: Path, kind: str, place: Any, turns: int) -> None:
    world = tmp_path / "world"
    refused = work(place, world, PROCESSES, turns, "own,queued,raced")
    print(f"{kind}: refused {refused} times")
    expected = {f"own-{name}": turns for name in range(PROCESSES)}
    expected |= {"queued": PROCESSES * turns, "raced": PROCESSES * turns}
    await check(kind, place, world, expected)


@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("kind", KINDS)
async def test_all_commits_of_writers_that_queue_up_are_there(
    tmp_path: Path, kind: str, place: Any, writers: int
) -> None:
    world = tmp_path / "world"
    assert work(place, world, writers, 1, "queued") == [0] * writers
    await check(kind, place, world, {"queued": writers})
