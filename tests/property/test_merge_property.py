"""Merges of random histories against an independent implementation of the truth table.

Random branches, forks of forks, criss-cross merges, deletions and relations. Each merge is made in both
directions on forks of the two sides and then for good; contents and conflicts are checked against the
plain-Python table below, on stores in memory, in a bare repository and in a SQLite file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_server import PostgresServer
from pydantic import BaseModel
from support import Note, Order, fsck

from reactifact import Context, MergeConflict, SessionStore, register_type
from reactifact._store.commits import state_hash
from reactifact.branching import BranchStore
from reactifact.merging import counter, per_field


class Counted(BaseModel):
    count: int = 0


register_type(Counted, merge=per_field(count=counter))

IDS = ["a", "b", "c", "t"]  # `t` is a counter, the others are notes or orders
Value = tuple[str, Any]
Links = frozenset[tuple[str, str, str]]


# -- the truth table, once more ----------------------------------------------------------------

CONTESTED: Value = ("contested", None)


def table(base: Value | None, ours: Value | None, theirs: Value | None) -> Value | None:
    """Return what a merge makes of one artifact, `CONTESTED` for a conflict; `None` is an absent one."""
    counted = [side for side in (ours, theirs) if side is not None and side[0] == "counted"]
    if len(counted) == 2 and base != CONTESTED and ours != base and theirs != base:
        before = base[1] if base is not None else 0
        return ("counted", counted[0][1] + counted[1][1] - before)
    if ours == theirs or theirs == base:
        return ours
    return theirs if ours == base else CONTESTED


def links_table(base: Links, ours: Links, theirs: Links) -> Links:
    return (ours & theirs) | (ours - base) | (theirs - base)


@dataclass(eq=False)
class Node:
    """A commit: what it holds and where it comes from."""

    change: str
    parents: tuple[Node, ...]
    values: dict[str, Value]
    links: Links

    def ancestors(self) -> set[Node]:
        found: set[Node] = set()
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += node.parents
        return found


def best_common(sides: Iterable[tuple[Node, Node]]) -> list[Node]:
    common: set[Node] = set()
    for one, two in sides:
        common |= best(one.ancestors() & two.ancestors())
    return sorted(best(common), key=lambda node: node.change)


def best(nodes: set[Node]) -> set[Node]:
    return {n for n in nodes if not any(n is not m and n in m.ancestors() for m in nodes)}


def folded(bases: list[Node], name: str) -> Value | None:
    merged = bases[0].values.get(name)
    for index in range(1, len(bases)):
        below = best_common((earlier, bases[index]) for earlier in bases[:index])
        merged = table(folded(below, name), merged, bases[index].values.get(name))
        if merged == CONTESTED:
            break
    return merged


def folded_links(bases: list[Node]) -> Links:
    merged = bases[0].links
    for index in range(1, len(bases)):
        below = best_common((earlier, bases[index]) for earlier in bases[:index])
        merged = links_table(folded_links(below), merged, bases[index].links)
    return merged


# -- the histories -----------------------------------------------------------------------------


@dataclass
class Branch:
    context: Context
    node: Node
    values: dict[str, Value] = field(default_factory=dict)
    links: Links = frozenset()


class World:
    """Branches as the library has them, each beside what the table says it holds."""

    def __init__(self, root: Context) -> None:
        root.commits.begin()
        self.branches = [Branch(root, Node(root.line.change, (), {}, frozenset()))]
        self.most_bases = 0

    def step(self, kind: str, one: int, two: int, what: int, choice: str) -> None:
        branch, other = self._pick(one), self._pick(two)
        name = IDS[what % len(IDS)]
        if kind == "put":
            self._put(branch, name, what)
        elif kind == "delete":
            branch.context.delete(name)
            branch.values.pop(name, None)
        elif kind == "link":
            branch.context.link(name, "cites", IDS[two % len(IDS)])
            branch.links |= {(name, "cites", IDS[two % len(IDS)])}
        elif kind == "unlink":
            branch.context.unlink(name, "cites", IDS[two % len(IDS)])
            branch.links -= {(name, "cites", IDS[two % len(IDS)])}
        elif kind == "fork" and len(self.branches) < 6:
            twin = branch.context.branch(name=f"b{len(self.branches)}")
            self._commit(branch)
            self.branches.append(Branch(twin, branch.node, dict(branch.values), branch.links))
        elif kind == "merge" and branch is not other:
            self._merge(branch, other, choice)
        branch.context.drain_events()

    def _pick(self, number: int) -> Branch:
        return self.branches[number % len(self.branches)]

    def _put(self, branch: Branch, name: str, what: int) -> None:
        if name == "t":
            before = branch.values.get("t")
            count = what if before is None else before[1] + what
            data: BaseModel = Counted(count=count)
            branch.values["t"] = ("counted", count)
        elif what % 7 == 0:
            data, branch.values[name] = Order(item=str(what)), ("order", str(what))
        else:
            data, branch.values[name] = Note(text=str(what % 3)), ("note", str(what % 3))
        if branch.context.update(name, data) is None:
            branch.context.create(data, id=name)

    def _commit(self, branch: Branch, *others: Node) -> None:
        """Note the commit that the branch stands on now, if it is a new one."""
        change = branch.context.line.change
        if change != branch.node.change:
            branch.node = Node(change, (branch.node, *others), dict(branch.values), branch.links)

    def _merge(self, target: Branch, other: Branch, choice: str) -> None:
        forks = [(target.context.branch(), other.context.branch()) for _ in range(2)]
        for branch in (target, other):
            self._commit(branch)
        bases = best_common([(target.node, other.node)])
        self.most_bases = max(self.most_bases, len(bases))
        expected = {
            name: table(folded(bases, name), target.values.get(name), other.values.get(name)) for name in IDS
        }
        links = links_table(folded_links(bases), target.links, other.links)
        conflicts = sorted(name for name, value in expected.items() if value == CONTESTED)
        (left, right), (fork, source) = forks
        assert merged(left, right) == merged(source, fork) == conflicts
        if not conflicts:
            self._same_from_both_sides(left, right, source)
        else:
            if choice == "leave":
                return
            chosen = target if choice == "ours" else other
            expected.update({name: chosen.values.get(name) for name in conflicts})
        target.context.merge(other.context, policy=choice if conflicts else None)  # type: ignore[arg-type]
        target.values = {name: value for name, value in expected.items() if value is not None}
        target.links = links
        changed = target.context.line.change != target.node.change
        assert changed or (target.values, target.links) == (target.node.values, target.node.links)
        self._commit(target, other.node)
        check(target)

    def _same_from_both_sides(self, left: Context, right: Context, source: Context) -> None:
        assert left.snapshot() == source.snapshot()
        assert left.relations() == source.relations()
        assert state_of(left) == state_of(source)
        before = left.line.change, left.version
        assert merged(left, right) == []
        assert (left.line.change, left.version) == before


def merged(target: Context, other: Context) -> list[str]:
    """Merge; return the ids in conflict. With conflicts, or in a preview, nothing may have changed."""
    before = target.snapshot(), target.relations(), target.line.change
    preview = target.merge(other, dry_run=True)
    assert (target.snapshot(), target.relations(), target.line.change) == before
    assert preview is not None
    if preview.conflicts:
        with pytest.raises(MergeConflict) as caught:
            target.merge(other)
        assert (target.snapshot(), target.relations(), target.line.change) == before
        assert caught.value.conflicts == list(preview.conflicts)
        return [detail.artifact_id for detail in caught.value.details]
    target.merge(other)
    changed = {n for n, data in target.snapshot().items() if before[0].get(n) != data}
    types = {found.id for found in target.list_artifacts()} - set(preview.adopted)
    assert changed - set(preview.adopted) - set(preview.combined) == set()
    assert types >= set(preview.combined)
    assert before[0].keys() - target.snapshot().keys() == set(preview.deleted)
    return []


def state_of(context: Context) -> str:
    return state_hash(context.line.state.roots)


def content(context: Context) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for artifact in context.list_artifacts():
        data = artifact.data
        if isinstance(data, Counted):
            found[artifact.id] = ("counted", data.count)
        elif isinstance(data, Order):
            found[artifact.id] = ("order", data.item)
        else:
            found[artifact.id] = ("note", data.text)
    return found


def links_of(context: Context) -> Links:
    return frozenset((r.source_id, r.relation, r.target_id) for r in context.relations())


def check(branch: Branch) -> None:
    assert content(branch.context) == branch.values
    assert links_of(branch.context) == branch.links


def run(root: Context, steps: list[tuple[str, int, int, int, str]]) -> World:
    world = World(root)
    for step in steps:
        world.step(*step)
    for branch in world.branches:
        check(branch)
    return world


# Making a failing history small takes longer than a test usually may.
pytestmark = pytest.mark.timeout(900)

numbers = st.integers(0, 20)
kinds = st.sampled_from(["put"] * 4 + ["merge"] * 4 + ["fork"] * 2 + ["delete", "link", "unlink"])
histories = st.lists(
    st.tuples(kinds, numbers, numbers, numbers, st.sampled_from(["ours", "theirs", "leave"])),
    min_size=10,
    max_size=50,
)


@given(histories)
@settings(max_examples=2 * settings().max_examples)
def test_random_histories_in_memory(steps: list[tuple[str, int, int, int, str]]) -> None:
    run(Context(), steps)


async def _stored(
    path: Path | str, steps: list[tuple[str, int, int, int, str]]
) -> tuple[World, list[Context]]:
    """Run a history over a store; return it and its branches as another process reads them."""
    sessions, branches = SessionStore(path, durability="os"), BranchStore(path, durability="os")
    session = await sessions.open("s")
    world = run(session.context, steps)
    await session.save()
    for number, branch in enumerate(world.branches[1:]):
        await branches.save_branch(branch.context, session_id="s", name=f"b{number}")
    await sessions.aclose()
    await branches.aclose()
    sessions, branches = SessionStore(path, durability="os"), BranchStore(path, durability="os")
    reopened = [await sessions.load_session("s")]
    reopened += [await branches.load_branch("s", name) for name in await branches.list_branches("s")]
    for context in reopened:
        assert context is not None
        context.snapshot()  # read while the store is open
        context.relations()
    return world, [context for context in reopened if context is not None]


def compare_with_memory(steps: list[tuple[str, int, int, int, str]], place: Path | str) -> None:
    """Run one history in memory and over a store, and compare what they hold at the end."""
    memory = run(Context(), steps)
    world, reopened = anyio.run(_stored, place, steps)
    assert len(reopened) == len(world.branches)
    for here, stored, context in zip(memory.branches, world.branches, reopened, strict=True):
        assert (content(context), links_of(context)) == (stored.values, stored.links)
        if max(memory.most_bases, world.most_bases) <= 2:  # the order of more is that of random ids
            here.context.commits.commit_direct()
            assert state_of(context) == state_of(here.context)


@pytest.mark.parametrize("suffix", [".git", ".db"])
def test_random_histories_are_equal_on_all_stores(
    suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    numbers_of_stores = itertools.count()
    folder = tmp_path_factory.mktemp("stores")

    @given(histories)
    @settings(max_examples=max(5, settings().max_examples // 4))
    def compare(steps: list[tuple[str, int, int, int, str]]) -> None:
        path = folder / f"{next(numbers_of_stores)}{suffix}"
        compare_with_memory(steps, path)
        if suffix == ".git":
            fsck(path)

    compare()


def test_random_histories_are_equal_on_postgresql(postgres: PostgresServer) -> None:
    @given(histories)
    @settings(max_examples=max(5, settings().max_examples // 8))
    def compare(steps: list[tuple[str, int, int, int, str]]) -> None:
        with postgres.database() as dsn:
            compare_with_memory(steps, dsn)

    compare()
