"""Tidying a store: in a thread of its own, one at a time, and never in the way of who writes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import pytest
from building import MAIN, put

from reactifact import SessionStore
from reactifact._store._backends.git.backend import GitBackend
from reactifact._store.object_db import Database
from reactifact.errors import StoreError


class Tidied(GitBackend):
    """A bare repository whose tidying waits until it may end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.times = 0
        self.error: StoreError | None = None

    def maintain(self) -> bool:
        self.times += 1
        self.begun.release()
        assert self.may_end.wait(20)
        if self.error is not None:
            raise self.error
        return super().maintain()


def test_nobody_waits_for_it_and_one_is_under_way_at_a_time(tmp_path: Path) -> None:
    backend = Tidied(tmp_path / "s.git")
    database = Database(backend)
    database.maintain_every(1)
    for _ in range(5):
        database.tidy()
    assert backend.begun.acquire(timeout=20)
    put(backend, MAIN, "one")  # while it is under way
    assert backend.times == 1
    backend.may_end.set()
    backend.close()


def test_closing_waits_until_it_has_ended(tmp_path: Path) -> None:
    backend = GitBackend(tmp_path / "s.git")
    old = None
    for number in range(20):
        old = put(backend, MAIN, str(number), old)
    reached, closed = threading.Event(), threading.Event()

    def pause(step: str) -> None:
        if step == "pack-merged":
            reached.set()
            assert not closed.wait(0.05)

    backend.fault = pause
    database = Database(backend)
    database.maintain_every(1)
    database.tidy()
    assert reached.wait(20)
    backend.close()
    closed.set()
    assert len(list((tmp_path / "s.git/objects/pack").glob("*.pack"))) < 10


def test_what_goes_wrong_with_it_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = Tidied(tmp_path / "s.git")
    backend.error = StoreError("the disk is full")
    backend.may_end.set()
    database = Database(backend)
    database.maintain_every(1)
    with caplog.at_level(logging.WARNING):
        database.tidy()
        assert backend.begun.acquire(timeout=20)
        tidying = database._tidying
        assert tidying is not None
        tidying.join(20)
    assert "tidying a store failed" in caplog.text
    assert "the disk is full" in caplog.text


def test_it_never_happens_where_nobody_wants_it(tmp_path: Path) -> None:
    store = SessionStore(Tidied(tmp_path / "s.git"), compact_every=None)
    store.database.tidy()
    assert store.database._tidying is None


def test_a_forked_process_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    backend = GitBackend(tmp_path / "s.git")
    put(backend, MAIN, "one")
    with backend._in_maintenance():
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            backend.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert status == 0
