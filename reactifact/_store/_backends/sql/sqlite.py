"""One SQLite file as a store: its connection and transactions, and the backend on it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from ....errors import FormatTooNew, NotAStore, StoreBusy, StoreError
from ...objects import MAX_OBJECT, GitObject, Oid
from ...protocol import Durability, Pruned, RefUpdate
from ..files import checked_path, disk_trouble, refuse_links, way_out
from ..kv import RefView, check_write, plan_refs, ref_questions
from ..locks import FileLock, LockFolder, LockQueue
from .backend import (
    SCHEMA_VERSION,
    HeldTables,
    ObjectsOf,
    Oids,
    SQLBackend,
    batches,
    object_rows,
    ref_oid,
    referred_beyond,
    require_known,
)

# -- one SQLite database of ours: opening, recognising, connections, transactions, errors --


BUSY_SECONDS = 60.0
"""How long a write waits for the writes of other processes."""

_IDLE_CONNECTIONS = 8
_PAUSE = 0.005
_BESIDE = ("-wal", "-shm", "-journal")  # the files that SQLite keeps beside its own

_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full, nothing was written; free some space and try again",
    sqlite3.SQLITE_READONLY: "give this user write permission on the file and its folder, or use a copy",
    sqlite3.SQLITE_CANTOPEN: "check that the file is there and that this user may write its folder",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a copy or a backup",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite can hold (1 GB); keep it elsewhere",
}

_VAGUE = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""Codes under which SQLite does not say what the system told it."""

_left_behind: list[sqlite3.Connection] = []
"""Connections that a forked child has inherited: closing them would touch the parent's files."""


class _Place(NamedTuple):
    """Which files stand at the paths of a database."""

    database: tuple[int, int] | None  # device and inode; None: there is no file
    log: tuple[int, int] | None
    shared: tuple[int, int] | None


class FileKind(NamedTuple):
    """What a database is for: how its file is marked, and the tables it is made with."""

    application_id: int
    version: int
    what: str  # for messages: "a store"
    tables: tuple[str, ...]
    upgrades: tuple[tuple[str, ...], ...] = ()  # what brings a file of version 1 to 2, of 2 to 3 ...


