"""The bookkeeping files come back as written, a path says nothing but id and type, damage is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactifact._store import canonical
from reactifact._store.layout import (
    WAKE,
    Edge,
    Intent,
    ListingRecord,
    Meta,
    ReadRecord,
    Waiting,
    artifact_path,
    decode_edges,
    encode_edges,
    file_path,
    versions_path,
    waiting_folder,
    waiting_path,
)
from reactifact.errors import StoreError

OID = "0123456789abcdef0123456789abcdef01234567"
META = Meta(
    id="order:1",
    type_id="shop.Order",
    version=0,
    sequence=3,
    written=4,
    created_at="2030-01-01T00:00:00+00:00",
    updated_at="2030-01-01T00:00:00+00:00",
    payload=OID,
    content_hash="ab" * 32,
    revision="r",
    author="desk",
    commit="c1",
    created_by="c1",
    writer="c1",
    writer_author="desk",
)
texts = st.text(max_size=10)
reads = st.lists(st.builds(ReadRecord, texts, st.integers(-1, 99)), max_size=3).map(tuple)
listings = st.lists(st.builds(ListingRecord, texts, texts, st.integers(0, 99)), max_size=3).map(tuple)
NAMES = ("id", "type_id", "content_hash", "revision", "author")
metas = st.builds(
    Meta,
    **dict.fromkeys(NAMES, texts),
    **dict.fromkeys(
        ("created_at", "updated_at"), st.datetimes().map(lambda moment: f"{moment.isoformat()}+00:00")
    ),
    **dict.fromkeys(("version", "sequence", "written"), st.integers(0, 2**40)),
    **dict.fromkeys(("commit", "created_by", "writer", "writer_author"), st.none() | texts),
    payload=st.just(OID),
    reads=reads,
    listings=listings,
    previous=st.none() | st.just(OID),
)


@given(metas)
def test_a_meta_file_says_all_of_a_version(meta: Meta) -> None:
    data = meta.encode()
    assert Meta.decode(data) == meta
    assert Meta.decode(bytes(data + b" ")) == meta, "read anew, not what was kept of the writing"


def test_a_meta_of_a_later_minor_form_is_read() -> None:
    record: Any = canonical.decode(META.encode())
    assert Meta.decode(canonical.encode({**record, "later": [1]})) == META


@pytest.mark.parametrize(
    "change", [{"version": "1"}, {"id": None}, {"reads": [["x"]]}, {"reads": "no"}, {"updated_at": "noon"}]
)
def test_a_damaged_meta_is_named(change: dict[str, Any]) -> None:
    record: Any = canonical.decode(META.encode())
    with pytest.raises(StoreError, match="the bookkeeping of an artifact"):
        Meta.decode(canonical.encode({**record, **change}))


def test_a_path_follows_from_id_and_type_alone() -> None:
    path = artifact_path("shop.Order", "order:1")
    assert path == ("shop.Order", *file_path("order:1"))
    assert len(path) == 5
    assert path[-1].endswith(".json")
    assert versions_path("order:1")[:3] == file_path("order:1")[:3]
    assert artifact_path("shop.Order", "order:2") != path


def test_the_relations_of_a_source_keep_their_order() -> None:
    edges = (Edge("about", "b", 7), Edge("about", "a", 9))
    assert decode_edges(encode_edges("s", edges)) == ("s", edges)
    for bad in ({"links": [], "source": 1}, {"links": [{"relation": "r"}], "source": "s"}, [], {"links": 3}):
        with pytest.raises(StoreError, match="a file of relations"):
            decode_edges(canonical.encode(bad))


@pytest.mark.parametrize(
    "intent",
    [
        Intent("action:a", 4, "h"),
        Intent(
            "action:a", 4, "h", "customer-1", "2030-01-01T00:00:00+00:00", "2030-01-02T00:00:00+00:00", True
        ),
    ],
)
def test_an_intent_comes_back(intent: Intent) -> None:
    assert Intent.decode(intent.encode()) == intent
    with pytest.raises(StoreError, match="the file of a waiting action"):
        Intent.decode(b'{"action": "a"}')


def test_what_is_waited_for_follows_from_the_payload() -> None:
    action = {"kind": "mail", "ordering_key": "k", "not_before": "2030-01-01T02:00:00+02:00"}
    found = Intent.of(META, canonical.encode(action))
    assert found == Intent("order:1", 3, META.content_hash, "k", not_before="2030-01-01T00:00:00+00:00")
    wake = Intent.of(META, canonical.encode({"kind": WAKE}))
    assert wake is not None
    assert wake.is_wake
    assert Intent.of(META, canonical.encode({**action, "cancelled_at": "2030-01-01T00:00:00+00:00"})) is None
    with pytest.raises(StoreError, match="an action"):
        Intent.of(META, b"{}")


EVENT = {"type": "artifact_created", "artifact_id": "order:1", "at": "c1"}


def test_two_queues_merge_as_sets_of_files() -> None:
    waiting = Waiting(EVENT, ["desk"], 5, failures={"desk": {"times": 2, "error": "E", "is_parked": True}})
    data = waiting.encode()
    assert Waiting.decode(data) == waiting
    assert waiting_path(waiting, data) == waiting_path(Waiting.decode(data), waiting.encode())
    other = waiting._replace(order=6)
    assert waiting_path(other, other.encode()) != waiting_path(waiting, data)
    folder, start = waiting_folder(EVENT)
    path = waiting_path(waiting, data)
    assert (path[:-1], path[-1].startswith(start)) == (folder, True)
    assert waiting_path(other, other.encode())[:-1] == folder, "two of a kind stand side by side"
    with pytest.raises(StoreError, match="an event of the queue"):
        Waiting.decode(canonical.encode({"event": EVENT, "order": "first"}))


def test_a_meta_is_a_value() -> None:
    assert replace(META, version=1) != META
    assert replace(META) == META
