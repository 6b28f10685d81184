"""Stores for the tests of the inspector, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from desk import StoppedClock, filled
from reading import Client
from starlette.testclient import TestClient

from reactifact._sessions.stores import open_database
from reactifact._store.object_db import Database
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.ui.app import Token, application


@pytest.fixture(scope="session")
def desk_store() -> Any:
    """A desk of 30 turns in memory, with a session of hostile names. It is only read."""
    return filled(InMemoryKVBackend(), 30, hostile=True)


@pytest.fixture(scope="session")
def large_store(request: pytest.FixtureRequest) -> Any:
    """A desk of 800 turns in memory, of 3,000 with `--full`, made once for all tests. It is only read."""
    return filled(InMemoryKVBackend(), 3000 if request.config.getoption("--full") else 800)


@pytest.fixture
def client() -> Iterator[Client]:
    """Make a client of the inspector over a store: a browser that has opened nothing yet."""
    opened: list[Database] = []

    def make(store: Any, token: Token | None = None, **options: Any) -> TestClient:
        database = open_database(store)
        opened.append(database)
        app = application(database, name="state.git", token=token, clock=StoppedClock())
        return TestClient(app, base_url="http://127.0.0.1:8765", **options)

    yield make
    for database in opened:
        database.backend.close()