class SQLiteFile:
    """The database at `path`. Where there is nothing yet, the first write makes it with the tables of `kind`,
    and until then it reads as empty.

    Its folder must exist. Raises `NotAStore` for a file that is something else, `FormatTooNew` for
    one of a later version, `StoreError` when the system refuses.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: FileKind,
        *,
        sync: bool = True,
        create: bool = True,
        read_only: bool = False,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.location = os.fsdecode(checked_path(path))
        self.path = os.path.realpath(self.location)
        self._kind = kind
        self._sync = sync
        self._read_only = read_only
        folder = os.path.dirname(self.path)
        # A reader that may write takes the files that readers share away again; it is held to reading.
        may_write = os.access(self.path, os.W_OK) and os.access(folder, os.W_OK)
        mode = "ro" if read_only and not may_write else "rw"
        self._uri = f"file:{quote(os.fsencode(self.path))}?mode={mode}"
        self._writer = threading.Lock()
        self._mutex = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._opened = 0  # how often the file was closed: what was lent out before is not taken back
        self._pid = os.getpid()
        self._step = step
        self._opened_file: tuple[int, int] | None = None
        self._files: dict[int, _Place] = {}  # by id of an open connection: the log that it writes to
        self._making = threading.RLock()
        self._is_made = False
        self._may_create = create and not read_only
        self._require_place()
        if not self._may_create or self._is_at_path():
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def _is_at_path(self) -> bool:
        return os.path.exists(self.path) and os.path.getsize(self.path) > 0

    def _open(self) -> None:
        """Open the file that is there, or make it where it may be made."""
        self._require_place()
        self._require_file()
        self._opened_file = _identity(self.path)
        with self.errors("opening"):
            self._prepare(self._step)
        self._is_made = True

    def is_there(self) -> bool:
        """Tell whether there is a database by now; one that another process has made meanwhile is opened."""
        return self._is_made or self._found()

    def _found(self) -> bool:
        with self._making:
            if not self._is_made and self._is_at_path():
                self._open()
            return self._is_made

    def make(self) -> None:
        """Make the database where there is none yet."""
        if not self._is_made:
            with self._making:
                if not self._is_made:
                    self._open()

    @contextmanager
    def reading(self, doing: str = "reading from") -> Iterator[sqlite3.Connection]:
        """Lend a connection to read with; to tables without rows while there is no file."""
        try:
            if self.is_there():
                connection, opened = self._take()
                try:
                    self._require_same_files(connection)
                    yield connection
                except sqlite3.Error:
                    self._end(connection)  # whatever it is in, the next user begins anew
                    raise
                finally:
                    self._give_back(connection, opened)
                return
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                for statement in self._kind.tables:
                    connection.execute(statement)
                yield connection
        except sqlite3.Error as error:
            raise self._explained(error, doing) from error

    def writing(self, doing: str = "writing to") -> AbstractContextManager[sqlite3.Connection]:
        """Lend a connection in a transaction that is committed at the end, or not at all."""
        self.require_writable()
        self.make()
        return self._transaction(doing)

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[sqlite3.Connection]:
        try:
            with self._writer:
                connection, opened = self._take()
                try:
                    self._require_same_files(connection)
                    connection.execute("BEGIN IMMEDIATE")
                    try:
                        yield connection
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise
                    self._require_same_files(connection)  # else it went into a file that nobody will open
                except sqlite3.Error:
                    self._end(connection)  # whatever it is in, the next user begins anew
                    raise
                finally:
                    self._give_back(connection, opened)
        except sqlite3.Error as error:
            raise self._explained(error, doing) from error

    def rewrite(self) -> None:
        """Write the file anew and empty its log, so that nothing is left of what was removed.

        Raises `StoreError` when readers of an older state keep the log from being emptied.
        """
        self.require_writable()
        self.make()
        with self.errors("rewriting"), self._writer, self._lent() as connection:
            connection.execute("VACUUM")
            deadline = time.monotonic() + BUSY_SECONDS
            # It waits for readers by itself, but not for another connection that is folding the log.
            while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() > deadline:
                    raise StoreBusy(
                        f"rewriting {self.location} failed: others have been reading an older state for over "
                        f"{BUSY_SECONDS:g} seconds, so that its -wal file still holds what was removed; "
                        f"everything else is done: try again when they have finished"
                    )
                time.sleep(_PAUSE)

    def watch(self) -> FileWatch:
        """Return what tells that any connection but its own has committed."""
        self.make()
        with self.errors("watching"):
            connection = self._connect()
            try:
                return FileWatch(self, connection)
            except BaseException:
                connection.close()
                raise

    def require_writable(self) -> None:
        """Raise `StoreError` when the file was opened read-only."""
        if self._read_only:
            raise StoreError(f"{self.location} was opened read-only; open it without read_only to change it")

    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens new ones."""
        with self._mutex:
            idle, self._idle = self._idle, []
            self._opened += 1
            if self._pid != os.getpid():
                _left_behind.extend(idle)
                idle = []
        for connection in idle:
            self._end(connection)

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self.close()

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn an error of SQLite inside into one of ours that names file, cause and way out."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error, doing) from error

    # -- opening -------------------------------------------------------------------------------

    def _require_place(self) -> None:
        folder = os.path.dirname(self.path)
        refuse_links(*(f"{self.path}{suffix}" for suffix in _BESIDE))
        if not os.path.isdir(folder):
            raise NotAStore(
                f"{self.location} cannot be opened: there is no folder {folder}; make it, or correct the path"
            )
        if os.path.isdir(self.path):
            raise NotAStore(f"{self.location} is a folder, not a SQLite file; choose another path")

    def _require_file(self) -> None:
        if self._may_create:
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            except OSError as error:
                raise StoreError(
                    f"{self.location} cannot be opened for writing: {error.strerror}; "
                    f"{way_out(error.errno)}, or open it with read_only=True"
                ) from error
        elif not self._is_at_path():
            raise NotAStore(f"{self.location} is not there yet, or empty; check the path")

    def _prepare(self, step: Callable[[str], None]) -> None:
        try:
            with self._lent() as connection:
                known = self._is_ours(connection)
        except sqlite3.OperationalError:
            if not self._read_only or os.path.exists(f"{self.path}-wal"):
                raise
            # A read-only folder has no room for the files readers share: nobody writes here either.
            self._uri += "&immutable=1"
            with self._lent() as connection:
                known = self._is_ours(connection)
        if self._read_only:
            if not known:
                raise NotAStore(f"{self.location} is an empty database; check the path")
            return
        if not known:
            self._make_tables(step)
        self._upgrade()
        self._use_write_ahead_log()

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Tell whether the file has our tables, or nothing yet. Raises for everything else."""
        # The tables first: another process makes them and the marks below in one transaction.
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        names = [row[0] for row in connection.execute(tables) if not row[0].startswith("sqlite_")]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = _version(connection)
        if application == self._kind.application_id:
            if version > self._kind.version:
                raise FormatTooNew(
                    f"{self.location} has tables of version {version}, and this reactifact knows them up to "
                    f"{self._kind.version}: a newer one wrote it; upgrade reactifact"
                )
            return True
        if not names and not application:
            return False
        shown = ", ".join(sorted(names)[:5]) or "none"
        raise NotAStore(
            f"{self.location} is a SQLite database, but not {self._kind.what} of this version (its tables: "
            f"{shown}). If an earlier reactifact wrote it, bring it over with "
            f"`reactifact import {self.location} NEW_STORE`; else choose another path"
        )

    def _make_tables(self, step: Callable[[str], None]) -> None:
        with self._transaction("making tables in") as connection:
            if not self._is_ours(connection):  # another process may have been first
                for statement in self._kind.tables:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self._kind.application_id}")
                connection.execute(f"PRAGMA user_version = {self._kind.version}")
            step("tables made")
        step("tables committed")

    def _upgrade(self) -> None:
        with self._lent() as connection:
            if _version(connection) >= self._kind.version:
                return
        with self._transaction("bringing to this version") as connection:
            for version in range(_version(connection), self._kind.version):  # none: another process was first
                for statement in self._kind.upgrades[version - 1]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {self._kind.version}")

    def _use_write_ahead_log(self) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with self._lent() as connection:
                    connection.execute("PRAGMA journal_mode = WAL").fetchone()
                    return
            except sqlite3.OperationalError as error:
                # SQLite does not wait here by itself, and it is busy only while others open the file
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    # -- connections ---------------------------------------------------------------------------

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        connection, opened = self._take()
        try:
            self._require_same_files(connection)
            yield connection
        except sqlite3.Error:
            self._end(connection)  # whatever it is in, the next user begins anew
            raise
        finally:
            self._give_back(connection, opened)

    def _take(self) -> tuple[sqlite3.Connection, int]:
        with self._mutex:
            if self._pid != os.getpid():
                _left_behind.extend(self._idle)
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop(), self._opened
            opened = self._opened
        return self._connect(), opened

    def _give_back(self, connection: sqlite3.Connection, opened: int) -> None:
        with self._mutex:
            if opened == self._opened and len(self._idle) < _IDLE_CONNECTIONS and _is_open(connection):
                self._idle.append(connection)
                return
        self._end(connection)

    def _end(self, connection: sqlite3.Connection) -> None:
        self._files.pop(id(connection), None)
        connection.close()

    def _require_same_files(self, connection: sqlite3.Connection) -> None:
        """Raise `StoreError` when the files were replaced or removed under a connection.

        SQLite goes on with the files that it has open, and what is written there is gone with them.
        """
        known = self._files.get(id(connection))
        if known is not None and self._stands(known):
            return
        has_log = known is not None or _is_logging(connection)  # from then on others leave the log there
        found = _Place(*(_identity(self.path + suffix) for suffix in ("", "-wal", "-shm")))
        if found.database is None or found.database != self._opened_file:
            raise self._replaced(self.location, found.database)
        if known is None:
            if has_log and found.log is not None and found.shared is not None:
                self._files[id(connection)] = found
            return
        for suffix, before, now in (("-wal", known.log, found.log), ("-shm", known.shared, found.shared)):
            if before != now:
                raise self._replaced(self.location + suffix, now)

    def _stands(self, known: _Place) -> bool:
        """Tell whether the files of a place are those of the database, as they nearly always are."""
        try:
            file, log, shared = os.stat(self.path), os.stat(f"{self.path}-wal"), os.stat(f"{self.path}-shm")
        except FileNotFoundError:
            return False
        return (
            known.database == self._opened_file == (file.st_dev, file.st_ino)
            and known.log == (log.st_dev, log.st_ino)
            and known.shared == (shared.st_dev, shared.st_ino)
        )

    def _replaced(self, name: str, found: tuple[int, int] | None) -> StoreError:
        what = "was removed" if found is None else "was replaced by another file"
        return StoreError(
            f"{name} {what} while {self.location} was open: what is written now would be lost, and the last "
            f"write may be. Stop the processes that use the store before its files are moved, restored or "
            f"removed; then open it anew"
        )

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}")
            if self._read_only:
                connection.execute("PRAGMA query_only = 1")
            if self._sync:
                connection.execute("PRAGMA fullfsync = 1")  # macOS: to the platter, not to the drive's cache
        except BaseException:
            connection.close()
            raise
        return connection

    # -- errors --------------------------------------------------------------------------------

    def _explained(self, error: sqlite3.Error, doing: str) -> StoreError:
        code = _code(error)
        if code == sqlite3.SQLITE_NOTADB:
            return NotAStore(f"{self.location} is no SQLite database; choose another path")
        if code == sqlite3.SQLITE_BUSY:
            return StoreBusy(
                f"{doing} {self.location} failed: {error}: other processes have kept it locked for over "
                f"{BUSY_SECONDS:g} seconds; see what holds them up, then try again"
            )
        if (
            code in _VAGUE
            and not self._read_only
            and (trouble := disk_trouble(os.path.dirname(self.path))) is not None
        ):
            return StoreError(
                f"{doing} {self.location} failed: {error} ({os.strerror(trouble)}); {way_out(trouble)}"
            )
        reason = _REASONS.get(code, "check the disk and the file, and try again")
        return StoreError(f"{doing} {self.location} failed: {error}; {reason}")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_logging(connection: sqlite3.Connection) -> bool:
    """Tell whether a connection writes to a log; asking opens it, if nothing has been read before."""
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode == "wal"


class FileWatch:
    """Tells that others wrote to a SQLite file: one statement a question, which reads no table."""

    def __init__(self, file: SQLiteFile, connection: sqlite3.Connection) -> None:
        self._file = file
        self._connection = connection
        self._seen = self._version()

    def _version(self) -> int:
        with self._file.errors("watching"):
            found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            return found

    def moved(self) -> set[str] | None:
        """Return `None` where anything was committed since it was asked last, else the empty set."""
        found = self._version()
        is_same, self._seen = found == self._seen, found
        return set() if is_same else None

    def fileno(self) -> int:
        """Return -1: SQLite tells nobody by itself."""
        return -1

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


# -- `SQLiteKVBackend`: objects, refs and values in the tables of one SQLite file --


_PRUNING = (
    "CREATE TABLE prunes (number INTEGER NOT NULL)",
    "INSERT INTO prunes VALUES (0)",
    "CREATE TABLE unreachable (oid BLOB NOT NULL PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID",
)
_STORE = FileKind(
    application_id=0x72656163,  # "reac"
    version=SCHEMA_VERSION,
    what="a store",
    tables=(
        "CREATE TABLE objects (oid BLOB NOT NULL PRIMARY KEY, kind INTEGER NOT NULL, size INTEGER NOT NULL,"
        " data BLOB NOT NULL)",
        "CREATE TABLE refs (name TEXT NOT NULL PRIMARY KEY, oid BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE kv (name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)",
        *_PRUNING,
    ),
    upgrades=(_PRUNING,),
)
_ASKED_AT_ONCE = (1, 8, 64, 1000)  # few texts of statements, so that SQLite's parsed ones are used again


class SQLiteKVBackend(SQLBackend):
    """A store in the SQLite file at `path`, whose folder must exist.

    Where there is no file, or an empty one, the first write or lock makes it; until then it reads as empty.
    With `durability="full"` a write is on stable storage when it returns (write-ahead log,
    `synchronous=FULL`); with `"os"` it survives the death of the process, not a power cut. Any number
    of processes of one machine may use the file at once. Locks are files in `<path>-locks`. Equal
    objects are one row and the log is folded into the file by SQLite, so a store that only grows needs no
    care; `prune` removes what no ref reaches any more.

    An object of more than `max_object` bytes is neither written nor read (`ObjectTooLarge`): what a row
    says that it decompresses to is believed only up to there.

    `fault`, if set, is called with the name of each step of a write that has just been done, so
    that tests can kill, pause or fail there; set on the class, it is called for the making of the
    tables too.

    Raises `NotAStore` for a missing folder, a file that is something else, and a missing file with
    `create=False`; `FormatTooNew`; `StoreError`.
    """

    is_local = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        create: bool = True,
        read_only: bool = False,
        max_object: int = MAX_OBJECT,
    ) -> None:
        super().__init__(durability, max_object)
        self._file = SQLiteFile(
            path, _STORE, sync=durability != "os", create=create, read_only=read_only, step=self._step
        )
        self._locks = LockFolder(f"{self._file.path}-locks", self._file.location)
        self._prunes = 0  # how many there had been when this store was opened; of one to be made, none
        if not read_only:
            try:
                with self._file.reading() as connection:
                    self._prunes = _prunes(connection, self.location)
            except BaseException:
                self._file.close()
                raise

    @property
    def location(self) -> str:
        """The path as it was given."""
        return self._file.location

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs, all or none, in one transaction.

        When this returns everything is as durable as promised. Raises `Contention`,
        `MissingObject`, `InvalidName` or `StoreError`; nothing is changed then.
        """
        self._file.require_writable()
        check_write(objects, updates, self._max_object)
        if not objects and not updates:
            return
        rows = object_rows(objects.items())
        with self._file.writing() as connection:
            self._step("begun")
            connection.executemany(
                "INSERT INTO objects (oid, kind, size, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
            )
            self._step("objects stored")
            if _prunes(connection, self.location) != self._prunes:
                require_known(objects, _known(connection, referred_beyond(objects)), self.location)
            if updates:
                self._move(connection, objects, updates)
                self._step("refs moved")
        self._step("committed")

    def watch_refs(self) -> FileWatch:
        """Return a watch that tells of every commit to the file."""
        return self._file.watch()

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        self._file.require_writable()
        self._file.make()
        return self._locks.queue(name)

    def lock(self, name: str, *, wait: float = 0.0) -> AbstractContextManager[FileLock]:
        """Hold the named lock for the length of a `with`, against threads and processes.

        Raises `SessionBusy`, naming the holder, when it is not free within `wait` seconds.
        """
        self._file.require_writable()
        self._file.make()
        return self._locks.held(name, wait)

    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens them again."""
        self._file.close()

    # -- rows ----------------------------------------------------------------------------------

    def _object_rows(self, oids: list[Oid]) -> list[tuple[Any, ...]]:
        with self._file.reading() as connection:
            return list(_select(connection, _OBJECTS, oids))

    def _ref_rows(self, first: str, last: str) -> list[tuple[str, bytes]]:
        with self._file.reading() as connection:
            return connection.execute(
                "SELECT name, oid FROM refs WHERE name >= ? AND name <= ? ORDER BY name", (first, last)
            ).fetchall()

    def _set(self, name: str, data: bytes | None) -> None:
        with self._file.writing() as connection:
            if data is None:
                connection.execute("DELETE FROM kv WHERE name = ?", (name,))
            else:
                connection.execute(
                    "INSERT INTO kv (name, value) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (name, data),
                )

    def _get(self, name: str) -> bytes | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT value FROM kv WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _values(self) -> list[bytes]:
        with self._file.reading() as connection:
            return [row[0] for row in connection.execute("SELECT value FROM kv")]

    def _move(
        self,
        connection: sqlite3.Connection,
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
    ) -> None:
        asked = ref_questions(objects, updates)
        around = {row[0] for row in _select(connection, _REFS, asked.parents)} if asked.parents else set()
        for name in asked.created:
            around.update(
                row[0] for row in connection.execute(_BENEATH, (f"{name}/", f"{name}0", len(updates) + 1))
            )
        view = RefView(
            location=self.location,
            current={
                name: ref_oid(name, held, self.location)
                for name, held in _select(connection, _REFS, asked.names)
            },
            known=_known(connection, asked.targets) if asked.targets else set(),
            around=around,
        )
        for name, new in plan_refs(view, objects, updates).items():
            if new is None:
                connection.execute("DELETE FROM refs WHERE name = ?", (name,))
            else:
                connection.execute(
                    "INSERT INTO refs (name, oid) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET oid = excluded.oid",
                    (name, bytes.fromhex(new)),
                )

    # -- pruning -------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the bytes of the pages of the database file, free ones included. Blocks."""
        with self._file.reading("measuring") as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(size)

    def _stored(self) -> Oids:
        with self._file.reading() as connection:
            return _stored(connection)

    def _holding_tables(self, work: Callable[[HeldTables], Pruned]) -> Pruned:
        with self._file.writing("pruning") as connection:
            return work(_HeldTables(connection, self._objects_of))

    def _tidy(self, *, rewrite: bool) -> None:
        if rewrite:
            self._file.rewrite()


