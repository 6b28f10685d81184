"""Every byte that a store of any kind keeps, as files and as what the rows and objects in them unpack to."""

from __future__ import annotations

import sqlite3
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from reactifact.checkpoints import InMemoryKVBackend


def everything(place: Any) -> Iterator[tuple[str, bytes]]:
    """Yield (where, bytes) of all that stands at a place: raw files, and rows and objects unpacked."""
    if isinstance(place, InMemoryKVBackend):
        for oid, item in place._objects.items():
            yield f"object {oid}", item.data
        yield "refs", "\n".join(place._refs).encode()
    elif isinstance(place, str) and place.startswith("postgresql://"):
        yield from _postgres(place)
    elif isinstance(place, Path) and place.suffix == ".db":
        yield from _sqlite(place)
    elif isinstance(place, Path):
        yield from _git(place)
    else:
        for key, text in place.texts.items():
            yield f"key {key}", f"{key}\n{text}".encode()


def holding(place: Any, *needles: str) -> list[str]:
    """Return where any of some texts stands at a place."""
    return [
        f"{needle} in {where}"
        for where, data in everything(place)
        for needle in needles
        if needle.encode() in data
    ]


def _git(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield f"{file.relative_to(path)}", f"{file.relative_to(path)}\n".encode() + file.read_bytes()
    command = ["git", "-C", str(path), "cat-file", "--batch-all-objects", "--batch"]
    yield "objects", subprocess.run(command, capture_output=True, check=True).stdout


def _sqlite(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.parent.glob(f"{path.name}*")):
        if file.is_file():
            yield file.name, file.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                yield f"table {table}", _unpacked(row)


def _postgres(dsn: str) -> Iterator[tuple[str, bytes]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for (table,) in found:
            for row in connection.execute(f"SELECT * FROM {table}".encode()):
                yield f"table {table}", _unpacked(row)
        connection.execute("CHECKPOINT")  # so that files of tables that were written anew are gone
        (data,), (oid,) = (
            connection.execute(query).fetchone() or ("",)
            for query in (
                b"SELECT setting FROM pg_settings WHERE name = 'data_directory'",
                b"SELECT oid FROM pg_database WHERE datname = current_database()",
            )
        )
    folder = Path(f"{data}/base/{oid}")
    assert folder.is_dir()
    for file in sorted(folder.iterdir()):
        yield f"{file}", file.read_bytes()


def _unpacked(row: tuple[Any, ...]) -> bytes:
    parts = []
    for value in row:
        data = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
        parts.append(data)
        try:
            parts.append(zlib.decompress(data))
        except zlib.error:
            continue
    return b"\n".join(parts)
