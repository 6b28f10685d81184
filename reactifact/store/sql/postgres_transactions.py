"""Transactions of a PostgreSQL store: many statements in one round trip, and the tables held for a prune.

Owns how statements travel and what is undone after an error. What is written is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..objects import Oid
from .postgres_statements import Statements
from .pruning import HeldTables, ObjectsOf
from .rows import batches

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from .postgres_server import Connection

WRITTEN_AT_ONCE = 2000


@contextmanager
def undone_unless_ended(connection: Connection) -> Iterator[None]:
    """Roll back what is begun inside and not ended, whatever comes out."""
    try:
        yield
    except BaseException:
        if not connection.closed:
            connection.rollback()
        raise


@contextmanager
def one_round_trip(connection: Connection) -> Iterator[None]:
    """Send what is executed inside without waiting, then wait for all of it: one round trip.

    The first error is raised at the end. Left to psycopg, one that comes up earlier would be found again
    at the end, and the second written to the log.
    """
    import psycopg

    errors: list[psycopg.Error] = []
    try:
        with connection.pipeline():
            try:
                yield
            except psycopg.Error as error:
                errors.append(error)
    except psycopg.Error as error:
        errors.append(error)
    if errors:
        raise errors[0]


def fetched(connection: Connection, query: bytes, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query, in binary form on the way."""
    with connection.cursor(binary=True) as cursor:
        return cursor.execute(query, values).fetchall()


def binary(oids: Iterable[Oid]) -> list[bytes]:
    """Return ids as columns hold them."""
    return [bytes.fromhex(oid) for oid in oids]


def vacuum(connection: Connection, sql: Statements, full: bool) -> list[str]:
    """Give the space of removed rows back; return the server's warnings: it does no more when it may not."""
    warnings: list[str] = []

    def hear(diagnostic: Diagnostic) -> None:
        warnings.append(diagnostic.message_primary or "")

    connection.add_notice_handler(hear)
    try:
        connection.execute(sql.rewrite if full else sql.vacuum)
    finally:
        connection.remove_notice_handler(hear)
    return warnings


class HeldPostgres(HeldTables):
    """The tables under a lock that lets others read."""

    def __init__(self, connection: Connection, sql: Statements, objects_of: ObjectsOf) -> None:
        super().__init__(objects_of)
        self._connection = connection
        self._sql = sql

    def tips(self) -> list[Oid]:
        return [row[0].hex() for row in fetched(self._connection, self._sql.tips)]

    def stored(self) -> set[Oid]:
        return {row[0].hex() for row in fetched(self._connection, self._sql.stored)}

    def rows(self, oids: list[Oid]) -> list[tuple[Any, ...]]:
        return fetched(self._connection, self._sql.objects, binary(oids))

    def noted(self) -> dict[Oid, float]:
        return {oid.hex(): since for oid, since in fetched(self._connection, self._sql.noted)}

    def note(self, fresh: Iterable[Oid], since: float, stale: Iterable[Oid]) -> None:
        for batch in batches(fresh, WRITTEN_AT_ONCE):
            self._connection.execute(self._sql.note, (since, binary(batch)))
        for batch in batches(stale, WRITTEN_AT_ONCE):
            self._connection.execute(self._sql.forget, (binary(batch),))

    def remove(self, oids: set[Oid]) -> int:
        size = 0
        for batch in batches(oids, WRITTEN_AT_ONCE):
            size += fetched(self._connection, self._sql.remove, binary(batch))[0][0]
        self._connection.execute(self._sql.count_prune)
        return size
