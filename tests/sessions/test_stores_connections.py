"""A store that cannot be opened leaves no connection behind, whatever its opening failed of."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from building import MAIN, commit

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store._backends.sql import postgres_connection
from reactifact._store._backends.sql.postgres_connection import Listener, Server
from reactifact._store._backends.sql.sqlite import FileWatch
from reactifact._store.protocol import RefUpdate
from reactifact.branching import BranchStore
from reactifact.checkpoints import PostgreSQLKVBackend, SQLiteKVBackend
from reactifact.errors import FormatTooNew, StoreError


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections that are made from now on."""
    found: list[Any] = []
    for module in (psycopg, sqlite3):
        connect = module.connect

        def noted(*args: Any, connect: Callable[..., Any] = connect, **options: Any) -> Any:
            found.append(connect(*args, **options))
            return found[-1]

        monkeypatch.setattr(module, "connect", noted)
    return found


def is_open(connection: Any) -> bool:
    if isinstance(connection, psycopg.Connection):
        return not connection.closed
    try:
        return bool(connection.total_changes >= 0)
    except sqlite3.ProgrammingError:
        return False


def fill(backend: Any) -> None:
    tip, objects = commit("head")
    backend.write(objects, [RefUpdate(MAIN, None, tip)])
    backend.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    fill(SQLiteKVBackend(tmp_path / "s.db"))
    return tmp_path / "s.db"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("PRAGMA user_version = 99", FormatTooNew),
        ("PRAGMA application_id = 5", StoreError),
        ("DELETE FROM prunes", StoreError),
        ("DROP TABLE prunes", StoreError),
        ("DROP TABLE refs", StoreError),
    ],
)
def test_a_damaged_file(file: Path, statement: str, error: type[StoreError], made: list[Any]) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement)
    made.clear()
    with pytest.raises(error) as raised:
        open_database(file)
    assert made
    assert not any(map(is_open, made)), raised  # which keeps alive what was made


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE format SET version = 99", FormatTooNew),
        ("DELETE FROM prunes", StoreError),
        ("DROP TABLE refs", StoreError),
        ("ALTER TABLE refs RENAME COLUMN name TO called", StoreError),
    ],
)
def test_a_damaged_schema(
    postgres_dsn: str, statement: str, error: type[StoreError], made: list[Any]
) -> None:
    fill(PostgreSQLKVBackend(postgres_dsn))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(b"SET search_path TO reactifact")
        connection.execute(statement.encode())
    made.clear()
    with pytest.raises(error) as raised:
        open_database(postgres_dsn)
    assert made
    assert not any(map(is_open, made)), raised


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_erasure_that_cannot_be_finished(
    kind: str, file: Path, request: pytest.FixtureRequest, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = request.getfixturevalue("postgres_dsn") if kind == "postgres" else file

    def broken(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reactifact._sessions.stores.scan_refs", broken)
    with pytest.raises(KeyboardInterrupt):
        open_database(store)
    assert made
    assert not any(map(is_open, made))


@pytest.mark.parametrize("kind", [SessionStore, BranchStore])
def test_options_that_are_refused(kind: Any, file: Path, made: list[Any]) -> None:
    with pytest.raises(ValueError, match="compact_every=0") as raised:
        kind(file, compact_every=0)
    assert not any(map(is_open, made)), raised


def test_globs_that_are_refused(file: Path, made: list[Any]) -> None:
    with pytest.raises(TypeError, match="protected=") as raised:
        BranchStore(file, protected="*/main")
    assert not any(map(is_open, made)), raised


def test_a_watch_that_cannot_begin(
    file: Path, postgres_dsn: str, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> int:
        raise KeyboardInterrupt

    backend = SQLiteKVBackend(file)
    monkeypatch.setattr(FileWatch, "_version", broken)
    made.clear()
    with pytest.raises(KeyboardInterrupt):
        backend.watch_refs()
    assert made
    assert not any(map(is_open, made))
    backend.close()
    server = Server(postgres_dsn, sync=False, read_only=False)
    made.clear()
    monkeypatch.setattr(postgres_connection.psycopg.Connection, "execute", broken)
    with pytest.raises(KeyboardInterrupt):
        Listener(server, "moved")
    assert made
    assert not any(map(is_open, made))
