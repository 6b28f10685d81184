"""`SQLiteKVBackend`: what a SQLite file is beyond any other store."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from building import MAIN, blob, put
from pydantic import BaseModel
from sql_suite import SQLSuite, finish, opened, start

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact._store._backends.sql import sqlite as sqlite_file
from reactifact._store.objects import Oid
from reactifact._store.protocol import Pruned
from reactifact.checkpoints import AppendBackend, KVBackend, SQLiteKVBackend
from reactifact.errors import FormatTooNew, MissingObject, NotAStore, StoreBusy, StoreError


class Note(BaseModel):
    text: str


def change(path: Path | str, statement: str, *values: object) -> None:
    """Change a file as another program would."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


_FOLDING = """
import fcntl, sys
with open(sys.argv[1], "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)  # SQLite's lock of who folds the log
    print("held", flush=True)
    sys.stdin.read()
"""


class TestSQLite(SQLSuite):
    to_version_1 = "PRAGMA user_version = 1"

    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "state.db")

    def stored_bytes(self, place: str, oid: Oid) -> int:
        connection = sqlite3.connect(place)
        row = connection.execute("SELECT length(data) FROM objects WHERE oid = ?", (bytes.fromhex(oid),))
        size = int(row.fetchone()[0])
        connection.close()
        return size

    def damage(self, place: str, oid: Oid) -> None:
        change(place, "UPDATE objects SET data = ? WHERE oid = ?", b"otherwise", bytes.fromhex(oid))

    def ask(self, place: str, statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(place)
        with connection:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_it_is_both_kinds_of_backend(path: Path) -> None:
    backend = SQLiteKVBackend(path)
    assert isinstance(backend, KVBackend)
    assert isinstance(backend, AppendBackend)
    assert backend.location == str(path)
    backend.close()


@pytest.mark.parametrize("name", ["x.db", "x.sqlite", "x.sqlite3"])
def test_a_path_is_sqlite_by_its_suffix(tmp_path: Path, name: str) -> None:
    with opened(str(tmp_path / name)) as backend:
        assert isinstance(backend, SQLiteKVBackend)
    assert SessionStore(tmp_path / name).database.backend.location == str(tmp_path / name)


@pytest.mark.parametrize("name", ["100%.db", "what?.db", "a#b.db", "näme .db", "file:x.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    with opened(str(tmp_path / name)) as backend:
        oid = put(backend, MAIN, "one")
    assert name in os.listdir(tmp_path)
    with opened(str(tmp_path / name), read_only=True) as backend:
        assert backend.refs() == {MAIN: oid}


def test_eight_instances_make_one_new_file_at_once(path: Path) -> None:
    def write(number: int) -> None:
        backend = SQLiteKVBackend(path)
        for i in range(10):
            anyio.run(backend.set, f"{number}.{i}", {"number": number})
        backend.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    backend = SQLiteKVBackend(path)
    assert anyio.run(backend.keys) == sorted(f"{n}.{i}" for n in range(8) for i in range(10))
    backend.close()


def test_a_new_file_is_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(10):
        gate = threading.Barrier(8)

        def open_it(_: int, gate: threading.Barrier = gate, path: Path = tmp_path / f"{number}.db") -> None:
            gate.wait()
            backend = SQLiteKVBackend(path)
            put(backend, f"refs/heads/s/{threading.get_ident()}", "one")
            backend.close()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(open_it, range(8)))


def test_nothing_is_made_before_the_first_write(path: Path, tmp_path: Path) -> None:
    with opened(str(path)) as backend, opened(str(path)) as other:
        assert isinstance(backend, SQLiteKVBackend)
        assert backend.refs() == {}
        with pytest.raises(MissingObject):
            backend.read_many(["1" * 40])
        assert anyio.run(backend.get, "key") is None
        assert anyio.run(backend.keys) == []
        backend.write({})
        backend.close()
        assert os.listdir(tmp_path) == []
        oid = put(other, MAIN, "one")
        assert backend.refs() == {MAIN: oid}
    for number in range(2):
        with opened(str(tmp_path / f"{number}.db")) as backend:
            if number:
                backend.queue("x").join().leave()
            with backend.lock("x"):
                assert (tmp_path / f"{number}.db").stat().st_size


@pytest.mark.parametrize("full", [True, False])
def test_durability_is_what_sqlite_is_told(path: Path, full: bool) -> None:
    backend = SQLiteKVBackend(path, durability="full" if full else "os")
    put(backend, MAIN, "one")
    with backend._file.reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2 if full else 1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    backend.close()


def test_one_file_is_the_whole_store(path: Path, tmp_path: Path) -> None:
    with opened(str(path)) as backend:
        oid = put(backend, MAIN, "one")
    with opened(str(path), read_only=True) as backend:
        assert backend.refs() == {MAIN: oid}
    assert os.listdir(tmp_path) == ["state.db"]
    shutil.copy(path, tmp_path / "copy.db")
    with opened(str(tmp_path / "copy.db")) as backend:
        assert backend.refs() == {MAIN: oid}


@pytest.mark.parametrize("column", ["data", "kind", "size"])
@pytest.mark.parametrize("value", ["a text", 7, 0.5])
def test_a_row_of_another_type_is_damage_that_names_its_object(path: Path, column: str, value: Any) -> None:
    backend = SQLiteKVBackend(path)
    oid, item = blob(b"as it was")
    backend.write({oid: item})
    change(path, f"UPDATE objects SET {column} = ?", value)
    with pytest.raises(StoreError, match=f"{oid}.*damaged"):
        backend.read_many([oid])


@pytest.mark.parametrize("value", [7, b"no json", b"{}", b"[]"])
def test_a_value_of_another_form_is_damage(path: Path, value: Any) -> None:
    async def main() -> None:
        backend = SQLiteKVBackend(path)
        await backend.set("k", {"a": 1})
        change(path, "UPDATE kv SET value = ?", value)
        with pytest.raises(StoreError, match="table kv is damaged"):
            await backend.get("k")
        with pytest.raises(StoreError, match="table kv is damaged"):
            await backend.keys()
        await backend.set("k", {"a": 2})
        assert await backend.get("k") == {"a": 2}
        await backend.aclose()

    anyio.run(main)


def test_it_can_be_used_again_after_it_was_closed(path: Path) -> None:
    with opened(str(path)) as backend:
        oid = put(backend, MAIN, "one")
        backend.close()
        assert backend.refs() == {MAIN: oid}


def test_a_forked_child_leaves_the_connections_alone(path: Path) -> None:
    program = (
        "import os, sys; from building import put, MAIN\n"
        "from reactifact.checkpoints import SQLiteKVBackend\n"
        "backend = SQLiteKVBackend(sys.argv[1]); first = put(backend, MAIN, 'one')\n"
        "child = os.fork()\n"
        "second = put(backend, MAIN, 'two', first) if not child else None\n"
        "backend.close() if not child else os.waitpid(child, 0)\n"
        "if child: print(len(backend.refs()), backend.refs()[MAIN] != first); backend.close()\n"
    )
    tests = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, path],
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("1 True\n", "")


class TestWhatIsNoStore:
    def test_missing_folders_are_not_made(self, tmp_path: Path) -> None:
        with pytest.raises(NotAStore, match=r"no folder .*missing"):
            SQLiteKVBackend(tmp_path / "missing" / "state.db")
        assert os.listdir(tmp_path) == []

    def test_a_folder(self, path: Path) -> None:
        path.mkdir()
        with pytest.raises(NotAStore, match="is a folder"):
            SQLiteKVBackend(path)

    def test_a_missing_file_that_is_not_to_be_made(self, path: Path) -> None:
        for options in ({"create": False}, {"read_only": True}):
            with pytest.raises(NotAStore, match=r"state\.db is not there"):
                open_database(path, **options)
        assert not path.exists()

    def test_another_file(self, path: Path) -> None:
        path.write_text("no database at all, but long enough to be looked at as one" * 20)
        with pytest.raises(NotAStore, match="no SQLite database"):
            SQLiteKVBackend(path)

    @pytest.mark.parametrize("read_only", [True, False])
    def test_rows_of_an_earlier_version_are_never_an_empty_store(self, path: Path, read_only: bool) -> None:
        change(path, "CREATE TABLE sessions (key TEXT PRIMARY KEY, value TEXT)")
        change(path, "INSERT INTO sessions VALUES ('user-1', '{}')")
        before = path.read_bytes()
        with pytest.raises(NotAStore, match="reactifact import"):
            open_database(path, read_only=read_only)
        assert path.read_bytes() == before

    def test_a_store_of_a_later_version(self, path: Path) -> None:
        with opened(str(path)) as backend:
            put(backend, MAIN, "one")
        change(path, "PRAGMA user_version = 7")
        with pytest.raises(FormatTooNew, match="version 7"):
            SQLiteKVBackend(path)


class TestWhenTheSystemRefuses:
    def test_a_reader_that_keeps_what_was_removed_in_the_log(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.1)
        with opened(str(path)) as backend:
            oid, item = blob(b"loose")
            backend.write({oid: item})
            reader = sqlite3.connect(path, isolation_level=None)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM objects").fetchone()
            with pytest.raises(StoreBusy, match=r"-wal file still holds.*try again"):
                backend.prune(grace=0, rewrite=True)
            reader.execute("COMMIT")
            reader.close()
            assert backend.prune(grace=0, rewrite=True) == Pruned(0, 0, 0)

    def test_a_rewrite_waits_for_another_process_that_folds_the_log(self, path: Path) -> None:
        with opened(str(path)) as backend:
            put(backend, MAIN, "one")
            command = [sys.executable, "-c", _FOLDING, f"{path}-shm"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as folding:
                assert folding.stdin is not None
                assert folding.stdout is not None
                assert folding.stdout.readline() == b"held\n"
                timer = threading.Timer(0.3, folding.stdin.close)
                timer.start()
                backend.prune(grace=0, rewrite=True)
                timer.join()
            assert os.path.getsize(f"{path}-wal") == 0
            assert not (path.parent / "state.db-wal").read_bytes()

    def test_a_full_disk(self, path: Path) -> None:
        with opened(str(path)) as backend:
            old = put(backend, MAIN, "one")
            with backend._file.reading() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                connection.execute(f"PRAGMA max_page_count = {pages + 10}")
            with pytest.raises(StoreError, match=r"state\.db failed.*free some space"):
                backend.write(dict([blob(os.urandom(1_000_000))]))
            assert backend.refs() == {MAIN: old}
            put(backend, MAIN, "two", old)

    def test_a_file_that_may_not_grow(self, path: Path) -> None:
        with opened(str(path)) as backend:
            put(backend, MAIN, "one")
        said = finish(start("fill", path, 200_000))
        assert "state.db failed" in said
        assert said.count("\n") == 1
        with opened(str(path)) as backend:
            assert put(backend, MAIN, "two", backend.refs()[MAIN])

    def test_a_folder_that_may_only_be_read(self, open_place: Path) -> None:
        folder = open_place / "folder"
        folder.mkdir()
        path = folder / "state.db"
        with opened(str(path)) as backend:
            put(backend, MAIN, "one")
        path.chmod(0o444)
        folder.chmod(0o555)
        assert MAIN in run_unprivileged(path, "open_database(place, read_only=True).backend.refs()")
        said = run_unprivileged(path, "open_database(place)")
        assert "StoreError" in said
        assert "state.db cannot be opened for writing" in said
        said = run_unprivileged(path, "open_database(place, create=False).backend.write(*something)")
        assert "StoreError" in said
        assert "give this user write permission" in said


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that another user may read: each start of pytest closes the parent of its own to others."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        if os.geteuid() == 0:
            for parent in [*place.parents][:-1]:
                parent.chmod(parent.stat().st_mode | 0o055)
        yield place


def run_unprivileged(path: Path, expression: str) -> str:
    """Evaluate an expression as a user who may not write everywhere, and return the result or error."""
    program = (
        "import os, sqlite3, sys; from reactifact._sessions.stores import open_database\n"
        "import reactifact._store._backends.sql.sqlite\n"
        "from reactifact._store.objects import GitObject, object_id\n"
        "from building import blob\n"
        "place, something = sys.argv[1], (dict([blob(b'x')]),)\n"
        "os.getuid() or (os.setgroups([]), os.setgid(65534), os.setuid(65534))\n"
        f"try: print({expression})\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    tests = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _removed(path: Path) -> None:
    path.unlink()


def _replaced(path: Path) -> None:
    """Put a copy in the place of a file, as a backup is restored."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    os.replace(copy, path)


def _restored(path: Path) -> None:
    """Restore a backup as the manual of SQLite says: a new file, and no log beside it."""
    backup = path.with_name("backup.db")
    source, target = sqlite3.connect(path), sqlite3.connect(backup)
    source.backup(target)
    target.close()
    source.close()
    os.replace(backup, path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class TestFilesThatAreTakenAwayWhileTheyAreOpen:
    """SQLite itself goes on with what it has open: the writes succeed, and are gone."""

    @pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
    @pytest.mark.parametrize("do", [_removed, _replaced])
    @pytest.mark.parametrize("verb", ["write", "read"])
    def test_the_next_call_names_the_file(self, path: Path, suffix: str, do: Any, verb: str) -> None:
        backend = SQLiteKVBackend(path)
        put(backend, MAIN, "one")
        do(path.with_name(path.name + suffix))
        what = "was removed" if do is _removed else "was replaced by another file"
        with pytest.raises(StoreError, match=rf"{path.name}{suffix} {what} while .*open it anew"):
            backend.refs() if verb == "read" else put(backend, MAIN, "two")
        backend.close()

    def test_a_backup_that_is_restored_under_a_session_ends_its_turns(self, path: Path) -> None:
        async def main() -> None:
            store = SessionStore(path)
            session = await store.open("s")
            session.context.create(Note(text="kept"), id="kept")
            await session.save()
            _restored(path)
            session.context.create(Note(text="refused"), id="refused")
            with pytest.raises(StoreError, match="was replaced by another file"):
                await session.save()
            again = await SessionStore(path).open("s")
            assert [artifact.id for artifact in again.context.list_artifacts()] == ["kept"]

        anyio.run(main)

    def test_a_write_during_which_the_file_goes_is_not_acknowledged(self, path: Path) -> None:
        backend = SQLiteKVBackend(path)
        one = put(backend, MAIN, "one")
        backend.fault = lambda step: path.unlink() if step == "refs moved" else None
        with pytest.raises(StoreError, match="was removed while"):
            put(backend, MAIN, "two", one)
        backend.close()

    def test_what_another_process_does_by_itself_is_no_trouble(self, path: Path) -> None:
        """The last connection of a process takes the log away, but not from under one that is open."""
        backend = SQLiteKVBackend(path)
        one = put(backend, MAIN, "one")
        with opened(str(path)) as other:
            two = put(other, MAIN, "two", one)
        assert backend.refs() == {MAIN: two}
        backend.close()
        with opened(str(path)) as other:
            three = put(other, MAIN, "three", two)
        assert not path.with_name(path.name + "-wal").exists()
        assert backend.refs() == {MAIN: three}  # opened again: another log by now
        put(backend, MAIN, "four", three)
        backend.close()