class _HeldTables(HeldTables):
    """The tables inside `BEGIN IMMEDIATE`, which keeps writers out."""

    def __init__(self, connection: sqlite3.Connection, objects_of: ObjectsOf) -> None:
        super().__init__(objects_of)
        self._connection = connection

    def tips(self) -> list[Oid]:
        return [row[0].hex() for row in self._connection.execute("SELECT oid FROM refs")]

    def stored(self) -> set[Oid]:
        return _stored(self._connection)

    def rows(self, oids: list[Oid]) -> Iterator[Sequence[Any]]:
        return _select(self._connection, _OBJECTS, oids)

    def noted(self) -> dict[Oid, float]:
        return {
            oid.hex(): since for oid, since in self._connection.execute("SELECT oid, since FROM unreachable")
        }

    def note(self, fresh: Iterable[Oid], since: float, stale: Iterable[Oid]) -> None:
        self._connection.executemany(
            "INSERT INTO unreachable VALUES (?, ?)", [(bytes.fromhex(oid), since) for oid in fresh]
        )
        self._connection.executemany("DELETE FROM unreachable WHERE oid = ?", _binary(stale))

    def remove(self, oids: set[Oid]) -> int:
        size = sum(int(row[0]) for row in _select(self._connection, _SIZES, oids))
        self._connection.executemany("DELETE FROM objects WHERE oid = ?", _binary(oids))
        self._connection.execute("UPDATE prunes SET number = number + 1")
        return size


