"""Loading the parts of the PostgreSQL store that import psycopg, an optional extra, when they are needed.

It owns the words for its absence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .postgres_locks import AdvisoryLocks
    from .postgres_server import Server


def driver() -> tuple[type[Server], type[AdvisoryLocks]]:
    """Return what needs psycopg. Raises `ImportError`, saying how to get it."""
    try:
        from .postgres_locks import AdvisoryLocks
        from .postgres_server import Server
    except ImportError as error:
        raise ImportError(
            f"PostgreSQLKVBackend needs psycopg 3, which the extra `pg` brings ({error}): "
            f'pip install "reactifact[pg]"'
        ) from error
    return Server, AdvisoryLocks
