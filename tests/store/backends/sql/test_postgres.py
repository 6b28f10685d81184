"""`PostgreSQLKVBackend`: what a server is beyond any other store."""

from __future__ import annotations

import builtins
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from building import MAIN, blob, commit, put
from postgres_proxy import Proxy
from postgres_server import PostgresServer
from sql_suite import SQLSuite, line_of, opened

from reactifact import SessionStore
from reactifact._extras import install_command
from reactifact._sessions.stores import open_database
from reactifact._store._backends.sql import postgres_statements
from reactifact._store._backends.sql.postgres_connection import AdvisoryTicket
from reactifact._store.objects import Oid
from reactifact._store.protocol import Pruned, RefUpdate
from reactifact.checkpoints import AppendBackend, KVBackend, PostgreSQLKVBackend
from reactifact.errors import (
    Contention,
    FormatTooNew,
    MissingObject,
    NotAStore,
    ObjectTooLarge,
    SessionBusy,
    StoreError,
)


@pytest.fixture
def dsn(postgres_dsn: str) -> str:
    return postgres_dsn


@pytest.fixture
def own_server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, for tests that stop it; it runs again afterwards."""
    yield postgres
    if not postgres.is_running():
        postgres.start()


def ask(dsn: str, statement: str, *values: Any) -> list[Any]:
    """Look into, or change, a database as another program would."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


class TestPostgreSQL(SQLSuite):
    to_version_1 = "UPDATE format SET version = 1"

    @pytest.fixture
    def place(self, dsn: str) -> str:
        return dsn

    def stored_bytes(self, place: str, oid: Oid) -> int:
        query = "SELECT length(data) FROM reactifact.objects WHERE oid = %s"
        return int(ask(place, query, bytes.fromhex(oid))[0][0])

    def damage(self, place: str, oid: Oid) -> None:
        query = "UPDATE reactifact.objects SET data = 'otherwise' WHERE oid = %s"
        ask(place, query, bytes.fromhex(oid))

    def ask(self, place: str, statement: str) -> list[tuple[Any, ...]]:
        return ask(f"{place}?options=-csearch_path%3Dreactifact", statement)


def test_it_is_both_kinds_of_backend(dsn: str) -> None:
    with opened(dsn) as backend:
        assert isinstance(backend, PostgreSQLKVBackend)
        assert isinstance(backend, KVBackend)
        assert isinstance(backend, AppendBackend)
        assert not backend.is_local


def test_a_session_store_takes_a_dsn(dsn: str) -> None:
    store = SessionStore(dsn)
    assert isinstance(store.database.backend, PostgreSQLKVBackend)
    store.database.backend.close()


def test_passwords_are_not_shown(dsn: str) -> None:
    assert "secret" in dsn
    with opened(dsn) as backend:
        assert backend.location == dsn.replace(":secret", "")
    for wrong in (dsn + "_absent", dsn.replace("tester", "nobody"), "postgresql://a:secret@h:x/y?z=secret"):
        with pytest.raises(StoreError) as caught:
            PostgreSQLKVBackend(wrong)
        assert "secret" not in str(caught.value)
        assert "postgresql://" in str(caught.value)


def test_without_the_driver_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "psycopg" or name.startswith("psycopg."):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "reactifact._store._backends.sql.postgres_connection", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"PostgreSQLKVBackend.*extra `pg`.*-m pip install ") as failed:
        PostgreSQLKVBackend("postgresql://host/database")
    assert install_command("pg") in str(failed.value)


def test_stores_of_two_schemas_know_nothing_of_each_other(dsn: str) -> None:
    one, other = PostgreSQLKVBackend(dsn), PostgreSQLKVBackend(dsn, schema="other")
    oid = put(one, MAIN, "one")
    assert other.refs() == {}
    with one.lock("x"), other.lock("x"):
        assert one.refs() == {MAIN: oid}
    one.close()
    other.close()
    with pytest.raises(ValueError, match="not a name for a schema"):
        PostgreSQLKVBackend(dsn, schema='x"; DROP SCHEMA reactifact')


