"""Damaged stores, each in its own way: whatever is asked of one is right, or an error of ours that names it.

One store is built; each case damages a copy of it. Bits of files are damaged, and what stands in objects
whose ids are right again, as whoever means it would: JSON, trees, commits, and what refs point at.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from pydantic import BaseModel
from support import git

from reactifact import (
    Consume,
    Context,
    PendingAction,
    ProduceCall,
    Runtime,
    SessionStore,
    create_agent,
    produce,
)
from reactifact._store._backends.bundle import BundleBackend, encode_bundle, reachable
from reactifact._store._backends.git.pack import parse_index
from reactifact._store.commits import state_hash
from reactifact._store.layout import Roots
from reactifact._store.objects import GitObject, Oid, encode_tree, object_id, parse_tree
from reactifact._store.protocol import RefUpdate
from reactifact.audit import build_report
from reactifact.branching import BranchStore
from reactifact.checkpoints import (
    FileKVBackend,
    InMemoryKVBackend,
    PostgreSQLKVBackend,
    SQLiteKVBackend,
)
from reactifact.errors import ReactifactError
from reactifact.replay.history import verify_history

CASES = 100
CASES_IN_FULL = 1000

Objects = dict[Oid, GitObject]
Refs = dict[str, Oid]
Use = Callable[[SessionStore], Awaitable[Any]]


class Job(BaseModel):
    number: int
    note: str = ""


class Result(BaseModel):
    number: int


@produce(Result, also_creates=[PendingAction], reacts_to=Job)
async def work(call: ProduceCall) -> None:
    number = call.trigger.data.number
    call.effects.act("notify", key=f"notify:{number}", payload={"number": number})
    result = call.effects.upsert(Result(number=number), id=f"result:{number}")
    result.link("answers", call.trigger)


async def send(context: Context, action: Any) -> None:
    """Deliver nothing to nobody."""


async def refuse(context: Context, action: Any) -> None:
    raise ConnectionError("the world is away")


def runtime(context: Context, session: Any = None, dispatcher: Any = send) -> Runtime:
    worker = create_agent("worker", consumes=[Consume(Job)], produces=[work])
    return Runtime(context, agents=[worker], session=session, dispatcher=dispatcher, dispatch_errors="record")


async def fill(store: SessionStore) -> None:
    for name in ("a", "b"):
        session = await store.open(name)
        for number in range(3):
            session.context.create(Job(number=number), id=f"job:{number}")
            await runtime(session.context, session, send if number < 2 else refuse).arun()
        session.context.interrupt("go on?")
        await session.save()
        branches = BranchStore(store.database.backend)
        await branches.save_branch(session.context.branch(name="try"), session_id=name, name="try")
        await branches.tag("main", "v1", session=name)
        session.context.update("job:0", Job(number=0, note="main"))
        session.context.create(Job(number=9), id="job:9")  # waits in the queue
        await session.save()
        async with store.edit(name, "try") as context:
            context.update("job:1", Job(number=1, note="try"))


@pytest.fixture(scope="module")
def whole() -> tuple[Objects, Refs]:
    """The objects and refs of the store that is damaged."""
    backend = InMemoryKVBackend()
    anyio.run(fill, SessionStore(backend))
    refs = backend.refs()
    return reachable(backend, refs.values()), refs


# -- what is asked of a damaged store -----------------------------------------------------------


async def read(store: SessionStore) -> dict[str, Any]:
    found = {}
    for name in await store.list_sessions():
        context = await store.load_session(name)
        if context is None:
            continue
        for artifact in context.list_artifacts():
            context.version_history(artifact.id)
            context.relations(artifact.id)
        for commit in context.history():
            _ = (commit.operations, commit.reads)
        context.snapshot()
        context.pending_events()
        _ = (context.pending_actions, context.stale_artifacts, context.pending_questions)
        if context.version > 1:
            context.diff(1, context.version)
            context.diff(context.version - 1, context.version)
        found[name] = {artifact.id: artifact.data.model_dump() for artifact in context.list_artifacts()}
    return found


async def look_at_branches(store: SessionStore) -> None:
    branches = BranchStore(store.database.backend)
    await branches.branches()
    await branches.tags()
    await branches.list_branches("a")
    await branches.log("main", session="a")
    await branches.diff("main", "try", session="a")
    await branches.blame("main", "job:0", session="a")
    await branches.preview("main", "try", session="a")


async def look_after(store: SessionStore) -> None:
    await store.pending_sessions()
    await store.drain(send)
    await store.drain(send, retry_failed=True)


async def turn(store: SessionStore) -> None:
    session = await store.open("a")
    session.context.create(Job(number=5), id="job:5")
    await runtime(session.context, session).arun()


async def merge(store: SessionStore) -> None:
    await BranchStore(store.database.backend).merge("main", "try", session="a")


async def rewind(store: SessionStore) -> None:
    session = await store.open("b")
    if session.context.version > 1:
        session.context.checkout(session.context.version - 1)
        await session.save()
    await BranchStore(store.database.backend).undo("b")


async def compact(store: SessionStore) -> None:
    session = await store.open("a")
    session.context.compact(keep_commits=2)
    await session.save()


async def audit(store: SessionStore) -> None:
    context = await store.load_session("a")
    if context is not None:
        if context.get("result:1") is not None:  # else there is nothing to report on
            build_report(context, "result:1")
        context.to_dict()


async def prune(store: SessionStore) -> None:
    if isinstance(store.database.backend, SQLiteKVBackend | PostgreSQLKVBackend):
        await store.prune(grace=0)


async def verify(store: SessionStore) -> None:
    assert isinstance(str(verify_history(store.database, "a")), str)


USES: list[Use] = [read, look_at_branches, look_after, turn, merge, rewind, compact, audit, prune, verify]
NAMED = re.compile(
    r"[0-9a-f]{12}|refs/|job:|result:|notify:|action:|'[ab]'|'main'|'try'|session [ab]|/|\.db"
    r"|damaged_stores\.|eactifact\.interrupt\."  # type ids, in which a byte may be damaged
    r"|%3A|esult:|is not an id"  # names of files, and an id of which a byte is damaged
)


async def ask(open_store: Callable[[], SessionStore], uses: list[Use], expected: Any = None) -> int:
    """Use a store in some ways, and read it; return how often it answered with an error of ours."""
    refused = 0
    for use in [read, *uses]:
        store = None
        try:
            store = open_store()
            found = await use(store)
            if use is read and expected is not None:
                assert found == expected
        except ReactifactError as error:
            refused += 1
            if not NAMED.search(str(error)):
                raise AssertionError(f"the error names nothing: {error}") from error
        except BaseException as error:
            error.add_note(f"while in {use.__name__}")
            raise
        finally:
            if store is not None:
                await store.aclose()
    return refused


# -- damage to what objects say -----------------------------------------------------------------

VALUES: list[Any] = [None, 5, -1, 2**70, 1.5, "x", "", "\u202e", [], {}, True, [1], [[]], {"x": 1}, ["x"]]


def damaged_json(data: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:
        return damaged_bytes(data, rng)
    holder: Any = value
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return damaged_bytes(data, rng)
        key = rng.choice(keys)
        if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.7:
            holder = holder[key]
            continue
        break
    what = rng.randrange(5)
    if what == 0:
        del holder[key]
    elif what == 1:
        return (
            json.dumps(value)
            .replace(json.dumps(holder[key]), rng.choice(["NaN", "1e999", "[" * 5000]), 1)
            .encode()
        )
    else:
        holder[key] = rng.choice(VALUES)
    return json.dumps(value).encode()


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    what = rng.randrange(4)
    if what == 0 or not changed:
        changed[rng.randrange(len(changed) + 1) :] = b""
    elif what == 1:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif what == 2:
        at = rng.randrange(len(changed))
        changed[at:at] = rng.choice([b"\xff\xfe", b"\0", b"\n\n", b" ", b"{}"])
    else:
        at = rng.randrange(len(changed))
        del changed[at : at + rng.randrange(1, 30)]
    return bytes(changed)


def damaged_tree(data: bytes, objects: Objects, rng: random.Random) -> bytes:
    entries = parse_tree(data)
    name = rng.choice(list(entries))
    what = rng.randrange(5)
    if what == 0:
        del entries[name]
        return encode_tree(entries)
    if what == 1:
        entries[name] = entries[name]._replace(oid=rng.choice(list(objects)))
        return encode_tree(entries)
    if what == 2:
        return data.replace(name.encode(), b"\xff" + name.encode()[1:], 1)
    if what == 3:
        mode = rng.choice([0o40000, 0o100644, 0o120000, 0o160000, 0o100755])
        entries[name] = entries[name]._replace(mode=mode)
        return encode_tree(entries)
    return damaged_bytes(data, rng)


def damaged_commit(data: bytes, objects: Objects, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(min(len(lines), 5))
    what = rng.randrange(4)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines[at] = lines[at].replace(b">", b"", 1)
    elif what == 2:
        key = lines[at].split(b" ")[0]
        lines[at] = key + b" " + rng.choice(list(objects)).encode()
    else:
        return damaged_bytes(data, rng)
    return b"\n".join(lines)


def replaced(objects: Objects, tree: Oid, old: Oid, new: Oid) -> Oid:
    """Return a tree in which one object stands in the place of another."""
    if tree == old:
        return new
    entries = parse_tree(objects[tree].data)
    changed = {}
    for name, entry in entries.items():
        oid = replaced(objects, entry.oid, old, new) if entry.mode == 0o40000 else entry.oid
        changed[name] = entry._replace(oid=new if oid == old else oid)
    return tree if changed == entries else put(objects, "tree", encode_tree(changed))


def put(objects: Objects, kind: Any, data: bytes) -> Oid:
    oid = object_id(kind, data)
    objects[oid] = GitObject(kind, data)
    return oid


def inside(objects: Objects, tree: Oid) -> list[Oid]:
    found = [tree]
    for entry in parse_tree(objects[tree].data).values():
        found += inside(objects, entry.oid) if entry.mode == 0o40000 else [entry.oid]
    return found


def signed(objects: Objects, tree: Oid, data: bytes) -> bytes:
    """Let the record of a commit be about the tree that it has by now, and name its state."""
    try:
        top = parse_tree(objects[tree].data)
    except ReactifactError:
        return data
    roots = Roots(*(top[name].oid if name in top else None for name in ("artifacts", "relations")))
    head, end, message = data.partition(b"\n\n")
    head = re.sub(rb'"tree":"[0-9a-f]{40}"', b'"tree":"%b"' % tree.encode(), head)
    head = re.sub(rb'"state":"[0-9a-f]+"', b'"state":"%b"' % state_hash(roots).encode(), head)
    return head + end + message


def damage_objects(objects: Objects, refs: Refs, rng: random.Random) -> str:
    """Damage what one branch says; return what was done."""
    name = rng.choice(list(refs))
    tip = refs[name]
    if rng.random() < 0.15:
        refs[name] = rng.choice([*objects, "0" * 40])
        return f"{name} points at {refs[name]}"
    if objects[tip].kind == "tag":
        refs[name] = put(objects, "tag", damaged_bytes(objects[tip].data, rng))
        return f"the tag {name} says {objects[refs[name]].data!r}"
    data = objects[tip].data
    if objects[tip].kind != "commit":
        refs[name] = put(objects, "blob", damaged_bytes(data, rng))
        return f"{name} is another blob"
    if rng.random() < 0.1:
        refs[name] = put(objects, "commit", damaged_commit(data, objects, rng))
        return f"the commit of {name} is {objects[refs[name]].data!r}"
    tree = data[5:45].decode()
    victim = rng.choice(inside(objects, tree))
    kind, old = objects[victim]
    if kind == "tree":
        new = damaged_tree(old, objects, rng)
    else:
        new = damaged_json(old, rng) if rng.random() < 0.8 else damaged_bytes(old, rng)
    other = replaced(objects, tree, victim, put(objects, kind, new))
    data = data.replace(tree.encode(), other.encode(), 1)
    if rng.random() < 0.8:
        data = signed(objects, other, data)
    refs[name] = put(objects, "commit", data)
    return f"in {name}, {kind} {old[:2000]!r} became {new[:2000]!r}"


def memory_of(objects: Objects, refs: Refs) -> InMemoryKVBackend:
    backend = InMemoryKVBackend()
    backend.write(objects, [RefUpdate(name, None, oid) for name, oid in refs.items() if oid in objects])
    return backend


# -- damage to files and rows -------------------------------------------------------------------


def damage_repository(path: Path, objects: Objects, rng: random.Random) -> tuple[str, bool]:
    """Damage one file of a repository; return what was done, and whether the refs are as they were."""
    what = rng.random()
    if what < 0.2:
        name = rng.choice([b"heads/a/main", b"heads/a/%outbox", b"heads/b/x\xff", b"tags/a/v1"])
        oid = rng.choice([*objects, "0" * 40, "\udcff", "ref: refs/heads/b/main", ""])
        place = bytes(path) + b"/refs/" + name
        Path(place.decode("utf-8", "surrogateescape")).parent.mkdir(parents=True, exist_ok=True)
        with open(place, "wb") as file:
            file.write(oid.encode("utf-8", "surrogateescape"))
        return f"{name!r} holds {oid!r}", False
    files = sorted(file for file in path.rglob("*") if file.is_file())
    if what < 0.7:
        files = [file for file in files if file.parent.name == "pack"]
    file = rng.choice(files)
    old = file.read_bytes()
    new = damaged_bytes(old, rng) if rng.random() < 0.8 else bytes(len(old))
    file.unlink()
    if rng.random() < 0.95:
        file.write_bytes(new)
    return f"{file.relative_to(path)} was damaged: {len(old)} to {len(new)} bytes", file.parent.name == "pack"


def damage_repacked(path: Path, objects: Objects, rng: random.Random) -> tuple[str, bool]:
    """Damage the head of an entry of a pack that git made, or do as `damage_repository` does."""
    if rng.random() < 0.5:
        return damage_repository(path, objects, rng)
    (file,) = (path / "objects/pack").glob("*.pack")
    content = bytearray(file.read_bytes())
    entries = parse_index(file.with_suffix(".idx").read_bytes())
    at = rng.choice(entries).offset
    what = rng.randrange(4)
    if what == 0:
        content[at] ^= rng.randrange(1, 8) << 4  # another type
    elif what == 1:
        content[at] ^= 1 << rng.randrange(8)
        content[at + 1] ^= 1 << rng.randrange(8)
    elif what == 2:
        content[at + 1 : at + 3] = rng.randbytes(2)
    else:  # a delta on another one, or on itself
        head = bytes([0xFF, 0x01]) + rng.choice(entries).oid + zlib.compress(rng.randbytes(rng.randrange(40)))
        content[at : at + len(head)] = head
    if rng.random() < 0.2:
        del content[at + 30 : -20]
    file.unlink()
    file.write_bytes(content)
    return f"the entry at {at} was damaged by {what}", True


STATEMENTS = [
    "UPDATE objects SET data = ? WHERE rowid = (SELECT rowid FROM objects ORDER BY random_order LIMIT 1)",
    "UPDATE objects SET kind = ? WHERE rowid % 7 = 3",
    "UPDATE objects SET size = ? WHERE rowid % 7 = 3",
    "DELETE FROM objects WHERE rowid % 11 = 5 AND ? IS NOT 0",
    "UPDATE refs SET oid = ? WHERE name = 'refs/heads/a/main'",
    "UPDATE refs SET oid = ? WHERE name = 'refs/heads/a/%outbox'",
    "INSERT INTO refs VALUES ('refs/heads/a/new', ?)",
    "INSERT INTO refs VALUES ('refs/heads/\u00ff/../x', ?)",
    "UPDATE prunes SET number = ?",
    "DELETE FROM prunes WHERE ? IS NOT 0",
    "INSERT INTO kv VALUES ('key', ?)",
    "UPDATE refs SET name = ? WHERE name = 'refs/heads/b/main'",
]
SCHEMA = ["DROP TABLE refs", "DROP TABLE objects", "DROP TABLE prunes", "PRAGMA user_version = 0"]
SCHEMA += ["PRAGMA user_version = 99", "PRAGMA application_id = 5", "PRAGMA user_version = 1"]
SQL_VALUES = [b"", b"x", b"\xff" * 20, b"\0" * 20, "text", 7, -1, 2**40, 1.5, b"x\x9c" + b"\0" * 30]


def damage_sqlite(path: Path, objects: Objects, rng: random.Random) -> tuple[str, bool]:
    """Damage rows, tables or bytes of a SQLite file; return what was done."""
    if rng.random() < 0.3:
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        return "its bytes were damaged", False
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if rng.random() < 0.2:
            statement = rng.choice(SCHEMA)
            connection.execute(statement)
            return statement, False
        statement = rng.choice(STATEMENTS).replace("random_order", f"(rowid * {rng.randrange(1, 999)}) % 101")
        value = rng.choice([*SQL_VALUES, *(bytes.fromhex(oid) for oid in rng.sample(list(objects), 5))])
        try:
            connection.execute(statement, (value,))
        except sqlite3.IntegrityError:
            return "nothing", True
        return f"{statement} with {value!r}", "refs" not in statement
    finally:
        connection.close()


POSTGRES_STATEMENTS = [
    "UPDATE objects SET data = $1 WHERE oid = (SELECT oid FROM objects ORDER BY md5(oid || '$2') LIMIT 1)",
    "UPDATE objects SET kind = 7 WHERE oid IN (SELECT oid FROM objects ORDER BY md5(oid || '$2') LIMIT 3)",
    "UPDATE objects SET kind = 2 WHERE oid IN (SELECT oid FROM objects ORDER BY md5(oid || '$2') LIMIT 3)",
    "UPDATE objects SET size = -1 WHERE oid IN (SELECT oid FROM objects ORDER BY md5(oid || '$2') LIMIT 9)",
    "UPDATE objects SET size = 2147483647 WHERE oid = (SELECT oid FROM objects LIMIT 1)",
    "UPDATE objects SET oid = $1 WHERE oid = (SELECT oid FROM objects ORDER BY md5(oid || '$2') LIMIT 1)",
    "DELETE FROM objects WHERE oid IN (SELECT oid FROM objects ORDER BY md5(oid || '$2') LIMIT 5)",
    "UPDATE refs SET oid = $1 WHERE name = 'refs/heads/a/main'",
    "UPDATE refs SET oid = $1 WHERE name = 'refs/heads/a/%outbox'",
    "UPDATE refs SET oid = $1 WHERE name = 'refs/tags/a/v1'",
    "INSERT INTO refs VALUES ('refs/heads/a/new', $1)",
    "INSERT INTO refs VALUES ('refs/heads/\u00ff/../x', $1)",
    "UPDATE refs SET name = 'refs/heads/b' WHERE name = 'refs/heads/b/main'",
    "DELETE FROM refs WHERE name = 'refs/heads/b/%outbox'",
    "UPDATE prunes SET number = -1",
    "DELETE FROM prunes",
    "INSERT INTO kv VALUES ('key', $1)",
    "UPDATE format SET version = 99",
    "UPDATE format SET version = 0",
    "INSERT INTO format VALUES (2)",
    "DELETE FROM format",
    *(f"DROP TABLE {name}" for name in ("format", "objects", "refs", "kv", "prunes", "unreachable")),
    "ALTER TABLE objects DROP COLUMN data",
    "ALTER TABLE objects ALTER COLUMN data DROP NOT NULL",
    "ALTER TABLE refs ALTER COLUMN oid TYPE text USING 'text'",
    "ALTER TABLE refs ALTER COLUMN oid DROP NOT NULL; UPDATE refs SET oid = NULL",
    "ALTER TABLE objects ALTER COLUMN data DROP NOT NULL; UPDATE objects SET data = NULL",
]
POSTGRES_TABLES = ("format", "objects", "refs", "kv", "prunes", "unreachable")


class PostgresTables:
    """The tables of a PostgreSQL store: kept aside whole, damaged, and put back."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute(b"SET synchronous_commit TO off; SET search_path TO reactifact")
        self._connection.execute(b"CREATE SCHEMA other")
        self._are_others = False  # whether the damage was to the tables themselves
        self._copy(b"reactifact", b"other")

    def _copy(self, source: bytes, target: bytes) -> None:
        for name in (table.encode() for table in POSTGRES_TABLES):
            self._connection.execute(
                b"CREATE TABLE %b.%b (LIKE %b.%b INCLUDING ALL)" % (target, name, source, name)
            )
            self._connection.execute(b"INSERT INTO %b.%b SELECT * FROM %b.%b" % (target, name, source, name))

    def restore(self) -> None:
        """Bring back what the tables held, or the tables themselves."""
        if self._are_others:
            self._connection.execute(b"DROP SCHEMA reactifact CASCADE; CREATE SCHEMA reactifact")
            self._copy(b"other", b"reactifact")
            return
        with self._connection.transaction():
            for name in (table.encode() for table in POSTGRES_TABLES):
                self._connection.execute(b"DELETE FROM %b" % name)
                self._connection.execute(b"INSERT INTO %b SELECT * FROM other.%b" % (name, name))

    def damage(self, objects: Objects, rng: random.Random) -> tuple[str, bool]:
        """Damage rows or tables; return what was done, and whether the refs are as they were."""
        statement = rng.choice(POSTGRES_STATEMENTS).replace("$2", f"{rng.randrange(1000)}")
        values = [value for value in SQL_VALUES if isinstance(value, bytes)]
        value = rng.choice([*values, *(bytes.fromhex(oid) for oid in rng.sample(list(objects), 5))])
        statement = statement.replace("$1", f"'\\x{value.hex()}'::bytea")
        try:
            self._are_others = statement.startswith(("ALTER", "DROP", "UPDATE format"))
            self._connection.execute(statement.encode())
        except psycopg.errors.IntegrityError:
            return "nothing", True
        return statement, "refs" not in statement

    def close(self) -> None:
        self._connection.close()


