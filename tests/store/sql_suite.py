"""What the SQL stores promise beyond the conformance suite: killed writers, contention, many objects.

Subclass `SQLSuite` as `Test...` and give it a `place` fixture: the path or DSN of a new store.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from building import MAIN, blob, commit, put

from reactifact.errors import SessionBusy, StoreError
from reactifact.sessions.stores import open_database
from reactifact.store.objects import Oid, parse_commit
from reactifact.store.protocol import RefUpdate

STEPS = ["begun", "objects stored", "refs moved", "committed"]


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start `store_child.py` in a process of its own."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(here / "store_child.py"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def finish(child: subprocess.Popen[str]) -> str:
    """Wait for a child that must succeed, and return what it printed."""
    out, err = child.communicate(timeout=200)
    assert (child.returncode, err) == (0, "")
    return out


@contextmanager
def opened(place: str, **options: Any) -> Iterator[Any]:
    backend = open_database(place, **options).backend
    try:
        yield backend
    finally:
        backend.close()


def line_of(backend: Any, ref: str) -> list[Oid]:
    """Return the commits of a ref, each read whole."""
    found: list[Oid] = []
    oid: Oid | None = backend.refs(ref).get(ref)
    while oid is not None:
        found.append(oid)
        head = parse_commit(backend.read_many([oid])[oid].data)
        backend.read_many([head.tree])
        oid = head.parents[0] if head.parents else None
    return found


class SQLSuite:
    """Subclasses provide the fixture `place`."""

    # --- killed writers -----------------------------------------------------------------------

    @pytest.mark.parametrize("step", STEPS)
    def test_a_writer_killed_at_a_step_leaves_all_of_its_write_or_nothing(
        self, place: str, step: str
    ) -> None:
        with opened(place) as backend:
            old = put(backend, MAIN, "one")
            new, objects = commit("two", old)
            child = start("kill", place, step)
            child.communicate(timeout=60)
            assert child.returncode == -signal.SIGKILL
            if step == "committed":
                assert backend.refs() == {MAIN: new}
                assert backend.read_many(objects) == objects
            else:
                assert backend.refs() == {MAIN: old}
                assert put(backend, MAIN, "two", old) == new

    def test_writers_killed_at_any_time_lose_nothing_that_was_acknowledged(self, place: str) -> None:
        chance = random.Random(5)
        acknowledged: set[Oid] = set()
        with opened(place) as backend:
            for _ in range(4):
                child = start("append", place, MAIN, 100_000)
                assert child.stdout is not None
                acknowledged.add(child.stdout.readline().strip())
                time.sleep(chance.uniform(0, 0.1))
                child.kill()
                rest, err = child.communicate(timeout=60)
                assert err == ""
                acknowledged |= set(rest.split("\n")[:-1])
                assert acknowledged <= set(line_of(backend, MAIN))
        assert len(acknowledged) >= 4

    def test_a_lock_dies_with_its_holder(self, place: str) -> None:
        with opened(place) as backend:
            child = start("hold", place, "s/main")
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            with pytest.raises(SessionBusy, match=f"held by process {child.pid}"), backend.lock("s/main"):
                pass
            child.kill()
            child.communicate(timeout=60)
            with backend.lock("s/main", wait=10):
                pass

    # --- contention ---------------------------------------------------------------------------

    def test_eight_processes_make_a_store_and_lose_nothing(self, place: str) -> None:
        children = [start("append", place, f"refs/heads/s{n}/main", 20) for n in range(8)]
        written = [finish(child).split() for child in children]
        with opened(place) as backend:
            for number, oids in enumerate(written):
                assert line_of(backend, f"refs/heads/s{number}/main")[::-1] == oids

    def test_eight_processes_append_to_one_ref_and_lose_nothing(self, place: str) -> None:
        children = [start("append", place, MAIN, 10) for _ in range(8)]
        written = {oid for child in children for oid in finish(child).split()}
        with opened(place) as backend:
            assert set(line_of(backend, MAIN)) == written
        assert len(written) == 80

    def test_refs_alone_are_moved_by_many_at_once(self, place: str) -> None:
        with opened(place) as backend:
            oid = put(backend, MAIN, "one")

        def create(number: int) -> None:
            with opened(place) as backend:
                for i in range(30):
                    backend.write({}, [RefUpdate(f"refs/heads/s{number}/{i}", None, oid)])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(create, range(6)))
        with opened(place) as backend:
            assert len(backend.refs()) == 1 + 6 * 30

    def test_eight_processes_set_values_and_lose_nothing(self, place: str) -> None:
        children = [start("values", place, f"p{n}", 10) for n in range(8)]
        for child in children:
            finish(child)
        with opened(place) as backend:
            assert anyio.run(backend.keys) == sorted(f"p{n}.{i}" for n in range(8) for i in range(10))

    def test_readers_never_see_half_a_value(self, place: str) -> None:
        writing = threading.Event()

        def write() -> None:
            with opened(place) as backend:
                for number in range(40):
                    anyio.run(backend.set, "k", {str(n): number for n in range(20_000)})
                    writing.set()
            writing.clear()

        with opened(place) as backend:
            writer = threading.Thread(target=write)
            writer.start()
            assert writing.wait(30)
            seen = set()
            while writing.is_set():
                value = anyio.run(backend.get, "k")
                assert len(value) == 20_000
                assert len(set(value.values())) == 1
                seen |= set(value.values())
            writer.join()
        assert len(seen) > 1

    def test_a_reader_sees_a_write_whole_or_not_at_all(self, place: str) -> None:
        refs = [f"refs/heads/s/{n}" for n in range(20)]
        stop = threading.Event()
        problems: list[object] = []

        def read() -> None:
            with opened(place) as backend:
                while not stop.is_set():
                    seen = set(backend.refs("refs/heads/s/").values())
                    if len(seen) > 1:
                        problems.append(seen)
                    if seen:
                        backend.read_many(seen)

        with opened(place) as backend:
            reader = threading.Thread(target=read)
            reader.start()
            old: Oid | None = None
            for number in range(60):
                new, objects = commit(str(number))
                backend.write(objects, [RefUpdate(ref, old, new) for ref in refs])
                old = new
            stop.set()
            reader.join()
        assert problems == []

    # --- many objects -------------------------------------------------------------------------

    def test_twenty_thousand_objects_are_read_at_once(self, place: str) -> None:
        objects = dict(blob(json.dumps({"number": n, "text": "word " * 60}).encode()) for n in range(20_000))
        with opened(place) as backend:
            backend.write(objects)
            began = time.perf_counter()
            assert backend.read_many(objects) == objects
            assert time.perf_counter() - began < 10  # 0.2 s on an idle machine; one by one takes longer

    def test_long_texts_are_stored_short(self, place: str) -> None:
        text = json.dumps([{"item": "apple", "price": n % 7} for n in range(20_000)]).encode()
        oid, item = blob(text)
        with opened(place) as backend:
            backend.write({oid: item})
            assert backend.read_many([oid]) == {oid: item}
            assert self.stored_bytes(place, oid) < len(text) / 5

    def stored_bytes(self, place: str, oid: Oid) -> int:
        raise NotImplementedError

    def damage(self, place: str, oid: Oid) -> None:
        raise NotImplementedError

    def test_a_damaged_object_is_named(self, place: str) -> None:
        oid, item = blob(b"as it was")
        with opened(place) as backend:
            backend.write({oid: item})
            self.damage(place, oid)
            with pytest.raises(StoreError, match=f"{oid}.*damaged"):
                backend.read_many([oid])

    def test_a_store_opened_read_only_is_not_changed(self, place: str) -> None:
        with opened(place) as backend:
            oid = put(backend, MAIN, "one")
        with opened(place, read_only=True) as backend:
            assert backend.refs() == {MAIN: oid}
            for attempt in (
                lambda: backend.write({}, [RefUpdate(MAIN, oid, None)]),
                lambda: backend.lock("x").__enter__(),
                lambda: anyio.run(backend.set, "k", {}),
            ):
                with pytest.raises(StoreError, match="read-only"):
                    attempt()
        with opened(place) as backend:
            assert backend.refs() == {MAIN: oid}
