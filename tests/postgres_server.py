"""A PostgreSQL server of the test run's own: made from the installed binaries, on a free port.

It is a real one, with fsync on. As root it runs as another user, since PostgreSQL refuses root.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

_numbers = count(1)
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
        self._data = self._folder / "data"
        self._free: list[str] = []
        self._user: str | None = None
        if os.geteuid() == 0:
            known = {entry.pw_name for entry in pwd.getpwall()}
            self._user = "postgres" if "postgres" in known else "nobody"
            shutil.chown(self._folder, self._user)
        self.port = _free_port()
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
            self._free.append(dsn)

    def _new_database(self) -> str:
        name = f"test{next(_numbers)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn(name)

    def is_running(self) -> bool:
        return (self._data / "postmaster.pid").exists()

    def dsn(self, database: str) -> str:
        return f"postgresql://tester:secret@127.0.0.1:{self.port}/{database}"

    def remove(self) -> None:
        if self.is_running():
            self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ctl(self, verb: str, *arguments: str) -> None:
        self._run("pg_ctl", verb, "-w", "-t", "60", "-D", self._data, *arguments)

    def _run(self, program: str, *arguments: str | Path) -> None:
        # Its output goes to a file: the server keeps the descriptors, and a pipe would never end.
        with open(self._folder / "output", "ab") as output:
            done = subprocess.run(
                [self._binaries / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                user=self._user,
                group=self._user and pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                cwd=self._folder,
                timeout=120,
            )
        assert done.returncode == 0, self._logs()

    def _logs(self) -> str:
        files = (self._folder / "output", self._folder / "log")
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in files if file.exists())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
