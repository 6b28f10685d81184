"""What is deleted is gone from the repository, and the rest is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph_support import THREAD, put
from support import fsck, git

from reactifact.errors import NameTaken
from reactifact.integrations.langgraph import ReactifactSaver

ALL: Any = {"configurable": {"thread_id": "t"}}


def shown(saver: ReactifactSaver, thread: Any = ALL) -> list[Any]:
    return [
        (one.checkpoint, one.metadata, one.parent_config, one.pending_writes) for one in saver.list(thread)
    ]


def filled(saver: ReactifactSaver) -> list[Any]:
    """A thread of three runs with a fork and a subgraph; the second run says a secret."""
    configs = []
    config = None
    for number, run in enumerate(["one", "two", "two", "three"]):
        text = f"secret {number}" if run == "two" else f"open {number}"
        said = {"run_id": run, "step": number}
        config = put(saver, config, {"text": text}, {"text": number + 1}, metadata=said)
        saver.put_writes(config, [("text", text)], "task")
        configs.append(config)
    put(saver, configs[1], {"text": "fork"}, {"text": 9}, metadata={"run_id": "two"})
    below: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "sub:1"}}
    parents = {"": configs[3]["configurable"]["checkpoint_id"]}
    put(saver, below, {"text": "below"}, {"text": 1}, metadata={"run_id": "three", "parents": parents})
    return configs


def test_the_bytes_of_a_deleted_run_are_gone_after_git_gc(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    saver = ReactifactSaver(path)
    filled(saver)
    before = shown(saver)
    saver.delete_for_runs(["two"])
    after = shown(saver)
    assert after == [one for one in before if one[1]["run_id"] != "two"]
    assert after == shown(ReactifactSaver(path))
    fsck(path)
    git(path, "reflog", "expire", "--expire=now", "--all")
    git(path, "gc", "-q", "--prune=now")
    objects = git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    texts = [git(path, "cat-file", "-p", oid) for oid in objects]
    assert any("open 3" in text for text in texts)
    assert not any("secret" in text for text in texts)
    assert "t/fork-1" not in git(path, "for-each-ref", "--format=%(refname:short)").split()


def test_a_rewritten_thread_goes_on(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    configs = filled(saver)
    saver.delete_for_runs(["two"])
    put(saver, configs[3], {"text": "more"}, {"text": 5})
    assert len(list(saver.list(THREAD))) == 3
    refs = git(tmp_path / "state.git", "for-each-ref", "--format=%(refname:short)").split()
    assert refs == ["t/main", "t/pending-writes"]


def test_a_thread_of_which_nothing_stays_is_gone(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    filled(saver)
    saver.delete_for_runs(["one", "two", "three"])
    assert shown(saver) == []
    assert git(tmp_path / "state.git", "for-each-ref") == ""


def test_a_copy_shares_blobs_and_has_the_branches(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    saver = ReactifactSaver(path)
    filled(saver)
    saver.copy_thread("t", "copy")
    target: Any = {"configurable": {"thread_id": "copy"}}

    def plain(found: list[Any]) -> list[Any]:
        return [(checkpoint, metadata, pending) for checkpoint, metadata, _, pending in found]

    assert plain(shown(saver, target)) == plain(shown(saver))
    refs = git(path, "for-each-ref", "--format=%(refname:short)", "refs/heads/copy/").split()
    assert refs == ["copy/fork-1", "copy/main", "copy/pending-writes"]
    trees = [git(path, "rev-parse", f"{name}/fork-1:thread") for name in ("t", "copy")]
    assert trees[0] == trees[1]
    assert '"session":"copy"' in git(path, "cat-file", "commit", "copy/main")
    fsck(path)
    with pytest.raises(NameTaken, match="holds a session of that id"):
        saver.copy_thread("t", "copy")


def test_pruning_keeps_what_delta_channels_are_built_of(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    config = None
    for number in range(6):
        values = {"log": ["snapshot"]} if number == 2 else {}
        counters = {} if number == 2 else {"log": (1, 1)}
        said = {"step": number, "counters_since_delta_snapshot": counters}
        new = {"log": number + 1}
        config = put(saver, config, values, new, metadata=said)
        saver.put_writes(config, [("log", number)], f"task-{number}")
    before = saver.get_delta_channel_history(config=config, channels=["log"])
    saver.prune(["t"])
    assert [one.metadata["step"] for one in saver.list(THREAD)] == [5, 4, 3, 2]
    assert saver.get_delta_channel_history(config=config, channels=["log"]) == before
    assert before["log"]["seed"] == ["snapshot"]


def test_an_unknown_strategy_is_refused(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    with pytest.raises(ValueError, match="'keep_latest' or 'delete', not 'all'"):
        saver.prune(["t"], strategy="all")
