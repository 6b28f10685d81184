"""A PostgreSQL server that stops in the middle of a turn: one clear error, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from postgres_server import PostgresServer
from support import Order, Outside, action, notifier

from reactifact import Artifact, Context, PendingAction, Runtime, SessionStore
from reactifact.errors import StoreError

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    yield postgres
    if not postgres.is_running():
        postgres.start()


class Stopping(Outside):
    """Stops the server before or after it has sent."""

    def __init__(self, server: PostgresServer, when: str) -> None:
        super().__init__()
        self.server: PostgresServer | None = server
        self.when = when

    async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
        server, self.server = self.server, None
        if server is not None and self.when == "before":
            server.stop()
        await super().__call__(context, artifact)
        if server is not None and self.when == "after":
            server.stop()


async def turn(store: SessionStore, dispatcher: Any) -> None:
    session = await store.open("s")
    session.context.create(Order(item="tea"), id="order:42")
    await Runtime(session.context, [notifier()], session=session, dispatcher=dispatcher).arun()


async def test_it_is_away_when_a_turn_begins(server: PostgresServer, postgres_dsn: str) -> None:
    store, outside = SessionStore(postgres_dsn), Outside()
    session = await store.open("s")
    session.context.create(Order(item="tea"), id="order:42")
    runtime = Runtime(session.context, [notifier()], session=session, dispatcher=outside)
    server.stop()
    with pytest.raises(StoreError, match="cannot be reached"):
        await runtime.arun()
    assert outside.sent == []
    server.start()
    await runtime.arun()
    assert outside.sent == ["notify:order:42"]
    await store.aclose()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_it_stops_while_an_action_is_sent(server: PostgresServer, postgres_dsn: str, when: str) -> None:
    store, outside = SessionStore(postgres_dsn), Stopping(server, when)
    with pytest.raises(StoreError, match="cannot be reached"):
        await turn(store, outside)
    assert outside.sent == ["notify:order:42"]
    server.start()
    for _ in range(2):
        await turn(store, outside)
    # It was sent before anybody could note it, so it is sent once more, under the same key.
    assert outside.sent == ["notify:order:42"] * 2
    loaded = await SessionStore(store.database).load_session("s")
    assert loaded is not None
    assert action(loaded, "notify:order:42").status == "dispatched"
    await store.aclose()


async def test_a_restart_during_a_turn_is_not_noticed(server: PostgresServer, postgres_dsn: str) -> None:
    class Restarting(Outside):
        async def __call__(self, context: Context, artifact: Artifact[PendingAction]) -> None:
            server.stop("immediate")
            server.start()
            await super().__call__(context, artifact)

    store, outside = SessionStore(postgres_dsn), Restarting()
    await turn(store, outside)
    await turn(store, outside)
    assert outside.sent == ["notify:order:42"]
    await store.aclose()
