"""LangGraph's own conformance suite on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from stores import place_of

from reactifact.integrations.langgraph import ReactifactSaver


@pytest.mark.parametrize("kind", ["memory", "git", "sqlite", "postgres"])
def test_all_eight_capabilities_pass(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    numbers = count()
    server: Any = request.getfixturevalue("postgres") if kind == "postgres" else None

    @checkpointer_test(name=kind)
    async def saver() -> AsyncIterator[ReactifactSaver]:
        if server is not None:
            with server.database() as dsn:
                async with ReactifactSaver(dsn, durability="os") as made:
                    yield made
            return
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        async with ReactifactSaver(place_of(kind, folder, None), durability="os") as made:
            yield made

    report = asyncio.run(validate(saver))
    passed = {name for name, result in report.results.items() if result.detected and result.passed}
    assert passed == {one.value for one in ALL_CAPABILITIES}, report.to_dict()
    assert len(passed) == 8
    assert sum(result.tests_skipped for result in report.results.values()) == 0
