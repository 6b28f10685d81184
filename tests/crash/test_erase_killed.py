"""An erasure killed at any step has either not begun, or is finished by whoever opens the store next."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from crash_support import start
from erase_child import GONE
from store_bytes import holding
from support import Note, Order, Outside, fsck, notifier

from reactifact import Context, Runtime, SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store._history.tombstones import ERASING, read_stones
from reactifact.branching import BranchStore
from reactifact.replay import verify_history

SECRET = "Wilhelmina Zzyzx"
BRANCHES = ("main", "early", "late")


async def filled(place: Any) -> dict[str, object]:
    """Make a session with three branches, a tag and deliveries; return what each branch shows without it."""
    store = SessionStore(place, durability="os")
    session = await store.open("s")
    branches = BranchStore(store.database)
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=Outside())
    session.context.create(Note(text="first"), id="note:1")
    await session.save()
    await branches.fork("s", "s/early")
    session.context.create(Order(item=SECRET), id=GONE[0])
    session.context.create(Order(item="pencil"), id="order:1")
    await runtime.arun()
    await branches.fork("s", "s/late")
    await branches.tag("s/late", "mark")
    async with store.edit("s", "late") as late:
        late.update(GONE[0], Order(item=f"{SECRET} again"))
    shown = {}
    for branch in BRANCHES:
        context = await loaded(store, branch)
        shown[branch] = {name: value for name, value in context.snapshot().items() if "zzyzx" not in name}
    await store.aclose()
    return shown


async def loaded(store: SessionStore, branch: str) -> Context:
    found = await BranchStore(store.database).load_branch("s", branch)
    assert found is not None
    return found


def erase(place: Any, step: int) -> int | None:
    """Erase in another process that dies at a step; return the number of steps if it did not."""
    process = start("erase_child.py", place, step)
    said, errors = process.communicate(timeout=60)
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, errors
    return int(said)


def unfinished(place: Any) -> bool:
    """Check that each branch and the ledger are whole as the killed process left them."""
    database = open_database(place, read_only=True)
    try:
        report = verify_history(database, "s")
        assert report.ok, report
        return bool(database.backend.refs(ERASING))
    finally:
        database.backend.close()


async def check(place: Any, shown: dict[str, object], *, begun: bool) -> None:
    """Open the store as anybody would, and see that all is old or all is new."""
    store = SessionStore(place, durability="os")
    assert not store.database.backend.refs(ERASING)
    stones = read_stones(store.database, "s").erased
    for branch in BRANCHES:
        context = await loaded(store, branch)
        found = context.snapshot()
        assert {name: value for name, value in found.items() if "zzyzx" not in name} == shown[branch]
        if begun:
            assert found == shown[branch]
    report = verify_history(store.database, "s")
    assert report.ok, report
    await store.aclose()
    assert bool(stones) is begun
    if begun:
        assert holding(place, SECRET, "zzyzx") == []
    else:
        assert holding(place, SECRET)


def killed(tmp_path: Path, kind: str, every: int) -> None:
    name = {"git": "state.git", "sqlite": "state.db"}[kind]
    (tmp_path / "whole").mkdir()
    shown = anyio.run(filled, tmp_path / "whole" / name)
    shutil.copytree(tmp_path / "whole", tmp_path / "counted")
    steps = erase(tmp_path / "counted" / name, 0)
    assert steps is not None
    assert steps > 10
    met: Counter[bool] = Counter()
    for step in range(1, steps + 1, every):
        folder = Path(shutil.copytree(tmp_path / "whole", tmp_path / f"{step}"))
        place = folder / name
        assert erase(place, step) is None
        begun = unfinished(place)
        if not begun and read_stones(open_database(place, read_only=True), "s").erased:
            begun = True  # killed after the very last thing
        met[begun] += 1
        anyio.run(partial(check, place, shown, begun=begun))
        if kind == "git":
            fsck(place)
        if not begun:
            assert erase(place, 0) is not None
        assert holding(place, SECRET, "zzyzx") == []
        shutil.rmtree(folder)
    assert met[True]
    assert met[False]


@pytest.mark.parametrize("kind", ["git", "sqlite"])
def test_killed_at_some_steps(tmp_path: Path, kind: str) -> None:
    killed(tmp_path, kind, every=7 if kind == "git" else 2)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["git", "sqlite"])
def test_killed_at_every_step(tmp_path: Path, kind: str) -> None:
    killed(tmp_path, kind, every=1)


def test_killed_on_postgresql(postgres: Any) -> None:
    for step in (1, 4, 7, 9, 11, 13):
        with postgres.database() as dsn:
            shown = anyio.run(filled, dsn)
            assert erase(dsn, step) is None
            begun = unfinished(dsn)
            anyio.run(partial(check, dsn, shown, begun=begun))
            if not begun:
                assert erase(dsn, 0) is not None
            assert holding(dsn, SECRET, "zzyzx") == []
