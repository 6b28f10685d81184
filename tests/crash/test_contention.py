"""Eight processes write one store: sessions of their own, one they queue up for, one they race for.

Nothing is lost or sent twice, every refusal is a typed error, and git finds no fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import turn_child
from stores import place_of
from support import fsck

from reactifact import PendingAction, SessionStore
from reactifact.sessions.moving import export_store

pytestmark = pytest.mark.anyio

PROCESSES = 8
HERE = Path(__file__).parent
KINDS = ("git", "sqlite", "postgres")
TURNS = [
    pytest.param(turns, marks=[] if turns == 2 else [pytest.mark.full], id=f"{turns}-turns")
    for turns in (2, 50)
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # the processes under test have loops of their own; here the store is only read


def start(place: Any, world: Path, name: int, turns: int) -> subprocess.Popen[str]:
    paths = [str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    script = str(HERE / "contention_child.py")
    command = [sys.executable, "-W", "error", script, str(place), str(world), str(name), str(turns)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("kind", KINDS)
async def test_eight_processes_lose_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, turns: int
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    place, world = place_of(kind, tmp_path, dsn), tmp_path / "world"
    children = [start(place, world, name, turns) for name in range(PROCESSES)]
    try:
        ends = [child.communicate(timeout=3000) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [(child.returncode, errors) for child, (_, errors) in zip(children, ends, strict=True)] == [
        (0, "")
    ] * PROCESSES
    print(f"{kind}: refused {[int(out) for out, _ in ends]} times")

    expected = {f"own-{name}": turns for name in range(PROCESSES)}
    expected |= {"queued": PROCESSES * turns, "raced": PROCESSES * turns}
    sent: dict[str, Counter[str]] = {session: Counter() for session in expected}
    returned: Counter[str] = Counter()
    for line in world.read_text().splitlines():
        word, session, what = line.split()
        if word == "delivered":
            sent[session][what] += 1
        returned[session] += word == "returned"
    assert returned == expected

    store = SessionStore(place)
    assert await store.list_sessions() == sorted(expected)
    for session, orders in expected.items():
        context = await store.load_session(session)
        assert context is not None
        keys = {f"{name}:{n}" for name in ("bill", "print") for n in range(orders)}
        assert sent[session] == dict.fromkeys(keys, 1), f"of session {session}"
        assert {receipt.data.number for receipt in context.list_artifacts(turn_child.Receipt)} == set(
            range(orders)
        )
        actions = context.list_artifacts(PendingAction)
        assert {action.data.idempotency_key for action in actions} == keys
        assert all(action.data.status == "dispatched" for action in actions)
        assert not context.pending_events()
        assert context.version == 2 * orders  # two agents, one commit each
    await store.aclose()
    if kind != "git":
        await export_store(place, tmp_path / "copy.git")
    fsck(place if kind == "git" else tmp_path / "copy.git")
