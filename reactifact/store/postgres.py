"""`PostgreSQLKVBackend`: objects, refs and values in the tables of one PostgreSQL schema.

It owns the tables, the order of a write, and what a lost connection means for one. The same tables
as in SQLite; many processes on many hosts use them at once.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ..errors import Contention, FormatTooNew, MissingObject, NotAStore
from ..threads import in_thread
from .checks import check_oid, parent_names
from .kv import AppendBackend
from .names import encode_name
from .objects import GitObject, Oid
from .protocol import RefUpdate
from .rows import (
    SCHEMA_VERSION,
    ObjectRow,
    RefView,
    batches,
    check_write,
    name_range,
    object_of,
    object_row,
    plan_refs,
    value_of,
    value_row,
)

if TYPE_CHECKING:
    from .postgres_server import Connection

Durability = Literal["full", "os"]

_TABLES = (
    "CREATE TABLE {schema}.format (version integer NOT NULL)",
    "CREATE TABLE {schema}.objects (oid bytea PRIMARY KEY, kind integer NOT NULL, size integer NOT NULL,"
    " data bytea NOT NULL)",
    "ALTER TABLE {schema}.objects ALTER COLUMN data SET STORAGE EXTERNAL",  # compressed already
    'CREATE TABLE {schema}.refs (name text COLLATE "C" PRIMARY KEY, oid bytea NOT NULL)',
    'CREATE TABLE {schema}.kv (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)',
    f"INSERT INTO {{schema}}.format VALUES ({SCHEMA_VERSION})",
)
_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_READ_AT_ONCE = 5000
_WRITTEN_AT_ONCE = 2000


class PostgreSQLKVBackend(AppendBackend):
    """A store in the database of a DSN (`postgresql://user:password@host:port/database`).

    Its tables stand in a schema of their own, `reactifact` unless another is given, and are made
    when absent. Equal objects are one row, so there is nothing to compact. With `durability="full"`
    a write is on stable storage of the server when it returns; with `"os"` a crash of the server may
    lose the last moments (`synchronous_commit=off`), never their order.

    Locks are advisory locks on a connection of their own: connect to the server itself, not through
    a pooler that shares connections between transactions.

    When the connection is lost, the call is repeated once over a new one. Where that fails too it
    raises one `StoreError`; a write may be repeated with the same arguments when the server is back,
    and is then known to be done if it had got through.

    `fault`, if set, is called with the name of each step of a write that has just been done, so
    that tests can kill, pause or fail there.

    Raises `ImportError` without the driver, `NotAStore`, `FormatTooNew`, `StoreError`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "reactifact",
        durability: Durability = "full",
        create: bool = True,
        read_only: bool = False,
    ) -> None:
        if durability not in ("full", "os"):
            raise ValueError(f"durability is 'full' or 'os', not {durability!r}")
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ValueError(f"{schema!r} is no name for a schema: use letters, digits and _, 63 at most")
        try:
            from .postgres_locks import AdvisoryLocks
            from .postgres_server import Server
        except ImportError as error:
            raise ImportError(
                f"PostgreSQLKVBackend needs psycopg 3, which the extra `pg` brings ({error}): "
                f'pip install "reactifact[pg]"'
            ) from error
        self.fault: Callable[[str], None] | None = None
        self._durability = durability
        self._schema = schema
        self._sql = _Statements(schema)
        self._server = Server(dsn, sync=durability == "full", read_only=read_only)
        self._locks = AdvisoryLocks(self._server, f"lock\0{schema}")
        self._mutex = threading.Lock()
        self._in_doubt: set[tuple[RefUpdate, ...]] = set()  # writes whose end was not heard of
        self._server.run("opening", partial(self._prepare, create=create and not read_only))

    @property
    def location(self) -> str:
        """The DSN without its password."""
        return self._server.location

    @property
    def is_local(self) -> bool:
        """Always false."""
        return False

    @property
    def durability(self) -> Durability:
        """`full` or `os`."""
        return self._durability

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        """Return every object asked for, in one query for each 5,000.

        Raises `MissingObject` for the first that is absent, `StoreError` for one that is damaged.
        """
        wanted = list(dict.fromkeys(oids))
        for oid in wanted:
            check_oid(oid)
        found: dict[Oid, GitObject] = {}
        for batch in batches(wanted, _READ_AT_ONCE):
            rows = self._read(self._sql.objects, _binary(batch))
            found.update(object_of(row, self.location) for row in rows)
        for oid in wanted:
            if oid not in found:
                raise MissingObject(oid, self.location)
        return found

    def refs(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Return the refs whose full name starts with `prefix`, in order of name."""
        names = name_range(prefix)
        if names is None:
            return {}
        rows = self._read(self._sql.refs, *names)
        return {name: oid.hex() for name, oid in rows}

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs, all or none, in one transaction.

        When this returns everything is as durable as promised. Raises `Contention`,
        `MissingObject`, `InvalidName` or `StoreError`; nothing is changed then, except that after a
        lost connection the write may be found done when it is repeated.
        """
        self._server.require_writable()
        check_write(objects, updates)
        if not objects and not updates:
            return
        # In one order everywhere: transactions that write the same objects wait instead of locking up.
        rows = [object_row(oid, item) for oid, item in sorted(objects.items())]
        done = tuple(updates)

        def work(connection: Connection) -> None:
            try:
                with connection.transaction():
                    self._write(connection, rows, objects, updates)
            except Contention:
                if not self._is_done(connection, done):
                    raise
            except BaseException:
                if connection.closed:
                    with self._mutex:
                        self._in_doubt.add(done)
                raise

        self._server.run("writing to", work)
        with self._mutex:
            self._in_doubt.discard(done)
        self._step("committed")

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the named lock for the length of a `with`, against threads, processes and hosts.

        Raises `SessionBusy`, naming the holder, when it is not had within `wait` seconds.
        """
        self._server.require_writable()
        with self._lock_errors():
            self._locks.take(name, wait)
        try:
            yield
        finally:
            with self._lock_errors():
                self._locks.release(name)

    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens them again."""
        self._locks.close()
        self._server.close()

    # -- values --------------------------------------------------------------------------------

    async def set(self, key: str, value: dict[str, Any]) -> None:
        """Store a value under a key. Raises `ValueError` for what is not plain JSON."""
        await self._change(self._sql.set_value, *value_row(key, value))

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return the value under a key, or `None`."""
        rows = await in_thread(self._read, self._sql.value, encode_name(key))
        return value_of(rows[0][0])[1] if rows else None

    async def delete(self, key: str) -> None:
        """Remove a key; one that is absent is fine."""
        await self._change(self._sql.delete_value, encode_name(key))

    async def keys(self) -> list[str]:
        """Return all keys, sorted."""
        rows = await in_thread(self._read, self._sql.values)
        return sorted(value_of(row[0])[0] for row in rows)

    async def aclose(self) -> None:
        """Close the store."""
        await in_thread(self.close)

    async def _change(self, query: bytes, *values: Any) -> None:
        self._server.require_writable()

        def work(connection: Connection) -> None:
            connection.execute(query, values)

        await in_thread(self._server.run, "writing to", work)

    def _read(self, query: bytes, *values: Any) -> list[tuple[Any, ...]]:
        return self._server.run("reading from", lambda connection: _rows(connection, query, *values))

    # -- inside a transaction ------------------------------------------------------------------

    def _write(
        self,
        connection: Connection,
        rows: list[ObjectRow],
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
    ) -> None:
        self._step("begun")
        for batch in batches(rows, _WRITTEN_AT_ONCE):
            connection.execute(
                self._sql.insert_objects, [list(column) for column in zip(*batch, strict=True)]
            )
        self._step("objects stored")
        if updates:
            self._move(connection, objects, updates)
            self._step("refs moved")

    def _move(
        self, connection: Connection, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate]
    ) -> None:
        names = sorted({update.name for update in updates})
        current = dict(_rows(connection, self._sql.refs_to_move, names))
        absent = [name for name in names if name not in current]
        if absent:
            self._hold_names(absent, connection)
            current |= dict(_rows(connection, self._sql.refs_to_move, absent))

        def beneath(name: str, limit: int) -> list[str]:
            found = _rows(connection, self._sql.beneath, f"{name}/", f"{name}0", limit)
            return [row[0] for row in found]

        def known(oids: list[Oid]) -> set[Oid]:
            return {row[0].hex() for row in _rows(connection, self._sql.known, _binary(oids))}

        def stored(wanted: list[str]) -> set[str]:
            return {row[0] for row in _rows(connection, self._sql.some_refs, wanted)}

        held = {name: oid.hex() for name, oid in current.items()}
        plan = plan_refs(RefView(self.location, held, known, beneath, stored), objects, updates)
        for name, new in plan.changes.items():
            if new is None:
                connection.execute(self._sql.delete_ref, (name,))
            elif name in held:
                connection.execute(self._sql.move_ref, (bytes.fromhex(new), name))
            else:
                connection.execute(self._sql.create_ref, (name, bytes.fromhex(new)))

    def _hold_names(self, names: list[str], connection: Connection) -> None:
        """Keep others from creating these refs, or refs in their way, until the transaction ends.

        A ref that is not there has no row to lock. Each folder of its name is held shared, the name
        alone, in one order everywhere.
        """
        wanted: dict[str, bool] = {parent: True for name in names for parent in parent_names(name)}
        wanted |= dict.fromkeys(names, False)
        for name, shared in sorted(wanted.items()):
            connection.execute(_HOLD_SHARED if shared else _HOLD, (_key(f"{self._schema}\0{name}"),))

    def _is_done(self, connection: Connection, updates: tuple[RefUpdate, ...]) -> bool:
        """Tell whether a refused write is one that got through before its connection was lost."""
        with self._mutex:
            if updates not in self._in_doubt:
                return False
            self._in_doubt.discard(updates)
        after = {update.name: update.new for update in updates}
        rows = _rows(connection, self._sql.some_refs, list(after))
        held = {name: oid.hex() for name, oid in rows}
        return all(held.get(name) == new for name, new in after.items())

    # -- opening -------------------------------------------------------------------------------

    def _prepare(self, connection: Connection, *, create: bool) -> None:
        if self._has_tables(connection):
            return
        if not create:
            raise NotAStore(
                f"{self.location} holds no store in schema {self._schema!r}; check the DSN and the schema"
            )
        with connection.transaction():
            connection.execute(_HOLD, (_key(f"{self._schema}\0tables"),))
            if self._has_tables(connection):  # another process was first
                return
            if not connection.execute(_SCHEMA, (self._schema,)).fetchall():
                connection.execute(self._sql.formatted("CREATE SCHEMA {schema}"))
            for statement in _TABLES:
                connection.execute(self._sql.formatted(statement))

    def _has_tables(self, connection: Connection) -> bool:
        names = {row[0] for row in connection.execute(_TABLE_NAMES, (self._schema,))}
        if not names:
            return False
        if not {"format", "objects", "refs", "kv"} <= names:
            raise NotAStore(
                f"schema {self._schema!r} of {self.location} holds tables of another program "
                f"({', '.join(sorted(names)[:5])}); if an earlier reactifact wrote them, bring them over "
                f"with `reactifact import`, else choose another schema"
            )
        row = connection.execute(self._sql.version).fetchone()
        if row is None or row[0] > SCHEMA_VERSION:
            raise FormatTooNew(
                f"{self.location} has tables of version {row and row[0]}, and this reactifact knows them up "
                f"to {SCHEMA_VERSION}: a newer one wrote it; upgrade reactifact"
            )
        return True

    @contextmanager
    def _lock_errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self._server.explained(error, "locking") from error

    def _step(self, name: str) -> None:
        if self.fault is not None:
            self.fault(name)


_HOLD = b"SELECT pg_advisory_xact_lock(%s)"
_HOLD_SHARED = b"SELECT pg_advisory_xact_lock_shared(%s)"
_SCHEMA = b"SELECT 1 FROM pg_namespace WHERE nspname = %s"
_TABLE_NAMES = b"SELECT tablename::text FROM pg_tables WHERE schemaname = %s"


class _Statements:
    """The statements of one schema, made once."""

    def __init__(self, schema: str) -> None:
        self._name = f'"{schema}"'
        make = self.formatted
        self.version = make("SELECT version FROM {schema}.format")
        self.objects = make("SELECT oid, kind, size, data FROM {schema}.objects WHERE oid = ANY(%b)")
        self.known = make("SELECT oid FROM {schema}.objects WHERE oid = ANY(%b)")
        self.insert_objects = make(
            "INSERT INTO {schema}.objects (oid, kind, size, data) SELECT * FROM"
            " unnest(%b::bytea[], %b::integer[], %b::integer[], %b::bytea[]) ON CONFLICT DO NOTHING"
        )
        self.refs = make("SELECT name, oid FROM {schema}.refs WHERE name >= %s AND name <= %s ORDER BY name")
        self.some_refs = make("SELECT name, oid FROM {schema}.refs WHERE name = ANY(%s)")
        self.refs_to_move = make(
            "SELECT name, oid FROM {schema}.refs WHERE name = ANY(%s) ORDER BY name FOR UPDATE"
        )
        self.beneath = make("SELECT name FROM {schema}.refs WHERE name >= %s AND name < %s LIMIT %s")
        self.create_ref = make("INSERT INTO {schema}.refs (name, oid) VALUES (%s, %b)")
        self.move_ref = make("UPDATE {schema}.refs SET oid = %b WHERE name = %s")
        self.delete_ref = make("DELETE FROM {schema}.refs WHERE name = %s")
        self.value = make("SELECT value FROM {schema}.kv WHERE name = %s")
        self.values = make("SELECT value FROM {schema}.kv")
        self.set_value = make(
            "INSERT INTO {schema}.kv (name, value) VALUES (%s, %b)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        self.delete_value = make("DELETE FROM {schema}.kv WHERE name = %s")

    def formatted(self, text: str) -> bytes:
        """Return a statement with the name of the schema in it."""
        return text.replace("{schema}", self._name).encode()


def _rows(connection: Connection, query: bytes, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor(binary=True) as cursor:
        return cursor.execute(query, values).fetchall()


def _binary(oids: Iterable[Oid]) -> list[bytes]:
    return [bytes.fromhex(oid) for oid in oids]


def _key(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"names\0{text}".encode()).digest()[:8], signed=True)
