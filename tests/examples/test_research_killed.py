"""The research example, killed after each step: what the store holds is never paid again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from postgres_server import PostgresServer

from examples.research.main import AT_ONCE
from examples.research.models import Finding, Report, SubQuestion
from reactifact import SessionStore
from reactifact.interrupt import TypedQuestion

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CALLS = {"split tea", "synthesize 20 findings", *(f"find {number}" for number in range(20))}


class Runs:
    """A process that forks a run of the example for each line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "research_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def __call__(self, store: str, notes: Path, kill: int) -> str:
        """Run to the end, or until it is killed after so many writes; return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"store": store, "notes": str(notes), "kill": kill}) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def run() -> Iterator[Runs]:
    found = Runs()
    yield found
    found.close()


def noted(notes: Path, word: str) -> Counter[str]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return Counter(line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} "))


def kept(store: str) -> set[str]:
    """Return the calls whose results the store holds: in commits, among held results, as memos."""

    async def read() -> Any:
        return await SessionStore(store).load_session("research")

    context = anyio.run(read)
    if context is None:
        return set()
    found = {f"find {finding.data.number}" for finding in context.list_artifacts(Finding)}
    if context.list_artifacts(SubQuestion):
        found.add("split tea")
    for result in context.commits.held:
        if result.agent == "split":
            found.add("split tea")
        elif result.agent == "look_into":
            found.add(f"find {result.event.artifact_id.partition(':')[2]}")
    if context.commits.memos or context.list_artifacts(TypedQuestion) or context.list_artifacts(Report):
        found.add("synthesize 20 findings")
    return found


def places(kind: str, folder: Path, request: pytest.FixtureRequest) -> AbstractContextManager[str]:
    """Lend a new store of a kind."""
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.database()
    return nullcontext(str(folder / ("state.git" if kind == "git" else "state.db")))


@pytest.mark.parametrize(
    ("kind", "stride"),
    [
        pytest.param("git", 1),
        pytest.param("sqlite", 5),
        pytest.param("postgres", 5),
        pytest.param("sqlite", 1, marks=pytest.mark.full),
        pytest.param("postgres", 1, marks=pytest.mark.full),
    ],
)
@pytest.mark.timeout(1200)
def test_a_kill_after_any_step_costs_at_most_the_calls_in_flight(
    tmp_path: Path, kind: str, stride: int, run: Runs, request: pytest.FixtureRequest
) -> None:
    seen_kept: set[int] = set()
    for step in range(1, 200, stride):
        folder = tmp_path / str(step)
        folder.mkdir()
        notes = folder / "notes"
        with places(kind, folder, request) as store:
            ended = run(store, notes, step)
            if ended == "ended 0":
                break  # it makes fewer writes than that
            assert ended == "killed"
            stored, before = kept(store), noted(notes, "paid")
            assert stored <= set(before)
            seen_kept.add(len(stored))
            assert run(store, notes, 0) == "ended 0"
        paid = noted(notes, "paid")
        assert set(paid) == CALLS
        again = {call for call, count in paid.items() if count > 1}
        assert not again & stored, f"after write {step} the store held what was paid again"
        assert all(count <= 2 for count in paid.values())
        assert len(again) <= AT_ONCE
        mailed = noted(notes, "mailed")
        assert set(mailed) == {"mail:report"}
        assert mailed["mail:report"] <= 2  # at most once more, where the kill came before its record
    else:
        raise AssertionError("the example never came to its end")
    assert 0 in seen_kept
    if stride == 1:  # kills with all, and with a part of the fan-out finished are among them
        assert len(CALLS) in seen_kept
        assert len(seen_kept) > 5, seen_kept


def test_without_a_kill_each_call_is_paid_once(tmp_path: Path, run: Runs) -> None:
    notes = tmp_path / "notes"
    assert run(str(tmp_path / "state.git"), notes, 0) == "ended 0"
    assert noted(notes, "paid") == dict.fromkeys(CALLS, 1)
    assert noted(notes, "mailed") == {"mail:report": 1}
    assert run(str(tmp_path / "state.git"), notes, 0) == "ended 0"  # all is done already
    assert noted(notes, "paid").total() == len(CALLS)
