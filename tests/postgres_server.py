"""A PostgreSQL server of the test run's own: made from the installed binaries, on a free port.

It is a real one, with fsync on. As root it runs as another user, since PostgreSQL refuses root. It ends
with the run, however that ends: this file, run as a program, is a watchdog that holds the other end of a
pipe, and removes the server when the pipe breaks.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

_numbers = count(1)
_PATIENCE = 60  # seconds
_END_OTHERS = (
    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def binaries() -> Path | None:
    """Return the folder with `initdb`, `pg_ctl` and `postgres`, `None` where there is none."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=_version, reverse=True)
    found = shutil.which("initdb")
    if found is not None:
        folders.append(os.path.dirname(os.path.realpath(found)))
    for folder in folders:
        if all(os.access(f"{folder}/{name}", os.X_OK) for name in ("initdb", "pg_ctl", "postgres")):
            return Path(folder)
    return None


def _version(folder: str) -> float:
    try:
        return float(folder.split("/")[-2])
    except ValueError:
        return 0


class PostgresServer:
    """One server; it may be stopped, killed and started again. Its data goes with `remove`."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="reactifact-pg-"))
        self._watchdog = subprocess.Popen(
            [sys.executable, __file__, str(binaries), str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # what ends the run, by its process group, leaves it alone
        )
        self._data = self._folder / "data"
        self._free: list[str] = []
        self._user: str | None = None
        if os.geteuid() == 0:
            known = {entry.pw_name for entry in pwd.getpwall()}
            self._user = "postgres" if "postgres" in known else "nobody"
            shutil.chown(self._folder, self._user)
        self.port = free_port()
        try:
            self._run(
                "initdb", "--pgdata", self._data, "--username=tester", "--auth=trust", "--encoding=UTF8"
            )
            self.start()
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        self._ctl("start", "-o", options, "-l", str(self._folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is what a crash does."""
        self._ctl("stop", "-m", mode)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Lend an empty database by its DSN. It is emptied and lent again: making one takes long."""
        dsn = self._free.pop() if self._free else self._new_database()
        yield dsn
        if self.is_running():
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(_END_OTHERS)
                for schema in ("reactifact", "other"):
                    connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
                connection.execute(b"DROP TABLE IF EXISTS public.kv_entries")
            self._free.append(dsn)

    def _new_database(self) -> str:
        name = f"test{next(_numbers)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn(name)

    def is_running(self) -> bool:
        return (self._data / "postmaster.pid").exists()

    @property
    def data(self) -> Path:
        """The folder that the server keeps its files in."""
        return self._data

    def dsn(self, database: str) -> str:
        return f"postgresql://tester:secret@127.0.0.1:{self.port}/{database}"

    def remove(self) -> None:
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        self._watchdog.wait(2 * _PATIENCE)

    def _ctl(self, verb: str, *arguments: str) -> None:
        self._run("pg_ctl", verb, "-w", "-t", f"{_PATIENCE}", "-D", self._data, *arguments)

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = _run_as(self._user, self._folder, self._binaries / program, *arguments)
        assert done == 0, self._logs()

    def _logs(self) -> str:
        files = (self._folder / "output", self._folder / "log")
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in files if file.exists())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _run_as(user: str | None, folder: Path, *command: str | Path) -> int:
    """Run a program as a user and return its exit code."""
    # Its output goes to a file: the server keeps the descriptors, and a pipe would never end.
    with open(folder / "output", "ab") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            user=user,
            group=user and pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
            cwd=folder,
            timeout=2 * _PATIENCE,
        )
    return done.returncode


def _watch(binaries: Path, folder: Path) -> None:
    """Wait until the run has ended; then stop its server and remove the folder."""
    sys.stdin.buffer.read()
    user = pwd.getpwuid(folder.stat().st_uid).pw_name if os.geteuid() == 0 else None
    deadline = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < deadline:  # it may just be made, or be starting
        if (folder / "data" / "postmaster.pid").exists():
            _run_as(user, folder, binaries / "pg_ctl", "stop", "-m", "immediate", "-w", "-D", folder / "data")
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0 if not folder.exists() else 0.1)


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), Path(sys.argv[2]))
