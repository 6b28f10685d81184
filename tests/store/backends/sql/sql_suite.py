"""What the SQL stores promise beyond the conformance suite: killed writers, contention, many objects.

Subclass `SQLSuite` as `Test...` and give it a `place` fixture: the path or DSN of a new store.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import forked
import pytest
from building import MAIN, blob, commit, put

from reactifact._sessions.stores import open_database
from reactifact._store._backends.document import reach
from reactifact._store.object_db import Database
from reactifact._store.objects import (
    BLOB_MODE,
    GitObject,
    Oid,
    TreeEntry,
    encode_tree,
    object_id,
    parse_commit,
    parse_tree,
)
from reactifact._store.protocol import Pruned, RefUpdate
from reactifact.errors import Contention, MissingObject, SessionBusy, StoreError

OTHER = "refs/heads/s/other"
PRUNE_STEPS = ["walked", "rows removed", "pruned"]
STEPS = ["begun", "objects stored", "refs moved", "committed"]


def start(*arguments: object) -> forked.Process:
    """Start `store_child.py` in a process of its own."""
    tests = Path(__file__).parents[3]
    path = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    return forked.start(Path(__file__).with_name("store_child.py"), *arguments, env=environment)


def finish(child: forked.Process) -> str:
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
    return line_of_commit(backend, backend.refs(ref).get(ref))


def line_of_commit(backend: Any, oid: Oid | None) -> list[Oid]:
    """Return a commit and those below it, each read whole."""
    found: list[Oid] = []
    while oid is not None:
        found.append(oid)
        head = parse_commit(backend.read_many([oid])[oid].data)
        reach(Database(backend), [head.tree])
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

    @pytest.mark.parametrize(("entries", "share"), [(16, 1.0), (1000, 0.8)])
    def test_a_small_tree_is_stored_as_it_is(self, place: str, entries: int, share: float) -> None:
        named = {f"{n:04x}.json": TreeEntry(BLOB_MODE, object_id("blob", b"%d" % n)) for n in range(entries)}
        data = encode_tree(named)
        item = GitObject("tree", data)
        oid = object_id("tree", data)
        with opened(place) as backend:
            backend.write({oid: item})
            assert backend.read_many([oid]) == {oid: item}
            stored = self.stored_bytes(place, oid)
        assert stored == len(data) if share == 1.0 else stored < len(data) * share

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

    # --- pruning ------------------------------------------------------------------------------

    def ask(self, place: str, statement: str) -> list[tuple[Any, ...]]:
        """Look into the tables, or change them, as another program would."""
        raise NotImplementedError

    def rows(self, place: str, table: str = "objects") -> int:
        return int(self.ask(place, f"SELECT count(*) FROM {table}")[0][0])

    def test_what_no_ref_reaches_goes_when_its_grace_is_over(self, place: str) -> None:
        with opened(place) as backend:
            kept = put(backend, MAIN, "one")
            dropped = fork(backend, "two", kept)
            backend.write({}, [RefUpdate(OTHER, dropped, None)])
            assert backend.prune(grace=3600) == Pruned(0, 0, 4)
            assert backend.prune(grace=3600) == Pruned(0, 0, 4)
            assert line_of_commit(backend, dropped) == [dropped, kept]
            self.ask(place, "UPDATE unreachable SET since = since - 3601")
            done = backend.prune(grace=3600)
            assert (done.objects, done.waiting) == (4, 0)
            assert done.size > 100
            assert line_of(backend, MAIN) == [kept]
            with pytest.raises(MissingObject):
                backend.read_many([dropped])
            assert (self.rows(place), self.rows(place, "unreachable")) == (4, 0)
            assert backend.prune(grace=0) == Pruned(0, 0, 0)
            assert fork(backend, "two", kept) == dropped
            assert line_of(backend, OTHER) == [dropped, kept]

    def test_what_is_reached_again_begins_its_grace_anew(self, place: str) -> None:
        with opened(place) as backend:
            dropped = put(backend, OTHER, "two")
            backend.write({}, [RefUpdate(OTHER, dropped, None)])
            backend.prune(grace=3600)
            self.ask(place, "UPDATE unreachable SET since = since - 3601")
            backend.write({}, [RefUpdate(OTHER, None, dropped)])
            assert backend.prune(grace=3600) == Pruned(0, 0, 0)
            backend.write({}, [RefUpdate(OTHER, dropped, None)])
            assert backend.prune(grace=3600) == Pruned(0, 0, 4)

    def test_what_waits_keeps_what_it_refers_to(self, place: str) -> None:
        with opened(place) as backend:
            old = put(backend, OTHER, "old")
            backend.write({}, [RefUpdate(OTHER, old, None)])
            backend.prune(grace=3600)
            self.ask(place, "UPDATE unreachable SET since = since - 3601")
            new, objects = commit("new", old)
            backend.write(objects)  # without a ref, on top of what would go now
            assert backend.prune(grace=3600).objects == 0
            assert line_of_commit(backend, new) == [new, old]
            assert backend.prune(grace=0).objects == 8
            assert self.rows(place) == 0

    @pytest.mark.parametrize("how", ["written anew", "pointed at"])
    def test_what_comes_back_while_a_prune_walks_stays(self, place: str, how: str) -> None:
        dropped, objects = commit("two")
        with opened(place) as backend, opened(place) as other:
            backend.write(objects)

            def revive(step: str) -> None:
                if step == "walked":
                    other.write(objects if how == "written anew" else {}, [RefUpdate(OTHER, None, dropped)])

            backend.fault = revive
            assert backend.prune(grace=0) == Pruned(0, 0, 0)
            assert line_of(other, OTHER) == [dropped]

    def test_what_comes_without_a_ref_while_a_prune_walks_stays_with_what_it_rests_on(
        self, place: str
    ) -> None:
        old, objects = commit("two")
        new, more = commit("three", old)
        with opened(place) as backend, opened(place) as other:
            backend.write(objects)
            backend.fault = lambda step: other.write(more) if step == "walked" else None
            assert backend.prune(grace=0) == Pruned(0, 0, 0)
            assert line_of_commit(backend, new) == [new, old]

    def test_a_prune_waits_for_a_writer_in_the_middle_of_its_write(self, place: str) -> None:
        dropped, objects = commit("two")
        begun, free = threading.Event(), threading.Event()

        def pause(step: str) -> None:
            if step == "objects stored":  # they were there: nothing but the lock tells of this write
                begun.set()
                assert free.wait(30)

        with opened(place) as backend, opened(place) as other, ThreadPoolExecutor(2) as pool:
            backend.write(objects)
            other.fault = pause
            writer = pool.submit(other.write, objects, [RefUpdate(OTHER, None, dropped)])
            assert begun.wait(30)
            walked = threading.Event()
            backend.fault = lambda step: walked.set() if step == "walked" else None
            pruner = pool.submit(backend.prune, grace=0)
            assert walked.wait(30)
            with pytest.raises(TimeoutError):
                pruner.result(0.5)
            free.set()
            writer.result(30)
            assert pruner.result(30) == Pruned(0, 0, 0)
            assert line_of(backend, OTHER) == [dropped]

    def test_a_write_that_rests_on_what_was_pruned_is_refused(self, place: str) -> None:
        with opened(place) as backend, opened(place) as other:
            main = put(backend, MAIN, "one")
            theirs, objects = commit("two")
            backend.write(objects, [RefUpdate(OTHER, None, theirs)])
            merge = encode_tree({**tree_of(other, main), "theirs": tree_of(other, theirs)["artifacts"]})
            mine = {object_id("tree", merge): GitObject("tree", merge)}  # what it takes over, it leaves out
            new = other.read_many([main])[main].data.replace(
                parse_commit(other.read_many([main])[main].data).tree.encode(), next(iter(mine)).encode()
            )
            mine[object_id("commit", new)] = GitObject("commit", new)
            update = RefUpdate(MAIN, main, object_id("commit", new))
            backend.write({}, [RefUpdate(OTHER, theirs, None)])
            backend.prune(grace=3600)
            backend.prune(grace=0)
            for updates in ([update], []):
                with pytest.raises(Contention, match="was pruned from"):
                    other.write(mine, updates)
            assert other.refs() == {MAIN: main}
            assert self.rows(place) == 4
            put(other, MAIN, "three", main)  # what does not rest on it is written
            other.write(mine | objects)

    to_version_1: str
    """The statement that calls the tables those of version 1."""

    def test_tables_of_version_1_are_brought_to_this_one(self, place: str) -> None:
        with opened(place) as backend:
            oid = put(backend, MAIN, "one")
        for statement in ("DROP TABLE prunes", "DROP TABLE unreachable", self.to_version_1):
            self.ask(place, statement)
        with opened(place, read_only=True) as backend:
            assert line_of(backend, MAIN) == [oid]
        gate = threading.Barrier(4)

        def open_it(number: int) -> None:
            gate.wait()
            with opened(place) as backend:
                put(backend, f"refs/heads/s{number}/main", "two")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(open_it, range(4)))
        with opened(place) as backend:
            assert len(backend.refs()) == 5
            assert backend.prune(grace=0) == Pruned(0, 0, 0)

    @pytest.mark.parametrize("step", PRUNE_STEPS)
    def test_a_prune_killed_at_a_step_leaves_a_good_store(self, place: str, step: str) -> None:
        with opened(place) as backend:
            kept = put(backend, MAIN, "one")
            dropped = fork(backend, "two", kept)
            backend.write({}, [RefUpdate(OTHER, dropped, None)])
            child = start("prune", place, step)
            child.communicate(timeout=60)
            assert child.returncode == -signal.SIGKILL
            assert line_of(backend, MAIN) == [kept]
            assert self.rows(place) == (4 if step == "pruned" else 8)
            new = put(backend, MAIN, "two", kept)
            assert new == dropped  # equal content, and whole whatever the prune had removed
            assert line_of(backend, MAIN) == [new, kept]
            assert backend.prune(grace=0) == Pruned(0, 0, 0)

    def test_a_damaged_store_is_not_pruned(self, place: str) -> None:
        with opened(place) as backend:
            main = put(backend, MAIN, "one")
            dropped = fork(backend, "two", main)
            backend.write({}, [RefUpdate(OTHER, dropped, None)])
            self.damage(place, parse_commit(backend.read_many([main])[main].data).tree)
            with pytest.raises(StoreError, match="damaged"):
                backend.prune(grace=0)
            assert self.rows(place) == 8

    def test_one_prune_at_a_time_and_no_grace_below_nothing(self, place: str) -> None:
        with opened(place) as backend, opened(place) as other:
            busy: list[BaseException] = []
            put(backend, MAIN, "one")

            def again(step: str) -> None:
                try:
                    other.prune()
                except SessionBusy as error:
                    busy.append(error)

            backend.fault = again
            backend.prune()
            assert len(busy) == 3
            with pytest.raises(ValueError, match="0 seconds or more"):
                backend.prune(grace=-1)
        with opened(place, read_only=True) as backend, pytest.raises(StoreError, match="read-only"):
            backend.prune()

    def test_writers_beside_a_prune_lose_nothing(self, place: str) -> None:
        self.write_beside_prunes(place, writes=25)

    @pytest.mark.full
    def test_writers_beside_a_prune_lose_nothing_for_long(self, place: str) -> None:
        self.write_beside_prunes(place, writes=3000)

    def write_beside_prunes(self, place: str, writes: int) -> None:
        """Four writers make, fork and delete branches of equal content while prunes remove all they can."""
        stop = threading.Event()
        removed: list[int] = []

        def prune() -> None:
            with opened(place) as backend:
                while not stop.is_set():
                    removed.append(backend.prune(grace=0).objects)

        def write(number: int) -> dict[str, list[Oid]]:
            chance = random.Random(number)
            lines: dict[str, list[Oid]] = {}
            with opened(place) as backend:
                done = 0
                while done < writes or (not any(removed) and done < 100 * writes):
                    name = f"refs/heads/s{number}/{chance.randrange(3)}"
                    line = lines.get(name, [])
                    text = str(chance.randrange(4))  # that of many others, and of dropped ones
                    # what a branch holds is left out: only its ref keeps it
                    oid, objects = commit(text, *line[:1])
                    objects = {
                        o: item for o, item in objects.items() if o not in backend_known(backend, line)
                    }
                    if line and chance.random() < 0.3:
                        backend.write({}, [RefUpdate(name, line[0], None)])
                        del lines[name]
                    else:
                        backend.write(objects, [RefUpdate(name, line[0] if line else None, oid)])
                        lines[name] = [oid, *line]
                    done += 1
            return lines

        with ThreadPoolExecutor(5) as pool:
            pruner = pool.submit(prune)
            try:
                written = [future.result() for future in [pool.submit(write, n) for n in range(4)]]
            finally:
                stop.set()
            pruner.result()
        with opened(place) as backend:
            expected = {name: line for lines in written for name, line in lines.items()}
            assert backend.refs() == {name: line[0] for name, line in expected.items()}
            for name, line in expected.items():
                assert line_of(backend, name) == line
            backend.prune(grace=0)
            assert self.rows(place) == len(reach(Database(backend), backend.refs().values()))
        assert sum(removed) > 0


def backend_known(backend: Any, line: list[Oid]) -> set[Oid]:
    """Return what the tree of a branch's last commit reaches, which a writer leaves out."""
    return (
        set(reach(Database(backend), [parse_commit(backend.read_many(line[:1])[line[0]].data).tree]))
        if line
        else set()
    )


def fork(backend: Any, text: str, parent: Oid) -> Oid:
    """Write a commit on top of another as the branch `OTHER`."""
    oid, objects = commit(text, parent)
    backend.write(objects, [RefUpdate(OTHER, None, oid)])
    return oid


def tree_of(backend: Any, oid: Oid) -> Any:
    tree = parse_commit(backend.read_many([oid])[oid].data).tree
    return parse_tree(backend.read_many([tree])[tree].data)