def damage_bundle(path: Path, rng: random.Random) -> str:
    """Damage the bytes of a bundle, or its lines with refs; return what was done."""
    data = path.read_bytes()
    header, end, pack = data.partition(b"\n\n")
    if rng.random() < 0.4:
        new = damaged_bytes(header, rng) + end + pack
    elif rng.random() < 0.5:
        new = header + end + pack[:12] + damaged_bytes(pack[12:], rng)
    else:
        new = damaged_bytes(data, rng)
    path.write_bytes(new)
    return f"its {len(data)} bytes became {len(new)}"


# -- the cases ----------------------------------------------------------------------------------


def cases(config: pytest.Config) -> Iterator[tuple[random.Random, list[Use]]]:
    """Yield what chooses the damage of each case, and what else than reading is done with the store."""
    full = config.getoption("--full")
    for case in range(CASES_IN_FULL if full else CASES):
        rng = random.Random(case)
        yield rng, USES[1:] if full else rng.sample(USES[1:], 1)


def run(open_store: Callable[[], SessionStore], uses: list[Use], done: str, expected: Any = None) -> int:
    try:
        return anyio.run(ask, open_store, uses, expected)
    except BaseException as error:
        error.add_note(done)
        raise


def test_objects_that_do_not_say_what_they_should(
    whole: tuple[Objects, Refs], pytestconfig: pytest.Config
) -> None:
    refused = 0
    for rng, uses in cases(pytestconfig):
        objects, refs = dict(whole[0]), dict(whole[1])
        done = damage_objects(objects, refs, rng)
        backend = memory_of(objects, refs)
        refused += run(lambda backend=backend: SessionStore(backend), uses, done)  # type: ignore[misc]
    assert refused > CASES // 5