_OBJECTS = "SELECT oid, kind, size, data FROM objects WHERE oid"
_KNOWN = "SELECT oid FROM objects WHERE oid"
_SIZES = "SELECT length(data) FROM objects WHERE oid"
_REFS = "SELECT name, oid FROM refs WHERE name"
_BENEATH = "SELECT name FROM refs WHERE name >= ? AND name < ? LIMIT ?"


def _select(connection: sqlite3.Connection, query: str, wanted: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `query` for each id or name that is wanted."""
    for batch in batches(wanted, _ASKED_AT_ONCE[-1]):
        values: list[Any] = batch if query is _REFS else [bytes.fromhex(oid) for oid in batch]
        room = next(size for size in _ASKED_AT_ONCE if size >= len(values))
        values += values[-1:] * (room - len(values))
        yield from connection.execute(_among(query, room), values)


@lru_cache(maxsize=16)
def _among(query: str, count: int) -> str:
    return f"{query} IN ({', '.join('?' * count)})"


def _known(connection: sqlite3.Connection, oids: Iterable[Oid]) -> set[Oid]:
    return {row[0].hex() for row in _select(connection, _KNOWN, oids)}


def _stored(connection: sqlite3.Connection) -> set[Oid]:
    rows = connection.execute("SELECT oid FROM objects WHERE typeof(oid) = 'blob'")  # only these can be read
    return {row[0].hex() for row in rows}


def _prunes(connection: sqlite3.Connection, location: str) -> int:
    row = connection.execute("SELECT number FROM prunes").fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreError(
            f"the table prunes in {location} does not hold the number of prunes: it was changed by hand or "
            f"is damaged; while nobody uses the store, do `DELETE FROM prunes; INSERT INTO prunes VALUES (1)`"
        )
    return row[0]


def _binary(oids: Iterable[Oid]) -> list[tuple[bytes]]:
    return [(bytes.fromhex(oid),) for oid in oids]
