"""The page of `scripts/bench --peers`: losses stand in it as plainly as wins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as peers

SIZES = (10, 100)


def measured(milliseconds: dict[str, dict[int, float]]) -> list[peers.Running]:
    """Return what a run would have found, by the name of the program."""
    found = []
    with subprocess.Popen(["true"], text=True) as process:
        for peer in peers.PEERS:
            if peer.name in milliseconds:
                one = peers.Running(peer, Path("state"), process)
                for size, value in milliseconds[peer.name].items():
                    one.times[size] = [value / 1000] * 3
                    one.processor[size] = [value / 2000]
                    one.bytes[size] = 1000 * size
                found.append(one)
    return found


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(peers, "version", lambda peer: "1.0")
    running = measured(
        {
            "reactifact, git store": {10: 8.0, 100: 8.0},
            "LangGraph, SQLite saver": {10: 4.0, 100: 16.0},
            "published package, SQLite": {10: 2.0},
            "two SQLite transactions": {10: 1.0, 100: 1.0},
        }
    )
    return peers.page(running, {"DBOS, SQLite": "no wheel"}, SIZES, "idle", {"reactifact, git store": "2.0"})


def test_ratios_losses_and_what_was_not_measured_are_told(page: str) -> None:
    small, large = page.split("## After ")[1:]
    assert "| reactifact, git store | 8.00 | 8.0 to 8.0 | 2.00 | 8.00 | 4.00 | 1,000 |" in small
    assert "| reactifact, git store | 8.00 | 8.0 to 8.0 | 0.50 | 8.00 | 4.00 | 1,000 |" in large
    assert "| published package, SQLite | not measured: too slow | | | | | |" in large
    assert "| DBOS, SQLite | not measured: no wheel | | |" in page
    assert "10 turns: slower than LangGraph, SQLite saver (2.0 times), published package, SQLite (4.0" in page
    assert (
        "100 turns: slower than two SQLite transactions (8.0 times); "
        "faster than LangGraph, SQLite saver (2.0 times)." in page
    )


def test_every_table_of_the_page_has_as_many_cells_in_each_row(page: str) -> None:
    for block in page.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_the_chart_has_a_bar_for_each_measurement() -> None:
    running = measured({"reactifact, git store": {10: 8.0, 100: 8.0}, "two SQLite transactions": {10: 1.0}})
    drawn = peers.chart(running, SIZES)
    assert drawn.count("<rect") == 1 + 3
    assert drawn.startswith("<svg ")
