"""A long text is written as any other, and held once while it is."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from reactifact._store import canonical


@pytest.mark.parametrize("fields", [1, 12])
def test_a_long_text_is_held_once_while_it_is_encoded(fields: int) -> None:
    long = 4_000_000
    value = {f"field{number}": "x" for number in range(fields)} | {"text": "a" * long}
    canonical.encode(value)
    tracemalloc.start()
    try:
        canonical.encode(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * long


@pytest.mark.parametrize("depth", [0, 1, 3, 20])
def test_data_with_a_long_text_is_written_as_any_other(depth: int) -> None:
    long = 'é"\\\n\x00😀 ' * 40_000
    value: Any = {"z": long, "b": [], "a": {}, "list": [long, 1, None, {"k": [long]}], "n": 1.5, "t": True}
    for _ in range(depth):
        value = {"inner": [value], "beside": "x"}
    found = canonical.decode(canonical.encode(value))
    assert found == value
    short = json.loads(json.dumps(value).replace(json.dumps(long), '"text"'))
    assert canonical.encode(value).replace(json.dumps(long, ensure_ascii=False).encode(), b'"text"') == (
        canonical.encode(short)
    )


def test_what_is_wrong_beside_a_long_text_or_in_it_is_refused() -> None:
    long = "a" * 100_000
    with pytest.raises(ValueError, match="surrogate"):
        canonical.encode({"text": long + "\ud800"})
    wrong: Any = {"text": long, 1: "a"}
    with pytest.raises(TypeError, match="key 1 is not a string"):
        canonical.encode(wrong)
    wrong = {"text": long, "b": object()}
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical.encode(wrong)
    wrong = {"text": long}
    wrong["self"] = wrong
    with pytest.raises(ValueError, match="nested too deeply"):
        canonical.encode(wrong)
