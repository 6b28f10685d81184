"""What differs between two values: field by field, and nothing exactly where they are equal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactifact._store._history.diff import (
    ArtifactState,
    FieldChange,
    RelationState,
    StateDiff,
    diff_values,
    lines,
)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", "changed", 1, 2)]),
        ({"a": None}, {}, [("a", "removed", None, None)]),
        ({}, {"a": None}, [("a", "added", None, None)]),
        ({"a": 1}, {"a": 1.0}, [("a", "changed", 1, 1.0)]),
        ({"a": 1}, {"a": True}, [("a", "changed", 1, True)]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, [("a.b[1].c", "changed", 2, 3)]),
        ({"x.y": 1, "": 2}, {"x.y": 2, "": 3}, [('[""]', "changed", 2, 3), ('["x.y"]', "changed", 1, 2)]),
        ([1, 2, 3], [1, 9, 2, 3], [("[1]", "added", None, 9)]),
        ([1, 2, 3], [2, 3], [("[0]", "removed", 1, None)]),
        ([1, 1], [1, 1, 1], [("[2]", "added", None, 1)]),
        ([1, 2, 3], [4, 3], [("", "changed", [1, 2, 3], [4, 3])]),
        ({"a": [1]}, {"a": {"0": 1}}, [("a", "changed", [1], {"0": 1})]),
    ],
)
def test_values(old: Any, new: Any, changes: list[Any]) -> None:
    assert list(diff_values(old, new)) == [FieldChange(*change) for change in changes]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab."), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, JSON)
def test_nothing_differs_exactly_where_the_values_are_equal(old: Any, new: Any) -> None:
    equal = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert (list(diff_values(old, new)) == []) == equal
    flipped: dict[str, Any] = {"added": "removed", "removed": "added", "changed": "changed"}
    mirrored = [FieldChange(c.path, flipped[c.kind], c.new, c.old) for c in diff_values(old, new)]
    assert sorted(mirrored, key=repr) == sorted(diff_values(new, old), key=repr)


def test_what_is_shown_of_a_state_steers_no_terminal() -> None:
    came = ArtifactState("a\x1b[2J", "shop.Order", 0, {"note\n": "\u202etxt", "n": 1})
    found = StateDiff((came,), (), (), (RelationState("a", "of\x07", "b"),), ())
    assert not found.is_empty
    assert [line.text for line in lines(found)] == [
        "+ a\\u001b[2J  shop.Order  v0",
        '    note\\n: "\\u202etxt"',
        "    n: 1",
        "+ a -[of\\u0007]-> b",
    ]
