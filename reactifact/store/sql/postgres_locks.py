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
from ..thread_locks import ThreadLocks
from .postgres_server import Connection, Server, is_lost

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1
_HOLDER = b"""
SELECT a.application_name, a.backend_start::text FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = %s
"""

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
        pause = _FIRST_PAUSE
        while (connection := self._try(key)) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionBusy(
                    f"lock {name!r} of {self._server.location} is held by {self._holder(key)}; wait for it "
                    f"to finish, pass a longer wait, or end that process (the lock goes with it)"
                )
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)
        return connection

    def _try(self, key: int) -> Connection | None:
        with self._session:
            had, backend = self._ask(b"SELECT pg_try_advisory_lock(%s), pg_backend_pid()", key)
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

    def _ask(self, query: bytes, key: int) -> Any:
        try:
            return self._open().execute(query, (key,)).fetchone()
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            if self._connection is not None:
                self._connection.close()
            return self._open().execute(query, (key,)).fetchone()

    def _open(self) -> Connection:
        if self._pid != os.getpid():
            if self._connection is not None:
                _left_behind.append(self._connection)
            self._connection, self._pid = None, os.getpid()
            self._taken.clear()
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
