"""The ready merge functions: what they make of two changes, the same from both sides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from reactifact.merging import (
    CONFLICT,
    MISSING,
    append_only,
    as_set,
    counter,
    last_writer,
    per_field,
    unless_both,
)


class Post(BaseModel):
    model_config = ConfigDict(extra="allow")

    views: int = 0
    tags: set[str] = set()
    log: list[str] = []
    title: str | None = None
    changed_at: int | None = None


@pytest.mark.parametrize(
    ("function", "base", "ours", "theirs", "expected"),
    [
        (unless_both, 1, 1, 2, 2),
        (unless_both, 1, 2, 1, 2),
        (unless_both, 1, 2, 2, 2),
        (unless_both, 1, 2, 3, CONFLICT),
        (unless_both, MISSING, MISSING, 3, 3),
        (counter, 10, 11, 11, 12),
        (counter, 10, 8, 13, 11),
        (counter, 1.5, 2.0, 2.5, 3.0),
        (counter, MISSING, 2, 3, 5),
        (counter, None, 2, 3, 5),
        (counter, 1, None, 1, None),
        (counter, 1, None, 2, CONFLICT),
        (as_set, {1, 2}, {2, 3}, {1, 2, 4}, {2, 3, 4}),
        (as_set, frozenset({1}), frozenset(), frozenset({1, 2}), frozenset({2})),
        (as_set, ["b", "a"], ["b", "a", "z"], ["b", "a", "c"], ["b", "a", "c", "z"]),
        (as_set, [{"k": 1}], [{"k": 1}, {"k": 2}], [], [{"k": 2}]),
        (as_set, MISSING, {1}, {2}, {1, 2}),
        (as_set, None, {1}, None, {1}),
        (append_only, ["a"], ["a", "z"], ["a", "b", "c"], ["a", "b", "c", "z"]),
        (append_only, ["a"], ["a", "b"], ["a", "b"], ["a", "b", "b"]),
        (append_only, ("a",), ("a",), ("a", "b"), ("a", "b")),
        (append_only, ["a", "b"], ["b"], ["a", "b", "c"], CONFLICT),
        (append_only, ["a", "b"], ["b"], ["a", "b"], ["b"]),
        (append_only, MISSING, ["b"], ["a"], ["a", "b"]),
    ],
)
def test_values(function: Any, base: Any, ours: Any, theirs: Any, expected: Any) -> None:
    assert function(base, ours, theirs) == expected
    assert function(base, theirs, ours) == expected
    assert type(function(base, ours, theirs)) is type(expected)


values = st.integers(-3, 3)
lists = st.lists(values, max_size=4)


@given(lists, lists, lists)
def test_sets_and_lists_are_the_same_from_both_sides(base: list[int], one: list[int], two: list[int]) -> None:
    assert as_set(set(base), set(one), set(two)) == as_set(set(base), set(two), set(one))
    assert as_set(base, one, two) == as_set(base, two, one)
    assert append_only(base, base + one, base + two) == append_only(base, base + two, base + one)
    assert sorted(append_only(base, base + one, base + two)) == sorted(base + one + two)


@given(lists, lists)
def test_one_side_alone_wins(base: list[int], one: list[int]) -> None:
    assert as_set(set(base), set(base), set(one)) == set(one)
    assert append_only(base, base, base + one) == base + one
    assert counter(len(base), len(base), len(one)) == len(one)


MERGE = per_field(views=counter, tags=as_set, log=append_only)
BASE = Post(views=1, tags={"x"}, log=["begin"])


def test_per_field_combines_the_functions_and_merges_the_rest_three_way() -> None:
    ours = Post(views=2, tags={"x", "y"}, log=["begin", "o"], title="named")
    theirs = Post(views=4, tags=set(), log=["begin", "t"], changed_at=3)
    expected = Post(views=5, tags={"y"}, log=["begin", "o", "t"], title="named", changed_at=3)
    assert MERGE(BASE, ours, theirs) == MERGE(BASE, theirs, ours) == expected
    assert Post(views=1, tags={"x"}, log=["begin"]) == BASE


def test_per_field_leaves_a_conflict_in_a_field_without_a_function() -> None:
    assert (
        MERGE(BASE, BASE.model_copy(update={"title": "a"}), BASE.model_copy(update={"title": "b"}))
        is CONFLICT
    )


def test_per_field_without_a_base() -> None:
    assert MERGE(None, Post(views=2), Post(views=3)) == Post(views=5)
    assert MERGE(None, Post(title="a"), Post(title="b")) is CONFLICT


def test_per_field_merges_extra_fields() -> None:
    base, ours, theirs = Post(kept=1, gone=1), Post(kept=1, gone=1, mine=2), Post(kept=1, other=3)  # type: ignore[call-arg]
    expected = Post(kept=1, mine=2, other=3)  # type: ignore[call-arg]
    assert MERGE(base, ours, theirs) == MERGE(base, theirs, ours) == expected
    assert (ours.model_extra, theirs.model_extra) == (
        {"kept": 1, "gone": 1, "mine": 2},
        {"kept": 1, "other": 3},
    )


def test_per_field_refuses_a_name_that_is_no_field() -> None:
    with pytest.raises(TypeError, match=r"Post names \['vievs'\]"):
        per_field(vievs=counter)(None, Post.model_construct(), Post.model_construct())


def test_last_writer() -> None:
    merge = last_writer("changed_at")
    old, new, never = Post(title="b", changed_at=1), Post(title="a", changed_at=2), Post(title="c")
    for base in (None, BASE):
        assert merge(base, old, new) == merge(base, new, old) == new
        assert merge(base, never, old) == merge(base, old, never) == old
        assert merge(base, old, Post(title="z", changed_at=1)).title == "z"
        assert merge(base, Post(title="z", changed_at=1), old).title == "z"
    with pytest.raises(TypeError, match="last_writer\\('when'\\)"):
        last_writer("when")(None, old, new)
