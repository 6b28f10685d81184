"""A plain-Python model of a session's history: states as dictionaries, commits that are never compacted.

It knows the rules (three-way by id, what a checkout drops) and nothing of git.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

Pair = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """One artifact: its text, its version, the earlier texts that are still kept."""

    text: str
    version: int = 0
    earlier: tuple[str, ...] = ()

    def updated(self, text: str) -> Item:
        return Item(text, self.version + 1, (*self.earlier, self.text))

    def trimmed(self, keep: int) -> Item:
        return replace(self, earlier=self.earlier[len(self.earlier) - min(keep, len(self.earlier)) :])


@dataclass(frozen=True)
class State:
    items: dict[str, Item] = field(default_factory=dict)
    links: frozenset[Pair] = frozenset()

    @property
    def content(self) -> tuple[dict[str, str], frozenset[Pair]]:
        """What a merge compares."""
        return {name: item.text for name, item in self.items.items()}, self.links


_numbers = itertools.count()


@dataclass(eq=False)
class Node:
    """A commit: the state after it, and whether it made a version."""

    state: State
    version: int
    is_versioned: bool
    parents: tuple[Node, ...] = ()
    wrote: frozenset[str] = frozenset()  # also what is again as it was before the commit
    number: int = field(default_factory=lambda: next(_numbers))

    def ancestors(self) -> dict[int, Node]:
        found: dict[int, Node] = {}
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if node.number not in found:
                found[node.number] = node
                waiting.extend(node.parents)
        return found


@dataclass
class Branch:
    """One branch: its newest commit, and the direct changes on top."""

    tip: Node
    state: State
    baseline: int = 0

    def settle(self) -> None:
        """Make a commit of the direct changes."""
        if self.state != self.tip.state:
            self.tip = Node(self.state, self.tip.version, False, (self.tip,))

    def commit(self, state: State, *others: Node, wrote: Iterable[str] = ()) -> None:
        self.tip = Node(state, self.tip.version + 1, True, (self.tip, *others), frozenset(wrote))
        self.state = state

    def meet(self, other: Node) -> None:
        """Note a merge that brought nothing new, so that the next one begins from here."""
        self.tip = Node(self.state, self.tip.version, False, (self.tip, other))

    def go_to(self, version: int) -> None:
        """Drop the versions above one."""
        self.settle()
        chain = [self.tip]
        while chain[-1].parents:
            chain.append(chain[-1].parents[0])
        dropped = [node for node in reversed(chain) if node.is_versioned and node.version > version]
        if not dropped:
            return
        items, links = dict(self.tip.state.items), set(self.tip.state.links)
        done: set[str] = set()
        toggled: set[Pair] = set()
        for node in dropped:
            before, after = node.parents[0].state, node.state
            for name in before.items.keys() | after.items.keys() | node.wrote:
                again = name in node.wrote and name in after.items  # deleted, say, and created equal
                is_written = again or before.items.get(name) != after.items.get(name)
                if is_written and name not in done:
                    done.add(name)
                    items.pop(name, None)
                    if name in before.items:
                        items[name] = before.items[name]
            for pair in (before.links ^ after.links) - toggled:
                toggled.add(pair)
                links.discard(pair)
                if pair in before.links:
                    links.add(pair)
        self.tip = dropped[0].parents[0]
        self.state = State(items, frozenset(links))
        self.settle()


def merge_bases(ours: Node, theirs: Node) -> list[Node]:
    left, right = ours.ancestors(), theirs.ancestors()
    common = [left[number] for number in left.keys() & right.keys()]
    below = {number for node in common for number in node.ancestors() if number != node.number}
    return [node for node in common if node.number not in below]


def merged(base: State, ours: State, theirs: State) -> State | None:
    """Return the merge of two states, `None` for a conflict."""
    items = dict(ours.items)
    for name in ours.items.keys() | theirs.items.keys() | base.items.keys():
        mine, other, old = (
            None if (item := side.items.get(name)) is None else item.text for side in (ours, theirs, base)
        )
        if mine == other or other == old:
            continue
        if mine != old:
            return None
        if name in theirs.items:
            items[name] = theirs.items[name]
        else:
            items.pop(name, None)
    links = (ours.links | (theirs.links - base.links)) - (base.links - theirs.links)
    return State(items, frozenset(links))
