"""What can go wrong around a store: one clear error, nothing lost, and the store opens afterwards.

Each `test_row_...` is a row of the tables in `docs/stores.md`, and its docstring is what the row says. What
must hold whatever happens stands in `failure_scenario`, disks and other users in `failure_lab`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import forked
import psycopg
import pytest
from failure_scenario import CASES, SESSION, Continuation, Point, Shop, World, run
from postgres_server import PostgresServer
from power_cut_lab import UNAVAILABLE
from stores import place_of
from support import action, fsck, git

from reactifact import SessionStore
from reactifact._store._backends.git import packed_refs as lockfile
from reactifact._store._backends.sql import postgres_connection as postgres_server
from reactifact._store._backends.sql import sqlite as sqlite_file
from reactifact.errors import FormatTooNew, NotAStore, ReactifactError, SessionBusy, StoreBusy, StoreError

LAB = Path(__file__).with_name("failure_lab.py")
CHILD = Path(__file__).with_name("failure_child.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
needs_mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a disk of the test's own needs Linux, root, and the packages e2fsprogs, mount, util-linux",
)
in_every_case = pytest.mark.parametrize(("point", "continuation"), CASES)
on_files = pytest.mark.parametrize("kind", ["git", "sqlite"])
on_all = pytest.mark.parametrize("kind", ["git", "sqlite", "postgres"])


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return place_of(kind, tmp_path, request.getfixturevalue("postgres_dsn") if kind == "postgres" else None)


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, for tests that stop it; it runs again afterwards."""
    yield postgres
    if not postgres.is_running():
        postgres.start()


