"""What listings saw counts after a merge made with git as it does after the same one made by us."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support import Note, Order, Receipt, commit, fsck, git

from reactifact import Context, ProduceCall, SessionStore
from reactifact.branching import BranchStore
from reactifact.merging import MergeConflict

pytestmark = pytest.mark.anyio

BRANCHES = ("main", "fork")


async def listed(context: Context, name: str) -> None:
    """Let an agent write a receipt from all notes there are."""

    def work(call: ProduceCall) -> None:
        notes = call.context.list_artifacts(Note)
        call.effects.create(Receipt(order=" ".join(note.data.text for note in notes)), id=name)

    await commit(context, work, kick=f"kick:{name}")


async def begun(path: Path, *, filler: int = 0) -> tuple[BranchStore, dict[str, Context]]:
    """Return a store with two branches of a session that hold notes, and their contexts."""
    store = SessionStore(path, durability="os")
    async with await store.open("s") as session:
        for number in range(4):
            session.context.create(Note(text="old"), id=f"n{number}")
    branches = BranchStore(store.database)
    await branches.fork("s", "s/fork")
    found = {name: await branches.load_branch("s", name) for name in BRANCHES}
    contexts = {name: context for name, context in found.items() if context is not None}
    for number in range(filler):
        contexts["main"].create(Order(item="x"), id=f"o{number}")
    return branches, contexts


async def merged(branches: BranchStore, contexts: dict[str, Context], folder: Path, into: str) -> None:
    """Save both branches, merge one into the other by the library and with git; both must agree."""
    path = Path(branches.database.backend.location)
    for name, context in contexts.items():
        await branches.save_branch(context, session_id="s", name=name)
    source = next(name for name in BRANCHES if name != into)
    other = folder / "by-git.git"
    shutil.copytree(path, other)
    git(folder, "clone", "-q", "-b", f"s/{into}", str(other), "work")
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    git(folder / "work", *who, "merge", "-q", "--no-ff", "-m", "by hand", f"origin/s/{source}")
    git(folder / "work", "push", "-q")
    await branches.merge(into, source, session="s")
    expected = await read(path, into)
    assert await read(other, into) == expected
    fsck(other)


async def read(path: Path, branch: str) -> dict[str, Any]:
    branches = BranchStore(path, durability="os")
    context = await branches.load_branch("s", branch)
    assert context is not None
    stale = [artifact.id for artifact in context.stale_artifacts()]
    held = {artifact.id: str(artifact.data) for artifact in context.list_artifacts()}
    for name in sorted(held):  # and it goes on to count
        if name.startswith("n"):
            context.update(name, Note(text=f"later {name}"))
    later = [artifact.id for artifact in context.stale_artifacts()]
    await branches.aclose()
    return {"stale": sorted(stale), "held": held, "later": sorted(later)}


@pytest.mark.parametrize("filler", [0, 20])
@pytest.mark.parametrize("into", BRANCHES)
@pytest.mark.parametrize("what", ["update", "create", "update and create", "nothing"])
async def test_a_reader_of_a_listing_is_as_stale(tmp_path: Path, filler: int, into: str, what: str) -> None:
    branches, contexts = await begun(tmp_path / "store.git", filler=filler)
    await listed(contexts["main"], "r")
    if "update" in what:
        contexts["fork"].update("n1", Note(text="new"))
    if "create" in what:
        contexts["fork"].create(Note(text="unseen"), id="new")
    contexts["fork"].create(Order(item="y"), id="of-another-type")
    await merged(branches, contexts, tmp_path, into)
    found = await read(tmp_path / "by-git.git", into)
    assert found["stale"] == (["r"] if "update" in what else [])
    assert found["later"] == ["r"]


@pytest.mark.parametrize("seed", range(6))
async def test_random_work_on_two_branches_is_as_stale(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    branches, contexts = await begun(tmp_path / "store.git")
    for step in range(24):
        name = random.choice(BRANCHES)
        context, side = contexts[name], BRANCHES.index(name)
        match random.choice(["update", "create", "order", "list"]):
            case "update":
                context.update(f"n{2 * random.randrange(2) + side}", Note(text=str(step)))
            case "create":
                context.create(Note(text="made"), id=f"new{step}")
            case "order":
                context.create(Order(item="x"), id=f"o{step}")
            case _:
                await listed(context, f"r{step}")
    await merged(branches, contexts, tmp_path, random.choice(BRANCHES))


async def test_a_merge_of_three_settles_each_side(tmp_path: Path) -> None:
    branches, contexts = await begun(tmp_path / "store.git")
    await listed(contexts["fork"], "r")
    await branches.fork("s", "s/third")
    third = await branches.load_branch("s", "third")
    assert third is not None
    for number in range(10):
        third.create(Order(item="x"), id=f"o{number}")
    third.update("n2", Note(text="new"))
    for name, context in {**contexts, "third": third}.items():
        await branches.save_branch(context, session_id="s", name=name)
    git(tmp_path, "clone", "-q", "-b", "s/main", "store.git", "work")
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    git(tmp_path / "work", *who, "merge", "-q", "--no-ff", "-m", "all", "origin/s/fork", "origin/s/third")
    git(tmp_path / "work", "push", "-q")
    assert (await read(tmp_path / "store.git", "main"))["stale"] == ["r"]


async def test_what_conflicts_for_git_conflicts_for_the_library(tmp_path: Path) -> None:
    branches, contexts = await begun(tmp_path / "store.git")
    for name, context in contexts.items():
        context.update("n0", Note(text=name))
    with pytest.raises(AssertionError):
        await merged(branches, contexts, tmp_path, "main")
    with pytest.raises(MergeConflict):
        await branches.merge("main", "fork", session="s")
