"""A PgBouncer of the test run's own, before the server of a DSN, in any pool mode."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from postgres_server import free_port

_ATTEMPTS = 2_000


def binary() -> str | None:
    """Return the program, `None` where it is not installed. Debian puts it where only root looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer(dsn: str, pool_mode: str, **settings: object) -> Iterator[str]:
    """Run one and lend the DSN that leads through it."""
    program = binary()
    assert program is not None
    port = dsn.rpartition(":")[2].partition("/")[0]
    own = free_port()
    folder = Path(tempfile.mkdtemp(prefix="reactifact-pgbouncer-"))
    options = {
        "listen_addr": "127.0.0.1",
        "listen_port": own,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": pool_mode,
        "max_client_conn": 200,
        "default_pool_size": 20,
        **settings,
    }
    lines = [f"* = host=127.0.0.1 port={port} user=tester", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in options.items()]
    (folder / "config.ini").write_text("\n".join(["[databases]", *lines, ""]))
    user = None
    if os.geteuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        user = "postgres" if "postgres" in known else "nobody"
        shutil.chown(folder, user)
        shutil.chown(folder / "config.ini", user)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [program, "-q", str(folder / "config.ini")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=user,
            extra_groups=None if user is None else [],
        )
    try:
        through = dsn.replace(f":{port}/", f":{own}/")
        _wait(process, through, folder / "log")
        yield through
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(psycopg.OperationalError):
            psycopg.connect(dsn).close()
            return
        if process.poll() is not None:
            break
    raise AssertionError(f"PgBouncer does not answer: {log.read_text(errors='replace')}")
