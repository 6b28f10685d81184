"""The table that reactifact 0.15 made in a PostgreSQL database: finding it, and reading its rows.

It stands where the connection's `search_path` looks first, while our tables have a schema of their own: a
database may hold both. What its documents mean is `published`'s; nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..published import Published, published_in_rows
from .postgres_driver import driver

if TYPE_CHECKING:
    from .postgres_server import Connection

PUBLISHED_TABLE = "kv_entries"

_COLUMNS = b"""
SELECT attname::text FROM pg_attribute
WHERE attrelid = to_regclass('kv_entries') AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def published_rows(connection: Connection, *, limit: int | None = None) -> list[tuple[str, str]]:
    """Return keys and documents, in order of key; none where there is no such table, or no row in it."""
    if [row[0] for row in connection.execute(_COLUMNS)] != ["key", "data"]:
        return []
    return connection.execute(
        b'SELECT key, data FROM kv_entries ORDER BY key COLLATE "C" LIMIT %s', (limit,)
    ).fetchall()


def published_in(dsn: str) -> Published | None:
    """Return what reactifact 0.15 wrote into the database of a DSN, `None` where there is nothing of it.

    Raises `ImportError` without the driver, `NotAStore` for a document that is damaged, `StoreError`.
    """
    server = driver()[0](dsn, sync=True, read_only=True)
    try:
        rows = server.run("reading from", published_rows)
    finally:
        server.close()
    return published_in_rows(server.location, rows) if rows else None
