"""Random programs of a saver's own methods: ours holds what LangGraph's in-memory saver holds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from reactifact.checkpoints import InMemoryKVBackend
from reactifact.integrations.langgraph import ReactifactSaver

CHANNELS = ["a", "b", "items"]


def put_both(savers: list[Any], chance: random.Random, config: Any, number: int) -> Any:
    """Put one checkpoint after `config`, with what its parent held and some channels changed or gone."""
    before = savers[1].get_tuple(config) if "checkpoint_id" in config["configurable"] else None
    old: Any = None if before is None else before.checkpoint
    values = {} if old is None else dict(old["channel_values"])
    versions = {} if old is None else dict(old["channel_versions"])
    new: dict[str, Any] = {}
    for name in chance.sample(CHANNELS, chance.randint(0, 3)):
        new[name] = versions[name] = number
        value: Any = chance.choice([None, number, f"text {number}", {"n": [number]}, b"bytes"])
        if name == "items":
            value = [*values.get("items", []), *range(chance.randint(0, 12))][: chance.randint(0, 30)]
        values[name] = value
        if chance.random() < 0.1:
            del values[name]
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = versions
    said: Any = {"source": chance.choice(["loop", "update"]), "step": number, "parents": {}}
    made = [saver.put(config, checkpoint, said, new) for saver in savers]
    assert made[0]["configurable"] == made[1]["configurable"]
    return made[1]


def compare(ours: Any, theirs: Any, configs: list[Any], chance: random.Random) -> None:
    for config in [None, *({"configurable": {"thread_id": t}} for t in ("x", "y"))]:
        for filter in (None, {"source": "loop"}):
            pairs = [list(saver.list(config, filter=filter)) for saver in (ours, theirs)]
            shown = [sorted(map(plain, found), key=repr) for found in pairs]
            assert shown[0] == shown[1]
    for config in chance.sample(configs, min(5, len(configs))):
        assert plain(ours.get_tuple(config)) == plain(theirs.get_tuple(config))
        newest = {"configurable": {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}}
        assert plain(ours.get_tuple(newest)) == plain(theirs.get_tuple(newest))
        before = [
            [plain(one) for one in saver.list(newest, before=config, limit=3)] for saver in (ours, theirs)
        ]
        assert before[0] == before[1]


def plain(found: Any) -> Any:
    if found is None:
        return None
    parent = None if found.parent_config is None else found.parent_config["configurable"]
    writes = sorted(found.pending_writes or [], key=repr)
    return found.config["configurable"], found.checkpoint, found.metadata, parent, writes


@pytest.mark.parametrize("seed", range(8))
def test_it_holds_what_the_saver_in_memory_holds(seed: int) -> None:
    chance = random.Random(seed)
    backend = InMemoryKVBackend()
    ours: Any = ReactifactSaver(backend)
    theirs = InMemorySaver()
    configs: list[Any] = []
    for number in range(1, 60):
        act = chance.random()
        if act < 0.5 or not configs:
            fresh = {
                "thread_id": chance.choice("xy"),
                "checkpoint_ns": chance.choice(["", "", "sub:1", "sub:1|b:2"]),
            }
            config: Any = (
                chance.choice(configs) if configs and chance.random() < 0.8 else {"configurable": fresh}
            )
            configs.append(put_both([ours, theirs], chance, config, number))
        elif act < 0.85:
            config = chance.choice(configs)
            writes = [(chance.choice([*CHANNELS, "__error__", "__interrupt__"]), number) for _ in range(2)]
            task = f"task-{chance.randint(0, 2)}"
            for saver in (ours, theirs):
                saver.put_writes(config, writes, task)
        elif act < 0.9:
            ours = ReactifactSaver(backend)  # another process
        elif act < 0.92:
            thread = chance.choice("xy")
            for saver in (ours, theirs):
                saver.delete_thread(thread)
            configs = [one for one in configs if one["configurable"]["thread_id"] != thread]
        if number % 15 == 0:
            compare(ours, theirs, configs, chance)
    compare(ours, theirs, configs, chance)
