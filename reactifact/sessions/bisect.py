"""Finding the generation in which a state went wrong, without running any agent.

Owns the steps of a branch's history and the search over them. A step is what a reader of the store
could have seen: the last commit of a generation, or a commit outside of any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from inspect import isawaitable
from itertools import groupby
from typing import Any

from ..context import Context
from ..context.resources import RuntimeResources
from ..store.database import Database
from ..store.history import first_parents
from ..store.objects import Oid
from ..store.printable import plain
from ..store.records import CommitRecord, require_record
from ..store.timeline import Entry, entry
from ..threads import in_thread
from .snapshots import context_at

Predicate = Callable[[Context], bool | Awaitable[bool]]
"""Tells whether a state is still right."""


@dataclass(frozen=True, slots=True)
class Step:
    """The commits of one generation, the oldest first; or a commit outside of any."""

    commits: tuple[Oid, ...]
    generation: int | None
    run_id: str | None

    @property
    def last(self) -> Oid:
        """The commit whose state was published."""
        return self.commits[-1]


@dataclass(frozen=True, slots=True)
class Bisection:
    """The first step whose state fails, and the commit of it that made it fail.

    `agents` are the authors of all commits of the generation; `loads` counts the states that were
    looked at.
    """

    entry: Entry
    generation: int | None
    run_id: str | None
    agents: tuple[str, ...]
    before: Oid | None
    loads: int

    @property
    def commit(self) -> Oid:
        """The id of the commit."""
        return self.entry.commit

    @property
    def agent(self) -> str:
        """The author of the commit."""
        return self.entry.author

    def __str__(self) -> str:
        place = "outside of any generation"
        if self.generation is not None:
            place = f"in generation {self.generation} ({', '.join(map(plain, self.agents))})"
        before = "no commit is before it" if self.before is None else f"it held at {self.before[:10]}"
        return f"{self.entry}\n  {place}; {before}; {self.loads} states looked at"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON types: the keys of a log entry, and how it was found."""
        found = {"agent": self.agent, "agents": list(self.agents), "before": self.before, "loads": self.loads}
        return {**self.entry.to_dict(), "generation": self.generation, **found}


def steps(database: Database, head: Oid) -> list[Step]:
    """Return the steps of a branch's own line, the oldest first; the empty beginning is none."""
    records = []
    for oid, _ in first_parents(database, head):
        records.append((oid, require_record(database, oid, oid)))
    records.reverse()
    return list(_grouped(records))


def _grouped(records: list[tuple[Oid, CommitRecord]]) -> Iterator[Step]:
    for key, group in groupby(records, key=_generation):
        commits = tuple(oid for oid, record in group if record.kind != "root")
        if key is None:
            yield from (Step((oid,), None, None) for oid in commits)
        elif commits:
            yield Step(commits, key[1], key[0])


def _generation(found: tuple[Oid, CommitRecord]) -> tuple[str, int] | None:
    record = found[1]
    return (record.run_id, record.generation) if record.generation else None


async def bisect(
    database: Database, head: Oid, predicate: Predicate, resources: RuntimeResources | None = None
) -> Bisection | None:
    """Return the first step of a branch whose stored state fails `predicate`, `None` if none does.

    Looks at log2(n + 1) of the n states, rounded up, and at a few more inside a generation that
    several agents wrote. As with `git bisect`, a predicate that fails, holds and fails again yields
    one of its failures, always one right after a state that holds.
    """
    found = await in_thread(steps, database, head)
    loads = 0

    async def holds(commit: Oid) -> bool:
        nonlocal loads
        loads += 1
        context = await in_thread(context_at, database, commit, resources)
        answer = predicate(context)
        return bool(await answer if isawaitable(answer) else answer)

    place = await _first_failure([step.last for step in found], holds)
    if place == len(found):
        return None
    failing = found[place]
    inside = await _first_failure(failing.commits[:-1], holds)
    entries = [await in_thread(entry, database, oid) for oid in failing.commits]
    earlier = [oid for step in found[:place] for oid in step.commits] + list(failing.commits[:inside])
    return Bisection(
        entry=entries[inside],
        generation=failing.generation,
        run_id=failing.run_id,
        agents=tuple(dict.fromkeys(one.author for one in entries)),
        before=earlier[-1] if earlier else None,
        loads=loads,
    )


async def _first_failure(
    commits: list[Oid] | tuple[Oid, ...], holds: Callable[[Oid], Awaitable[bool]]
) -> int:
    """Return the place of the first commit that fails, the length of the list if none was found."""
    low, high = 0, len(commits)
    while low < high:
        middle = (low + high) // 2
        if await holds(commits[middle]):
            low = middle + 1
        else:
            high = middle
    return low