@pytest.mark.parametrize(("durability", "setting"), [("full", "on"), ("os", "off")])
def test_durability_is_what_the_server_is_told(dsn: str, durability: Any, setting: str) -> None:
    ask(dsn, "ALTER ROLE tester SET synchronous_commit = 'off'")
    backend = PostgreSQLKVBackend(dsn, durability=durability)
    shown = backend._server.run("asking", lambda c: c.execute(b"SHOW synchronous_commit").fetchone())
    ask(dsn, "ALTER ROLE tester RESET synchronous_commit")
    backend.close()
    assert shown == (setting,)


def test_nothing_is_made_before_the_first_write(dsn: str) -> None:
    def schemas() -> list[tuple[Any, ...]]:
        return ask(dsn, "SELECT 1 FROM pg_namespace WHERE nspname = 'reactifact'")

    with opened(dsn) as backend, opened(dsn) as other:
        assert isinstance(backend, PostgreSQLKVBackend)
        assert backend.refs() == {}
        with pytest.raises(MissingObject):
            backend.read_many(["1" * 40])
        assert anyio.run(backend.get, "key") is None
        assert anyio.run(backend.keys) == []
        backend.write({})
        with backend.lock("x"):
            backend.queue("x").join().leave()
        backend.watch_refs().close()
        assert schemas() == []
        oid = put(other, MAIN, "one")
        assert schemas() == [(1,)]
        assert backend.refs() == {MAIN: oid}
        put(backend, MAIN, "two", oid)
    values, pruned = PostgreSQLKVBackend(dsn, schema="values"), PostgreSQLKVBackend(dsn, schema="pruned")
    anyio.run(values.set, "key", {"a": 1})
    assert anyio.run(values.get, "key") == {"a": 1}
    assert pruned.prune(grace=0).objects == 0
    values.close()
    pruned.close()


def test_tables_that_were_removed_are_not_taken_for_a_store_without_any(dsn: str) -> None:
    with opened(dsn) as backend, opened(dsn) as reader:
        put(backend, MAIN, "one")
        assert reader.refs() != {}
        ask(dsn, "DROP SCHEMA reactifact CASCADE")
        for one in (backend, reader):
            with pytest.raises(StoreError, match="the tables of the store were removed"):
                one.refs()


class TestWhatIsNoStore:
    def test_a_database_where_nothing_is_to_be_made(self, dsn: str) -> None:
        for options in ({"create": False}, {"read_only": True}):
            with pytest.raises(NotAStore, match="holds no store in schema 'reactifact'"):
                open_database(dsn, **options)
        assert ask(dsn, "SELECT 1 FROM pg_namespace WHERE nspname = 'reactifact'") == []

    def test_tables_of_another_program(self, dsn: str) -> None:
        ask(dsn, "CREATE SCHEMA reactifact")
        ask(dsn, "CREATE TABLE reactifact.sessions (key text, value text)")
        with pytest.raises(NotAStore, match=r"another program \(sessions\); choose another schema"):
            open_database(dsn)

    def test_a_store_of_a_later_version(self, dsn: str) -> None:
        with opened(dsn) as backend:
            put(backend, MAIN, "one")
        ask(dsn, "UPDATE reactifact.format SET version = 7")
        with pytest.raises(FormatTooNew, match="version 7"):
            open_database(dsn)

    def test_a_user_who_may_not_make_tables(self, dsn: str) -> None:
        ask(dsn, "DROP ROLE IF EXISTS guest")
        ask(dsn, "CREATE ROLE guest LOGIN")
        with pytest.raises(StoreError, match=r"permission denied.*grant"):
            open_database(dsn.replace("tester:secret", "guest"))

    def test_a_schema_that_was_made_beforehand_will_do(self, dsn: str) -> None:
        ask(dsn, "DROP ROLE IF EXISTS owner")
        ask(dsn, "CREATE ROLE owner LOGIN")
        ask(dsn, "CREATE SCHEMA reactifact AUTHORIZATION owner")
        with opened(dsn.replace("tester:secret", "owner")) as backend:
            put(backend, MAIN, "one")


