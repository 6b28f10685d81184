"""The page of `scripts/bench --peers`: losses stand in it as plainly as wins."""

from __future__ import annotations

import subprocess

import psycopg
import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers.distance import at_a_distance

SIZES = (10, 100)


def measured(milliseconds: dict[str, dict[int, float]]) -> list[peers.Running]:
    """Return what a run would have found, by the name of the program."""
    found = []
    with subprocess.Popen(["true"], text=True) as process:
        for peer in peers.PEERS:
            if peer.name in milliseconds:
                one = peers.Running(peer, "state", process)
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


def test_those_on_a_server_are_compared_with_each_other_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "version", lambda peer: "1.0")
    running = measured(
        {
            "LangGraph, SQLite saver": {10: 1.0},
            "reactifact, PostgreSQL store": {10: 6.0},
            "LangGraph, PostgreSQL saver": {10: 10.0},
            "reactifact, PostgreSQL store 2 ms away": {10: 9.0},
            "LangGraph, PostgreSQL saver 2 ms away": {10: 30.0},
        }
    )
    running[-1].trips = 8.0
    page = peers.page(running, {}, (10,), "idle", {})
    files, near, away = page.split("## After ")[1:]
    assert files.startswith("10 turns\n")
    assert near.startswith("10 turns, PostgreSQL\n")
    assert away.startswith("10 turns, PostgreSQL, 2 ms away\n")
    assert "| reactifact, PostgreSQL store | 6.00 | 6.0 to 6.0 | 0.60 | 3.00 | 1,000 |" in near
    assert "| reactifact, PostgreSQL store 2 ms away | 9.00 | 9.0 to 9.0 | 0.30 | 4.50 | 1,000 |" in away
    assert "away | 1.0 | synchronous_commit=on, durability=sync | 8.0 round trips |" in page
    assert "faster than LangGraph, PostgreSQL saver (1.7 times)." in page


def test_every_table_of_the_page_has_as_many_cells_in_each_row(page: str) -> None:
    for block in page.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_the_chart_has_a_bar_for_each_measurement() -> None:
    running = measured({"reactifact, git store": {10: 8.0, 100: 8.0}, "two SQLite transactions": {10: 1.0}})
    drawn = peers.chart(running, SIZES)
    assert drawn.count("<rect") == 1 + 3
    assert drawn.startswith("<svg ")


def test_a_server_that_is_some_way_off_says_the_same_and_trips_are_counted(postgres_dsn: str) -> None:
    with at_a_distance(postgres_dsn, 0.0) as distant, psycopg.connect(distant.dsn) as connection:
        before = distant.round_trips()
        long = connection.execute(b"SELECT repeat('x', 3000000)").fetchone()
        assert long == ("x" * 3_000_000,)
        with connection.pipeline():
            answers = [connection.execute(b"SELECT %s", (number,)) for number in range(5)]
        assert [answer.fetchone() for answer in answers] == [(number,) for number in range(5)]
        assert distant.round_trips() - before == 3  # the transaction is begun with the first
