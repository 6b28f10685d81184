"""The commits of a thread: forks, several writers, a killed one, and what opening it anew costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langgraph_support import THREAD, Chat, put
from stores import counted_reads, place_of
from support import fsck, git

from reactifact.integrations.langgraph import ReactifactSaver
from reactifact.integrations.langgraph.thread import Thread


def test_what_goes_on_from_an_old_checkpoint_is_a_branch(tmp_path: Path) -> None:
    saver = ReactifactSaver(tmp_path / "state.git")
    first = put(saver, None, {"n": 1}, {"n": 1})
    second = put(saver, first, {"n": 2}, {"n": 2})
    other = put(saver, first, {"n": 3}, {"n": 2})
    again = put(saver, first, {"n": 4}, {"n": 2})
    put(saver, other, {"n": 5}, {"n": 3})
    put(saver, second, {"n": 6}, {"n": 3})
    refs = git(tmp_path / "state.git", "for-each-ref", "--format=%(refname:short)").split()
    assert refs == ["t/fork-1", "t/fork-2", "t/main"]
    shown = {
        ref: git(tmp_path / "state.git", "show", f"{ref}:thread/channels/n.json").strip() for ref in refs
    }
    assert shown == {"t/main": "6", "t/fork-1": "5", "t/fork-2": "4"}
    found = saver.get_tuple(again)
    assert found is not None
    assert found.parent_config == first


@pytest.mark.parametrize("kind", ["git", "sqlite", "postgres"])
def test_two_savers_on_one_parent_lose_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = place_of(kind, tmp_path, request.getfixturevalue("postgres_dsn") if kind == "postgres" else None)
    savers = [ReactifactSaver(place, durability="os") for _ in range(2)]
    parent = put(savers[0], None, {"n": 0}, {"n": 1})
    made: list[Any] = []
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            saver = savers[number % 2]
            config = put(saver, parent, {"n": number}, {"n": 2})
            saver.put_writes(config, [("n", number)], f"task-{number}")
            saver.put_writes(parent, [("n", number)], f"task-{number}")
            made.append((config, number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for saver in [*savers, ReactifactSaver(place)]:
        for config, number in made:
            found = saver.get_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"n": number}
            assert found.pending_writes == [(f"task-{number}", "n", number)]
        beside = saver.get_tuple(parent)
        assert beside is not None
        assert beside.pending_writes == [(f"task-{number}", "n", number) for number in range(6)]
        assert len(list(saver.list(THREAD))) == 7


KILLED = """
import sys
from langgraph_support import put
from reactifact.integrations.langgraph import ReactifactSaver
saver = ReactifactSaver(sys.argv[1])
config, number = None, 0
while True:
    number += 1
    config = put(saver, config, {"n": number}, {"n": number}, checkpoint_id=f"{number:08}")
    saver.put_writes(config, [("n", number)], "task")
    print(number, flush=True)
"""


def test_what_put_returned_for_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    command = [sys.executable, "-c", KILLED, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = int(line)
            if last == 20:
                process.send_signal(signal.SIGKILL)
    fsck(path)
    saver = ReactifactSaver(path)
    found = {one.config["configurable"]["checkpoint_id"]: one for one in saver.list(THREAD)}
    for number in range(1, last + 1):
        one = found[f"{number:08}"]
        assert one.checkpoint["channel_values"] == {"n": number}
        assert one.pending_writes == [("task", "n", number)]
    put(saver, found[f"{last:08}"].config, {"n": 0}, {"n": last + 1})


def test_a_thread_opened_anew_reads_its_index_and_not_its_history(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    chat = Chat(ReactifactSaver(path, durability="os"))
    for number in range(200):
        chat.set(number)
    configs = [one.config for one in chat.saver.list(THREAD)]
    assert len(configs) == 200
    fresh = ReactifactSaver(path)
    with counted_reads(fresh.database) as reads:
        found = fresh.get_tuple(configs[-1])
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": 0}
    assert sum(map(len, reads)) < 100
    assert [one.config for one in fresh.list(THREAD)] == configs
    known, read = Thread(chat.saver.database, "t"), Thread(chat.saver.database, "t")
    known.refresh()
    read.index_is_used = False
    read.refresh()
    assert known.nodes == read.nodes
    assert known.commits == read.commits
    own = chat.saver._thread("t")  # learned from what it wrote, without reading it
    assert own.nodes == read.nodes
    assert own.commits == read.commits


@pytest.mark.parametrize("kind", ["git", "sqlite"])
def test_what_was_just_written_is_not_read_again(kind: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {f"field{number}": f"text {number}" for number in range(20)}
    with ReactifactSaver(place_of(kind, tmp_path, None), durability="os") as saver:
        config = put(saver, None, fields, dict.fromkeys(fields, 1))
        versions: dict[str, Any] = dict.fromkeys(fields, 1)
        with counted_reads(saver.database) as reads:
            for step in range(2, 80):  # the index is written once on the way
                name = f"field{step % 20}"
                fields, versions = {**fields, name: f"{step}"}, {**versions, name: step}
                config = put(saver, config, fields, {name: step}, versions=versions)
                saver.put_writes(config, [(name, step)], f"task {step}", "~__pregel_pull, agent")
        assert reads == []
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == fields


def test_forks_in_the_middle_of_the_index_keep_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    saver = ReactifactSaver(path, durability="os")
    chat = Chat(saver)
    configs = []
    for number in range(100):
        chat.set(number)
        configs.append(chat.config)
    chat.config = configs[80]
    for number in range(100):
        chat.set(1000 + number)
        configs.append(chat.config)
    fresh = ReactifactSaver(path)
    assert {one.config["configurable"]["checkpoint_id"] for one in fresh.list(THREAD)} == {
        config["configurable"]["checkpoint_id"] for config in configs
    }
    assert chat.messages() == 1099


def test_a_saver_sees_what_another_one_deleted_and_made_anew(tmp_path: Path) -> None:
    first, second = (ReactifactSaver(tmp_path / "state.git") for _ in range(2))
    put(first, None, {"n": 1}, {"n": 1})
    assert second.get_tuple(THREAD) is not None
    first.delete_thread("t")
    assert second.get_tuple(THREAD) is None
    put(first, None, {"n": 2}, {"n": 1})
    found = second.get_tuple(THREAD)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": 2}
