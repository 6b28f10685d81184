"""Reading ahead of trees: a level in one read, and nothing is read afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.layout import file_path
from reactifact._store.object_db import Database, Staging, blob_entry
from reactifact._store.objects import GitObject, Oid
from reactifact._store.trees import (
    Path,
    compare,
    lookup,
    read_ahead,
    read_differences,
    read_trees,
    update,
    walk,
)


class Counting(MemoryBackend):
    """A store in memory that notes how many objects each read asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def read_many(self, oids: Iterable[Oid]) -> dict[Oid, GitObject]:
        oids = list(oids)
        self.reads.append(len(oids))
        return super().read_many(oids)


def stored(backend: Counting, names: Iterable[str], below: Oid | None = None) -> Oid:
    """Write a tree with one file for each name on top of another tree, and return its id."""
    staging = Staging(Database(backend))
    edits = {file_path(name): blob_entry(staging.put("blob", f"{name} {below}".encode())) for name in names}
    root = update(staging, below, edits)
    backend.write(staging.objects, [])
    backend.reads.clear()
    assert root is not None
    return root


def test_paths_are_read_a_level_at_a_time_and_then_at_hand() -> None:
    backend = Counting()
    root = stored(backend, [str(n) for n in range(200)])
    database = Database(backend)
    wanted = [file_path(str(n)) for n in range(20)] + [file_path("absent")]
    files, none = read_ahead(database, (root, wanted), (None, wanted))
    assert (len(files), none) == (20, [])
    assert len(backend.reads) == 5  # three levels of fan-out, the root and the files
    found = [lookup(database, root, path) for path in wanted]
    assert {entry.oid for entry in found if entry is not None} == set(files)
    assert len(database.read_many(files)) == 20
    assert len(backend.reads) == 5


def test_the_empty_path_is_all_that_is_below() -> None:
    backend = Counting()
    root = stored(backend, [str(n) for n in range(50)])
    database = Database(backend)
    (files,) = read_ahead(database, (root, [()]))
    assert len(backend.reads) == 5
    assert sorted(files) == sorted(oid for _, oid in walk(database, root))
    assert len(backend.reads) == 5


def test_a_path_to_a_name_that_is_not_there_reads_the_trees_on_the_way() -> None:
    backend = Counting()
    root = stored(backend, ["one"])
    database = Database(backend)
    (files,) = read_ahead(database, (root, [(*file_path("one")[:-1], "")]))
    assert (files, backend.reads) == ([], [1, 1, 1, 1])


def test_upper_levels_end_where_a_level_is_wide() -> None:
    backend = Counting()
    root = stored(backend, [str(n) for n in range(500)])
    read_trees(Database(backend), [root, None], 16)
    assert backend.reads == [1, 16]
    backend.reads.clear()
    read_trees(Database(backend), [root])
    assert len(backend.reads) == 4


def test_differences_are_read_a_level_at_a_time_and_then_compared_without_a_read() -> None:
    backend = Counting()
    old = stored(backend, [str(n) for n in range(1_000)])
    new = stored(backend, ["3", "500", "new"], old)
    database = Database(backend)
    paths, same = read_differences(database, (old, new), (old, old), files=True)
    expected: list[Path] = [file_path(name) for name in ("3", "500", "new")]
    assert (sorted(paths), same) == (sorted(expected), [])
    assert len(backend.reads) == 5
    assert sum(backend.reads) <= 2 * (1 + 3 * 3) + 5  # both roots, three ways down, five files
    found = list(compare(database, old, new))
    assert [path for path, _, _ in found] == sorted(paths)
    database.read_many([oid for _, *both in found for oid in both if oid is not None])
    assert len(backend.reads) == 5
