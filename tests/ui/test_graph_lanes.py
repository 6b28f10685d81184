"""The lanes of the commit graph: where lines run, meet and end, and how a page goes on from another."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest

from reactifact import SessionStore
from reactifact._store.object_db import Database
from reactifact.branching import BranchStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.interrupt import PendingQuestion
from reactifact.ui.asked import BadQuery
from reactifact.ui.graph import Lanes, drawn, width_of


async def _braid(backend: Any) -> None:
    """Write a session whose branch is forked and merged three times, and one branch that is left open."""
    store = SessionStore(backend)
    branches = BranchStore(store.database)
    session = await store.open("s")
    for number in range(3):
        session.context.create(PendingQuestion(question="a"), id=f"m{number}")
        await session.save()
        side = session.context.branch(name=f"side{number}")
        side.create(PendingQuestion(question="b"), id=f"b{number}")
        side.commits.commit_edit(author="x", message=f"side {number}")
        await branches.save_branch(side, session_id="s", name=f"side{number}")
        session.context.create(PendingQuestion(question="c"), id=f"c{number}")
        await session.save()
        if number < 2:
            session.context.merge(side, message=f"merge {number}")
            await session.save()


@pytest.fixture(scope="module")
def braid() -> Database:
    backend = InMemoryKVBackend()
    anyio.run(_braid, backend)
    return SessionStore(backend).database


def starts(database: Database) -> list[str]:
    refs = database.backend.refs("refs/heads/s/")
    return [refs["refs/heads/s/main"], *(oid for name, oid in sorted(refs.items()) if "side" in name)]


def test_every_commit_comes_once_and_before_its_parents(braid: Database) -> None:
    rows = list(Lanes.of(braid, starts(braid)).rows(1000))
    order = [row.entry.commit for row in rows]
    assert len(order) == len(set(order)) == 1 + 3 * 2 + 3 + 2
    place = {commit: number for number, commit in enumerate(order)}
    for row in rows:
        assert all(place[parent] > place[row.entry.commit] for parent in row.entry.object.parents)


def test_a_line_leads_from_every_commit_to_each_of_its_parents(braid: Database) -> None:
    rows = list(Lanes.of(braid, starts(braid)).rows(1000))
    for row, below in pairwise(rows):
        for lane, parent in zip(row.parents, row.entry.object.parents, strict=True):
            assert below.above[lane] == parent
    assert rows[-1].parents == ()
    assert {len(row.parents) for row in rows} == {0, 1, 2}


def test_nothing_is_drawn_above_the_newest_commit_of_a_branch(braid: Database) -> None:
    rows = list(Lanes.of(braid, starts(braid)).rows(1000))
    drawn_before: set[str] = set()
    for row in rows:
        assert {oid for oid in row.above if oid is not None} <= drawn_before
        drawn_before |= set(row.entry.object.parents)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_pages_together_are_the_whole(braid: Database, size: int) -> None:
    whole = list(Lanes.of(braid, starts(braid)).rows(1000))
    lanes, rows = Lanes.of(braid, starts(braid)), []
    while not lanes.is_done:
        rows += list(lanes.rows(size))
        lanes = Lanes.parsed(braid, str(lanes)) if not lanes.is_done else lanes
    assert [(row.entry.commit, row.lane, row.above, row.parents) for row in rows] == [
        (row.entry.commit, row.lane, row.above, row.parents) for row in whole
    ]


def test_a_row_is_drawn_within_its_width(braid: Database) -> None:
    rows = list(Lanes.of(braid, starts(braid)).rows(1000))
    width = width_of(rows)
    merges = [row for row in rows if len(row.parents) == 2]
    assert len(merges) == 2
    assert "merge" in drawn(merges[0], width)
    assert drawn(merges[0], width).count("<path") >= 3


@pytest.mark.parametrize("text", ["x", "-.", "a" * 39, ".".join(["-"] * 61), f"{'a' * 40}x"])
def test_another_text_is_not_a_place_in_the_graph(braid: Database, text: str) -> None:
    with pytest.raises(BadQuery, match="not complete"):
        Lanes.parsed(braid, text)


def test_an_object_of_another_kind_is_not_a_commit(braid: Database) -> None:
    tree = braid.commit(starts(braid)[0]).tree
    with pytest.raises(BadQuery, match="not a commit"):
        list(Lanes.parsed(braid, tree).rows(1))
