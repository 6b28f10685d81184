"""What looking back reads: one object a commit, and not the trees of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import SessionStore
from reactifact.checkpoints import InMemoryKVBackend

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    text: str


class Counting(InMemoryKVBackend):
    read = 0

    def read_many(self, oids: Iterable[str]) -> Any:
        oids = list(oids)
        self.read += len(oids)
        return super().read_many(oids)


async def test_history_reads_the_commits_alone() -> None:
    store = Counting()
    session = await SessionStore(store).open("s")
    for number in range(100):
        session.context.create(Note(text=str(number)), id=f"note:{number}")
        session.context.commits.commit_edit(author="a", message=f"note {number}")
    await session.save()
    session = await SessionStore(store).open("s")
    before = store.read
    history = session.context.history()
    assert [commit.message for commit in history] == [f"note {number}" for number in range(100)]
    assert store.read - before <= 101  # and the one the session began with
