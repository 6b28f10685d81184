"""The promises of `ObjectBackend` as tests that every backend runs, ours and yours.

Subclass `BackendConformance` as `Test...` and give it an `open_backend` fixture: a function that opens the
same store anew each time it is called. How a store looks on disk, and what survives a killed process or
a power cut, is tested beside its backend.

Needs pytest, which nothing else of this package but the plugin does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from .._store.objects import (
    BLOB_MODE,
    TREE_MODE,
    CommitObject,
    GitObject,
    Oid,
    Signature,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
    parse_commit,
)
from .._store.protocol import ObjectBackend, RefUpdate
from ..errors import Contention, InvalidName, MissingObject, SessionBusy, StoreError

# -- objects and commits to fill a store with, for the conformance suite and tests beside it --


MAIN = "refs/heads/s/main"
ABSENT = "0123456789abcdef0123456789abcdef01234567"
WHO = Signature("agent", "agent@example.invalid", 1_700_000_000)


def blob(data: bytes) -> tuple[Oid, GitObject]:
    """Return a blob and its id."""
    return object_id("blob", data), GitObject("blob", data)


def commit(text: str, *parents: Oid) -> tuple[Oid, dict[Oid, GitObject]]:
    """Return a commit with one file of its own, and the four objects it is made of."""
    blob_id, payload = blob(f"{text}\n".encode())
    leaf = encode_tree({"file.json": TreeEntry(BLOB_MODE, blob_id)})
    leaf_id = object_id("tree", leaf)
    root = encode_tree({"artifacts": TreeEntry(TREE_MODE, leaf_id)})
    root_id = object_id("tree", root)
    data = encode_commit(CommitObject(root_id, parents, WHO, WHO, f"{text}\n"))
    oid = object_id("commit", data)
    return oid, {
        blob_id: payload,
        leaf_id: GitObject("tree", leaf),
        root_id: GitObject("tree", root),
        oid: GitObject("commit", data),
    }


def put(backend: ObjectBackend, name: str, text: str, expected: Oid | None = None) -> Oid:
    """Write a commit on top of `expected` and move `name` to it."""
    parents = () if expected is None else (expected,)
    oid, objects = commit(text, *parents)
    backend.write(objects, [RefUpdate(name, expected, oid)])
    return oid


# -- the promises of `ObjectBackend` as tests that every backend runs, ours and yours --


OpenBackend = Callable[[], ObjectBackend]
"""Opens the same store anew each time it is called."""


class BackendConformance:
    """The suite. A subclass provides the fixture `open_backend`, a new store for each test."""

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """Return a function that opens the store of this test; override it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no fixture open_backend: define one that returns a function which "
            f"opens the same, at first empty, store each time it is called"
        )

    @pytest.fixture
    def backend(self, open_backend: OpenBackend) -> ObjectBackend:
        """The store, opened once."""
        return open_backend()

    def test_it_is_an_object_backend(self, backend: ObjectBackend) -> None:
        assert isinstance(backend, ObjectBackend)
        assert backend.location
        assert backend.is_local in (True, False)

    def test_a_new_store_has_no_refs(self, backend: ObjectBackend) -> None:
        assert backend.refs() == {}

    # --- objects ------------------------------------------------------------------------------

    def test_every_kind_comes_back_as_it_was_written(self, open_backend: OpenBackend) -> None:
        commit_id, objects = commit("one")
        tag = f"object {commit_id}\ntype commit\ntag v1\ntagger a <a@b> 1700000000 +0000\n\nv1\n".encode()
        objects |= {object_id("tag", tag): GitObject("tag", tag)}
        objects |= dict([blob(b""), blob(b"\x00\xff not text")])
        open_backend().write(objects)
        assert open_backend().read_many(objects) == objects

    @pytest.mark.parametrize("seed", range(10))
    def test_any_bytes_come_back(self, open_backend: OpenBackend, seed: int) -> None:
        chance = random.Random(seed)
        contents = [chance.randbytes(chance.randrange(600)) for _ in range(chance.randrange(1, 20))]
        objects = dict(map(blob, contents))
        open_backend().write(objects)
        assert open_backend().read_many(objects) == objects

    @pytest.mark.parametrize("size", [15, 16, 2047, 2048, 262_143, 262_144, 6_000_000])
    def test_sizes_around_those_of_the_pack_format(self, open_backend: OpenBackend, size: int) -> None:
        oid, item = blob(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        writer = open_backend()
        writer.write({oid: item})
        assert writer.read_many([oid])[oid] == item
        assert open_backend().read_many([oid])[oid] == item

    def test_reading_gives_each_object_once(self, backend: ObjectBackend) -> None:
        oid, item = blob(b"twice")
        backend.write({oid: item})
        assert backend.read_many(iter([oid, oid])) == {oid: item}
        assert backend.read_many([]) == {}

    def test_a_missing_object_is_named(self, backend: ObjectBackend) -> None:
        oid, item = blob(b"there")
        backend.write({oid: item})
        with pytest.raises(MissingObject, match=ABSENT) as caught:
            backend.read_many([oid, ABSENT])
        assert caught.value.oid == ABSENT
        assert backend.location in str(caught.value)

    def test_equal_objects_may_be_written_again(self, open_backend: OpenBackend) -> None:
        oid, objects = commit("same")
        first = open_backend()
        first.write(objects)
        first.write(objects, [RefUpdate(MAIN, None, oid)])
        open_backend().write(objects)
        assert open_backend().read_many(objects) == objects

    def test_an_object_under_a_wrong_id_is_refused(self, backend: ObjectBackend) -> None:
        oid, _ = blob(b"one")
        with pytest.raises(StoreError, match=oid):
            backend.write({oid: GitObject("blob", b"another")})
        with pytest.raises(MissingObject):
            backend.read_many([oid])

    def test_nothing_to_write_is_fine(self, backend: ObjectBackend) -> None:
        backend.write({})
        backend.write({}, [])
        assert backend.refs() == {}

    # --- refs ---------------------------------------------------------------------------------

    def test_a_ref_is_created_moved_and_deleted(self, open_backend: OpenBackend) -> None:
        backend = open_backend()
        first = put(backend, MAIN, "one")
        assert open_backend().refs() == {MAIN: first}
        second = put(backend, MAIN, "two", first)
        assert open_backend().refs() == {MAIN: second}
        backend.write({}, [RefUpdate(MAIN, second, None)])
        assert open_backend().refs() == {}
        assert put(open_backend(), MAIN, "three") == backend.refs()[MAIN]

    def test_refs_alone_can_be_moved(self, backend: ObjectBackend) -> None:
        oid = put(backend, MAIN, "one")
        backend.write({}, [RefUpdate("refs/heads/s/fork", None, oid)])
        assert backend.refs() == {"refs/heads/s/fork": oid, MAIN: oid}

    @pytest.mark.parametrize("expected", [None, ABSENT, "older"])
    def test_a_wrong_expectation_moves_nothing(self, backend: ObjectBackend, expected: str | None) -> None:
        older = put(backend, MAIN, "one")
        current = put(backend, MAIN, "two", older)
        oid, objects = commit("three", current)
        wrong = older if expected == "older" else expected
        with pytest.raises(Contention, match=MAIN):
            backend.write(objects, [RefUpdate(MAIN, wrong, oid)])
        with pytest.raises(Contention, match=MAIN):
            backend.write({}, [RefUpdate(MAIN, wrong, None)])
        assert backend.refs() == {MAIN: current}

    def test_a_ref_that_is_not_there_cannot_be_moved_or_deleted(self, backend: ObjectBackend) -> None:
        oid, objects = commit("one")
        with pytest.raises(Contention):
            backend.write(objects, [RefUpdate(MAIN, ABSENT, oid)])
        with pytest.raises(Contention):
            backend.write({}, [RefUpdate(MAIN, ABSENT, None)])
        backend.write({}, [RefUpdate(MAIN, None, None)])
        assert backend.refs() == {}

    def test_a_ref_never_points_at_nothing(self, backend: ObjectBackend) -> None:
        with pytest.raises(MissingObject, match=ABSENT):
            backend.write({}, [RefUpdate(MAIN, None, ABSENT)])
        with pytest.raises(StoreError, match="not an object id"):
            backend.write({}, [RefUpdate(MAIN, None, "main")])
        assert backend.refs() == {}

    def test_several_refs_move_in_one_write(self, backend: ObjectBackend) -> None:
        old = put(backend, MAIN, "one")
        new, objects = commit("two", old)
        backend.write(
            objects,
            [
                RefUpdate("refs/heads/s/%outbox", None, new),
                RefUpdate(MAIN, old, new),
                RefUpdate("refs/tags/s/v1", None, old),
            ],
        )
        assert backend.refs() == {"refs/heads/s/%outbox": new, MAIN: new, "refs/tags/s/v1": old}

    def test_one_wrong_expectation_among_several_is_seen_before_any_moves(
        self, backend: ObjectBackend
    ) -> None:
        old = put(backend, MAIN, "one")
        new, objects = commit("two", old)
        updates = [RefUpdate(MAIN, old, new), RefUpdate("refs/heads/s/b", old, new)]
        with pytest.raises(Contention, match=r"refs/heads/s/b"):
            backend.write(objects, updates)
        assert backend.refs() == {MAIN: old}

    def test_one_ref_may_move_twice_in_one_write(self, backend: ObjectBackend) -> None:
        first, objects = commit("one")
        second, more = commit("two", first)
        backend.write(objects | more, [RefUpdate(MAIN, None, first), RefUpdate(MAIN, first, second)])
        assert backend.refs() == {MAIN: second}

    def test_refs_by_prefix(self, backend: ObjectBackend) -> None:
        oid, objects = commit("one")
        names = [
            "refs/heads/a/main",
            "refs/heads/a/main2",
            "refs/heads/ab/main",
            "refs/heads/b/%outbox",
            "refs/tags/a/v1",
        ]
        backend.write(objects, [RefUpdate(name, None, oid) for name in reversed(names)])
        assert list(backend.refs()) == names
        assert list(backend.refs("refs/heads/a/")) == names[:2]
        assert list(backend.refs("refs/heads/a")) == names[:3]
        assert list(backend.refs("refs/heads/a/main")) == names[:2]
        assert list(backend.refs("refs/heads/b/%outbox")) == names[3:4]
        assert list(backend.refs("refs/tags/")) == names[4:]
        assert backend.refs("refs/heads/c/") == {}
        assert backend.refs("refs/heads/a/main/") == {}
        assert backend.refs("../") == {}
        assert list(backend.refs("")) == names

    @pytest.mark.parametrize(
        "name",
        [
            "refs/heads/%2E%2E/main",
            "refs/heads/A/main",
            "refs/heads/a%2Fb%3A%00/main",
            "refs/heads/s/@",
            "refs/heads/-dash/{x}",
            "refs/heads/" + "x" * 200 + "/" + "y" * 250,
        ],
    )
    def test_odd_names_are_kept_exactly(self, open_backend: OpenBackend, name: str) -> None:
        backend = open_backend()
        first = put(backend, name, "one")
        second = put(backend, name, "two", first)
        assert open_backend().refs() == {name: second}
        assert open_backend().refs(name) == {name: second}

    @pytest.mark.parametrize(
        "name",
        [
            "main",
            "HEAD",
            "refs",
            "refs/heads/../x",
            "refs/heads//x",
            "refs/heads/x/",
            "refs/heads/.x",
            "refs/heads/x.lock",
            "refs/heads/x.",
            "refs/heads/a b",
            "refs/heads/a\nb",
            "refs/heads/a:b",
            "refs/heads/a@{1}",
            "refs/heads/a*",
            "refs/heads/\udcff",
            "refs/heads/" + "x" * 251,
            "refs/" + "x/" * 600 + "x",
        ],
    )
    def test_names_that_git_refuses_are_refused(self, backend: ObjectBackend, name: str) -> None:
        oid, objects = commit("one")
        with pytest.raises(InvalidName):
            backend.write(objects, [RefUpdate(name, None, oid)])
        assert backend.refs() == {}

    def test_a_ref_cannot_be_the_folder_of_another(self, backend: ObjectBackend) -> None:
        oid = put(backend, "refs/heads/s/main", "one")
        for name in ("refs/heads/s", "refs/heads/s/main/x"):
            with pytest.raises(StoreError, match="refs/heads/s/main"):
                backend.write({}, [RefUpdate(name, None, oid)])
        backend.write({}, [RefUpdate("refs/heads/s/main", oid, None)])
        backend.write({}, [RefUpdate("refs/heads/s", None, oid)])
        assert backend.refs() == {"refs/heads/s": oid}

    # --- contention ---------------------------------------------------------------------------

    def test_of_threads_that_expect_the_same_exactly_one_wins(self, open_backend: OpenBackend) -> None:
        backend = open_backend()
        head = put(backend, MAIN, "start")
        for round_ in range(5):
            gate = threading.Barrier(6)

            def attempt(
                number: int, head: Oid = head, round_: int = round_, gate: threading.Barrier = gate
            ) -> Oid | None:
                oid, objects = commit(f"{round_}.{number}", head)
                gate.wait()
                try:
                    backend.write(objects, [RefUpdate(MAIN, head, oid)])
                except Contention:
                    return None
                return oid

            with ThreadPoolExecutor(6) as pool:
                winners = [oid for oid in pool.map(attempt, range(6)) if oid]
            assert winners == [backend.refs()[MAIN]]
            head = winners[0]

    def test_threads_that_retry_lose_nothing(self, open_backend: OpenBackend) -> None:
        put(open_backend(), MAIN, "start")

        def append(thread: int) -> set[Oid]:
            backend = open_backend()
            written: set[Oid] = set()
            while len(written) < 5:
                head = backend.refs(MAIN)[MAIN]
                try:
                    written.add(put(backend, MAIN, f"{thread}.{len(written)}", head))
                except Contention:
                    continue
            return written

        with ThreadPoolExecutor(4) as pool:
            written = set().union(*pool.map(append, range(4)))
        backend = open_backend()
        line: list[Oid] = []
        oid: Oid | None = backend.refs()[MAIN]
        while oid is not None:
            line.append(oid)
            parents = parse_commit(backend.read_many([oid])[oid].data).parents
            oid = parents[0] if parents else None
        assert len(line) == 21
        assert written == set(line[:-1])

    # --- locks --------------------------------------------------------------------------------

    def test_a_lock_is_exclusive_and_names_its_holder(self, open_backend: OpenBackend) -> None:
        one, other = open_backend(), open_backend()
        with one.lock("s/main") as held:
            held.require_held()
            with pytest.raises(SessionBusy, match=r"'s/main'.*held by"), other.lock("s/main"):
                pass
            with pytest.raises(SessionBusy), one.lock("s/main"):
                pass
            with other.lock("s/other"):
                pass
        with other.lock("s/main"):
            pass

    @pytest.mark.parametrize("name", ["", "a/../b", "x" * 5000, "nul\0", "näme \n", "\udcff"])
    def test_a_lock_may_have_any_name(self, backend: ObjectBackend, name: str) -> None:
        with backend.lock(name):
            with pytest.raises(SessionBusy), backend.lock(name):
                pass
            with backend.lock(name + "2"):
                pass

    def test_waiting_for_a_lock_ends_when_it_is_given_back(self, open_backend: OpenBackend) -> None:
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with open_backend().lock("drain"):
                held.set()
                free.wait(10)

        with ThreadPoolExecutor(1) as pool:
            holder = pool.submit(hold)
            assert held.wait(10)
            with pytest.raises(SessionBusy), open_backend().lock("drain", wait=0.02):
                pass
            free.set()
            with open_backend().lock("drain", wait=10):
                assert holder.result(10) is None

    def test_a_lock_is_given_back_when_its_holder_fails(self, backend: ObjectBackend) -> None:
        with pytest.raises(ZeroDivisionError), backend.lock("drain"):
            raise ZeroDivisionError
        with backend.lock("drain"):
            pass

    def test_a_lock_lets_one_in_at_a_time(self, open_backend: OpenBackend) -> None:
        inside: list[int] = []
        most: list[int] = []

        def enter(number: int) -> None:
            backend = open_backend()
            for _ in range(5):
                with backend.lock("one", wait=30):
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(enter, range(4)))
        assert most == [1] * 20

    # --- the end ------------------------------------------------------------------------------

    def test_closing_twice_is_fine(self, backend: ObjectBackend) -> None:
        put(backend, MAIN, "one")
        backend.close()
        backend.close()
