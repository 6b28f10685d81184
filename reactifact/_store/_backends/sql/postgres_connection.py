"""Connections to a PostgreSQL server, and locks that die with the one that holds them."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from ....errors import Contention, LockLost, NotAStore, SessionBusy, StoreBusy, StoreError
from ..locks import ThreadLocks, wait_in_turn
from .postgres_statements import one_round_trip

# -- one PostgreSQL server as the store sees it: the DSN, a small pool of connections, errors --


T = TypeVar("T")
Connection = psycopg.Connection[Any]

CONNECTIONS = 8
"""How many connections of one backend work at a time; who comes later waits for one."""

BUSY_SECONDS = 60.0
"""How long a write waits for a lock of other transactions, where the server sets no `lock_timeout`."""

_RACES = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)
_ATTEMPTS = 8
_CONNECT_SECONDS = 10
_LOOKS = 4  # how often two connections are compared to see whether they share backends
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_STAYS = (
    b"SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"  # from 14 on
)
_SETTINGS = b"""
SELECT set_config('application_name', %s, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', CASE WHEN %s THEN 'on'
           ELSE current_setting('default_transaction_read_only') END, false),
       set_config('tcp_keepalives_idle', '30', false),
       set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('lock_timeout', CASE WHEN current_setting('lock_timeout') = '0' THEN %s
           ELSE current_setting('lock_timeout') END, false),
       set_config('synchronous_commit', CASE WHEN NOT %s THEN 'off'
           WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, false)
WHERE %s IN (0, pg_backend_pid())
"""
_BACKEND = b"SELECT pg_backend_pid()"
_LAST_USE = b"SELECT query_start FROM pg_stat_activity WHERE pid = %s"

_left_behind: list[Connection] = []
"""Connections that a forked child has inherited: closing them would end the parent's sessions."""


