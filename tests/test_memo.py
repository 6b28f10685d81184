"""What `call.memo` keeps comes back equal, is made once for a key, and is refused where it would change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Note, Order

from reactifact._memo import Memos, opened, sealed
from reactifact.errors import InvalidName, PayloadError

pytestmark = pytest.mark.anyio

plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
kept = st.recursive(
    plain | st.builds(Note, text=st.text(), count=st.integers(0, 9)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(kept)
def test_a_value_comes_back_equal_and_of_its_own_types(value: Any) -> None:
    back = opened(sealed(value, "it"))
    assert back == value
    assert repr(back) == repr(value)


def test_who_changes_what_it_got_changes_no_other() -> None:
    record = sealed({"orders": [Order(item="tea")]}, "it")
    opened(record)["orders"][0].item = "coffee"
    assert opened(record) == {"orders": [Order(item="tea")]}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {2}]}, r"it\['a'\]\[1\] is a set"),
        ((1, 2), "it is a tuple"),
        ({1: 2}, "it is a dict"),
        (datetime(2030, 1, 1, tzinfo=UTC), "it is a datetime"),
        ([float("nan")], r"it\[0\] cannot be kept"),
    ],
)
def test_what_would_not_come_back_is_refused_by_its_place(value: Any, place: str) -> None:
    with pytest.raises(PayloadError, match=place):
        sealed(value, "it")


@pytest.mark.every_loop
async def test_two_tasks_that_ask_at_once_call_once() -> None:
    calls: list[int] = []
    told: list[tuple[str, Any]] = []
    got: list[Any] = []

    async def keep(key: str, value: Any) -> Any:
        told.append((key, value))
        return value

    async def costly() -> dict[str, int]:
        calls.append(1)
        await anyio.lowlevel.checkpoint()
        return {"n": len(calls)}

    memos = Memos(keep=keep)

    async def ask() -> None:
        got.append(await memos.recall("k", costly))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)
    assert (len(calls), len(told), got) == (1, 1, [{"n": 1}] * 5)


async def test_what_an_earlier_try_kept_is_not_asked_for_again() -> None:
    memos = Memos({"k": sealed(Note(text="kept"), "it")})
    assert await memos.recall("k", lambda: pytest.fail("called again")) == Note(text="kept")


async def test_a_call_that_fails_keeps_nothing_and_may_be_made_again() -> None:
    memos = Memos()
    with pytest.raises(ZeroDivisionError):
        await memos.recall("k", lambda: 1 / 0)
    assert await memos.recall("k", lambda: 5) == 5


@pytest.mark.parametrize(("key", "error"), [("", InvalidName), (3, TypeError)])
async def test_a_key_that_is_none_is_refused(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        await Memos().recall(key, lambda: 1)
