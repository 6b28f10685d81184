"""Indexes over what comes and goes: they hold what there is, and nothing of what there was."""

from __future__ import annotations

from datetime import UTC, datetime

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.index import Indexes
from reactifact._store.layout import ListingRecord, ReadRecord, Roots
from reactifact._store.object_db import Database, Staging
from reactifact._store.state import Origin, State

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def state() -> State:
    return State(Staging(Database(MemoryBackend())), Roots(), 0, Indexes())


def test_targets_that_nothing_leads_to_any_more_take_no_memory() -> None:
    hub = state()
    for number in range(50):
        hub.link("hub", "has", f"t{number}")
        hub.flush()
        assert hub.incoming_sources(f"t{number}") == ["hub"]
        hub.unlink("hub", "has", f"t{number}")
        hub.flush()
        assert hub.incoming_sources(f"t{number}") == []
    assert hub.indexes._incoming.targets == {}
    hub.link("hub", "has", "t7")
    hub.flush()
    assert hub.incoming_sources("t7") == ["hub"]


def test_what_was_read_once_takes_no_memory_when_nothing_rests_on_it_any_more() -> None:
    report = state()
    for number in range(50):
        reads, listings = (ReadRecord(f"n{number}", 0),), (ListingRecord(f"T{number}", "c", number),)
        origin = Origin("agent", NOW, f"c{number}", reads, listings)
        report.put("report", "Report", b"%d" % number, "1", origin)
        report.flush()
        for artifact_id, type_id in ((f"n{number}", "Note"), ("other", f"T{number}")):
            found = report.put(artifact_id, type_id, b"{}", "1", Origin("application", NOW))
            report.flush()
            assert [meta.id for meta in report.readers(found)] == ["report"]
            report.delete(artifact_id)
            report.flush()
    assert [*report.indexes._readers.by_id] == ["n49"]
    assert [*report.indexes._readers.by_type] == ["T49"]
    report.delete("report")
    report.flush()
    assert report.all_readers() == []
    assert (report.indexes._readers.by_id, report.indexes._readers.by_type) == ({}, {})


def test_a_commit_takes_who_read_what_along() -> None:
    here = state()
    wrote = Origin("agent", NOW, "c0", (ReadRecord("a", 0),), (ListingRecord("Note", "c", 1),))
    here.put("a", "Note", b"{}", "1", Origin("application", NOW))
    here.put("b", "Report", b"{}", "1", wrote)
    here.flush()
    assert [meta.id for meta in here.all_readers()] == ["b"]  # from now on there is an index
    here.put("c", "Report", b"{}", "1", wrote)
    here.delete("b")
    here.flush()
    assert here.indexes._readers.tree == here.roots.meta
    anew = Indexes()
    anew.all_readers(here.objects, here.roots)
    assert here.indexes._readers == anew._readers
