"""Checkpoints of one LangGraph thread, through a saver's own methods: each followed by the writes of a task.

`python checkpoints.py SAVER PLACE STATE COUNT` prints one line of JSON. SAVER is `langgraph` (its SQLite
saver), `reactifact`, or `reactifact-os`, which does not sync; STATE is `chat`, a list of messages that grows
by one a step, or `form`, twenty fields of which one changes a step.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import time
from pathlib import Path

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

LINE = "The train to Lyon leaves at 9:42 from platform 7, and the next one an hour later from platform 3. "
SAMPLE = 50


def open_saver(name, place):
    if name.startswith("reactifact"):
        from reactifact.integrations.langgraph import ReactifactSaver

        return ReactifactSaver(place, durability="os" if name.endswith("-os") else "full")
    from langgraph.checkpoint.sqlite import SqliteSaver

    saver = SqliteSaver(sqlite3.connect(place, check_same_thread=False))
    saver.setup()
    return saver


def close_saver(name, saver):
    saver.close() if name.startswith("reactifact") else saver.conn.close()


def steps(state, count):
    """Yield the values of the channels and the name of the one that changed, step by step."""
    messages, fields = [], {f"field{number}": f"{LINE}{number}" for number in range(20)}
    for step in range(count):
        if state == "chat":
            messages = [*messages, AIMessage(f"{step}: {LINE}{LINE}", id=f"message-{step}")]
            yield {"messages": messages}, "messages"
        else:
            changed = f"field{step % 20}"
            fields = {**fields, changed: f"{LINE}{step}"}
            yield fields, changed


def run(saver, state, count):
    config = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
    times, versions = [], {}
    for step, (values, changed) in enumerate(steps(state, count)):
        new = {name: step + 1 for name in values if name == changed or name not in versions}
        versions = {**versions, **new}
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=step))
        checkpoint["channel_values"] = values
        checkpoint["channel_versions"] = dict(versions)
        checkpoint["versions_seen"] = {"agent": {"branch:to:agent": step}}
        checkpoint["updated_channels"] = [changed]
        start = moment()
        config = saver.put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, new)
        middle = moment()
        value = values[changed][-1:] if state == "chat" else values[changed]
        saver.put_writes(config, [(changed, value)], f"task-{step}", "~__pregel_pull, agent")
        end = moment()
        times.append((middle - start, end - middle))
    return times


def moment():
    """Return seconds that passed, and as the imaginary part seconds of the processor."""
    return complex(time.perf_counter(), time.process_time())


def median(spans):
    """Return the medians of spans in milliseconds: of what passed, and of the processor."""
    return [
        round(1000 * statistics.median(part), 3)
        for part in zip(*((s.real, s.imag) for s in spans), strict=True)
    ]


def size(place):
    path = Path(place)
    files = [*path.rglob("*")] if path.is_dir() else path.parent.glob(path.name + "*")
    return sum(file.stat().st_size for file in files if file.is_file())


def timed(call):
    start = moment()
    found = call()
    return moment() - start, found


def main(name, place, state, count):
    saver = open_saver(name, place)
    times = run(saver, state, count)
    sync = None if name.startswith("reactifact") else saver.conn.execute("PRAGMA synchronous").fetchone()[0]
    close_saver(name, saver)
    newest = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
    result = {
        "saver": name,
        "bytes": size(place),
        "synchronous": sync,
        "put_first_ms": median([put for put, _ in times[:SAMPLE]]),
        "put_last_ms": median([put for put, _ in times[-SAMPLE:]]),
        "writes_ms": median([writes for _, writes in times[-SAMPLE:]]),
        "total_s": round(sum(put.real + writes.real for put, writes in times), 1),
    }
    start = moment()
    saver = open_saver(name, place)
    found = saver.get_tuple(newest)
    result["get_cold_ms"] = median([moment() - start])
    assert found.metadata["step"] == count - 1
    result["get_warm_ms"] = median([timed(lambda: saver.get_tuple(newest))[0] for _ in range(7)])
    span, page = timed(lambda: list(saver.list(newest, limit=10)))
    result["list_10_ms"] = median([span])
    assert len(page) == 10
    old = page[-1].parent_config
    span, found = timed(lambda: saver.get_tuple(old))
    result["get_old_ms"] = median([span])
    assert found.metadata["step"] == count - 11
    close_saver(name, saver)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