class Server:
    """Connections to the database of a DSN. Safe to use from several threads.

    Raises `NotAStore` for a text that is no DSN. Nothing is connected before it is needed.
    """

    def __init__(self, dsn: str, *, sync: bool, read_only: bool) -> None:
        try:
            self._parameters = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # The text of that error may quote the password.
            raise NotAStore(
                "the DSN of a PostgreSQL store cannot be read: write it as "
                "postgresql://user:password@host:port/database"
            ) from None
        self.location = _location(self._parameters)
        self._sync = sync
        self.is_read_only = read_only
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self._mutex = threading.Lock()
        self._idle: list[Connection] = []
        self._closings = 0  # what was lent before the last closing is not taken back
        self._pid = os.getpid()

    def run(self, doing: str, work: Callable[[Connection], T]) -> T:
        """Call `work` with a connection and return what it returns.

        It is called again after a race with another transaction, and once more after a lost
        connection, so it must not mind being repeated. Raises `Contention` after several lost
        races, `StoreError` naming the server when it is away.
        """
        was_lost = False
        for attempt in range(_ATTEMPTS):
            try:
                with self._lent() as connection:
                    return work(connection)
            except _RACES as error:
                if attempt == _ATTEMPTS - 1:
                    raise Contention(
                        f"{doing} {self.location} lost {_ATTEMPTS} races with other writers "
                        f"({_first_line(error)}); try again"
                    ) from error
                time.sleep(0.002 * (attempt + 1))
            except psycopg.Error as error:
                if was_lost or attempt == _ATTEMPTS - 1 or not is_lost(error):
                    raise self.explained(error, doing) from error
                was_lost = True
                self._forget_idle()  # they were made before the server went away, as this one was
        raise AssertionError("unreachable")

    def connect(self, *, stays: bool = False) -> Connection:
        """Return a new connection, set up as all of ours are; with `stays` one that may idle for long.

        Raises `psycopg.Error`.
        """
        parameters: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS, **_ALIVE, **self._parameters}
        name = f"{parameters.pop('application_name', None) or 'reactifact'} {_process()}"
        connection: Connection = psycopg.connect(autocommit=True, **parameters)
        try:
            settings = (name[:63], self.is_read_only, f"{BUSY_SECONDS * 1000:.0f}ms", self._sync)
            if not connection.execute(_SETTINGS, (*settings, connection.info.backend_pid)).fetchall():
                # Whoever answers is not whom the connection was made to: a pooler stands between. What is
                # set on a backend that it shares would reach others, so that is asked first.
                self._refuse_shared_backends(connection, parameters)
                connection.execute(_SETTINGS, (*settings, 0))
            if stays:
                connection.execute(_STAYS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_shared_backends(self, connection: Connection, parameters: dict[str, Any]) -> None:
        """Raise `NotAStore` where a pooler gives each transaction whichever backend is free."""
        own = _backend(connection)
        with psycopg.connect(autocommit=True, **parameters) as other:
            for _ in range(_LOOKS):
                try:
                    other.execute(b"BEGIN")
                except psycopg.Error as error:  # "transaction blocks not allowed in statement pooling mode"
                    raise NotAStore(self.shared_backends()) from error
                # A backend that is free again is given out first; where it is not, they take turns, and where
                # others are quicker, they have used ours by now.
                if _backend(other) == own or _backend(connection) != own:
                    raise NotAStore(self.shared_backends())
                other.execute(b"COMMIT")
                if _last_use(other, own) != _last_use(other, own):
                    raise NotAStore(self.shared_backends())

    def shared_backends(self) -> str:
        """Return the error of a connection whose statements run on one backend and then on another."""
        return (
            f"{self.location} leads to a pooler that shares connections between transactions (PgBouncer with "
            f"pool_mode=transaction, or statement): the locks of a session would stay behind on connections "
            f"of others. Connect to the server itself, or through a pool with pool_mode=session"
        )

    def require_writable(self) -> None:
        """Raise `StoreError` when the store was opened read-only."""
        if self.is_read_only:
            raise StoreError(f"{self.location} was opened read-only; open it without read_only to change it")

    def is_lost(self, connection: Connection, error: BaseException) -> bool:
        """Tell whether a connection is gone, or an error out of it says that it will be in a moment."""
        return connection.closed or (isinstance(error, psycopg.Error) and is_lost(error))

    def close(self) -> None:
        """Close the connections that are not in use; the others follow. A later use opens new ones."""
        with self._mutex:
            self._closings += 1
        self._forget_idle()

    def explained(self, error: psycopg.Error, doing: str) -> StoreError:
        """Return our error for one of psycopg's: it names server, cause and way out."""
        cause = _first_line(error)
        if isinstance(error, pg.LockNotAvailable):
            return StoreBusy(
                f"{doing} {self.location} failed, nothing was written: {cause}: other transactions have kept "
                f"it locked; see in pg_stat_activity what holds them up, then try again"
            )
        if is_lost(error) and any(sign in cause for sign in _REFUSALS):
            return StoreError(
                f"{doing} {self.location} failed: the server refuses the connection ({cause}); what was "
                f"saved before is kept: correct the DSN or the server's settings, or wait until it is ready"
            )
        if is_lost(error):
            return StoreError(
                f"{doing} {self.location} failed: the server cannot be reached ({cause}); what was saved "
                f"before is kept: start the server or correct the DSN, then go on"
            )
        for kind, way_out in _WAYS_OUT:
            if isinstance(error, kind):
                return StoreError(f"{doing} {self.location} failed, nothing was written: {cause}; {way_out}")
        return StoreError(
            f"{doing} {self.location} failed, nothing was written: {cause}; see the server's log"
        )

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        with self._room:
            connection, closings = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection, closings)

    def _take(self) -> tuple[Connection, int]:
        with self._mutex:
            self._leave_behind()
            closings = self._closings
            if self._idle:
                return self._idle.pop(), closings
        return self.connect(), closings

    def _give_back(self, connection: Connection, closings: int) -> None:
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._mutex:
            if idle and closings == self._closings:
                self._idle.append(connection)
                return
        connection.close()

    def _forget_idle(self) -> None:
        with self._mutex:
            self._leave_behind()
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _leave_behind(self) -> None:
        if self._pid != os.getpid():
            _left_behind.extend(self._idle)
            self._idle, self._pid = [], os.getpid()

    def __del__(self) -> None:
        if hasattr(self, "_pid"):
            self.close()


