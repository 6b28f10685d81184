"""Run the trip, answer its question, then try another answer: `python -m examples.langgraph_thread.main`.

The thread is a session of the store: its checkpoints are the commits of `trip-1/main`, and the second
answer, given from an old checkpoint, is the branch `trip-1/fork-1`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from langgraph.types import Command

from reactifact.integrations.langgraph import ReactifactSaver

from .trip import build


def run(store: Path | str) -> None:
    """Run the trip up to its question, answer it twice, and say what came of it."""
    config: Any = {"configurable": {"thread_id": "trip-1"}}
    with ReactifactSaver(store) as saver:
        graph = build(saver)
        asked = graph.invoke({"wish": "Lyon", "facts": []}, config)
        print("asked:", asked["__interrupt__"][0].value)

    with ReactifactSaver(store) as saver:  # another process, another day
        graph = build(saver)
        print("yes:", graph.invoke(Command(resume=True), config)["answer"])
        old = next(one for one in graph.get_state_history(config) if one.next == ("approve",))
        forked = graph.update_state(old.config, {"facts": ["the train is late"]})
        graph.invoke(None, forked)
        print("no:", graph.invoke(Command(resume=False), config)["answer"])


def main() -> int:
    """Run the example and show the thread with plain git."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="where the store is kept; default: a folder that is removed again")
    store = parser.parse_args().store
    with tempfile.TemporaryDirectory(prefix="langgraph-") as folder:
        place = Path(store or f"{folder}/threads.git")
        run(place)
        log = ["log", "--graph", "--format=%s", "trip-1/main", "trip-1/fork-1"]
        print(subprocess.run(["git", "-C", place, *log], check=True, capture_output=True, text=True).stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
