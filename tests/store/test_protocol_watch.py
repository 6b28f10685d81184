"""Watches of refs: what they tell, what an idle look costs, and when the log or the server goes."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stores import place_of

from reactifact import SessionStore
from reactifact._store._backends.git import refs as git_refs
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.objects import GitObject, Oid, object_id
from reactifact._store.protocol import ObjectBackend, RefUpdate, RefWatch, WatchesRefs
from reactifact.errors import StoreError
from reactifact.testing.conformance import put

DURABLE = ["git", "sqlite", "postgres"]
Opener = Callable[[], ObjectBackend]


@pytest.fixture(params=DURABLE)
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """What opens one store anew each time, as another process does."""
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    place = place_of(request.param, tmp_path, dsn)
    return lambda: SessionStore(place, durability="os").database.backend


def watch_of(backend: ObjectBackend) -> RefWatch:
    assert isinstance(backend, WatchesRefs)
    return backend.watch_refs()


def told(watch: RefWatch, name: str) -> bool:
    """Wait for a server to tell, and say whether a ref may have moved."""
    if watch.fileno() >= 0:
        select.select([watch.fileno()], [], [], 30)
    moved = watch.moved()
    return moved is None or name in moved


def test_a_move_is_told_once_whoever_made_it(another: Opener) -> None:
    mine, theirs = another(), another()
    watch = watch_of(mine)
    assert watch.moved() == set()
    for backend, name in ((mine, "refs/heads/s/main"), (theirs, "refs/heads/t/main")):
        tip = put(backend, name, "first")
        assert told(watch, name)
        assert watch.moved() == set()
        backend.write({}, [RefUpdate(name, tip, None)])
        assert told(watch, name)
    assert watch.moved() == set()
    watch.close()
    for backend in (mine, theirs):
        backend.close()


def test_objects_alone_are_no_move_of_a_ref(postgres_dsn: str, tmp_path: Path) -> None:
    data = GitObject("blob", b"alone")
    for place in (tmp_path / "s.git", postgres_dsn):
        backend = SessionStore(place, durability="os").database.backend
        watch = watch_of(backend)
        backend.write({object_id("blob", b"alone"): data})
        assert watch.moved() == set()
        watch.close()
        backend.close()


def test_an_idle_look_costs_one_call_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = GitBackend(tmp_path / "s.git", durability="os")
    for number in range(50):
        put(backend, f"refs/heads/s{number}/main", "first")
    watch = watch_of(backend)
    calls: list[str] = []
    for name in ("open", "stat", "lstat", "fstat", "scandir", "listdir", "read", "pread", "close", "access"):
        real: Any = getattr(os, name)

        def counted(*args: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            calls.append(name)
            return real(*args, **options)

        monkeypatch.setattr(os, name, counted)
    for _ in range(10):
        assert watch.moved() == set()
    assert calls == ["fstat"] * 10
    monkeypatch.undo()
    watch.close()


def test_an_idle_look_at_sqlite_is_one_statement_that_reads_no_table(tmp_path: Path) -> None:
    backend = SessionStore(tmp_path / "s.db", durability="os").database.backend
    watch: Any = watch_of(backend)
    statements: list[str] = []
    watch._connection.set_trace_callback(statements.append)
    for _ in range(10):
        assert watch.moved() == set()
    assert statements == ["PRAGMA data_version"] * 10
    watch.close()
    backend.close()


def test_an_idle_look_at_postgres_is_not_a_statement(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SessionStore(postgres_dsn, durability="os").database.backend
    watch = watch_of(backend)

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a statement was sent")

    monkeypatch.setattr(psycopg.Connection, "execute", refuse)
    monkeypatch.setattr(psycopg.Cursor, "execute", refuse)
    for _ in range(10):
        assert watch.moved() == set()
    monkeypatch.undo()
    watch.close()
    backend.close()


def test_a_lost_connection_is_made_again_and_all_refs_may_have_moved(postgres_dsn: str) -> None:
    backend = SessionStore(postgres_dsn, durability="os").database.backend
    watch = watch_of(backend)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            b" WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
    while watch.moved() is not None:  # the server's word of farewell comes first
        select.select([watch.fileno()], [], [], 30)
    put(backend, "refs/heads/s/main", "first")
    assert told(watch, "refs/heads/s/main")
    watch.close()
    backend.close()


def test_a_log_that_grew_too_long_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_refs, "LIMIT", 100)
    backend = GitBackend(tmp_path / "s.git", durability="os")
    path = tmp_path / "s.git" / git_refs.MOVES
    put(backend, "refs/heads/before/main", "first")
    assert not path.exists()  # nobody watches
    watch, second = watch_of(backend), watch_of(backend)
    tip: Oid | None = None
    for number in range(8):
        tip = put(backend, "refs/heads/s/main", f"{number}", tip)
    assert watch.moved() is None
    assert path.stat().st_size <= 100
    put(backend, "refs/heads/t/main", "first")
    assert watch.moved() == {"refs/heads/t/main"}
    assert second.moved() is None
    for one in (watch, second):
        one.close()


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    backend = GitBackend(tmp_path / "s.git", durability="os")
    watch = watch_of(backend)
    with open(tmp_path / "s.git" / git_refs.MOVES, "ab", buffering=0) as log:
        log.write(b"refs/heads/a/main\nrefs/he")
        assert watch.moved() == {"refs/heads/a/main"}
        assert watch.moved() == set()
        log.write(b"ads/b/main\n")
        assert watch.moved() == {"refs/heads/b/main"}
    watch.close()


def test_a_log_behind_a_link_is_neither_read_nor_written(tmp_path: Path) -> None:
    backend = GitBackend(tmp_path / "s.git", durability="os")
    assert backend.repository.is_bare
    outside = tmp_path / "outside"
    outside.write_text("")
    (tmp_path / "s.git/reactifact").mkdir(exist_ok=True)
    (tmp_path / "s.git" / git_refs.MOVES).symlink_to(outside)
    put(backend, "refs/heads/s/main", "first")  # the hint is lost, the write is not
    assert outside.read_text() == ""
    with pytest.raises(StoreError, match="link"):
        watch_of(backend)
