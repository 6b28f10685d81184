"""The statements of the PostgreSQL store, and transactions that take few round trips."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...objects import Oid
from .backend import SCHEMA_VERSION, HeldTables, ObjectsOf, batches

if TYPE_CHECKING:
    import psycopg
    from psycopg.errors import Diagnostic

    Connection = psycopg.Connection[Any]


# -- the tables of a PostgreSQL store, and every statement on them --


_CONTENT = (
    ("objects", "data", "bytea"),
    ("refs", "name", 'text COLLATE "C"'),
    ("kv", "name", 'text COLLATE "C"'),
    ("kv", "value", "bytea"),
)
"""Columns of which the server is to keep no samples: they would outlive the rows in `pg_statistic`."""
_FIRST_TABLES = (
    "CREATE TABLE {schema}.format (version integer NOT NULL)",
    "CREATE TABLE {schema}.objects (oid bytea PRIMARY KEY, kind integer NOT NULL, size integer NOT NULL,"
    " data bytea NOT NULL)",
    "ALTER TABLE {schema}.objects ALTER COLUMN data SET STORAGE EXTERNAL",  # compressed already
    'CREATE TABLE {schema}.refs (name text COLLATE "C" PRIMARY KEY, oid bytea NOT NULL)',
    'CREATE TABLE {schema}.kv (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)',
    "INSERT INTO {schema}.format VALUES (1)",
    *(
        f"ALTER TABLE {{schema}}.{table} ALTER COLUMN {column} SET STATISTICS 0"
        for table, column, _ in _CONTENT
    ),
)
_PRUNING = (
    "CREATE TABLE {schema}.prunes (number bigint NOT NULL)",
    "INSERT INTO {schema}.prunes VALUES (0)",
    "CREATE TABLE {schema}.unreachable (oid bytea PRIMARY KEY, since double precision NOT NULL)",
)
_VERSIONS = (_FIRST_TABLES, _PRUNING)  # what makes tables of version 1, brings them to 2 ...


# Rows lie as they were written. So the trees of a commit stand beside it, and the commits before it
# in the pages before its own. Where the object is not a commit, it is returned alone.
_PAGE = (
    "(SELECT format('(%%s,0)', greatest(0, split_part(trim('(' FROM ctid::text), ',', 1)::bigint"
    " + %s))::tid FROM {schema}.objects WHERE oid = %b AND kind = 1)"
)


class _Formatted:
    """A statement with the name of a schema in it, which is put in when the statement is first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __set_name__(self, owner: type[Statements], name: str) -> None:
        self._name = name

    def __get__(self, statements: Statements, owner: type[Statements]) -> bytes:
        made = statements.formatted(self._text)
        vars(statements)[self._name] = made
        return made


