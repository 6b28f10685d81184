"""A compaction killed at any step leaves each branch whole, old or new, and all of them still merge."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import anyio
import pytest
from crash_support import start
from support import Note, Place, fsck, git, live

from reactifact import Context
from reactifact.branching import BranchStore
from reactifact.commit import Commit, Write

BRANCHES = ("main", "early", "late")


def write(context: Context, name: str, text: str) -> None:
    """Make one versioned commit."""
    found = context.get(name)
    if found is None:
        context.create(Note(text=text), id=name)
    else:
        context.update(name, Note(text=text))
    kind = "create" if found is None else "update"
    context.log_commit(
        Commit("writer", f"set {name}", [], writes=[Write(name, live(context, name).version, kind)])
    )


async def filled(place: Place) -> dict[str, object]:
    """Make a session with three branches, and return what each shows."""
    session = await place.store().open("s")
    branches = BranchStore(session.store.database)
    main = session.context
    shown = {}
    for number in range(8):
        write(main, "a", f"main {number}")
        name = {2: "early", 6: "late"}.get(number)
        if name is not None:
            fork = main.branch(name=name)
            for step in range(4):
                write(fork, name, f"{name} {step}")
            await branches.save_branch(fork, session_id="s", name=name)
            shown[name] = fork.snapshot()
    await session.save()
    await branches.tag("s/early", "mark")
    await session.store.aclose()
    return {"main": main.snapshot(), **shown}


def compact(path: Path, step: int) -> int | None:
    """Compact in another process that dies at a step; return the number of steps if it did not."""
    process = start("compaction_child.py", path, step)
    said, errors = process.communicate(timeout=60)
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, errors
    return int(said)


async def check(place: Place, shown: dict[str, object]) -> set[int]:
    """Check every branch and each merge of two; return the baselines that were met."""
    baselines = set()
    contexts = {name: await place.load("s", name) for name in BRANCHES}
    for name, context in contexts.items():
        assert context.snapshot() == shown[name]
        assert len(context.history()) == context.version - context.compacted_at
        assert context.compacted_at in (0, context.version - 2)
        baselines.add(context.compacted_at)
    for ours in BRANCHES:
        for theirs in BRANCHES:
            both = contexts[ours].branch()
            both.merge(contexts[theirs])
            newest = "main" if "main" in (ours, theirs) else "late" if "late" in (ours, theirs) else "early"
            assert both.snapshot()["a"] == contexts[newest].snapshot()["a"], (ours, theirs)
            assert {ours, theirs} - {"main"} <= set(both.snapshot())
    return baselines


def killed_everywhere(tmp_path: Path, every: int) -> None:
    place = Place(tmp_path / "state.git")
    shown = anyio.run(filled, place)
    steps = compact(Path(shutil.copytree(tmp_path / "state.git", tmp_path / "whole.git")), 0)
    assert steps is not None
    assert steps > 10
    mixed = 0
    for step in range(1, steps + 1, every):
        path = Path(shutil.copytree(tmp_path / "state.git", tmp_path / f"{step}.git"))
        assert compact(path, step) is None
        git(path, "gc", "--prune=now", "--quiet")
        met = anyio.run(check, Place(path), shown)
        mixed += 0 in met and len(met) > 1
        fsck(path)
        assert compact(path, 0) is not None
        assert anyio.run(check, Place(path), shown) == {5, 9, 6}
        git(path, "gc", "--prune=now", "--quiet")
        fsck(path)
        shutil.rmtree(path)
    assert mixed  # some branches were rewritten and others not yet


def test_killed_at_some_steps(tmp_path: Path) -> None:
    killed_everywhere(tmp_path, every=5)


@pytest.mark.full
def test_killed_at_every_step(tmp_path: Path) -> None:
    killed_everywhere(tmp_path, every=1)
