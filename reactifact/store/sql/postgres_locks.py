"""Named locks of a PostgreSQL store: advisory locks that die with the connection of their holder.

All locks of one backend are held by one connection of their own, so that a hundred sessions that
run do not take a hundred connections. Locks of a session are re-entrant in the server, so threads
of one backend are kept apart here.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import Any

import psycopg

from ...errors import LockLost, NotAStore, SessionBusy
from ..lock_queue import wait_in_turn
from ..thread_locks import ThreadLocks
from .postgres_server import Connection, Server, is_lost

_LONGEST_PAUSE = 0.1
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

_left_behind: list[Connection] = []


class AdvisoryLocks:
    """The locks that one backend holds. `subject` keeps stores in one database apart."""

    def __init__(self, server: Server, subject: str) -> None:
        self._server = server
        self._subject = subject
        self._threads = ThreadLocks(server.location)
        self._threads_pid = os.getpid()
        self._session = threading.Lock()  # of the connection
        self._connection: Connection | None = None
        self._taken: set[int] = set()  # keys that the connection holds, or held when it was lost
        self._backend: tuple[Connection | None, int] = (None, 0)  # which one answered on which connection
        self.tickets: dict[int, set[int]] = {}  # of this backend, by queue
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
                    row = connection.execute(b"SELECT pg_backend_pid()").fetchone()
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
        try:
            with self._session:
                key = self._key(name)
                self._taken.discard(key)
                if self._connection is not None and not self._connection.closed:
                    self._connection.execute(b"SELECT pg_advisory_unlock(%s)", (key,))
        except psycopg.Error as error:
            if not is_lost(error):
                raise
        finally:
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
        with self._session:
            mine = min(self.tickets.get(_queue_of(key), ()), default=_LAST_TICKET)
            had, backend = self._ask(_TRY, _queue_of(key), mine, key)
            self._require_same_backend(backend, key)
            if had:
                self._taken.add(key)
            return self._connection if had else None

    def _require_same_backend(self, backend: int, key: int) -> None:
        """Raise `NotAStore` where a pooler has given the connection another backend: its locks are there."""
        known, self._backend = self._backend, (self._connection, backend)
        if known[0] is self._connection and known[1] != backend:
            self._ask(b"SELECT pg_advisory_unlock(%s)", key)  # as far as the same backend still answers
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

    def _ask(self, query: bytes, *values: int) -> Any:
        try:
            return self._open().execute(query, values).fetchone()
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            if self._connection is not None:
                self._connection.close()
            return self._open().execute(query, values).fetchone()

    def _open(self) -> Connection:
        if self._pid != os.getpid():
            if self._connection is not None:
                _left_behind.append(self._connection)
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
        while True:
            ticket = self._locks.ask(_NEXT, self._number)[0]
            own = self._locks.tickets.setdefault(self._number, set())
            # One connection may take a lock twice, so threads of this backend are told apart here.
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
        own = self._locks.tickets.get(self._queue, set())
        own.discard(self._ticket)
        if not own:
            self._locks.tickets.pop(self._queue, None)
        try:
            self._locks.ask(_LEAVE, self._queue, self._ticket)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
