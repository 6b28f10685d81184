"""The suite for key and value stores, over ours and over one that a user wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import OwnBackend

from reactifact.checkpoints import FileKVBackend, InMemoryKVBackend, SQLiteKVBackend
from reactifact.testing.kv_conformance import KVConformance, OpenKVBackend


class TestMemory(KVConformance):
    @pytest.fixture
    def open_backend(self) -> OpenKVBackend:
        backend = InMemoryKVBackend()
        return lambda: backend


class TestGit(KVConformance):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenKVBackend:
        return lambda: FileKVBackend(tmp_path / "store.git", durability="os")


class TestSQLite(KVConformance):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenKVBackend:
        return lambda: SQLiteKVBackend(tmp_path / "store.db", durability="os")


class TestAUsersOwn(KVConformance):
    @pytest.fixture
    def open_backend(self) -> OpenKVBackend:
        backend = OwnBackend()
        return lambda: backend
