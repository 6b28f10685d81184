"""The PostgreSQL server that workloads measure on: the one of a DSN, or one of their own for as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def databases(dsn: str | None, count: int = 1) -> Iterator[list[str] | None]:
    """Lend as many empty databases by their DSN; `None` where there is neither a server nor a driver.

    A given `dsn` is lent as it is, so it can stand for one database alone.
    """
    if dsn is not None:
        if count != 1:
            raise ValueError(f"{count} databases are needed and a DSN names one: leave the DSN out")
        yield [dsn]
        return
    try:
        from tests.postgres_server import PostgresServer, binaries
    except ImportError:  # no driver
        yield None
        return
    if (installed := binaries()) is None:
        yield None
        return
    server = PostgresServer(installed)
    try:
        with ExitStack() as stack:
            yield [stack.enter_context(server.database()) for _ in range(count)]
    finally:
        server.remove()
