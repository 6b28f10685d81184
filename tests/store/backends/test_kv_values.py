"""Values under keys, on every store that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import place_of

from reactifact.checkpoints import (
    FileKVBackend,
    InMemoryKVBackend,
    KVBackend,
    PostgreSQLKVBackend,
    SQLiteKVBackend,
)
from reactifact.errors import InvalidName

pytestmark = pytest.mark.anyio

VALUE = {"text": "ünï \u2028 \0", "numbers": [1, 2.5, None, True], "nested": {"": {}}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.fixture(params=["memory", "git", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return place_of(request.param, tmp_path, dsn)


def opened(place: Any) -> KVBackend:
    """Open a place by the published name of its class."""
    if isinstance(place, InMemoryKVBackend):
        return place
    if isinstance(place, str):
        return PostgreSQLKVBackend(place)
    return SQLiteKVBackend(place) if place.suffix == ".db" else FileKVBackend(place)


async def test_a_value_is_set_read_replaced_and_deleted(place: Any) -> None:
    backend = opened(place)
    assert await backend.keys() == []
    assert await backend.get("k") is None
    await backend.set("k", VALUE)
    assert await backend.get("k") == VALUE
    await backend.set("k", {"new": 1})
    await backend.set("k", {"new": 1})
    await backend.aclose()
    again = opened(place)
    assert await again.get("k") == {"new": 1}
    await again.delete("k")
    await again.delete("k")
    assert await again.keys() == []
    await again.aclose()
    await again.aclose()


async def test_a_key_may_be_any_text(place: Any) -> None:
    backend = opened(place)
    keys = [
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "../x",
        "nul\0",
        "ünï",
        "x" * 3000,
        "x" * 3001,
        " ",
        "'; DROP TABLE kv; --",
    ]
    for number, key in enumerate(keys):
        await backend.set(key, {"number": number})
    assert await backend.keys() == sorted(keys)
    for number, key in enumerate(keys):
        assert await backend.get(key) == {"number": number}
    for wrong in ("", "\udcff"):
        with pytest.raises(InvalidName):
            await backend.set(wrong, {})
    await backend.aclose()


async def test_values_are_copied_in_and_out(place: Any) -> None:
    backend = opened(place)
    value: dict[str, Any] = {"list": [1]}
    await backend.set("k", value)
    value["list"].append(2)
    found = await backend.get("k")
    assert found == {"list": [1]}
    found["list"].append(3)
    assert await backend.get("k") == {"list": [1]}
    await backend.aclose()


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": "\udcff"}, {"x": {1: 2}}, {"x": {1, 2}}])
async def test_what_is_no_json_is_refused(place: Any, value: dict[str, Any]) -> None:
    backend = opened(place)
    with pytest.raises((ValueError, TypeError)):
        await backend.set("k", value)
    assert await backend.keys() == []
    await backend.aclose()


async def test_any_json_comes_back(place: Any) -> None:
    backend = opened(place)

    @given(value=st.dictionaries(st.text(max_size=8), JSON, max_size=4))
    @settings(max_examples=15)
    def check(value: dict[str, Any]) -> None:
        examples.append(value)

    examples: list[dict[str, Any]] = []
    check()
    for value in examples:
        await backend.set("k", value)
        assert await backend.get("k") == value
    await backend.aclose()


async def test_values_and_sessions_do_not_meet(place: Any) -> None:
    from reactifact import SessionStore

    backend = opened(place)
    await backend.set("s", VALUE)
    store = SessionStore(backend)
    session = await store.open("s")
    await session.save()
    assert await store.list_sessions() == ["s"]
    assert await backend.keys() == ["s"]
    assert await backend.get("s") == VALUE
    await backend.aclose()