class Listener:
    """Hears `NOTIFY` on one channel, over a connection of its own. A question is not a statement."""

    def __init__(self, server: Server, channel: str) -> None:
        self._server = server
        self._listen = f'LISTEN "{channel}"'.encode()
        self._connection: Connection | None = None
        self._connect()

    def _connect(self) -> None:
        try:
            self._connection = self._server.connect(stays=True)
            self._connection.execute(self._listen)
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                raise self._server.explained(error, "listening to") from error
            raise

    def moved(self) -> set[str] | None:
        """Return the payloads that came in since it was asked last; `None` after a lost connection.

        Raises `StoreError` while the server is away.
        """
        if self._connection is None:
            self._connect()
            return None
        heard: set[str] = set()
        try:
            self._connection.pgconn.consume_input()
            while (found := self._connection.pgconn.notifies()) is not None:
                heard.add(found.extra.decode())
        except psycopg.Error:
            self.close()
            self._connect()
            return None
        return heard

    def fileno(self) -> int:
        """Return the socket of the connection, -1 while there is none."""
        return -1 if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_REFUSALS = ("FATAL", "no password supplied")
"""What only a server that answers brings about; an error of connecting carries no SQLSTATE."""

_WAYS_OUT: tuple[tuple[type[psycopg.Error], str], ...] = (
    (pg.DiskFull, "free some space on the server's disk and try again"),
    (
        pg.ReadOnlySqlTransaction,
        "this server only reads, or default_transaction_read_only is set for this user or database; write to "
        "the primary, or open the store with read_only=True",
    ),
    (pg.InsufficientPrivilege, "grant this user the right, or let the database's owner open the store first"),
    (pg.UndefinedTable, "the tables of the store were removed; restore them from a backup"),
    (pg.InvalidSchemaName, "the tables of the store were removed; restore them from a backup"),
)


def _backend(connection: Connection) -> int:
    return int(connection.execute(_BACKEND).fetchall()[0][0])


def _last_use(connection: Connection, backend: int) -> Any:
    """Return when a backend began its last statement, as another connection sees it."""
    return connection.execute(_LAST_USE, (backend,)).fetchall()


def is_lost(error: psycopg.Error) -> bool:
    """Tell whether an error means that the connection, or the server, is gone."""
    if isinstance(error, psycopg.InterfaceError):
        return True
    gone = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.IdleSessionTimeout)
    if isinstance(error, gone):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _process() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


def _location(parameters: dict[str, Any]) -> str:
    """Return the DSN in short, without a password."""
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    host = parameters.get("host") or parameters.get("hostaddr") or ""
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{user}{host}{port}/{parameters.get('dbname') or ''}"


# -- named locks of a PostgreSQL store --


Question = tuple[bytes, list[Any], Callable[[list[tuple[Any, ...]]], None]]
"""A query with its values, and what is to be given its rows."""

_LONGEST_PAUSE = 0.1
_UNLOCK = b"SELECT pg_advisory_unlock(%s)"
_UNLOCK_ALL = b"SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)"
_HOLDER = b"""
SELECT a.application_name, a.backend_start::text FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = %s
"""