DAMAGES = {"git": damage_repository, "repacked": damage_repacked, "sqlite": damage_sqlite}


@pytest.mark.parametrize("kind", DAMAGES)
def test_files_and_rows_that_were_damaged(
    whole: tuple[Objects, Refs], tmp_path: Path, pytestconfig: pytest.Config, kind: str
) -> None:
    objects, refs = whole
    ending = "db" if kind == "sqlite" else "git"
    base = tmp_path / f"base.{ending}"
    backend: Any = SQLiteKVBackend(base) if kind == "sqlite" else FileKVBackend(base)
    backend.write(objects, [RefUpdate(name, None, oid) for name, oid in refs.items()])
    backend.close()
    if kind == "repacked":
        git(base, "repack", "-q", "-a", "-d", "-f", "--depth=50", "--write-midx")
        git(base, "commit-graph", "write", "--reachable")
    expected = anyio.run(read, SessionStore(memory_of(objects, refs)))
    copy = tmp_path / f"copy.{ending}"
    refused = 0
    for rng, uses in cases(pytestconfig):
        (shutil.copy if kind == "sqlite" else shutil.copytree)(base, copy)
        done, is_same = DAMAGES[kind](copy, objects, rng)
        refused += run(lambda: SessionStore(copy, durability="os"), uses, done, expected if is_same else None)
        for left in tmp_path.glob("copy.*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    assert refused > CASES // 5


def test_tables_of_a_server_that_were_damaged(
    whole: tuple[Objects, Refs], postgres_dsn: str, pytestconfig: pytest.Config
) -> None:
    objects, refs = whole
    backend = PostgreSQLKVBackend(postgres_dsn)
    backend.write(objects, [RefUpdate(name, None, oid) for name, oid in refs.items()])
    backend.close()
    expected = anyio.run(read, SessionStore(memory_of(objects, refs)))
    tables = PostgresTables(postgres_dsn)
    refused = 0
    for rng, uses in cases(pytestconfig):
        done, is_same = tables.damage(objects, rng)
        refused += run(
            lambda: SessionStore(postgres_dsn, durability="os"), uses, done, expected if is_same else None
        )
        tables.restore()
    tables.close()
    assert refused > CASES // 5


READING: list[Use] = [look_at_branches, audit, verify]


def test_bundles_that_were_damaged(
    whole: tuple[Objects, Refs], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    objects, refs = whole
    base, copy = tmp_path / "base.bundle", tmp_path / "copy.bundle"
    base.write_bytes(encode_bundle(refs, objects))
    refused = 0
    for rng, uses in cases(pytestconfig):
        shutil.copy(base, copy)
        done = damage_bundle(copy, rng)
        wanted = READING if len(uses) > 1 else [rng.choice(READING)]
        refused += run(lambda: SessionStore(BundleBackend(copy)), wanted, done)
    assert refused > CASES // 5