class TestWhenTheServerGoesAway:
    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    def test_a_restart_between_two_calls_is_not_noticed(
        self, own_server: PostgresServer, dsn: str, mode: str
    ) -> None:
        with opened(dsn) as backend:
            old = put(backend, MAIN, "one")
            with backend.lock("s"):
                own_server.stop(mode)
                own_server.start()
                new = put(backend, MAIN, "two", old)
                assert backend.refs() == {MAIN: new}
                with backend.lock("other"), opened(own_server.dsn("postgres")):
                    pass
            assert line_of(backend, MAIN) == [new, old]

    def test_a_lock_is_taken_again_after_a_restart(self, own_server: PostgresServer, dsn: str) -> None:
        with opened(dsn) as one, opened(dsn) as other:
            with one.lock("s"):
                own_server.stop()
                own_server.start()
                with one.lock("t"):
                    pass
                with pytest.raises(SessionBusy), other.lock("s"):
                    pass
            with other.lock("s"):
                pass

    def test_a_lock_stays_held_where_the_server_ends_idle_sessions(self, dsn: str) -> None:
        name = dsn.rpartition("/")[2]
        ask(dsn, f"ALTER DATABASE {name} SET idle_session_timeout = '100ms'")
        try:
            with opened(dsn) as backend, opened(dsn) as other, backend.lock("run s/main"):
                # another session of this server ends by its own timeout, later than ours would have
                with psycopg.connect(dsn, autocommit=True) as idle, suppress(psycopg.Error):
                    idle.execute(b"SET idle_session_timeout = '300ms'")
                    next(idle.notifies(timeout=5), None)
                with pytest.raises(SessionBusy), other.lock("run s/main"):
                    pass
        finally:
            ask(dsn, f"ALTER DATABASE {name} RESET idle_session_timeout")

    def test_while_it_is_away_every_call_says_so_once(self, own_server: PostgresServer, dsn: str) -> None:
        with opened(dsn) as backend:
            old = put(backend, MAIN, "one")
            new, objects = commit("two", old)
            own_server.stop()
            for attempt in (
                lambda: backend.refs(),
                lambda: backend.read_many([old]),
                lambda: backend.write(objects, [RefUpdate(MAIN, old, new)]),
                lambda: backend.lock("x").__enter__(),
                lambda: anyio.run(backend.get, "k"),
                lambda: open_database(dsn),
            ):
                with pytest.raises(StoreError, match="cannot be reached") as caught:
                    attempt()
                assert "\n" not in str(caught.value)
            own_server.start()
            assert backend.refs() == {MAIN: old}
            backend.write(objects, [RefUpdate(MAIN, old, new)])
            assert backend.refs() == {MAIN: new}

    def test_it_stops_in_the_middle_of_a_write(self, own_server: PostgresServer, dsn: str) -> None:
        with opened(dsn) as backend:
            old = put(backend, MAIN, "one")
            new, objects = commit("two", old)
            backend.fault = lambda step: own_server.stop() if step == "objects stored" else None
            with pytest.raises(StoreError, match="cannot be reached"):
                backend.write(objects, [RefUpdate(MAIN, old, new)])
            backend.fault = None
            own_server.start()
            assert backend.refs() == {MAIN: old}
            backend.write(objects, [RefUpdate(MAIN, old, new)])
            assert backend.refs() == {MAIN: new}

    def test_a_lost_connection_in_the_middle_of_a_write_is_repeated(self, dsn: str) -> None:
        with opened(dsn) as backend:
            old = put(backend, MAIN, "one")
            cut: list[str] = []

            def fault(step: str) -> None:
                if step == "refs moved" and not cut:
                    cut.append(step)
                    end_connections(dsn)

            backend.fault = fault
            new = put(backend, MAIN, "two", old)
            assert cut
            assert backend.refs() == {MAIN: new}

    def test_a_connection_that_is_lost_after_a_lost_race_is_made_anew(self, dsn: str) -> None:
        with opened(dsn) as backend:
            failures = [psycopg.errors.DeadlockDetected(), psycopg.OperationalError("gone")]

            def work(_: Any) -> str:
                if failures:
                    raise failures.pop(0)
                return "done"

            assert backend._server.run("writing to", work) == "done"
            failures[:] = [psycopg.OperationalError("gone")] * 2
            with pytest.raises(StoreError, match="cannot be reached"):
                backend._server.run("writing to", work)