_TICKETS = b"""
FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = %s
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_BEFORE = b"EXISTS (SELECT 1 " + _TICKETS + b" AND objid::bigint < %s)"
_TRY = b"SELECT CASE WHEN " + _BEFORE + b" THEN false ELSE pg_try_advisory_lock(%s) END, pg_backend_pid()"
_IS_FIRST = b"SELECT NOT " + _BEFORE
_NEXT = b"SELECT coalesce(max(objid::bigint), 0) + 1 " + _TICKETS
_JOIN = b"SELECT pg_try_advisory_lock(%s::int, %s::int)"
_LEAVE = b"SELECT pg_advisory_unlock(%s::int, %s::int)"
_LAST_TICKET = 2**31 - 1

_postgres_locks_left_behind: list[Connection] = []


class AdvisoryLocks:
    """The locks that one backend holds. `subject` keeps stores in one database apart.

    `beside` is asked, in the thread that asks for or about a lock, for what to ask in the same round trip:
    the answer is of a moment at which the lock was held.
    """

    def __init__(self, server: Server, subject: str, beside: Callable[[], Question | None]) -> None:
        self._server = server
        self._subject = subject
        self._beside = beside
        self._thread = threading.local()  # the locks that a thread gives back together
        self._threads = ThreadLocks(server.location)
        self._threads_pid = os.getpid()
        self._session = threading.Lock()  # of the connection
        self._connection: Connection | None = None
        self._taken: set[int] = set()  # keys that the connection holds, or held when it was lost
        self._backend: tuple[Connection | None, int] = (None, 0)  # which one answered on which connection
        self.tickets: dict[int, set[int]] = {}  # of this backend, by queue
        self.queueing = threading.Lock()  # of the tickets; taken before that of the connection
        self._pid = os.getpid()
        self._is_closed = False  # the connection goes with the last lock

    def take(self, name: str, wait: float) -> AdvisoryLock:
        """Take the lock and return it. Raises `SessionBusy` naming the holder, `psycopg.Error`."""
        deadline = time.monotonic() + wait
        if self._threads_pid != os.getpid():
            self._threads_pid = os.getpid()
            self._threads.forget()
        self._threads.take(name, wait)
        try:
            return AdvisoryLock(self, name, self._take_there(name, deadline))
        except BaseException:
            self._threads.release(name)
            raise

    def require_held(self, name: str, connection: Connection) -> None:
        """Ask whether the connection that took the lock still stands. Raises `LockLost`.

        One that was taken again by the connection after it counts as lost: another may have had it between.
        """
        cause: psycopg.Error | None = None
        with self._session:
            if connection is self._connection and self._pid == os.getpid():
                try:
                    row = _answer(connection, _BACKEND, (), self._beside())
                    if row is not None and (connection, row[0]) == self._backend:
                        return
                except psycopg.Error as error:
                    cause = error
        raise LockLost(
            f"lock {name!r} of {self._server.location} was lost with the connection that held it, so another "
            f"process may hold it by now; see whether the server is well, and start again"
        ) from cause

    def release(self, name: str) -> None:
        """Give the lock back; one that went with its connection is fine."""
        together: list[str] | None = getattr(self._thread, "together", None)
        if together is not None:
            together.append(name)
        else:
            self._release([name])

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Give back together, at the end, what this thread gives back inside."""
        together: list[str] = []
        self._thread.together = together
        try:
            yield
        finally:
            self._thread.together = None
            if together:
                self._release(together)

    def _release(self, names: list[str]) -> None:
        keys = [self._key(name) for name in names]
        try:
            with self._session:
                self._taken.difference_update(keys)
                if self._connection is not None and not self._connection.closed:
                    self._connection.execute(_UNLOCK_ALL, (keys,))
        except psycopg.Error as error:
            if not is_lost(error):
                raise
        finally:
            for name in names:
                self._threads.release(name)
            if self._is_closed:
                self.close()

    def close(self) -> None:
        """Close the connection, or let it be closed with the last lock that is held."""
        self._is_closed = True
        if not self._threads.is_free:
            return
        with self._session:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _take_there(self, name: str, deadline: float) -> Connection:
        key = self._key(name)
        wait = deadline - time.monotonic()
        connection = wait_in_turn(
            self.queue(name), lambda: self._try(key), wait, longest_pause=_LONGEST_PAUSE
        )
        if connection is None:
            raise SessionBusy(
                f"lock {name!r} of {self._server.location} is held by {self._holder(key)}; wait for it "
                f"to finish, pass a longer wait, or end that process (the lock goes with it)"
            )
        return connection

    def _try(self, key: int) -> Connection | None:
        with self.queueing:
            mine = min(self.tickets.get(_queue_of(key), ()), default=_LAST_TICKET)
        with self._session:
            try:
                had, backend = self._ask(_TRY, _queue_of(key), mine, key, beside=self._beside())
            except psycopg.Error as error:
                if not is_lost(error):
                    self._ask(_UNLOCK, key)  # it may be what was asked beside it that failed
                raise
            self._require_same_backend(backend, key)
            if had:
                self._taken.add(key)
            return self._connection if had else None

    def _require_same_backend(self, backend: int, key: int) -> None:
        """Raise `NotAStore` where a pooler has given the connection another backend: its locks are there."""
        known, self._backend = self._backend, (self._connection, backend)
        if known[0] is self._connection and known[1] != backend:
            self._ask(_UNLOCK, key)  # as far as the same backend still answers
            raise NotAStore(self._server.shared_backends())

    def _holder(self, key: int) -> str:
        with self._session:
            row = self._ask(_HOLDER, key)
        if row is None:
            return "another runner that has just given it back"
        name, since = row
        return f"process {(name or 'unknown').rpartition(' ')[2]}, connected since {since}"

    def queue(self, name: str) -> AdvisoryQueue:
        """Return the queue of those who wait for a lock, on all hosts."""
        return AdvisoryQueue(self, _queue_of(self._key(name)))

    def ask(self, query: bytes, *values: int) -> Any:
        """Ask over the connection that holds the locks; return one row."""
        with self._session:
            return self._ask(query, *values)

    def _ask(self, query: bytes, *values: int, beside: Question | None = None) -> Any:
        try:
            return _answer(self._open(), query, values, beside)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            if self._connection is not None:
                self._connection.close()
            return _answer(self._open(), query, values, beside)

    def _open(self) -> Connection:
        if self._pid != os.getpid():
            if self._connection is not None:
                _postgres_locks_left_behind.append(self._connection)
            self._connection, self._pid = None, os.getpid()
            self._taken.clear()
            self.tickets.clear()
        if self._connection is None or self._connection.closed:
            self._is_closed = False
            self._connection = self._server.connect(stays=True)
            for key in self._taken:
                # They went with the old connection. One that somebody else has by now stays lost:
                # the compare-and-swap of refs is behind it.
                self._connection.execute(b"SELECT pg_try_advisory_lock(%s)", (key,))
        return self._connection

    def _key(self, name: str) -> int:
        text = f"{self._subject}\0{name}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], signed=True)


