"""A PostgreSQL database as a store; psycopg is imported when it is first needed."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from ...._extras import install_command
from ....errors import Contention, FormatTooNew, NotAStore, StoreError
from ...objects import MAX_OBJECT, GitObject, Oid
from ...protocol import Durability, HeldLock, Pruned, RefUpdate, check_oid
from ..kv import RefQuestions, RefView, check_write, plan_refs, ref_questions
from ..locks import LockQueue
from ..published import Published, published_in_rows
from .backend import (
    SCHEMA_VERSION,
    HeldTables,
    ObjectRow,
    Oids,
    SQLBackend,
    batches,
    name_range,
    object_of,
    object_rows,
    ref_oid,
    referred_beyond,
    require_known,
)
from .postgres_statements import (
    WRITTEN_AT_ONCE,
    HeldPostgres,
    Statements,
    binary,
    fetched,
    numbers,
    one_round_trip,
    undone_unless_ended,
    vacuum,
)

if TYPE_CHECKING:
    from .postgres_connection import AdvisoryLocks, Connection, Listener, Question, Server


# -- loading the parts of the PostgreSQL store that import psycopg, an optional extra, when they are needed --


def driver() -> tuple[type[Server], type[AdvisoryLocks]]:
    """Return what needs psycopg. Raises `ImportError`, saying how to get it."""
    try:
        from .postgres_connection import AdvisoryLocks, Server
    except ImportError as error:
        raise ImportError(
            f"PostgreSQLKVBackend needs psycopg 3, which the extra `pg` brings ({error}): "
            f"run {install_command('pg')}"
        ) from error
    return Server, AdvisoryLocks


# -- the table that reactifact 0.15 made in a PostgreSQL database --


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


_Range = tuple[str, str]
"""The first and the last of some names."""


class _Recalled:
    """The refs that a thread saw, range by range, and the ranges that it reads with the next it asks."""

    def __init__(self) -> None:
        self.awaited: list[_Range] = []
        self._seen: list[tuple[_Range, list[tuple[Any, ...]]]] = []

    def rows(self, first: str, last: str) -> list[tuple[Any, ...]] | None:
        """Return the refs of a range that was seen, `None` for another one."""
        for names, rows in self._seen:
            if names[0] <= first and last <= names[1]:
                return [row for row in rows if first <= row[0] <= last]
        return None

    def see(self, ranges: list[_Range], rows: list[tuple[Any, ...]]) -> None:
        """Take what some ranges hold."""
        for names in ranges:
            self._seen.append((names, [row for row in rows if names[0] <= row[0] <= names[1]]))
        self.awaited = [names for names in self.awaited if names not in ranges]

    def forget(self) -> None:
        """See what is asked from now on anew."""
        self._seen.clear()


# -- `PostgreSQLKVBackend`: objects, refs and values in the tables of one PostgreSQL schema --


_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_READ_AT_ONCE = 5000


class PostgreSQLKVBackend(SQLBackend):
    """A store in the database of a DSN (`postgresql://user:password@host:port/database`).

    Its tables stand in a schema of their own, `reactifact` unless another is given, and are made
    when absent. Equal objects are one row, so a store that only grows needs no care; `prune` removes
    what no ref reaches any more. With `durability="full"` a write is on stable storage of the server
    when it returns; with `"os"` a crash of the server may lose the last moments
    (`synchronous_commit=off`), never their order. A write takes one round trip.

    Locks are advisory locks on a connection of their own: connect to the server itself, or through a
    pooler that keeps a connection for each session. One that shares them between transactions is
    refused (`NotAStore`).

    When the connection is lost, the call is repeated once over a new one. Where that fails too it
    raises one `StoreError`; a write may be repeated with the same arguments when the server is back,
    and is then known to be done if it had got through.

    Where reactifact 0.15 left sessions in the database, none are looked for in their place: that is
    `NotAStore`, naming `reactifact import`, unless our tables are there already or `beside_published`
    is set.

    `fault`, if set, is called with the name of each step of a write that has just been done, so
    that tests can kill, pause or fail there; set on the class, it is called for the making of the
    tables too.

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
        max_object: int = MAX_OBJECT,
        beside_published: bool = False,
    ) -> None:
        super().__init__(durability, max_object)
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ValueError(f"{schema!r} is not a name for a schema: use letters, digits and _, 63 at most")
        server, locks = driver()
        self._schema = schema
        self._sql = Statements(schema)
        self._server = server(dsn, sync=durability != "os", read_only=read_only)
        # weak: in a circle, connections that nobody closed would be collected before what closes them
        awaited = WeakMethod(self._awaited)
        self._locks = locks(self._server, f"lock\0{schema}", lambda: (asked := awaited()) and asked())
        self._mutex = threading.Lock()
        self._in_doubt: set[tuple[RefUpdate, ...]] = set()  # writes whose end was not heard of
        self._thread = threading.local()  # what a thread recalls
        self._prunes = 0  # how many there had been when this store was opened
        self._beside_published = beside_published
        self._is_made = False  # whether there are tables, as far as is known
        try:
            self._server.run("opening", partial(self._prepare, create=create and not read_only))
        except BaseException:
            self._server.close()
            raise

    @property
    def location(self) -> str:
        """The DSN without its password."""
        return self._server.location

    @property
    def is_local(self) -> bool:
        """Always false."""
        return False

    def write(self, objects: Mapping[Oid, GitObject], updates: Sequence[RefUpdate] = ()) -> None:
        """Store `objects` and move the refs, all or none, in one transaction.

        When this returns everything is as durable as promised. Raises `Contention`,
        `MissingObject`, `InvalidName` or `StoreError`; nothing is changed then, except that after a
        lost connection the write may be found done when it is repeated.
        """
        self._server.require_writable()
        check_write(objects, updates, self._max_object)
        if not objects and not updates:
            return
        self._make()
        # In one order everywhere: transactions that write the same objects wait instead of locking up.
        rows = object_rows(sorted(objects.items()))
        done = tuple(updates)

        def work(connection: Connection) -> None:
            try:
                with undone_unless_ended(connection):
                    self._write(connection, rows, objects, updates)
            except Contention:
                if not self._is_done(connection, done):
                    raise
            except BaseException as error:
                if updates and self._server.is_lost(connection, error):
                    with self._mutex:
                        self._in_doubt.add(done)
                raise

        try:
            self._server.run("writing to", work)
        finally:
            if (recalled := self._recalled) is not None:
                recalled.forget()
        with self._mutex:
            self._in_doubt.discard(done)
        self._step("committed")

    def read_line(self, oid: Oid, most: int) -> dict[Oid, GitObject]:
        """Return an object; with a commit, what was written beside it, and commits of `most` pages before."""
        check_oid(oid)
        held = bytes.fromhex(oid)
        kinds = _AND_TREES if most <= _BESIDE else _COMMITS
        before, after = -max(most, _BESIDE), _BESIDE

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            if connection.info.server_version < _READS_RANGES:
                return fetched(connection, self._sql.objects, [held])
            values = (held, before, held, after, held, kinds, held)
            return fetched(connection, self._sql.object_and_near, *values)

        found: dict[Oid, GitObject] = {}
        for row in self._server.run("reading from", work):
            try:
                key, item = object_of(row, self.location, self._max_object)
            except StoreError:
                if bytes(row[0]) == held:
                    raise
            else:  # one beside it that is damaged is told to whoever asks for that
                found[key] = item
        return found if oid in found else self.read_many([oid])

    def watch_refs(self) -> Listener:
        """Return a watch that hears of each ref as its write commits (`LISTEN`)."""
        from .postgres_connection import Listener

        return Listener(self._server, self._sql.channel)

    def queue(self, name: str) -> LockQueue:
        """Return the queue of those who wait for a named lock."""
        return self._locks.queue(name)

    @contextmanager
    def lock(self, name: str, *, wait: float = 0.0) -> Iterator[HeldLock]:
        """Hold the named lock for the length of a `with`, against threads, processes and hosts.

        Raises `SessionBusy`, naming the holder, when it is not free within `wait` seconds.
        """
        self._server.require_writable()
        with self._lock_errors():
            lock = self._locks.take(name, wait)
        try:
            yield lock
        finally:
            with self._lock_errors():
                self._locks.release(name)

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Let the locks that this thread gives back inside of the `with` go together at its end."""
        with self._lock_errors(), self._locks.releasing():
            yield

    def close(self) -> None:
        """Close the connections. Closing twice is fine; a later use opens them again."""
        self._locks.close()
        self._server.close()

    # -- rows ----------------------------------------------------------------------------------

    def _object_rows(self, oids: list[Oid]) -> Iterator[Sequence[Any]]:
        for batch in batches(oids, _READ_AT_ONCE):
            yield from self._read(self._sql.objects, binary(batch))

    def _ref_rows(self, first: str, last: str) -> list[tuple[Any, ...]]:
        recalled = self._recalled
        if recalled is None:
            return self._read(self._sql.refs, first, last)
        rows = recalled.rows(first, last)
        if rows is None:
            ranges = [*recalled.awaited, (first, last)]
            found = self._read(self._sql.refs_below, *map(list, zip(*ranges, strict=True)))
            recalled.see(ranges, found)
            rows = recalled.rows(first, last)
            assert rows is not None
        return rows

    @property
    def _recalled(self) -> _Recalled | None:
        return getattr(self._thread, "recalled", None)

    def _awaited(self) -> Question | None:
        """Return what a question about a lock is to bring along: the refs that this thread asks next."""
        recalled = self._recalled
        if recalled is None or not recalled.awaited or not self._is_made:
            return None
        ranges = list(recalled.awaited)
        values = [list(column) for column in zip(*ranges, strict=True)]
        return self._sql.refs_below, values, partial(recalled.see, ranges)

    @contextmanager
    def recalling(self, *prefixes: str) -> Iterator[None]:
        """Let this thread see the refs, for the length of a `with`, as they were when it asked first.

        Those below `prefixes` are read with what it asks first, be it other refs or a lock. A write of this
        thread is seen.
        """
        before = self._recalled
        recalled = _Recalled() if before is None else before
        ranges = [found for prefix in prefixes if (found := name_range(prefix)) is not None]
        recalled.awaited += [names for names in ranges if recalled.rows(*names) is None]
        self._thread.recalled = recalled
        try:
            yield
        finally:
            self._thread.recalled = before

    def _set(self, name: str, data: bytes | None) -> None:
        self._server.require_writable()
        self._make()
        query, values = (
            (self._sql.delete_value, [name]) if data is None else (self._sql.set_value, [name, data])
        )

        def work(connection: Connection) -> None:
            connection.execute(query, values)

        self._server.run("writing to", work)

    def _get(self, name: str) -> bytes | None:
        rows = self._read(self._sql.value, name)
        return bytes(rows[0][0]) if rows else None

    def _values(self) -> list[bytes]:
        return [bytes(row[0]) for row in self._read(self._sql.values)]

    def _read(self, query: bytes, *values: Any) -> list[tuple[Any, ...]]:
        from psycopg.errors import InvalidSchemaName, UndefinedTable

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            try:
                rows = fetched(connection, query, *values)
            except (InvalidSchemaName, UndefinedTable):
                if self._is_made:
                    raise
                return []  # nobody has written yet
            self._is_made = True
            return rows

        return self._server.run("reading from", work)

    # -- inside a transaction ------------------------------------------------------------------

    def _write(
        self,
        connection: Connection,
        rows: list[ObjectRow],
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
    ) -> None:
        """Write, in one round trip where all is as the write expects."""
        asked = ref_questions(objects, updates)
        if len(rows) <= WRITTEN_AT_ONCE and self._write_as_expected(
            connection, rows, objects, updates, asked
        ):
            return
        self._write_as_found(connection, rows, objects, updates, asked)

    def _write_as_expected(
        self,
        connection: Connection,
        rows: list[ObjectRow],
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
        asked: RefQuestions,
    ) -> bool:
        """Write if the refs are where the write expects them and nothing was pruned; tell whether it is done.

        Raises `Contention` where a ref is elsewhere, or where what the write rests on was pruned.
        """
        expected: dict[str, Oid] = {}
        for update in reversed(updates):
            if update.expected is None:
                expected.pop(update.name, None)
            else:
                expected[update.name] = update.expected
        targets = set(asked.targets)
        try:
            changes = plan_refs(RefView(self.location, expected, targets, set()), objects, updates)
        except StoreError:
            return False  # it does not fit together: what is there says how
        prunes = self._prunes
        while True:
            row = self._write_if(connection, prunes, rows, asked, expected, changes)
            if row is None or row[1]:
                return row is not None
            held = zip(row[2] or [], row[3] or [], strict=True)
            current = {str(name): ref_oid(name, oid, self.location) for name, oid in held}
            plan_refs(RefView(self.location, current, targets, set()), objects, updates)
            if row[0] is None or row[0] == prunes:
                return False
            prunes = row[0]
            known = fetched(connection, self._sql.known, binary(referred_beyond(objects)))
            require_known(objects, {row[0].hex() for row in known}, self.location)

    def _write_if(
        self,
        connection: Connection,
        prunes: int,
        rows: list[ObjectRow],
        asked: RefQuestions,
        expected: Mapping[str, Oid],
        changes: Mapping[str, Oid | None],
    ) -> tuple[Any, ...] | None:
        """Write in one transaction and round trip unless something is not as expected.

        Return the number of prunes, whether it was written, and the names and ids of the refs before.
        """
        moved = {name: bytes.fromhex(new) for name, new in changes.items() if new is not None}
        oids, kinds, sizes, data = (
            [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
        )
        values = (
            asked.names, prunes, list(expected), binary(expected.values()), len(asked.targets),
            binary(asked.targets), asked.parents if asked.created else [], asked.created,
            oids, numbers(kinds), numbers(sizes), data,
            list(moved), list(moved.values()), sorted(changes.keys() - moved.keys()),
            self._sql.channel, sorted(changes),
        )  # fmt: skip
        with one_round_trip(connection):
            connection.execute(b"BEGIN")
            self._step("begun")
            if asked.created:
                self._hold_names(connection, asked)
            answer = connection.cursor(binary=True).execute(self._sql.write, values)
            self._step("objects stored")
            if asked.names:
                self._step("refs moved")
            connection.execute(b"COMMIT")
        return answer.fetchone()

    def _write_as_found(
        self,
        connection: Connection,
        rows: list[ObjectRow],
        objects: Mapping[Oid, GitObject],
        updates: Sequence[RefUpdate],
        asked: RefQuestions,
    ) -> None:
        """Write in two round trips: what is stored and asked for at once, then what follows from it."""
        with one_round_trip(connection):
            connection.execute(b"BEGIN")
            self._step("begun")
            answers = self._ask(connection, asked, len(updates)) if updates else None
            for batch in batches(rows, WRITTEN_AT_ONCE):
                connection.execute(
                    self._sql.insert_objects, [list(column) for column in zip(*batch, strict=True)]
                )
            prunes = connection.execute(self._sql.prunes)
        self._step("objects stored")
        if prunes.fetchall() != [(self._prunes,)]:
            known = fetched(connection, self._sql.known, binary(referred_beyond(objects)))
            require_known(objects, {row[0].hex() for row in known}, self.location)
        changes = {} if answers is None else plan_refs(answers(), objects, updates)
        moved = {name: bytes.fromhex(new) for name, new in changes.items() if new is not None}
        with one_round_trip(connection):
            if moved:
                connection.execute(self._sql.move_refs, (list(moved), list(moved.values())))
            if len(moved) < len(changes):
                connection.execute(self._sql.delete_refs, (sorted(changes.keys() - moved.keys()),))
            if updates:
                self._step("refs moved")
            if changes:
                connection.execute(self._sql.notify, (self._sql.channel, sorted(changes)))
            connection.execute(b"COMMIT")

    def _ask(self, connection: Connection, asked: RefQuestions, count: int) -> Callable[[], RefView]:
        """Lock the refs that move, and ask what must be known of them; return what gives the answers.

        A ref that is not there has no row to lock. So each folder of its name is held shared, the name
        alone, which keeps others from creating it, or refs in its way, until the transaction ends. Locks
        are taken in one order everywhere: held names, rows of refs, objects.
        """

        def ask(query: bytes, *values: Any) -> Callable[[], list[tuple[Any, ...]]]:
            return connection.cursor(binary=True).execute(query, values).fetchall

        if asked.created:
            self._hold_names(connection, asked)
        current = ask(self._sql.refs_to_move, asked.names)
        known = ask(self._sql.known, binary(asked.targets)) if asked.targets else list
        around = ask(self._sql.around, asked.parents, asked.created, count + 1) if asked.created else list
        return lambda: RefView(
            location=self.location,
            current={name: ref_oid(name, held, self.location) for name, held in current()},
            known={row[0].hex() for row in known()},
            around={row[0] for row in around()},
        )

    def _hold_names(self, connection: Connection, asked: RefQuestions) -> None:
        wanted = dict.fromkeys(asked.parents, True) | dict.fromkeys(asked.created, False)
        keys = [_key(f"{self._schema}\0{name}") for name in sorted(wanted)]
        connection.execute(_HOLD_NAMES, (keys, [wanted[name] for name in sorted(wanted)]))

    def _is_done(self, connection: Connection, updates: tuple[RefUpdate, ...]) -> bool:
        """Tell whether a refused write is one that got through before its connection was lost."""
        with self._mutex:
            if updates not in self._in_doubt:
                return False
            self._in_doubt.discard(updates)
        after = {update.name: update.new for update in updates}
        rows = fetched(connection, self._sql.some_refs, list(after))
        held = {name: oid.hex() for name, oid in rows}
        return all(held.get(name) == new for name, new in after.items())

    # -- opening -------------------------------------------------------------------------------

    def _prepare(self, connection: Connection, *, create: bool) -> None:
        if self._is_known(connection):
            self._is_made = True
            return
        version = self._version(connection)
        if version is None and not create:
            raise NotAStore(
                f"{self.location} holds no store in schema {self._schema!r}; check the DSN and the schema"
            )
        if self._server.is_read_only:
            self._is_made = True
            return
        if version is None:
            self._try_tables(connection)
            return
        self._make_tables(connection)
        self._prunes = self._number(fetched(connection, self._sql.prunes), "prunes", 0)

    def _is_known(self, connection: Connection) -> bool:
        """Tell whether there are tables of this version, in one round trip: most stores are there already."""
        from psycopg.errors import InvalidSchemaName, UndefinedTable

        try:
            rows = fetched(connection, self._sql.opened)
        except (InvalidSchemaName, UndefinedTable):
            return False
        if len(rows) != 1:
            return False  # a table lacks its row, or has several: what follows says which
        self._prunes = rows[0][1]
        return bool(rows[0][0] == SCHEMA_VERSION)

    def _number(self, rows: Sequence[Sequence[Any]], table: str, likely: int) -> int:
        """Return the number in a table that has one row. Raises `StoreError` where it has not."""
        if len(rows) == 1:
            return int(rows[0][0])
        place = f'"{self._schema}".{table}'
        raise StoreError(
            f"the table {place} of {self.location} holds {len(rows)} rows, and one is expected: it was "
            f"changed by hand or is damaged; while nobody uses the store, do `DELETE FROM {place}; INSERT "
            f"INTO {place} VALUES ({likely})`"
        )

    def _make(self) -> None:
        """Make the tables where there are none yet."""
        if not self._is_made:
            self._server.run("opening", self._make_tables)

    def _try_tables(self, connection: Connection) -> None:
        """See whether the tables can be made once they are needed, and make none."""
        import psycopg

        with connection.transaction():
            self._tables(connection)
            raise psycopg.Rollback

    def _make_tables(self, connection: Connection) -> None:
        """Make the tables, or bring those of an earlier version to this one."""
        with connection.transaction():
            self._tables(connection)
            self._step("tables made")
        self._is_made = True
        self._step("tables committed")

    def _tables(self, connection: Connection) -> None:
        connection.execute(_HOLD, (_key(f"{self._schema}\0tables"),))
        version = self._version(connection)  # another process may have been first
        if version is None and not connection.execute(_SCHEMA, (self._schema,)).fetchall():
            connection.execute(self._sql.formatted("CREATE SCHEMA {schema}"))
        for statement in self._sql.tables_from(version or 0):
            connection.execute(statement)

    def _version(self, connection: Connection) -> int | None:
        """Return the version of the tables, or `None`. Raises `NotAStore`, `FormatTooNew`."""
        names = {row[0] for row in connection.execute(_TABLE_NAMES, (self._schema,))}
        if self._beside_published:
            names.discard(PUBLISHED_TABLE)
        elif not {"format", "objects", "refs", "kv"} <= names:
            self._refuse_published(connection)
        if not names:
            return None
        if not {"format", "objects", "refs", "kv"} <= names:
            raise NotAStore(
                f"schema {self._schema!r} of {self.location} holds tables of another program "
                f"({', '.join(sorted(names)[:5])}); choose another schema"
            )
        version = self._number(connection.execute(self._sql.version).fetchall(), "format", SCHEMA_VERSION)
        if version > SCHEMA_VERSION:
            raise FormatTooNew(
                f"{self.location} has tables of version {version}, and this reactifact knows them up to "
                f"{SCHEMA_VERSION}: a newer one wrote it; upgrade reactifact"
            )
        return version

    def _refuse_published(self, connection: Connection) -> None:
        if published_rows(connection, limit=1):
            raise NotAStore(
                f"{self.location} holds data of an earlier reactifact (the table {PUBLISHED_TABLE}) and no "
                f"store of this version; bring it over with `reactifact import DSN NEW_STORE`, NEW_STORE "
                f"being the same DSN or another place"
            )

    # -- pruning -------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the bytes of the tables, with their indexes and what is stored beside them. Blocks."""
        found = self._read(self._sql.size)
        return int(found[0][0]) if found else 0  # before the first write there are no tables

    def _stored(self) -> Oids:
        return {row[0].hex() for row in self._read(self._sql.stored)}

    def _holding_tables(self, work: Callable[[HeldTables], Pruned]) -> Pruned:
        self._server.require_writable()
        self._make()

        def held(connection: Connection) -> Pruned:
            with connection.transaction():
                connection.execute(self._sql.hold_tables)
                return work(HeldPostgres(connection, self._sql, self._objects_of))

        return self._server.run("pruning", held)

    def _tidy(self, *, rewrite: bool) -> None:
        warnings = self._server.run("tidying up", lambda connection: vacuum(connection, self._sql, rewrite))
        if rewrite and warnings:
            raise StoreError(
                f"rewriting the tables of {self.location} failed ({warnings[0]}): what was pruned is "
                f"removed, but its bytes may still be in their files; let the owner of the tables prune "
                f"with rewrite=True"
            )

    @contextmanager
    def _lock_errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self._server.explained(error, "locking") from error


_BESIDE = 3  # pages: more than one write of a turn fills; its rows stand in the order of their ids
_COMMITS, _AND_TREES = 1, 2  # the greatest of `_NUMBERS` that are read
_READS_RANGES = 14_00_00  # before, a range of places of rows is looked for in the whole table
_HOLD = b"SELECT pg_advisory_xact_lock(%s)"
_HOLD_NAMES = b"""
SELECT CASE WHEN shared THEN pg_advisory_xact_lock_shared(key) ELSE pg_advisory_xact_lock(key) END
FROM unnest(%s::bigint[], %s::boolean[]) AS name (key, shared)
"""
_SCHEMA = b"SELECT 1 FROM pg_namespace WHERE nspname = %s"
_TABLE_NAMES = b"SELECT tablename::text FROM pg_tables WHERE schemaname = %s"


def _key(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"names\0{text}".encode()).digest()[:8], signed=True)
