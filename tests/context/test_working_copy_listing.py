"""What listing a type reads: a level of trees at a time, payloads several at once, little the second time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from reactifact import Context, SessionStore
from reactifact.checkpoints import InMemoryKVBackend

pytestmark = pytest.mark.anyio


class Item(BaseModel):
    number: int
    text: str = ""


class Other(BaseModel):
    number: int


class Counting(InMemoryKVBackend):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def read_many(self, oids: Iterable[str]) -> Any:
        oids = list(oids)
        self.reads.append(len(oids))
        return super().read_many(oids)


async def opened(items: int, text: str = "") -> tuple[Counting, Context]:
    """Return the context of a session with so many items, read anew, and the store it is in."""
    backend = Counting()
    session = await SessionStore(backend).open("s")
    for number in range(items):
        session.context.create(Item(number=number, text=text), id=f"item:{number}")
        if number % 10 == 0:
            session.context.create(Other(number=number), id=f"other:{number}")
    await session.save()
    context = (await SessionStore(backend).open("s")).context
    backend.reads.clear()
    return backend, context


def calls_of(function: Callable[[], object]) -> int:
    """Return how many Python calls a function makes."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def numbers(context: Context) -> list[int]:
    return [item.data.number for item in context.list_artifacts(Item)]


async def test_a_listing_reads_a_level_at_a_time_and_payloads_several_at_once() -> None:
    backend, context = await opened(1_000)
    listed = context.list_artifacts(Item)
    assert len(listed) == 1_000
    assert len(backend.reads) <= 14
    before = len(backend.reads)
    assert [item.data.number for item in listed] == list(range(1_000))
    assert len(backend.reads) - before <= 2 * (1_000 // 64 + 1)
    read = sum(backend.reads)
    assert numbers(context) == list(range(1_000))
    assert sum(backend.reads) == read


async def test_the_second_listing_makes_a_third_of_the_calls_of_the_first() -> None:
    _, context = await opened(1_000)
    held: list[Any] = []
    first = calls_of(lambda: held.extend(context.list_artifacts(Item)) or [one.data for one in held])
    second = calls_of(lambda: [one.data for one in context.list_artifacts(Item)])
    assert first < 76 * 1_000  # measured: 71; 220 a listed artifact before trees were looked at once
    assert second < first / 3


async def test_large_payloads_are_read_one_at_a_time() -> None:
    backend, context = await opened(20, "x" * 100_000)
    listed = context.list_artifacts(Item)
    backend.reads.clear()
    assert listed[3].data.number == 3
    assert backend.reads == [1]


async def test_a_listing_shows_what_changed_since_the_last_one() -> None:
    _, context = await opened(200)
    assert numbers(context) == list(range(200))
    context.update("item:3", Item(number=-3))
    context.delete("item:4")
    context.create(Item(number=200), id="item:200")
    listed = context.list_artifacts(Item)
    context.update("item:5", Item(number=-5))
    found = [item.data.number for item in listed]
    assert found == [0, 1, 2, -3, -5, *range(6, 201)]
