"""Relations of one artifact: what thousands of them cost, and that each is there once."""

from __future__ import annotations

import time

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.index import Indexes
from reactifact._store.layout import Roots
from reactifact._store.object_db import Database, Staging
from reactifact._store.state import State

COUNT = 10_000


def state() -> State:
    return State(Staging(Database(MemoryBackend())), Roots(), 0, Indexes())


def test_ten_thousand_relations_of_one_source_are_made_and_removed_soon() -> None:
    hub = state()
    begin = time.process_time()
    for number in range(COUNT):
        assert hub.link("hub", "has", f"{number}")
    assert not hub.link("hub", "has", f"{COUNT // 2}")
    assert [edge.target for edge in hub.outgoing("hub")] == [f"{number}" for number in range(COUNT)]
    hub.flush()
    assert not hub.link("hub", "has", "7")
    assert len(hub.unlink("hub", "has", None)) == COUNT
    assert time.process_time() - begin < 3.0  # quadratic, each of the two took longer


def test_links_in_any_order_and_after_going_back() -> None:
    both = state()
    assert both.link("a", "to", "x")
    assert both.link("b", "to", "x")
    before = both.savepoint()
    assert both.link("a", "to", "y")
    assert not both.link("a", "to", "y")
    both.restore(before)
    assert both.link("a", "to", "y")
    assert both.unlink("a", "to", "y")
    assert both.link("a", "to", "y")
    assert not both.link("b", "to", "x")
    assert both.link("c", "to", "x")
    assert [edge.target for edge in both.outgoing("a")] == ["x", "y"]
