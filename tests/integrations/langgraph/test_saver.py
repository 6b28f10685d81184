"""What the saver refuses, and what it takes besides paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_support import THREAD, put

from reactifact import SessionStore
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.errors import ReactifactError
from reactifact.integrations.langgraph import ReactifactSaver


def test_a_config_without_a_thread_says_what_it_lacks() -> None:
    saver = ReactifactSaver(InMemoryKVBackend())
    with pytest.raises(ReactifactError, match="lacks 'thread_id'"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(ReactifactError, match="lacks 'checkpoint_id'"):
        saver.put_writes(THREAD, [("n", 1)], "task")


@pytest.mark.anyio
async def test_a_store_that_is_open_stays_open(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "state.db")
    with ReactifactSaver(store) as saver:
        put(saver, None, {"n": 1}, {"n": 1})
    assert await store.list_sessions() == ["t"]
    await store.aclose()


def test_threads_of_odd_names_stay_apart() -> None:
    saver = ReactifactSaver(InMemoryKVBackend())
    names = ["a/b", "a", "A", "x" * 300, "x" * 301, "é\n", "7"]
    for name in names:
        put(saver, {"configurable": {"thread_id": name}}, {"n": name}, {"n": 1})
    found = [one.checkpoint["channel_values"]["n"] for one in saver.list(None)]
    assert found == names[::-1]


def test_namespaces_of_one_thread_share_a_branch_and_leave_the_tree_when_they_are_over() -> None:
    saver = ReactifactSaver(InMemoryKVBackend())
    root = put(saver, None, {"n": 1}, {"n": 1})
    parents = {"": root["configurable"]["checkpoint_id"]}
    for task in ("a", "b"):
        below = {"configurable": {"thread_id": "t", "checkpoint_ns": f"sub:{task}"}}
        put(saver, below, {"n": task}, {"n": 1}, metadata={"parents": parents})
    put(saver, root, {"n": 2}, {"n": 2})
    whole: Any = {"configurable": {"thread_id": "t"}}
    found = {one.config["configurable"]["checkpoint_ns"]: one for one in reversed([*saver.list(whole)])}
    assert {name: one.checkpoint["channel_values"]["n"] for name, one in found.items()} == {
        "": 2,
        "sub:a": "a",
        "sub:b": "b",
    }
    assert list(saver.database.backend.refs("refs/heads/")) == ["refs/heads/t/main"]


def test_versions_go_on_in_the_form_that_a_thread_has() -> None:
    saver = ReactifactSaver(InMemoryKVBackend())
    assert [saver.get_next_version(one, None) for one in (None, 1, 41)] == [1, 2, 42]
    text: Any = InMemorySaver().get_next_version(None, None)
    following: Any = saver.get_next_version(text, None)
    assert text < following < InMemorySaver().get_next_version(following, None)