class AdvisoryLock:
    """One held lock, and the connection on which it was taken."""

    def __init__(self, locks: AdvisoryLocks, name: str, connection: Connection) -> None:
        self._locks = locks
        self._name = name
        self._connection = connection

    def require_held(self) -> None:
        """Raise `LockLost` when the connection that took the lock is gone."""
        self._locks.require_held(self._name, self._connection)


def _answer(connection: Connection, query: bytes, values: tuple[int, ...], beside: Question | None) -> Any:
    """Return the row that answers a query; what is asked beside it is answered afterwards, in one trip."""
    if beside is None:
        return connection.execute(query, values).fetchone()
    other, other_values, take = beside
    with one_round_trip(connection):
        found = connection.execute(query, values)
        rows = connection.cursor(binary=True).execute(other, other_values)
    take(rows.fetchall())
    return found.fetchone()


def _queue_of(key: int) -> int:
    """Return what marks the tickets for a lock: advisory locks of two numbers, of which this is one."""
    return key & 0x7FFFFFFF


class AdvisoryQueue:
    """Those who wait for one lock. A ticket is an advisory lock too, so that it dies with its holder."""

    def __init__(self, locks: AdvisoryLocks, number: int) -> None:
        self._locks = locks
        self._number = number

    def is_empty(self) -> bool:
        """Tell whether nobody waits in this backend; of others the attempt itself asks the server."""
        return not self._locks.tickets.get(self._number)

    def join(self) -> AdvisoryTicket:
        """Queue up behind all who wait."""
        # One connection may take a lock twice: threads of this backend get a number one after another.
        with self._locks.queueing:
            while True:
                ticket = self._locks.ask(_NEXT, self._number)[0]
                own = self._locks.tickets.setdefault(self._number, set())
                if ticket not in own and self._locks.ask(_JOIN, self._number, ticket)[0]:
                    own.add(ticket)
                    return AdvisoryTicket(self._locks, self._number, ticket)


class AdvisoryTicket:
    """A place in an `AdvisoryQueue`."""

    def __init__(self, locks: AdvisoryLocks, queue: int, ticket: int) -> None:
        self._locks = locks
        self._queue = queue
        self._ticket = ticket

    def is_first(self) -> bool:
        """Tell whether nobody who still waits came before."""
        return bool(self._locks.ask(_IS_FIRST, self._queue, self._ticket)[0])

    def leave(self) -> None:
        """Give the place up; one that went with its connection is fine."""
        with self._locks.queueing:
            own = self._locks.tickets.get(self._queue, set())
            own.discard(self._ticket)
            if not own:
                self._locks.tickets.pop(self._queue, None)
            try:
                self._locks.ask(_LEAVE, self._queue, self._ticket)
            except psycopg.Error as error:
                if not is_lost(error):
                    raise