class Statements:
    """The statements of one schema."""

    opened = _Formatted("SELECT version, number FROM {schema}.format, {schema}.prunes")
    version = _Formatted("SELECT version FROM {schema}.format")
    objects = _Formatted("SELECT oid, kind, size, data FROM {schema}.objects WHERE oid = ANY(%b)")
    object_and_near = _Formatted(
        "SELECT oid, kind, size, data FROM {schema}.objects WHERE oid = %b"
        " UNION ALL SELECT oid, kind, size, data FROM {schema}.objects"
        f" WHERE ctid > {_PAGE} AND ctid < {_PAGE} AND kind <= %s AND oid <> %b"
    )
    known = _Formatted("SELECT oid FROM {schema}.objects WHERE oid = ANY(%b)")
    insert_objects = _Formatted(
        "INSERT INTO {schema}.objects (oid, kind, size, data) SELECT * FROM"
        " unnest(%b::bytea[], %b::integer[], %b::integer[], %b::bytea[]) ON CONFLICT DO NOTHING"
    )
    refs = _Formatted("SELECT name, oid FROM {schema}.refs WHERE name >= %s AND name <= %s ORDER BY name")
    refs_below = _Formatted(
        "SELECT DISTINCT name, oid FROM {schema}.refs,"
        " unnest(%s::text[], %s::text[]) AS asked (first, last)"
        " WHERE name >= first AND name <= last ORDER BY name"
    )
    some_refs = _Formatted("SELECT name, oid FROM {schema}.refs WHERE name = ANY(%s)")
    refs_to_move = _Formatted(
        "SELECT name, oid FROM {schema}.refs WHERE name = ANY(%s) ORDER BY name FOR UPDATE"
    )
    around = _Formatted(
        "SELECT name FROM {schema}.refs WHERE name = ANY(%s) UNION ALL"
        " SELECT found.name FROM unnest(%s::text[]) AS folder (name) CROSS JOIN LATERAL"
        " (SELECT name FROM {schema}.refs AS ref"
        " WHERE ref.name >= folder.name || '/' AND ref.name < folder.name || '0' LIMIT %s) AS found"
    )
    move_refs = _Formatted(
        "INSERT INTO {schema}.refs (name, oid) SELECT * FROM unnest(%s::text[], %b::bytea[])"
        " ON CONFLICT (name) DO UPDATE SET oid = excluded.oid"
    )
    delete_refs = _Formatted("DELETE FROM {schema}.refs WHERE name = ANY(%s)")
    notify = b"SELECT pg_notify(%s, moved.name) FROM unnest(%s::text[]) AS moved (name)"
    # A whole write: nothing is changed unless all that it rests on holds. Rows of refs are locked before
    # objects are written, everywhere; where one is waited for, what it holds then is compared.
    write = _Formatted(
        "WITH held AS MATERIALIZED (SELECT name, oid FROM {schema}.refs"
        " WHERE name = ANY(%s::text[]) ORDER BY name FOR UPDATE),"
        " looked AS MATERIALIZED (SELECT min(number) AS prunes, count(*) = 1 AND min(number) = %s"
        " AND NOT EXISTS (SELECT FROM unnest(%s::text[], %b::bytea[]) AS expected (name, oid)"
        " FULL JOIN held USING (name) WHERE expected.oid IS DISTINCT FROM held.oid)"
        " AND %s = (SELECT count(*) FROM {schema}.objects WHERE oid = ANY(%b::bytea[]))"
        " AND NOT EXISTS (SELECT FROM {schema}.refs WHERE name = ANY(%s::text[]))"
        " AND NOT EXISTS (SELECT FROM unnest(%s::text[]) AS folder (name) CROSS JOIN LATERAL"
        " (SELECT FROM {schema}.refs AS ref"
        " WHERE ref.name >= folder.name || '/' AND ref.name < folder.name || '0' LIMIT 1) AS found)"
        " AS holds FROM {schema}.prunes),"
        " stored AS (INSERT INTO {schema}.objects (oid, kind, size, data) SELECT fresh.* FROM looked,"
        " unnest(%b::bytea[], %b::integer[], %b::integer[], %b::bytea[]) AS fresh"
        " WHERE holds ON CONFLICT DO NOTHING),"
        " moved AS (INSERT INTO {schema}.refs (name, oid) SELECT fresh.* FROM looked,"
        " unnest(%s::text[], %b::bytea[]) AS fresh WHERE holds"
        " ON CONFLICT (name) DO UPDATE SET oid = excluded.oid),"
        " gone AS (DELETE FROM {schema}.refs USING looked WHERE holds AND name = ANY(%s::text[]))"
        " SELECT prunes, holds, (SELECT array_agg(name) FROM held), (SELECT array_agg(oid) FROM held),"
        " (SELECT count(pg_notify(%s, name)) FROM unnest(%s::text[]) AS changed (name) WHERE holds)"
        " FROM looked"
    )
    value = _Formatted("SELECT value FROM {schema}.kv WHERE name = %s")
    values = _Formatted("SELECT value FROM {schema}.kv")
    set_value = _Formatted(
        "INSERT INTO {schema}.kv (name, value) VALUES (%s, %b)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
    delete_value = _Formatted("DELETE FROM {schema}.kv WHERE name = %s")
    # of a prune
    prunes = _Formatted("SELECT number FROM {schema}.prunes")
    # Keeps out who writes or locks rows, and lets read. Writers take these two in the same order.
    hold_tables = _Formatted("LOCK TABLE {schema}.refs, {schema}.objects IN EXCLUSIVE MODE")
    stored = _Formatted("SELECT oid FROM {schema}.objects")
    tips = _Formatted("SELECT oid FROM {schema}.refs")
    noted = _Formatted("SELECT oid, since FROM {schema}.unreachable")
    note = _Formatted(
        "INSERT INTO {schema}.unreachable (oid, since) SELECT oid, %s FROM unnest(%b::bytea[]) AS fresh (oid)"
    )
    forget = _Formatted("DELETE FROM {schema}.unreachable WHERE oid = ANY(%b)")
    remove = _Formatted(
        "WITH gone AS (DELETE FROM {schema}.objects WHERE oid = ANY(%b) RETURNING length(data) AS size)"
        " SELECT coalesce(sum(size), 0)::bigint FROM gone"
    )
    count_prune = _Formatted("UPDATE {schema}.prunes SET number = number + 1")
    size = _Formatted(
        "SELECT pg_total_relation_size('{schema}.objects') + pg_total_relation_size('{schema}.refs')"
        " + pg_total_relation_size('{schema}.kv') + pg_total_relation_size('{schema}.unreachable')"
    )
    vacuum = _Formatted("VACUUM {schema}.objects, {schema}.unreachable")
    rewrite = _Formatted(
        "VACUUM (FULL, VERBOSE) {schema}.objects, {schema}.refs, {schema}.kv, {schema}.unreachable"
    )

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._name = f'"{schema}"'
        self.channel = f"reactifact_{hashlib.sha1(schema.encode()).hexdigest()[:16]}"
        columns = ", ".join(f"('{table}', '{column}')" for table, column, _ in _CONTENT)
        self.samples = (
            "SELECT 1 FROM pg_stats WHERE schemaname = %s"
            f" AND (tablename::text, attname::text) IN ({columns}) LIMIT 1"
        ).encode()
        self.drop_samples = [  # an ALTER to the type that it has rewrites nothing, and drops what was sampled
            self.formatted(
                f"ALTER TABLE {{schema}}.{table} ALTER COLUMN {column} TYPE {kind},"
                f" ALTER COLUMN {column} SET STATISTICS 0"
            )
            for table, column, kind in _CONTENT
        ]

    def tables_from(self, version: int) -> list[bytes]:
        """Return what brings tables of a version (0: none) to the present one."""
        made = [self.formatted(text) for step in _VERSIONS[version:] for text in step]
        return [*made, self.formatted(f"UPDATE {{schema}}.format SET version = {SCHEMA_VERSION}")]

    def formatted(self, text: str) -> bytes:
        """Return a statement with the name of the schema in it."""
        return text.replace("{schema}", self._name).encode()


# -- transactions of a PostgreSQL store --


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


def numbers(values: Iterable[int]) -> list[Any]:
    """Return numbers as one type whatever their size, so that the statement is prepared once."""
    from psycopg.types.numeric import Int4

    return [Int4(value) for value in values]


_STILL_SEEN = re.compile(r"(\d+)")  # how the detail begins, in every language of the server
_PATIENCE = 30.0
_PAUSE = 0.05


def vacuum(connection: Connection, sql: Statements, full: bool) -> list[str]:
    """Give the space of removed rows back; return the server's warnings: it does no more when it may not.

    With `full` the tables are written anew, and what the server sampled of them is dropped. A row that a
    transaction of anybody's may still see is written again: that is waited for, and else among the warnings.
    """
    if not full:
        return _heard(connection, sql.vacuum)[0]
    from psycopg.errors import InsufficientPrivilege

    statements = [sql.rewrite]
    if connection.execute(sql.samples, (sql.schema,)).fetchall():
        try:
            for statement in sql.drop_samples:
                connection.execute(statement)
        except InsufficientPrivilege as error:
            return [str(error)]
        statements.append(b"VACUUM (FULL, VERBOSE) pg_catalog.pg_statistic")
    for statement in statements:
        deadline = time.monotonic() + _PATIENCE
        while True:
            warnings, seen = _heard(connection, statement)
            if warnings:
                return warnings
            if not seen:
                break
            if time.monotonic() > deadline:
                return [
                    f"a transaction that goes on still sees {seen} removed rows: end it, and do this again"
                ]
            time.sleep(_PAUSE)
    return []


def _heard(connection: Connection, statement: bytes) -> tuple[list[str], int]:
    """Run a `VACUUM`; return its warnings, and how many removed rows it had to keep."""
    warnings: list[str] = []
    seen = 0

    def hear(diagnostic: Diagnostic) -> None:
        nonlocal seen
        if diagnostic.severity_nonlocalized != "INFO":
            warnings.append(diagnostic.message_primary or "")
        elif found := _STILL_SEEN.match(diagnostic.message_detail or ""):
            seen += int(found[1])

    connection.add_notice_handler(hear)
    try:
        connection.execute(statement)
    finally:
        connection.remove_notice_handler(hear)
    return warnings, seen


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
