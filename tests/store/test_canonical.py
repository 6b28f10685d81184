"""Canonical JSON: equal data is equal bytes, in the form that people and line diffs read."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from reactifact._store import canonical

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_the_bytes_are_those_of_an_indented_sorted_dump(value: Any) -> None:
    plain = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    assert canonical.encode(value) == plain.encode() + b"\n"


@given(values)
def test_data_comes_back_and_key_order_does_not_matter(value: Any) -> None:
    data = canonical.encode(value)
    assert repr(canonical.decode(data)) == repr(json.loads(data))
    assert canonical.decode(data) == value
    assert canonical.encode(shuffled(value)) == data


def test_one_scalar_a_line() -> None:
    data = canonical.encode({"b": [1, {"x": "\u00e9\n"}], "a": (), "c": {}})
    assert data.decode() == (
        '{\n  "a": [],\n  "b": [\n    1,\n    {\n      "x": "\u00e9\\n"\n    }\n  ],\n  "c": {}\n}\n'
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", [lambda x: x, lambda x: [x], lambda x: {"a": {"b": [[], x]}}])
def test_numbers_that_json_lacks_are_refused(number: float, shape: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical.encode(shape(number))


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"", b"{", b"\xff"])
def test_what_is_no_json_is_not_read(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting|decode"):
        canonical.decode(text)


def test_lone_surrogates_and_foreign_values_are_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        canonical.encode({"a": ["\ud800"]})
    wrong: Any = {1: "a"}
    with pytest.raises(TypeError, match="key 1 is not a string"):
        canonical.encode({"a": wrong})
    wrong = {"a": object()}
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical.encode(wrong)


def test_data_that_contains_itself_is_refused() -> None:
    endless: Any = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested too deeply"):
        canonical.encode(endless)
    with pytest.raises(ValueError, match="nested too deeply"):
        canonical.decode(b"[" * 100_000)


def test_forty_levels_are_written_as_two_are() -> None:
    value: Any = 1
    for _ in range(40):
        value = {"a": value}
    assert canonical.encode(value).decode() == json.dumps(value, indent=2) + "\n"


def test_the_content_hash_is_blake3_of_the_bytes() -> None:
    assert canonical.content_hash(b"{}\n") == blake3(b"{}\n").hexdigest()


@pytest.mark.parametrize("fields", [1, 12])
def test_a_long_text_is_held_twice_at_most_while_it_is_encoded(fields: int) -> None:
    long = 4_000_000
    value = {f"field{number}": "x" for number in range(fields)} | {"text": "a" * long}
    canonical.encode(value)
    tracemalloc.start()
    try:
        canonical.encode(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * long


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(one) for one in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(), _plain, max_size=6))
def test_a_record_in_order_is_written_as_any_other_data_is(record: dict[str, Any]) -> None:
    assert canonical.encode_sorted(_in_order(record)) == canonical.encode(record)


def test_a_record_with_a_lone_surrogate_is_refused_as_any_other_data_is() -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        canonical.encode_sorted({"name": "a\ud800"})
