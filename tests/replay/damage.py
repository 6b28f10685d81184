"""A small session whose store the tests of damage take apart: models, its making, loose objects."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pydantic import BaseModel
from support import Outside, git

from reactifact import (
    Consume,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore


class Fact(BaseModel):
    text: str


class Finding(BaseModel):
    text: str


@produce(Finding, also_creates=[PendingAction])
async def find(call: ProduceCall) -> None:
    fact = call.trigger
    assert fact is not None
    made = call.effects.upsert(Finding(text=fact.data.text.upper()), id=f"finding:{fact.id}")
    call.effects.link(made, "derived_from", fact)
    call.effects.act("tell", key=f"tell:{fact.id}", payload={"fact": fact.id})


async def make_store(path: Path, turns: int = 2) -> None:
    """Make a session `s` with a branch `b`, deliveries, updates, a deletion and a merge."""
    store = SessionStore(path, durability="os")
    session = await store.open("s")
    context = session.context
    agents = [create_agent("finder", consumes=[Consume(Fact)], produces=[find])]
    runtime = Runtime(context, agents=agents, session=session, dispatcher=Outside())
    for number in range(turns):
        context.create(Fact(text=f"fact {number}"), id=f"fact:{number}")
        await runtime.arun()
    context.update("fact:0", Fact(text="fact zero"))
    await runtime.arun()
    branches = BranchStore(path, durability="os")
    fork = context.branch(name="b")
    fork.update("fact:1", Fact(text="from the branch"))
    fork.create(Fact(text="spare"), id="fact:spare")
    await branches.save_branch(fork, session_id="s", name="b")
    context.merge(fork)
    context.delete("fact:spare")
    await session.save()
    await store.aclose()
    await branches.aclose()


def unpack_objects(path: Path) -> list[Path]:
    """Turn every object of a store into a file of its own, and return the files."""
    folder = path / "objects" / "pack"
    aside = path / "aside"
    aside.mkdir()
    for pack in sorted(folder.glob("*.pack")):
        moved = aside / pack.name
        pack.rename(moved)
        pack.with_suffix(".idx").unlink()
        with moved.open("rb") as file:
            done = subprocess.run(
                ["git", "-C", str(path), "unpack-objects", "-q"], stdin=file, capture_output=True, check=False
            )
        assert done.returncode == 0, done.stderr
        moved.unlink()
    aside.rmdir()
    files = sorted(file for file in (path / "objects").glob("[0-9a-f][0-9a-f]/*") if len(file.name) == 38)
    for file in files:
        file.chmod(0o644)
    assert len(files) > 50
    git(path, "fsck", "--strict")
    return files
