"""The memory of objects just written: bounded by what they take, not by what they say."""

from __future__ import annotations

import tracemalloc

from reactifact._store._backends.git.backend import RecentObjects
from reactifact._store.objects import GitObject, object_id

LIMIT = 1024 * 1024


def objects(count: int, size: int) -> dict[str, GitObject]:
    made = (GitObject("blob", b"%0*d" % (size, number)) for number in range(count))
    return {object_id(item.kind, item.data): item for item in made}


def test_tiny_objects_take_no_more_memory_than_the_limit_says() -> None:
    recent = RecentObjects(LIMIT)
    tracemalloc.start()
    try:
        for number in range(20_000):
            recent.add({f"{number:040}": GitObject("blob", b"%d" % number)})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert LIMIT / 4 < taken < LIMIT * 1.5
    assert recent.get(f"{19_999:040}") is not None
    assert recent.get(f"{0:040}") is None


def test_the_oldest_go_first_and_the_largest_are_not_taken() -> None:
    recent = RecentObjects(LIMIT)
    first, others = objects(1, 1_000), objects(3_000, 1_001)
    recent.add(first)
    recent.add(others)
    assert not any(recent.get(oid) for oid in first)
    kept = [oid for oid in others if recent.get(oid) is not None]
    assert kept == list(others)[-len(kept) :]
    assert LIMIT / 2 < sum(len(others[oid].data) for oid in kept) <= LIMIT
    huge = objects(1, LIMIT // 4 + 1)
    recent.add(huge)
    assert not any(recent.get(oid) for oid in huge)
