"""The one conformance suite, over every backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactifact._store._backends.git.backend import GitBackend
from reactifact._store._backends.kv import MemoryBackend
from reactifact._store._backends.sql.postgres import PostgreSQLKVBackend
from reactifact._store._backends.sql.sqlite import SQLiteKVBackend
from reactifact.testing.conformance import BackendConformance, OpenBackend


class TestMemory(BackendConformance):
    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        backend = MemoryBackend()
        return lambda: backend


class TestGit(BackendConformance):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        return lambda: GitBackend(tmp_path / "store.git", durability="os")


class TestGitFullySynced(BackendConformance):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        return lambda: GitBackend(tmp_path / "store.git")


class TestSQLite(BackendConformance):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        return lambda: SQLiteKVBackend(tmp_path / "store.db", durability="os")


class TestSQLiteFullySynced(BackendConformance):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        return lambda: SQLiteKVBackend(tmp_path / "store.db")


class TestPostgreSQL(BackendConformance):
    @pytest.fixture
    def open_backend(self, postgres_dsn: str) -> OpenBackend:
        return lambda: PostgreSQLKVBackend(postgres_dsn)
