"""The public path of backends."""

from __future__ import annotations

from .store.bare import GitBackend
from .store.checkpoint import CheckpointBackend, FileBackend, SQLiteBackend
from .store.kv import AppendBackend, FileKVBackend, InMemoryKVBackend, KVBackend
from .store.sql.postgres import PostgreSQLKVBackend
from .store.sql.sqlite import SQLiteKVBackend

__all__ = [
    "AppendBackend",
    "CheckpointBackend",
    "FileBackend",
    "FileKVBackend",
    "GitBackend",
    "InMemoryKVBackend",
    "KVBackend",
    "PostgreSQLKVBackend",
    "SQLiteBackend",
    "SQLiteKVBackend",
]
