"""Random work of agents and of a person with git: state is what the tree says, and nothing goes out twice."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from support import Order, Outside, Receipt, fsck, git, trigger_of

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact.branching import BranchStore
from reactifact.errors import CommitRefused
from reactifact.replay import verify_history

MAIN = "s/main"


@produce(Receipt, also_creates=[PendingAction], reacts_to=Order)
async def sell(call: ProduceCall) -> None:
    order = trigger_of(call)
    what = f"{order.data.item} for {order.data.price}"
    call.effects.upsert(Receipt(order=what), id=f"receipt-{order.id}")
    call.effects.act("notify", key=f"{order.id}: {what}", payload={})


STEPS = [
    "turn",
    "turn",
    "fork",
    "edit",
    "edit",
    "add",
    "delete",
    "amend",
    "revert",
    "merge",
    "cherry_pick",
    "mess",
    "break_",
]
IDS = [f"order-{number}" for number in range(4)]


class World:
    """The store and the clone; every step leaves the clone on what was pushed last."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path, self.work = folder / "state.git", folder / "clone"
        self.random = Random(seed)
        self.outside = Outside()
        self.steps: list[str] = []
        anyio.run(self._turn, 1)
        git(folder, "clone", "-q", "-b", MAIN, str(self.path), str(self.work))

    # -- the library -----------------------------------------------------------------------------

    async def _turn(self, orders: int) -> None:
        store = SessionStore(self.path, durability="os")
        try:
            async with await store.open("s") as session:
                for _ in range(orders):
                    name, price = self.random.choice(IDS), self.random.randrange(9)
                    if session.context.update(name, Order(item="tea", price=price)) is None:
                        session.context.create(Order(item="tea", price=price), id=name)
                agents = [create_agent("clerk", consumes=[Consume(Order)], produces=[sell])]
                await Runtime(session.context, agents, session=session, dispatcher=self.outside).arun()
        finally:
            await store.aclose()

    def turn(self) -> None:
        anyio.run(self._turn, self.random.randrange(2))

    def fork(self) -> None:
        async def work() -> None:
            branches = BranchStore(self.path, durability="os")
            name = f"fork{len(self.steps)}"
            await branches.fork("s", f"s/{name}")
            async with branches.edit("s", name) as context:
                context.create(Order(item=name), id=name)
            await branches.aclose()

        anyio.run(work)

    def context(self) -> Context:
        async def opened() -> Context:
            store = SessionStore(self.path, durability="os")
            context = (await store.open("s")).context
            await store.aclose()
            return context

        return anyio.run(opened)

    # -- the person ------------------------------------------------------------------------------

    def git(self, *arguments: str) -> int:
        return subprocess.run(
            ["git", "-C", str(self.work), *arguments], capture_output=True, check=False
        ).returncode

    def catch_up(self) -> None:
        git(self.work, "fetch", "-q", "--prune")
        git(self.work, "reset", "-q", "--hard", f"origin/{MAIN}")

    def commit(self) -> None:
        git(self.work, "add", "-A")
        git(self.work, "commit", "-q", "--allow-empty", "-m", f"step {len(self.steps)}")

    def push(self) -> None:
        git(self.work, "push", "-q", "--force", "origin", f"HEAD:{MAIN}")

    def orders(self) -> list[Path]:
        return sorted((self.work / "artifacts").glob("support.Order/**/*.json"))

    def edit(self) -> None:
        path = self.random.choice(self.orders())
        item = self.random.choice(["milk", "jam", "bread"])
        path.write_text(json.dumps({"item": item, "price": self.random.randrange(9)}), encoding="utf-8")
        self.commit()

    def add(self) -> None:
        name = f"added-{len(self.steps)}"
        (self.work / "artifacts" / "support.Order" / f"{name}.json").write_text('{"item": "new"}', "utf-8")
        self.commit()

    def delete(self) -> None:
        orders = self.orders()
        if len(orders) > 1:
            self.random.choice(orders).unlink()
        self.commit()

    def amend(self) -> None:
        self.random.choice(self.orders()).write_text('{"item": "amended"}', "utf-8")
        git(self.work, "add", "-A")
        git(self.work, "commit", "-q", "--amend", "-m", f"amended at {len(self.steps)}", "--allow-empty")

    def revert(self) -> None:
        back = self.random.randrange(1, 4)
        if self.git("revert", "--no-edit", f"HEAD~{back}"):
            self.git("revert", "--abort")
        elif any(path.read_text(encoding="utf-8") == "{" for path in self.orders()):
            git(self.work, "reset", "-q", "--hard", "HEAD~1")  # it took back what had mended a broken file

    def merge(self) -> None:
        forks = git(self.work, "branch", "-r", "--list", "origin/s/fork*").split()
        if forks and self.git("merge", "--no-edit", self.random.choice(forks)):
            self.git("merge", "--abort")

    def cherry_pick(self) -> None:
        forks = git(self.work, "branch", "-r", "--list", "origin/s/fork*").split()
        if forks and self.git("cherry-pick", "--keep-redundant-commits", self.random.choice(forks)):
            self.git("cherry-pick", "--abort")

    def mess(self) -> None:
        shutil.rmtree(self.work / self.random.choice([".reactifact", "outbox"]), ignore_errors=True)
        self.commit()

    def break_(self) -> None:
        self.random.choice(self.orders()).write_text("{", "utf-8")
        self.commit()

    def step(self) -> None:
        name = self.random.choice(STEPS)
        self.steps.append(name)
        if name in ("turn", "fork"):
            getattr(self, name)()
            return
        self.catch_up()
        getattr(self, name)()
        self.push()
        if name == "break_":
            with pytest.raises(CommitRefused):
                self.context()
            git(self.work, "revert", "--no-edit", "HEAD")
            self.push()
        self.check()

    # -- what must hold ----------------------------------------------------------------------------

    def tree(self) -> dict[str, Any]:
        """Return what the payloads of the pushed tree say, by id."""
        found = {}
        for model in (Order, Receipt):
            for path in (self.work / "artifacts").glob(f"support.{model.__name__}/**/*.json"):
                data = json.loads(path.read_text(encoding="utf-8-sig"))
                found[unquote(path.name.removesuffix(".json"))] = model(**data)
        return found

    def check(self) -> None:
        context = self.context()
        live = {artifact.id: artifact.data for artifact in context.list_artifacts()}
        assert {i: data for i, data in live.items() if not i.startswith("action:")} == self.tree(), self.steps
        for artifact in context.list_artifacts():
            assert len(artifact.history) == artifact.version, (artifact.id, self.steps)

    def finish(self) -> None:
        anyio.run(self._turn, 1)
        fsck(self.path)
        assert verify_history(BranchStore(self.path).database, "s").ok, self.steps
        twice = [key for key, times in Counter(self.outside.sent).items() if times > 1]
        assert twice == [], self.steps


@pytest.mark.parametrize("seed", range(4))
def test_a_store_that_agents_and_git_write_is_what_its_tree_says(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(8):
        world.step()
    world.finish()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_same_for_longer(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(40):
        world.step()
    world.finish()
