"""A PostgreSQL store through a real PgBouncer: one that shares backends between transactions is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import psycopg
import pytest
from building import MAIN, put
from pgbouncer_server import binary, pgbouncer
from postgres_proxy import Proxy
from sql_suite import opened

from reactifact import SessionStore
from reactifact._store._backends.sql.postgres_connection import Server
from reactifact.checkpoints import PostgreSQLKVBackend
from reactifact.errors import NotAStore, SessionBusy, StoreError

pytestmark = pytest.mark.skipif(binary() is None, reason="PgBouncer is not installed")

ADVISORY = b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


def ask(dsn: str, statement: bytes) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("statement", {}),
        ("transaction", {}),
        ("transaction", {"default_pool_size": 1}),
        ("transaction", {"server_round_robin": 1, "min_pool_size": 5}),
    ],
)
def test_one_that_shares_backends_is_refused_by_name(
    postgres_dsn: str, mode: str, settings: dict[str, Any]
) -> None:
    with pgbouncer(postgres_dsn, mode, **settings) as through:
        with pytest.raises(NotAStore) as caught:
            PostgreSQLKVBackend(through)
        message = str(caught.value)
        assert "shares connections between transactions (PgBouncer" in message
        assert "Connect to the server itself, or through a pool with pool_mode=session" in message
        assert "secret" not in message
    assert ask(postgres_dsn, ADVISORY) == [(0,)]


def test_others_are_busy_in_the_pool_meanwhile(postgres_dsn: str) -> None:
    with pgbouncer(postgres_dsn, "transaction") as through:

        def work(number: int) -> int:
            with psycopg.connect(through, autocommit=True, prepare_threshold=None) as connection:
                for _ in range(60):
                    with connection.transaction():
                        connection.execute(b"SELECT 1")
            return number

        with ThreadPoolExecutor(4) as pool:
            busy = [pool.submit(work, number) for number in range(4)]
            for _ in range(5):
                with pytest.raises(NotAStore, match="pool_mode=session"):
                    PostgreSQLKVBackend(through)
            assert [each.result() for each in busy] == [0, 1, 2, 3]


def test_nothing_is_set_on_a_backend_that_others_use(postgres_dsn: str) -> None:
    with pgbouncer(postgres_dsn, "transaction", default_pool_size=1) as through:
        before = ask(through, b"SHOW application_name"), ask(through, b"SHOW lock_timeout")
        with pytest.raises(NotAStore):
            PostgreSQLKVBackend(through, durability="os")
        assert (ask(through, b"SHOW application_name"), ask(through, b"SHOW lock_timeout")) == before
        assert ask(through, b"SHOW synchronous_commit") == [("on",)]


def test_one_that_keeps_sessions_apart_works(postgres_dsn: str) -> None:
    with pgbouncer(postgres_dsn, "session") as through:

        async def main() -> None:
            store = SessionStore(through)
            session = await store.open("s")
            await session.save()
            await store.aclose()

        anyio.run(main)
        with opened(through) as one, opened(through) as other:
            oid = put(one, "refs/heads/t/main", "one")
            assert other.refs()["refs/heads/t/main"] == oid
            with one.lock("x"), pytest.raises(SessionBusy, match="lock 'x' of"), other.lock("x"):
                pass


def test_a_pool_that_is_switched_while_a_store_is_open_ends_its_locks(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pgbouncer(postgres_dsn, "transaction") as through:
        monkeypatch.setattr(Server, "_refuse_shared_backends", lambda *_: None)  # it shared none at that time
        with opened(through) as backend, backend.lock("one"), psycopg.connect(through) as other:
            other.execute(b"SELECT 1")  # takes the backend that is free: the one of the locks
            with pytest.raises(NotAStore, match="shares connections between transactions"):
                backend.lock("two").__enter__()


def test_without_a_pooler_opening_asks_no_more_than_before(postgres_dsn: str) -> None:
    proxy = Proxy(postgres_dsn)
    server = Server(proxy.dsn, sync=True, read_only=False)
    before = proxy.round_trips
    server.connect().close()
    plain = proxy.round_trips - before
    before = proxy.round_trips
    psycopg.connect(proxy.dsn, autocommit=True).close()
    assert plain - (proxy.round_trips - before) == 1


class TestDefaultTransactionReadOnly:
    """Who sets it for a user or a database means it."""

    def test_it_is_respected(self, postgres_dsn: str) -> None:
        with opened(postgres_dsn) as backend:
            oid = put(backend, MAIN, "one")
        dsn = f"{postgres_dsn}?options=-cdefault_transaction_read_only%3Don"
        with opened(dsn) as backend:
            assert backend.refs() == {MAIN: oid}
            with pytest.raises(StoreError, match="default_transaction_read_only is set"):
                put(backend, MAIN, "two", oid)
        with opened(postgres_dsn) as backend:
            assert backend.refs() == {MAIN: oid}

    def test_no_tables_are_made_then(self, postgres_dsn: str) -> None:
        dsn = f"{postgres_dsn}?options=-cdefault_transaction_read_only%3Don"
        with pytest.raises(StoreError, match="read-only transaction"):
            PostgreSQLKVBackend(dsn)
        assert ask(postgres_dsn, b"SELECT 1 FROM pg_namespace WHERE nspname = 'reactifact'") == []
