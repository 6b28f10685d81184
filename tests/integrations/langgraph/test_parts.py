"""Where a checkpoint stands in a tree and what is said of it, without a graph and without a saver."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from reactifact._store._backends.kv import MemoryBackend
from reactifact._store.object_db import Database, Staging
from reactifact._store.objects import Oid
from reactifact._store.trees import update
from reactifact.errors import StoreError
from reactifact.integrations.langgraph.parts import (
    Key,
    checkpoint_of,
    described,
    described_writes,
    metadata_of,
    named_subgraphs,
    node_of,
    part_path,
    put_part,
    put_pending,
    read_part,
    read_pending,
    shown,
    writes_path,
)
from reactifact.integrations.langgraph.values import Values

VALUES = Values(JsonPlusSerializer())
SAID: Any = {"source": "loop", "step": 3, "parents": {}}


@pytest.fixture
def objects() -> Staging:
    return Staging(Database(MemoryBackend()))


def checkpoint(channels: dict[str, Any], versions: dict[str, int]) -> Any:
    return {**empty_checkpoint(), "channel_values": channels, "channel_versions": versions}


def put(objects: Staging, thread: Oid | None, namespace: str, made: Any, parent: Any = None) -> Oid:
    before = read_part(objects, thread, namespace)
    new = {
        name: version
        for name, version in made["channel_versions"].items()
        if before is None or before.versions.get(name) != version
    }
    return put_part(objects, VALUES, thread, namespace, before, made, SAID, parent, new)


def test_a_checkpoint_comes_back_as_it_was_put(objects: Staging) -> None:
    made = checkpoint({"n": 1, "odd": {"a", "b"}, "none": None}, {"n": 1, "odd": 1, "none": 1})
    thread = put(objects, None, "", made, parent="before")
    part = read_part(objects, thread, "")
    assert part is not None
    assert (part.checkpoint_id, part.parent) == (made["id"], "before")
    assert part.versions == made["channel_versions"]
    assert checkpoint_of(objects, VALUES, part) == made
    assert metadata_of(objects, VALUES, part) == SAID


def test_a_channel_that_did_not_move_keeps_its_file_and_one_that_went_loses_it(objects: Staging) -> None:
    first = put(objects, None, "", checkpoint({"kept": "x" * 50, "gone": 1}, {"kept": 1, "gone": 1}))
    second = put(objects, first, "", checkpoint({"kept": "not looked at", "new": 2}, {"kept": 1, "new": 2}))
    part = read_part(objects, second, "")
    assert part is not None
    assert checkpoint_of(objects, VALUES, part)["channel_values"] == {"kept": "x" * 50, "new": 2}
    _, folder = part.folder(objects)
    assert sorted(folder) == ["kept.json", "new.json"]


def test_a_subgraph_stands_beside_the_graph_until_its_own_graph_moves(objects: Staging) -> None:
    assert part_path("") == ()
    thread = put(objects, None, "", checkpoint({"n": 1}, {"n": 1}))
    inside = put(objects, thread, "book:7", checkpoint({"m": 1}, {"m": 1}))
    deeper = put(objects, inside, "book:7|pay:8", checkpoint({"k": 1}, {"k": 1}))
    assert sorted(name for _, name in named_subgraphs(objects, deeper)) == ["book:7", "book:7|pay:8"]
    assert read_part(objects, deeper, "") is not None
    again = put(objects, deeper, "book:7", checkpoint({"m": 2}, {"m": 2}))
    assert [name for _, name in named_subgraphs(objects, again)] == ["book:7"]
    over = put(objects, again, "", checkpoint({"n": 2}, {"n": 2}))
    assert list(named_subgraphs(objects, over)) == []
    assert read_part(objects, over, "book:7") is None


def test_a_channel_whose_file_was_taken_away_is_named(objects: Staging) -> None:
    thread = put(objects, None, "", checkpoint({"n": 1}, {"n": 1}))
    damaged = update(objects, thread, {("channels", "n.json"): None})
    part = read_part(objects, damaged, "")
    assert part is not None
    with pytest.raises(StoreError, match="has no file for its channel 'n'"):
        checkpoint_of(objects, VALUES, part)


def test_pending_writes_come_in_the_order_of_their_tasks_and_the_first_of_an_index_stays(
    objects: Staging,
) -> None:
    key = Key("", "c1")
    path = "~__pregel_pull, {}"
    thread = put_pending(objects, VALUES, None, key, [("n", 1), ("n", {2})], "t2", path.format("b"))
    thread = put_pending(objects, VALUES, thread, key, [("n", 0)], "t1", path.format("a"))
    thread = put_pending(objects, VALUES, thread, key, [("n", 9), (ERROR, "late")], "t1", path.format("a"))
    found = read_pending(objects, VALUES, thread, key)
    assert [one for one in found if one[1] == "n"] == [("t1", "n", 0), ("t2", "n", 1), ("t2", "n", {2})]
    assert ("t1", ERROR, "late") in found
    assert read_pending(objects, VALUES, thread, Key("sub", "c1")) == []
    assert writes_path(Key("sub", "c1")) != writes_path(key)


def test_what_people_read_of_a_checkpoint_names_nodes_and_channels(objects: Staging) -> None:
    made = checkpoint({"n": 1, "branch:to:b": None}, {"n": 1, "branch:to:b": 1, "__start__": 1})
    made["versions_seen"] = {"a": {"n": 1}, "__start__": {"__start__": 1}}
    assert described(None, made, SAID, "") == "step 3 (loop): a wrote n"
    assert described(None, made, SAID, "outer|book:7") == "book step 3 (loop): a wrote n"
    thread = put(objects, None, "", made)
    assert described(read_part(objects, thread, ""), made, SAID, "") == "step 3 (loop)"
    asked = {**made, "versions_seen": {"__start__": {"__start__": 1}}, "channel_versions": {}}
    assert described(None, asked, {}, "") == "step ? (unknown): the input ran"
    assert shown(["b", "a", "__pregel_tasks", "branch:to:b", "a"]) == "a, b"


def test_what_people_read_of_a_task_names_its_node() -> None:
    assert node_of("~__pregel_pull, book", "abc") == "book"
    assert node_of("~__pregel_pull, __start__", "abc") == "the input"
    assert node_of("", "12345678-aaaa") == "task 12345678"
    assert node_of("", "00000000-0000") == "the run"
    pulled = "~__pregel_pull, book"
    assert described_writes(["n", INTERRUPT], pulled, "abc") == "book was interrupted and wrote n"
    assert described_writes(["__pregel_tasks"], pulled, "abc") == "book ran"