def environment(folder: Path | str) -> dict[str, str]:
    """Return the environment of a child whose home is `folder`."""
    return {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def refused(error: BaseException | None, kind: type[ReactifactError], *words: str) -> None:
    """Check that an error is of a kind, is one line, and says what is asked for."""
    assert type(error) is kind, repr(error)
    text = str(error)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def refuses(place: Any, kind: type[ReactifactError], *words: str) -> None:
    """Check that a store is not opened, and why."""

    async def attempt() -> None:
        store = SessionStore(place)
        try:
            await store.open(SESSION)
        finally:
            await store.aclose()

    with pytest.raises(ReactifactError) as caught:
        anyio.run(attempt)
    refused(caught.value, kind, *words)


def trade(place: Any, number: int = 1) -> None:
    """Take an order and deliver its action, as one process after another would."""

    async def work() -> None:
        world = World()
        shop = await Shop.open(place, world)
        await shop.order(number)
        assert action(shop.context, f"notify:order:{number}").status == "dispatched"
        assert world.sent == [f"notify:order:{number}"]
        await shop.close()

    anyio.run(work)


def ask(dsn: str, *statements: str) -> list[Any]:
    """Look into, or change, a database as another program would; returns the rows of the last."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows: list[Any] = []
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
        return rows


def met_in_the_lab(fault: str, kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Run the lab; return what each point and continuation met, after all that must hold held."""
    folder = tempfile.mkdtemp(prefix="reactifact-lab-")  # pytest's own are closed to other users
    os.chmod(folder, 0o755)
    command = [sys.executable, "-W", "error", str(LAB), fault, kind, folder]
    if fault != "denied":
        command = ["unshare", "--mount", *command]
    try:
        done = subprocess.run(
            command, env=environment(folder), capture_output=True, text=True, check=False, timeout=120
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    found = {(met["point"], met["continuation"]): met for met in json.loads(done.stdout)}
    assert len(found) == 1 + len(CASES)
    return found


# -- rows: the disk and the rights on it ----------------------------------------------------------


@needs_mounts
@on_files
def test_row_disk_full(kind: str) -> None:
    """the disk is full → `StoreError` "No space left" or "disk is full": free some space, then go on"""
    for met in met_in_the_lab("full", kind).values():
        assert met["error"] == "StoreError"
        assert "STORE failed: " in met["text"]
        assert "No space left on device" in met["text"] or "disk is full" in met["text"]
        assert "free some space" in met["text"]


@needs_mounts
@on_files
def test_row_disk_read_only(kind: str) -> None:
    """the disk has become read-only → `StoreError` "Read-only file system": mount it writable, then go on"""
    for met in met_in_the_lab("read-only", kind).values():
        assert met["error"] == "StoreError"
        assert "STORE" in met["text"]
        assert "Read-only file system" in met["text"]
        assert "mount the file system writable" in met["text"]


@on_files
def test_row_permission_denied(kind: str) -> None:
    """this user may not write there → `StoreError` "Permission denied": give permission, then go on"""
    for (point, _), met in met_in_the_lab("denied", kind).items():
        if kind == "sqlite" and point == "ledger":
            assert met["error"] is None, "files that are open already stay writable"
            continue
        assert met["error"] == "StoreError"
        assert "STORE" in met["text"]
        assert "Permission denied" in met["text"]
        assert "give this user write permission" in met["text"]


class Refusing:
    """A server that answers every insert of an object with an error of its own."""

    def __init__(self, dsn: str, code: str, text: str) -> None:
        self._dsn = dsn
        self._function = (
            "CREATE OR REPLACE FUNCTION reactifact.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{text}' USING ERRCODE = '{code}'; END $$"
        )

    def strike(self) -> None:
        trigger = "BEFORE INSERT ON reactifact.objects EXECUTE FUNCTION reactifact.refuse()"
        ask(self._dsn, self._function, f"CREATE TRIGGER refuse {trigger}")

    def lift(self) -> None:
        ask(self._dsn, "DROP TRIGGER refuse ON reactifact.objects")


@in_every_case
def test_row_server_disk_full(postgres_dsn: str, point: Point, continuation: Continuation) -> None:
    """the disk of the server is full → `StoreError` "No space left": free some space there, then go on"""
    fault = Refusing(postgres_dsn, "53100", "could not extend file: No space left on device")
    error = run(postgres_dsn, fault, point, continuation)
    refused(
        error, StoreError, "writing to postgresql://", "No space left on device", "free some space on the"
    )


class Standby:
    """The server has become a standby, as after a failover: it answers, and only reads."""

    def __init__(self, server: PostgresServer, dsn: str) -> None:
        self._server = server
        self._signal = Path(ask(dsn, "SHOW data_directory")[0][0]) / "standby.signal"

    def strike(self) -> None:
        self._server.stop()
        self._signal.touch()
        self._server.start()

    def lift(self) -> None:
        self._signal.unlink()
        self._server.stop()
        self._server.start()


@pytest.mark.parametrize(
    ("point", "continuation"), [("opening", "anew"), ("turn", "same"), ("ledger", "same"), ("ledger", "anew")]
)
def test_row_server_only_reads(
    server: PostgresServer, postgres_dsn: str, point: Point, continuation: Continuation
) -> None:
    """the server only reads, after a failover → `StoreError` "read-only transaction": write to the primary"""
    error = run(postgres_dsn, Standby(server, postgres_dsn), point, continuation)
    refused(error, StoreError, "postgresql://", "read-only transaction", "write to the primary")


class Revoked:
    """The role may no longer change the tables."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.dsn = owner.replace("tester:secret", "clerk")
        database = owner.rpartition("/")[2]
        ask(owner, "DROP OWNED BY clerk") if ask(owner, _ROLE) else ask(owner, "CREATE ROLE clerk LOGIN")
        ask(owner, f"GRANT CREATE ON DATABASE {database} TO clerk")

    def strike(self) -> None:
        ask(self._owner, "REVOKE INSERT, UPDATE ON ALL TABLES IN SCHEMA reactifact FROM clerk")

    def lift(self) -> None:
        ask(self._owner, "GRANT ALL ON ALL TABLES IN SCHEMA reactifact TO clerk")


_ROLE = "SELECT 1 FROM pg_roles WHERE rolname = 'clerk'"


@in_every_case
def test_row_role_without_rights(postgres_dsn: str, point: Point, continuation: Continuation) -> None:
    """the role may not write the tables → `StoreError` "permission denied": grant it the right, then go on"""
    fault = Revoked(postgres_dsn)
    error = run(fault.dsn, fault, point, continuation)
    ask(postgres_dsn, "DROP OWNED BY clerk")
    refused(
        error, StoreError, "writing to postgresql://clerk@", "permission denied", "grant this user the right"
    )


# -- rows: locks ----------------------------------------------------------------------------------


@contextmanager
def child(*arguments: object) -> Iterator[forked.Process]:
    """Run the child for the length of a `with`, from the moment at which it is ready; then kill it."""
    paths = os.pathsep.join(filter(None, sys.path))
    process = forked.start(CHILD, *arguments, env={**os.environ, "PYTHONPATH": paths})
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


async def until_free(place: Any) -> None:
    """Wait as the error says: a server gives a lock back when it notices that its holder was killed."""
    session = await SessionStore(place).open(SESSION, wait=10)
    await session.aclose()
    await session.store.aclose()


def during(place: Any, other: AbstractContextManager[Any], kind: type[ReactifactError]) -> str:
    """Take an order while somebody else is at it, and again afterwards; return the error's text."""

    async def work() -> str:
        world, text = World(), ""
        shop = await Shop.open(place, world)
        await shop.order(1)
        with other:
            try:
                await shop.order(2)
            except kind as error:
                text = str(error)
        assert text, f"{kind.__name__} was not raised"
        await until_free(place)
        await shop.runtime.arun()
        assert world.sent == ["notify:order:1", "notify:order:2"]
        await shop.close()
        return text

    text = anyio.run(work)
    trade(place, 3)
    return text


@on_all
def test_row_session_locked(kind: str, place: Any) -> None:
    """another process runs the session → `SessionBusy` naming it: wait (`open(..., wait=)`), or end it"""
    trade(place, 0)
    with child("hold", place) as other:
        refuses_to_run = pytest.raises(
            SessionBusy, match=rf"{SESSION}/main.*process {other.pid}.*end that process"
        )
        with refuses_to_run:
            trade(place)

        async def queue_up() -> None:
            await SessionStore(place).open(SESSION, wait=0.02)

        with refuses_to_run:
            anyio.run(queue_up)
    anyio.run(until_free, place)
    text = during(place, child("hold", place), SessionBusy)
    assert "is held by process" in text
    if kind == "git":
        fsck(place)


def test_row_ref_lock_left_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a killed git left `main.lock` in `refs/heads` → `StoreBusy` after ten seconds: remove that file"""
    monkeypatch.setattr(lockfile, "LOCK_WAIT", 0.05)
    place = tmp_path / "state.git"
    trade(place)
    lock = next((place / "refs/heads").rglob("main")).with_name("main.lock")
    lock.touch()
    with pytest.raises(StoreBusy, match=r"main.lock is held by another program.*remove that file"):
        trade(place, 2)
    assert lock.exists()
    lock.unlink()
    trade(place, 2)
    fsck(place)


def test_row_ref_lock_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a process was suspended while it moves a ref → `StoreBusy` after ten seconds: wake it or end it"""
    monkeypatch.setattr(lockfile, "LOCK_WAIT", 0.05)
    place = tmp_path / "state.git"
    text = during(place, child("stop", place), StoreBusy)
    assert "refs under refs/heads/user%2f7 in" in text.lower()
    assert str(place) in text
    assert "see what holds them up, then retry" in text
    fsck(place)


@contextmanager
def exclusive(place: Path) -> Iterator[None]:
    connection = sqlite3.connect(place, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()


def test_row_database_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """another program keeps the SQLite file locked → `StoreBusy` after a minute: end its transaction"""
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.05)
    place = tmp_path / "state.db"
    text = during(place, exclusive(place), StoreBusy)
    assert f"writing to {place} failed: database is locked" in text
    assert "see what holds them up, then try again" in text


@contextmanager
def holding_rows(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn) as connection:
        connection.execute(b"SELECT * FROM reactifact.refs FOR UPDATE")
        yield


def test_row_rows_locked(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """a transaction keeps the rows on the server locked → `StoreBusy` after a minute: end it"""
    monkeypatch.setattr(postgres_server, "BUSY_SECONDS", 0.05)
    text = during(postgres_dsn, holding_rows(postgres_dsn), StoreBusy)
    assert "writing to postgresql://" in text
    assert "canceling statement due to lock timeout" in text
    assert "see in pg_stat_activity what holds them up" in text


# -- rows: the server -----------------------------------------------------------------------------


class Away:
    """The server has stopped as a crash stops it."""

    def __init__(self, server: PostgresServer) -> None:
        self.strike: Callable[[], None] = lambda: server.stop("immediate")
        self.lift: Callable[[], None] = server.start


@in_every_case
def test_row_server_away(
    server: PostgresServer, postgres_dsn: str, point: Point, continuation: Continuation
) -> None:
    """the PostgreSQL server has stopped → `StoreError` "cannot be reached": start it, then go on"""
    error = run(postgres_dsn, Away(server), point, continuation)
    refused(error, StoreError, "postgresql://tester@", "cannot be reached", "start the server")


class Restarted:
    """The server was away and is back before the next call."""

    def __init__(self, server: PostgresServer, dsn: str, how: str) -> None:
        self._server, self._dsn, self._how = server, dsn, how

    def strike(self) -> None:
        if self._how != "killed":
            self._server.stop(self._how)
            self._server.start()
            return
        # One of its processes dies: the server ends all others and recovers, as after an out-of-memory kill.
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            row = connection.execute(b"SELECT pg_backend_pid()").fetchone()
            assert row is not None
            os.kill(row[0], signal.SIGKILL)
            with suppress(psycopg.OperationalError):
                while True:
                    connection.execute(b"SELECT 1")
        while True:
            with suppress(psycopg.OperationalError):
                ask(self._dsn, "SELECT 1")
                return

    def lift(self) -> None:
        pass


@pytest.mark.parametrize(("how", "point"), [("fast", "turn"), ("immediate", "ledger"), ("killed", "turn")])
def test_row_server_restarted(server: PostgresServer, postgres_dsn: str, how: str, point: Point) -> None:
    """the server was restarted in mid-turn, or crashed and recovered → nothing: the call is repeated"""
    assert run(postgres_dsn, Restarted(server, postgres_dsn, how), point, "same") is None


# -- rows: what cannot be opened ------------------------------------------------------------------


def test_row_path_is_a_file(tmp_path: Path) -> None:
    """the path of a bare repository is a file → `NotAStore`: give the path of a folder"""
    place = tmp_path / "state"
    place.write_text("text")
    refuses(place, NotAStore, f"{place} is a file", "give the path of a folder")
    assert place.read_text() == "text"
    place.unlink()
    trade(place)


@on_files
def test_row_folder_is_no_store(kind: str, place: Path) -> None:
    """the path is a folder with other things in it → `NotAStore`: give an empty folder or another path"""
    place.mkdir()
    (place / "notes.txt").write_text("text")
    refuses(place, NotAStore, str(place), "path")
    assert os.listdir(place) == ["notes.txt"]
    shutil.rmtree(place)
    trade(place)


def test_row_folder_is_missing(tmp_path: Path) -> None:
    """the folder of a SQLite file is missing → `NotAStore`: make it, or correct the path"""
    place = tmp_path / "missing" / "state.db"
    refuses(place, NotAStore, f"{place} cannot be opened", "no folder", "make it")
    assert os.listdir(tmp_path) == []
    place.parent.mkdir()
    trade(place)


@needs_root
def test_row_another_owner(tmp_path: Path) -> None:
    """the repository belongs to another user → `NotAStore`: change its owner, or set `safe.directory`"""
    place = tmp_path / "state.git"
    trade(place)
    os.chown(place, 12345, 12345)
    refuses(place, NotAStore, f"{place} belongs to another user", "safe.directory")
    os.chown(place, 0, 0)
    trade(place, 2)
    fsck(place)


@needs_root
def test_row_home_of_another_user(tmp_path: Path) -> None:
    """`HOME` is that of another user → `StoreError` naming what cannot be read there: set `HOME`"""
    home = Path(tempfile.mkdtemp(prefix="reactifact-home-"))
    (home / "store").mkdir()
    os.chown(home / "store", 65534, 65534)
    home.chmod(0o711)
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    try:
        for own, expected in ((closed, "StoreError"), (home / "store", "opened")):
            said = subprocess.run(
                [sys.executable, str(CHILD), "as-nobody", str(home / "store/state.git")],
                env=environment(own),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            assert said.startswith(expected), said
            assert (str(closed / ".gitconfig") in said) == (own is closed)
            assert ("set HOME to a folder that this user may read" in said) == (own is closed)
    finally:
        shutil.rmtree(home)


def test_row_sha256_repository(tmp_path: Path) -> None:
    """the repository names its objects by sha256 → `NotAStore`: make a new store and import into it"""
    place = tmp_path / "state.git"
    git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", place.name)
    refuses(place, NotAStore, f"{place} is a sha256 repository", "--object-format=sha1")


def newer_state(place: Path) -> None:
    """Make a commit of a later version on top of a session, as a later reactifact would."""
    ref = git(place, "for-each-ref", "--format=%(refname)", "refs/heads/**/main").strip()
    later = git(place, "hash-object", "-w", "--stdin", text='{\n  "format_version": 99\n}\n').strip()
    lines = git(place, "ls-tree", f"{ref}:.reactifact").splitlines()
    lines = [
        f"100644 blob {later}\tformat.json" if line.endswith("\tformat.json") else line for line in lines
    ]
    inner = git(place, "mktree", text="\n".join(lines) + "\n").strip()
    top = [
        f"040000 tree {inner}\t.reactifact" if line.endswith("\t.reactifact") else line
        for line in git(place, "ls-tree", ref).splitlines()
    ]
    tree = git(place, "mktree", text="\n".join(top) + "\n").strip()
    git(place, "config", "user.name", "later")
    git(place, "config", "user.email", "later@invalid")
    message = git(place, "log", "-1", "--format=%B", ref)
    git(place, "update-ref", ref, git(place, "commit-tree", "-p", ref, "-F", "-", tree, text=message).strip())


@on_all
def test_row_newer_format(kind: str, place: Any) -> None:
    """a later reactifact wrote the store → `FormatTooNew`: upgrade reactifact"""
    trade(place)
    if kind == "git":
        tip = git(place, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/**/main").split()
        newer_state(place)
        refuses(place, FormatTooNew, f"{tip[0]} in {place}", "format_version 99", "newer reactifact")
        git(place, "update-ref", *tip)
    elif kind == "sqlite":
        known = change(place, "PRAGMA user_version")[0][0]
        change(place, "PRAGMA user_version = 99")
        refuses(place, FormatTooNew, str(place), "version 99", "upgrade reactifact")
        change(place, f"PRAGMA user_version = {known}")
    else:
        known = ask(place, "SELECT version FROM reactifact.format")[0][0]
        ask(place, "UPDATE reactifact.format SET version = 99")
        refuses(place, FormatTooNew, "postgresql://tester@", "version 99", "upgrade reactifact")
        ask(place, f"UPDATE reactifact.format SET version = {known}")
    trade(place, 2)


def change(place: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(place)
    with connection:
        rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def test_row_no_database(tmp_path: Path) -> None:
    """the SQLite file is not a database → `NotAStore`: choose another path"""
    place = tmp_path / "state.db"
    text = "no database at all, but long enough to be looked at as one" * 20
    place.write_text(text)
    refuses(place, NotAStore, f"{place} is no SQLite database", "choose another path")
    assert place.read_text() == text


def test_row_password_wrong(postgres_dsn: str) -> None:
    """the server refuses password, role or database → `StoreError` with its words: correct the DSN"""
    ask(postgres_dsn, "DROP ROLE IF EXISTS guarded", "CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules = Path(ask(postgres_dsn, "SHOW hba_file")[0][0])
    before = rules.read_text()
    try:
        rules.write_text(f"host all guarded all scram-sha-256\n{before}")
        ask(postgres_dsn, "SELECT pg_reload_conf()")
        for wrong, said in (
            (
                postgres_dsn.replace("tester:secret", "guarded:wrong"),
                'password authentication failed for user "gu',
            ),
            (postgres_dsn.replace("tester:secret", "guarded"), "no password supplied"),
            (postgres_dsn.replace("tester", "absent"), 'role "absent" does not exist'),
            (f"{postgres_dsn}_absent", '_absent" does not exist'),
        ):
            refuses(wrong, StoreError, "the server refuses the connection", said, "correct the DSN")
    finally:
        rules.write_text(before)
        ask(postgres_dsn, "SELECT pg_reload_conf()", "DROP ROLE guarded")


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1:1", "Connection refused"), ("absent.invalid:5432", "absent.invalid")]
)
def test_row_server_unreachable(host: str, said: str) -> None:
    """nobody answers at the host → `StoreError` "cannot be reached": start the server, correct the DSN"""
    place = f"postgresql://tester:secret@{host}/state"
    refuses(
        place, StoreError, f"postgresql://tester@{host}/state", "cannot be reached", said, "correct the DSN"
    )