class TestACommitWhoseAnswerIsLost:
    def test_it_is_found_to_be_done(self, dsn: str) -> None:
        proxy = Proxy(dsn)
        with opened(proxy.dsn) as backend:
            old = put(backend, MAIN, "one")
            proxy.loses_answers_to_commit = 1
            new = put(backend, MAIN, "two", old)
            assert proxy.loses_answers_to_commit == 0
            assert backend.refs() == {MAIN: new}

    def test_it_is_found_to_be_done_when_the_server_ends_the_connection(self, dsn: str) -> None:
        proxy = Proxy(dsn)
        with opened(proxy.dsn) as backend:
            old = put(backend, MAIN, "one")
            proxy.ends_after_commit = 1
            new = put(backend, MAIN, "two", old)
            assert proxy.ends_after_commit == 0
            assert backend.refs() == {MAIN: new}
            backend.write({}, [RefUpdate(MAIN, new, old)])
            with pytest.raises(Contention):  # nothing is in doubt any more
                put(backend, MAIN, "two", new)

    def test_one_of_objects_alone_says_nothing_of_another(self, dsn: str) -> None:
        proxy = Proxy(dsn)
        with opened(proxy.dsn) as backend, opened(dsn) as other:
            old = put(backend, MAIN, "one")
            proxy.loses_answers_to_commit = 1
            proxy.refuses_after_a_loss = True
            with pytest.raises(StoreError, match="cannot be reached"):
                backend.write(dict([blob(b"loose")]))
            proxy.is_refusing = False
            other.write({}, [RefUpdate(MAIN, old, None)])
            assert other.prune(grace=0).objects
            _, resting = commit("two", old)
            with pytest.raises(Contention, match="pruned"):
                backend.write(resting)

    def test_it_is_found_to_be_done_later(self, dsn: str) -> None:
        proxy = Proxy(dsn)
        with opened(proxy.dsn) as backend, opened(dsn) as other:
            old = put(backend, MAIN, "one")
            new, objects = commit("two", old)
            proxy.loses_answers_to_commit = 1
            proxy.refuses_after_a_loss = True
            with pytest.raises(StoreError, match="cannot be reached"):
                backend.write(objects, [RefUpdate(MAIN, old, new)])
            assert other.refs() == {MAIN: new}
            proxy.is_refusing = False
            backend.write(objects, [RefUpdate(MAIN, old, new)])
            with pytest.raises(Contention):
                backend.write(objects, [RefUpdate(MAIN, old, new)])


