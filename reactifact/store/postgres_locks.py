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

from ..errors import SessionBusy
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
        self._released = threading.Condition()
        self._holders: dict[str, str] = {}
        self._session = threading.Lock()  # of the connection
        self._connection: Connection | None = None
        self._pid = os.getpid()

    def take(self, name: str, wait: float) -> None:
        """Take the lock. Raises `SessionBusy` naming the holder, `psycopg.Error`."""
        deadline = time.monotonic() + wait
        self._take_here(name, deadline)
        try:
            self._take_there(name, deadline)
        except BaseException:
            self._release_here(name)
            raise

    def release(self, name: str) -> None:
        """Give the lock back; one that went with its connection is fine."""
        try:
            with self._session:
                if self._connection is not None and not self._connection.closed:
                    self._connection.execute(b"SELECT pg_advisory_unlock(%s)", (self._key(name),))
        except psycopg.Error as error:
            if not is_lost(error):
                raise
        finally:
            self._release_here(name)

    def close(self) -> None:
        """Close the connection, unless a lock is held: it goes with the process then."""
        with self._released:
            if self._holders:
                return
        with self._session:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None and self._pid == os.getpid():
            connection.close()

    # -- between threads -----------------------------------------------------------------------

    def _take_here(self, name: str, deadline: float) -> None:
        with self._released:
            if self._pid != os.getpid():
                self._holders.clear()  # the locks of a forked child's parent are the parent's
            while name in self._holders:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._busy(name, f"{self._holders[name]} of this process")
                self._released.wait(min(left, threading.TIMEOUT_MAX))
            self._holders[name] = f"thread {threading.current_thread().name}"

    def _release_here(self, name: str) -> None:
        with self._released:
            self._holders.pop(name, None)
            self._released.notify_all()

    # -- between connections -------------------------------------------------------------------

    def _take_there(self, name: str, deadline: float) -> None:
        key = self._key(name)
        pause = _FIRST_PAUSE
        while not self._try(key):
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._busy(name, self._holder(key))
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _try(self, key: int) -> bool:
        return bool(self._ask(b"SELECT pg_try_advisory_lock(%s)", key)[0])

    def _holder(self, key: int) -> str:
        try:
            name, since = self._ask(_HOLDER, key)
        except TypeError:
            return "another runner that has just given it back"
        return f"process {name.rpartition(' ')[2] or 'unknown'}, connected since {since}"

    def _ask(self, query: bytes, key: int) -> Any:
        with self._session:
            try:
                return self._open().execute(query, (key,)).fetchone()
            except psycopg.Error as error:
                if not is_lost(error):
                    raise
                self._connection = None
                return self._open().execute(query, (key,)).fetchone()

    def _open(self) -> Connection:
        if self._pid != os.getpid():
            if self._connection is not None:
                _left_behind.append(self._connection)
            self._connection, self._pid = None, os.getpid()
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect()
            with self._released:
                held = list(self._holders)
            for name in held:
                # They went with the old connection. One that somebody else has by now stays lost:
                # the compare-and-swap of refs is behind it.
                self._connection.execute(b"SELECT pg_try_advisory_lock(%s)", (self._key(name),))
        return self._connection

    def _key(self, name: str) -> int:
        text = f"{self._subject}\0{name}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], signed=True)

    def _busy(self, name: str, holder: str) -> SessionBusy:
        return SessionBusy(
            f"lock {name!r} of {self._server.location} is held by {holder}; wait for it to finish, pass a "
            f"longer wait, or end that process (the lock goes with it)"
        )
