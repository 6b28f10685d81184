"""The workloads of `scripts/bench` measure what they say, at sizes that take a moment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import __main__ as benchmarks


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[float, ...]]:
    """Run a workload and return its rows; whether its claims hold is not asked of a moment."""
    benchmarks.main([*arguments, "--durability", "os", "--json"])
    report: Any = json.loads(capsys.readouterr().out)[0]
    assert report["claims"]
    return {row["name"]: tuple(row["values"]) for row in report["rows"]}


def test_the_fifths_of_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(capsys, "long", "--sizes", "10")
    assert all(len(values) == 5 and min(values) > 0 for values in rows.values())
    memory = rows["peak memory so far"]
    assert list(memory) == sorted(memory)
    assert all(a <= b for a, b in zip(rows["turn, median of the fifth"], rows["turn, longest"], strict=True))


def test_opening_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(capsys, "opening", "--sizes", "3,6", "--samples", "2")
    assert all(min(values) > 0 for values in rows.values())


def test_bytes_that_are_stored(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(capsys, "stored", "--sizes", "12,4")
    assert rows["a turn, after git gc"] < rows["a turn, as it runs"]
    assert rows["list of 4 ÷ appended, after git repack -adf"][0] > 0.5


def test_sessions_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.at_once.TURNS", 6)
    rows = measured(capsys, "at_once", "--sizes", "1,3", "--samples", "2")
    assert all(min(values) > 0 for values in rows.values())


def test_branches_beside_events_that_wait(capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(capsys, "waiting", "--sizes", "40,41", "--samples", "2")
    assert all(min(values) > 0 for values in rows.values())