def test_a_user_who_may_not_rewrite_the_tables_is_told(dsn: str) -> None:
    with opened(dsn) as backend:
        oid, item = blob(b"loose")
        backend.write({oid: item})
    ask(dsn, "DROP ROLE IF EXISTS writer")
    ask(dsn, "CREATE ROLE writer LOGIN")
    ask(dsn, "GRANT USAGE ON SCHEMA reactifact TO writer")
    ask(dsn, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA reactifact TO writer")
    with opened(dsn.replace("tester:secret", "writer")) as backend:
        with pytest.raises(StoreError, match=r"rewriting.*objects.*let the owner"):
            backend.prune(grace=0, rewrite=True)
        assert ask(dsn, "SELECT count(*) FROM reactifact.objects") == [(0,)]
        assert backend.prune(grace=0) == Pruned(0, 0, 0)
    ask(dsn, "DROP OWNED BY writer")


SAMPLES = """
SELECT tablename::text, attname::text FROM pg_stats WHERE schemaname = 'reactifact'
AND attname IN ('data', 'name', 'value')
"""


def test_the_server_keeps_no_samples_of_what_is_stored(dsn: str) -> None:
    with opened(dsn) as backend:
        for number in range(20):
            put(backend, f"refs/heads/s/{number}", f"kept {number}")
        ask(dsn, "ANALYZE reactifact.objects, reactifact.refs, reactifact.kv")
        assert ask(dsn, SAMPLES) == []
        for column in ("data SET STATISTICS -1", "kind SET STATISTICS -1"):  # as an earlier version made it
            ask(dsn, f"ALTER TABLE reactifact.objects ALTER COLUMN {column}")
        ask(dsn, "ANALYZE reactifact.objects")
        assert ask(dsn, SAMPLES) == [("objects", "data")]
        backend.prune(grace=0, rewrite=True)
        assert ask(dsn, SAMPLES) == []
        ask(dsn, "ANALYZE reactifact.objects")
        assert ask(dsn, SAMPLES) == []
        assert len(backend.refs("refs/heads/")) == 20


def test_rows_that_a_transaction_still_sees_are_told_and_go_when_it_has_ended(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_statements, "_PATIENCE", 0.0)
    with opened(dsn) as backend, psycopg.connect(dsn) as reader:
        oid, item = blob(b"loose")
        backend.write({oid: item})
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM pg_class LIMIT 1")  # from here on it sees what is there now
        with pytest.raises(StoreError, match=r"still sees 1 removed rows: end it"):
            backend.prune(grace=0, rewrite=True)
        reader.rollback()
        assert backend.prune(grace=0, rewrite=True) == Pruned(0, 0, 0)


class TestRoundTrips:
    """How often a call waits for the server, seen on the wire."""

    @pytest.fixture
    def proxy(self, dsn: str) -> Proxy:
        return Proxy(dsn)

    @pytest.fixture
    def backend(self, proxy: Proxy) -> Iterator[Any]:
        with opened(proxy.dsn) as backend:
            old: Oid | None = None
            for number in range(10):  # the connection is there, and statements are prepared
                old = put(backend, MAIN, str(number), old)
            yield backend

    def test_a_write_takes_one(self, backend: Any, proxy: Proxy) -> None:
        old = backend.refs()[MAIN]
        new, objects = commit("new", old)
        writes = [
            (objects, [RefUpdate(MAIN, old, new)]),
            (objects, [RefUpdate("refs/heads/s/other", None, new), RefUpdate("refs/heads/t/x", None, new)]),
            (
                {},
                [
                    RefUpdate(MAIN, new, old),
                    RefUpdate("refs/heads/t/x", new, None),
                    RefUpdate("refs/heads/t/y", None, old),
                ],
            ),
            (dict(blob(b"%d" % n) for n in range(300)), []),
        ]
        for write in writes:
            before = proxy.round_trips
            backend.write(*write)
            assert proxy.round_trips - before == 1
        before = proxy.round_trips
        with pytest.raises(Contention):
            backend.write(objects, [RefUpdate(MAIN, new, new)])
        assert proxy.round_trips - before == 1

    def test_after_a_prune_a_write_takes_three(self, backend: Any, proxy: Proxy, dsn: str) -> None:
        with opened(dsn) as other:
            oid, item = blob(b"loose")
            other.write({oid: item})
            other.prune(grace=0)
        before = proxy.round_trips
        put(backend, MAIN, "new", backend.refs()[MAIN])
        assert proxy.round_trips - before == 1 + 3

    def test_a_read_takes_one(self, backend: Any, proxy: Proxy) -> None:
        for read in (backend.refs, lambda: backend.read_many(backend.refs().values())):
            read()
        before = proxy.round_trips
        backend.read_many(backend.refs().values())
        assert proxy.round_trips - before == 2


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_write_that_waited_for_a_ref_compares_what_it_holds_then(dsn: str, is_moved: bool) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with opened(dsn) as backend, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        old, apart = put(backend, MAIN, "one"), put(backend, "refs/heads/s/apart", "apart")
        new, objects = commit("two", old)
        held = apart if is_moved else old
        other.execute(b"UPDATE reactifact.refs SET oid = %b WHERE name = %b", (bytes.fromhex(held), MAIN))
        write = pool.submit(backend.write, objects, [RefUpdate(MAIN, old, new)])
        while not ask(dsn, waiting):
            assert not write.done()
        other.commit()
        if is_moved:
            with pytest.raises(Contention, match=f"holds {apart}, not {old}"):
                write.result()
            with pytest.raises(MissingObject):
                backend.read_many([new])
        else:
            write.result()
        assert backend.refs()[MAIN] == (apart if is_moved else new)


def test_writers_of_the_same_objects_and_refs_in_any_order_do_not_lock_up(dsn: str) -> None:
    names = [f"refs/heads/s{n}/main" for n in range(6)]
    objects = dict(blob(b"%d" % n) for n in range(200))
    target = next(iter(objects))
    with opened(dsn) as backend:
        problems: list[BaseException] = []

        def write(number: int) -> None:
            turned = names if number % 2 else names[::-1]
            for i in range(20):
                try:
                    backend.write(
                        dict(reversed(objects.items()) if number % 2 else objects.items()),
                        [RefUpdate(f"{name}-{number}-{i}", None, target) for name in turned],
                    )
                except BaseException as error:
                    problems.append(error)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert len(backend.refs()) == 12 * 20 * 6


def test_refs_in_the_way_of_each_other_are_not_made_at_once(dsn: str) -> None:
    oid, item = blob(b"x")
    with opened(dsn) as backend:
        backend.write({oid: item})
        for number in range(15):
            gate = threading.Barrier(2)
            made: list[str] = []

            def create(name: str, gate: threading.Barrier = gate, made: list[str] = made) -> None:
                gate.wait()
                with suppress(StoreError):
                    backend.write({}, [RefUpdate(name, None, oid)])
                    made.append(name)

            names = (f"refs/heads/{number}", f"refs/heads/{number}/main")
            threads = [threading.Thread(target=create, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(made) == 1


def test_threads_share_few_connections(dsn: str) -> None:
    with opened(dsn) as backend:
        threads = [threading.Thread(target=lambda: [backend.refs() for _ in range(10)]) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        assert ask(dsn, count)[0][0] <= 8 + 1
    patience = time.monotonic() + 30
    # The server ends them one by one, and so the connection that asked before.
    while (left := ask(dsn, count)[0][0]) > 1 and time.monotonic() < patience:
        time.sleep(0.05)
    assert left == 1


def test_the_server_of_a_test_run_ends_with_the_run(postgres: PostgresServer) -> None:
    program = (
        "import signal; from postgres_server import PostgresServer, binaries\n"
        "server = PostgresServer(binaries()); print(server.port, server.data, flush=True); signal.pause()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert run.stdout is not None
    port, data = run.stdout.readline().split()
    folder = Path(data).parent
    socket.create_connection(("127.0.0.1", int(port))).close()
    assert folder.exists()
    run.kill()
    run.communicate(timeout=60)
    patience = time.monotonic() + 60
    while folder.exists() and time.monotonic() < patience:
        time.sleep(0.05)
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


def end_connections(dsn: str) -> None:
    ask(
        dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def test_a_row_takes_no_more_than_it_says_and_says_no_more_than_is_taken(dsn: str) -> None:
    zeros = bytes(16 * 1024 * 1024)
    tip, objects = commit("head")
    with opened(dsn) as backend:
        backend.write(objects, [RefUpdate(MAIN, None, tip)])
    for size, data, error in [
        (2**31 - 1, zlib.compress(zeros), ObjectTooLarge),
        (10, zlib.compress(zeros), StoreError),
        (-1, zlib.compress(zeros), StoreError),
        (2**31 - 1, b"x", ObjectTooLarge),
    ]:
        ask(dsn, "UPDATE reactifact.objects SET size = %s, data = %s", size, data)
        with opened(dsn) as backend:
            tracemalloc.start()
            try:
                with pytest.raises(error, match=tip):
                    backend.read_many([tip])
                assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
            finally:
                tracemalloc.stop()


def test_the_limit_of_an_object_can_be_set(dsn: str) -> None:
    oid, item = blob(bytes(100_000))
    small = PostgreSQLKVBackend(dsn, max_object=99_999)
    with pytest.raises(ObjectTooLarge, match=oid):
        small.write({oid: item})
    large = PostgreSQLKVBackend(dsn, max_object=100_000)
    large.write({oid: item})
    assert large.read_many([oid]) == {oid: item}
    with pytest.raises(ObjectTooLarge, match=oid):
        small.read_many([oid])
    small.close()
    large.close()


def test_threads_of_one_backend_that_queue_up_at_once_are_all_served_in_order(dsn: str) -> None:
    gate, joined = threading.Barrier(12), threading.Barrier(12)
    numbers: list[int] = []
    served: list[int] = []
    with opened(dsn) as backend:

        def wait_in_turn(_: int) -> None:
            gate.wait()
            ticket = backend.queue("x").join()
            assert isinstance(ticket, AdvisoryTicket)
            numbers.append(ticket._ticket)
            joined.wait()
            while not ticket.is_first():
                time.sleep(0.001)
            with backend.lock("x"):
                served.append(ticket._ticket)
            ticket.leave()

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(wait_in_turn, range(12)))
    assert sorted(numbers) == sorted(set(numbers)) == served


@pytest.mark.anyio
async def test_twenty_writers_of_one_session_are_served_one_after_another(dsn: str) -> None:
    store = SessionStore(dsn, durability="os")
    served: list[int] = []

    async def write(number: int) -> None:
        async with await store.open("s", wait=20.0):
            served.append(number)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(write, number)
    assert sorted(served) == list(range(20))
    await store.aclose()
