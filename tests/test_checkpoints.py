"""Checkpoints: one dictionary in one place, a file or a row."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from reactifact.checkpoints import CheckpointBackend, FileBackend, SQLiteBackend, SQLiteKVBackend
from reactifact.errors import NoCheckpoint, NotAStore, StoreError

pytestmark = pytest.mark.anyio

VALUE = {"text": "ünï \u2028 \0", "numbers": [1, 2.5, None, True], "nested": {"": {}}}


@pytest.fixture(params=[FileBackend, SQLiteBackend])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    name = "saved.json" if request.param is FileBackend else "saved.db"
    return lambda: request.param(tmp_path / name)


async def test_a_checkpoint_is_saved_and_loaded(checkpoint: Any) -> None:
    backend = checkpoint()
    assert isinstance(backend, CheckpointBackend)
    for value in (VALUE, {}, VALUE):
        await backend.save(value)
        other = checkpoint()
        assert await other.load() == value
        await other.aclose()
    await backend.aclose()
    await backend.aclose()


async def test_nothing_saved_is_an_error(checkpoint: Any) -> None:
    backend = checkpoint()
    with pytest.raises(ValueError, match="nothing was saved"):
        await backend.load()
    with pytest.raises(NoCheckpoint):
        await backend.load()
    await backend.aclose()


async def test_a_save_that_fails_leaves_the_one_before(checkpoint: Any) -> None:
    backend = checkpoint()
    await backend.save(VALUE)
    with pytest.raises(ValueError):  # noqa: PT011 - json's own text
        await backend.save({"x": float("nan")})
    assert await backend.load() == VALUE
    await backend.aclose()


async def test_a_file_stands_at_its_path_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "saved.json"
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(FileBackend(path).save, {"number": number, "filler": "x" * 100_000})
    assert os.listdir(path.parent) == ["saved.json"]
    assert json.loads(path.read_text()) == await FileBackend(path).load()


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00", '{"a": 1'])
async def test_a_file_that_is_no_checkpoint(tmp_path: Path, content: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(content)
    with pytest.raises(NotAStore, match=r"saved\.json holds no checkpoint"):
        await FileBackend(path).load()


async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="saving to"):
        await FileBackend(tmp_path / "file" / "saved.json").save({})


async def test_rows_of_an_earlier_version_are_recognised(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "saved.db")
    connection.execute("CREATE TABLE context (id INTEGER, data TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(NotAStore, match="reactifact import"):
        SQLiteBackend(tmp_path / "saved.db")
    with SQLiteKVBackend(tmp_path / "store.db").lock("made by the first lock"):
        pass
    with pytest.raises(NotAStore, match="not a checkpoint"):
        SQLiteBackend(tmp_path / "store.db")
