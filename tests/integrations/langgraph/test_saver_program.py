"""A LangGraph program with an interrupt, a fork and a subgraph: it runs unchanged, and git reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forked
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from stores import place_of
from support import Note, fsck, git

from examples.langgraph_thread.trip import build
from reactifact import SessionStore
from reactifact.integrations.langgraph import ReactifactSaver
from reactifact.replay import verify_history
from reactifact.threads import in_thread

ROOT = Path(__file__).parents[3]
CONFIG: Any = {"configurable": {"thread_id": "trip/1"}}


def run(saver: Any) -> list[Any]:
    """Run the program to its end, the fork included; return all that it saw."""
    graph = build(saver)
    seen: list[Any] = [graph.invoke({"wish": "Lyon", "facts": []}, CONFIG)["__interrupt__"][0].value]
    seen.append(graph.get_state(CONFIG, subgraphs=True).next)
    seen.append(graph.invoke(Command(resume=True), CONFIG))
    old = next(one for one in graph.get_state_history(CONFIG) if one.next == ("approve",))
    forked = graph.update_state(old.config, {"facts": ["late"]})
    seen.append(graph.invoke(None, forked)["__interrupt__"][0].value)
    seen.append(graph.invoke(Command(resume=False), CONFIG))
    seen.append([(one.metadata, one.values, one.next) for one in graph.get_state_history(CONFIG)])
    return seen


@pytest.mark.parametrize("kind", ["memory", "git", "sqlite", "postgres"])
def test_it_gives_what_it_gives_on_langgraphs_own_saver(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if kind == "postgres" else None
    with ReactifactSaver(place_of(kind, tmp_path, dsn)) as saver:
        found = run(saver)
    expected = run(InMemorySaver())
    assert found == expected
    assert found[4]["answer"].startswith("Lyon: not booked; ")


@pytest.mark.anyio
async def test_it_runs_asynchronously(tmp_path: Path) -> None:
    async with ReactifactSaver(tmp_path / "state.git") as saver:
        graph = build(saver)
        await graph.ainvoke({"wish": "Lyon", "facts": []}, CONFIG)
        done = await graph.ainvoke(Command(resume=True), CONFIG)
        steps = [one.metadata["step"] async for one in graph.aget_state_history(CONFIG)]
    assert done["approved"] is True
    assert steps == [3, 2, 1, 0, -1]


def test_the_thread_reads_well_in_plain_git(tmp_path: Path) -> None:
    path = tmp_path / "state.git"
    with ReactifactSaver(path) as saver:
        run(saver)
    fsck(path)
    line = ["log", "--first-parent", "--format=%an: %s"]
    assert git(path, *line, "trip%2F1/main").splitlines() == [
        "langgraph: step 3 (loop): book wrote answer",
        "langgraph: step 2 (loop): approve wrote approved",
        "langgraph: step 1 (loop): research wrote facts, wish",
        "langgraph: research step 2 (loop): hotels wrote facts",
        "langgraph: research step 1 (loop): trains wrote facts",
        "langgraph: research step 0 (loop): the input wrote facts, wish",
        "langgraph: research step -1 (input)",
        "langgraph: step 0 (loop): the input wrote facts, wish",
        "langgraph: step -1 (input)",
        "reactifact: Begin session trip/1",
    ]
    forked = git(path, *line, "trip%2F1/main..trip%2F1/fork-1").splitlines()
    assert forked == [
        "langgraph: step 4 (loop): book wrote answer",
        "langgraph: step 3 (loop): approve wrote approved",
        "langgraph: step 2 (update): wrote facts",
    ]
    subjects = [text.partition(": ")[2] for text in git(path, *line, "trip%2F1/pending-writes").splitlines()]
    assert sorted(subjects[-7:-1]) == [  # LangGraph writes them from threads: in which order is theirs
        "approve was interrupted",
        "hotels wrote facts",
        "research wrote facts, wish",
        "the input wrote facts, wish",
        "the input wrote facts, wish",
        "trains wrote facts",
    ]
    diff = git(path, "diff", "trip%2F1/main~1", "trip%2F1/main", "--", "thread/channels")
    assert "+++ b/thread/channels/answer.json" in diff
    assert '+"Lyon: booked; there is a train to Lyon at 9:42; the hotel in Lyon costs 110"' in diff
    files = git(path, "ls-tree", "-r", "--name-only", "trip%2F1/main", "thread/").splitlines()
    assert "thread/channels/facts.json" in files
    assert not any("subgraphs" in file for file in files)  # it is over


@pytest.mark.anyio
async def test_a_thread_is_a_session(tmp_path: Path) -> None:
    with ReactifactSaver(tmp_path / "state.git") as saver:
        run(saver)
    store = SessionStore(tmp_path / "state.git")
    assert await store.list_sessions() == ["trip/1"]
    async with await store.open("trip/1") as session:
        assert session.context.version == 9
    report = await in_thread(verify_history, store.database, "trip/1")
    assert report.ok, report
    # what reactifact commits on a thread carries its checkpoints along
    async with store.edit("trip/1", message="noted") as context:
        context.create(Note(text="beside the thread"), id="note:1")
    await store.aclose()
    with ReactifactSaver(tmp_path / "state.git") as saver:
        graph = build(saver)
        assert graph.get_state(CONFIG).values["approved"] is False
        graph.update_state(CONFIG, {"facts": ["more"]})
    names = git(tmp_path / "state.git", "ls-tree", "--name-only", "trip%2F1/main").split()
    assert "artifacts" in names
    assert "thread" in names


def test_the_example_prints_what_it_shows() -> None:
    done = forked.run("-m", "examples.langgraph_thread.main", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "asked: Book Lyon?"
    assert lines[1].startswith("yes: Lyon: booked; ")
    assert lines[2].startswith("no: Lyon: not booked; ")
    assert lines[2].endswith("the train is late")
    assert any(line.endswith("* step 4 (loop): book wrote answer") for line in lines)
