"""The promises of `KVBackend` as tests: for who writes a backend with nothing but its methods.

Subclass `KVConformance` as `Test...` and give it an `open_backend` fixture: a function that opens the same
store anew each time it is called. It is called inside of an event loop, one for each test, on
asyncio and on trio; set `loops` where the backend runs on one of them alone.

Needs pytest, as `conformance` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from .._store._backends.kv import KVBackend
from ..interrupt import PendingAction
from ..session import SessionStore
from .dispatcher import RecordingDispatcher

OpenKVBackend = Callable[[], KVBackend]
"""Opens the same store anew each time it is called."""

VALUES: list[dict[str, Any]] = [
    {},
    {"text": 'ä€😀\n\t"\\\u2028', "empty": "", "zero": "\0"},
    {"whole": 2**53 + 1, "negative": -1, "part": 0.1, "tiny": 5e-324, "yes": True, "none": None},
    {"nested": {"list": [1, [2, {"three": [3]}], []], "": {"": None}}, "z": 1, "a": 2},
    {"large": "x" * 3_000_000},
]

KEYS = ["a", "A", "a/b", "../a", "a b", "ä", "key.lock", "%41", "-", "x" * 150, 'a:b*?"<>|']


class KVConformance:
    """The suite. A subclass provides the fixture `open_backend`, a new store for each test."""

    loops: Sequence[str] = ("asyncio", "trio")

    @pytest.fixture
    def open_backend(self) -> OpenKVBackend:
        """Return a function that opens the store of this test; override it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no fixture open_backend: define one that returns a function which "
            f"opens the same, at first empty, store each time it is called"
        )

    @pytest.fixture(params=["asyncio", "trio"])
    def run(self, request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
        """Return what runs an async function on one of the event loops."""
        if request.param not in self.loops:
            pytest.skip(f"the backend does not run on {request.param}")
        if request.param == "trio":
            pytest.importorskip("trio")
        return lambda function: anyio.run(function, backend=request.param)

    def test_it_is_a_kv_backend(self, open_backend: OpenKVBackend, run: Any) -> None:
        async def check() -> None:
            backend = open_backend()
            assert isinstance(backend, KVBackend)
            assert await backend.keys() == []
            assert await backend.get("absent") is None
            await backend.delete("absent")
            await backend.aclose()

        run(check)

    @pytest.mark.parametrize("number", range(len(VALUES)))
    def test_a_value_comes_back_equal(self, open_backend: OpenKVBackend, run: Any, number: int) -> None:
        async def check() -> None:
            writer = open_backend()
            await writer.set("key", VALUES[number])
            assert _same(await writer.get("key"), VALUES[number])
            await writer.aclose()
            reader = open_backend()
            assert _same(await reader.get("key"), VALUES[number])
            await reader.aclose()

        run(check)

    def test_a_value_is_replaced_and_deleted(self, open_backend: OpenKVBackend, run: Any) -> None:
        async def check() -> None:
            backend = open_backend()
            await backend.set("key", {"old": 1, "gone": True})
            await backend.set("key", {"new": 2})
            assert await backend.get("key") == {"new": 2}
            assert await backend.keys() == ["key"]
            await backend.delete("key")
            assert await backend.get("key") is None
            assert await backend.keys() == []
            await backend.aclose()

        run(check)

    def test_a_value_is_no_part_of_the_store(self, open_backend: OpenKVBackend, run: Any) -> None:
        async def check() -> None:
            backend = open_backend()
            value = {"list": [1]}
            await backend.set("key", value)
            value["list"].append(2)
            found = await backend.get("key")
            assert found == {"list": [1]}
            found["list"].append(3)
            assert await backend.get("key") == {"list": [1]}
            await backend.aclose()

        run(check)

    def test_keys_are_kept_apart_and_listed_in_order(self, open_backend: OpenKVBackend, run: Any) -> None:
        async def check() -> None:
            backend = open_backend()
            for key in KEYS:
                await backend.set(key, {"of": key})
            assert await backend.keys() == sorted(KEYS)
            for key in KEYS:
                assert await backend.get(key) == {"of": key}
            await backend.delete(KEYS[0])
            assert await backend.keys() == sorted(KEYS[1:])
            await backend.aclose()

        run(check)

    def test_several_at_once(self, open_backend: OpenKVBackend, run: Any) -> None:
        async def check() -> None:
            backend = open_backend()

            async def write(number: int) -> None:
                for round_ in range(3):
                    await backend.set(f"key {number}", {"round": round_})

            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(write, number)
            assert await backend.keys() == [f"key {number}" for number in range(5)]
            assert [await backend.get(key) for key in await backend.keys()] == [{"round": 2}] * 5
            await backend.aclose()

        run(check)

    def test_sessions_live_in_it(self, open_backend: OpenKVBackend, run: Any) -> None:
        async def check() -> None:
            store = SessionStore(open_backend())
            session = await store.open("team a/ä")
            session.context.create(PendingAction(kind="mail", idempotency_key="k"), id="action:k")
            await session.save()
            await store.aclose()

            store, dispatcher = SessionStore(open_backend()), RecordingDispatcher()
            assert await store.list_sessions() == ["team a/ä"]
            await store.drain(dispatcher)
            await store.drain(dispatcher)
            assert dispatcher.keys == ["k"]
            await store.aclose()

            store = SessionStore(open_backend())
            found = await store.load_session("team a/ä")
            assert found is not None
            assert [action.data.status for action in found.list_artifacts(PendingAction)] == ["dispatched"]
            await store.delete_session("team a/ä")
            assert await store.list_sessions() == []
            await store.aclose()

        run(check)


def _same(found: Any, expected: Any) -> bool:
    """Tell whether two values are equal, also in the types of their numbers."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in found)
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return bool(found == expected)
