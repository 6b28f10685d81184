"""Which store a verb is about: `-C`, the first argument, the environment, the folders above."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reactifact.cli._shared.naming import STORE_VARIABLE, found_store, is_store, looks_like_store


@pytest.fixture(autouse=True)
def _nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORE_VARIABLE, raising=False)


def test_the_nearest_store_upward_is_found(store: Path, tmp_path: Path) -> None:
    inside = tmp_path / "project" / "deep" / "er"
    inside.mkdir(parents=True)
    assert found_store(str(inside)) is None
    (tmp_path / "project" / "state.git").symlink_to(store)
    assert found_store(str(inside)) == str(tmp_path / "project" / "state.git")
    (tmp_path / "project" / "deep" / "state.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    assert found_store(str(inside)) == str(tmp_path / "project" / "deep" / "state.db")
    assert found_store(str(store / "refs")) == str(store)  # a folder inside a repository


def test_a_folder_of_that_name_that_is_no_store_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "state.git").mkdir()
    (tmp_path / "state.db").write_text("not a database")
    assert found_store(str(tmp_path)) is None
    assert not is_store(str(tmp_path / "state.git"))
    assert not is_store(str(tmp_path / "absent"))


def test_the_environment_wins_over_the_folder(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state.git").symlink_to(store)
    monkeypatch.setenv(STORE_VARIABLE, "elsewhere.git")
    assert found_store(str(tmp_path)) == "elsewhere.git"


@pytest.mark.parametrize("text", ["./a", "../a", "/a", "~/a", ".", "a.git", "a.sqlite3", "a.bundle"])
def test_a_path_names_a_store(text: str) -> None:
    assert looks_like_store(text)


@pytest.mark.parametrize("text", ["postgresql://localhost/x", "https://example.com/a"])
def test_an_address_names_a_store(text: str) -> None:
    assert looks_like_store(text)


@pytest.mark.parametrize("text", ["user-1", "user-1/main", "v3", "main~2", "order:42"])
def test_a_revision_does_not(text: str) -> None:
    assert not looks_like_store(text)


def test_every_way_to_name_the_store_shows_the_same(
    run: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run("log", store, "user-1")
    assert shown.code == 0
    monkeypatch.chdir(tmp_path)
    for arguments in (
        *(("-C", store, "log", "user-1"), ("--store", store, "log", "user-1")),
        *(("log", "-C", store, "user-1"), ("log", "user-1", f"--store={store}")),
    ):
        assert (run(*arguments).code, run(*arguments).out) == (0, shown.out), arguments
    monkeypatch.setenv(STORE_VARIABLE, str(store))
    assert run("log", "user-1").out == shown.out
    monkeypatch.delenv(STORE_VARIABLE)
    monkeypatch.chdir(store)
    assert run("log", "user-1").out == shown.out
    assert os.listdir(tmp_path) == []


def test_without_any_store_the_ways_to_name_one_are_told(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("sessions")
    assert told.code == 2
    for part in ("no store", "-C STORE", STORE_VARIABLE, "state.git", "reactifact init"):
        assert part in told.err
    assert os.listdir(tmp_path) == []
